/* Threads of a benchmark: those of the baselines and of the machine's limits. */
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_TEAM_H
#define BENCH_TEAM_H

typedef struct team team;

/* NULL when threads or memory are out. The caller is one of the threads. */
team *team_create(int threads);
void team_destroy(team *t); /* NULL is fine */
int team_threads(const team *t);

/* task(arg, i, thread) for every i in [0, count), in order, by whichever thread
   is free; thread is in [0, threads). Returns when all are done. */
void team_run(
    team *t, long count, void (*task)(void *arg, long i, int thread), void *arg);

#endif
