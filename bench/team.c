/* Threads of a benchmark.

   Workers spin for some 30 microseconds for the next loop before they sleep: long
   enough for the loops of one product, too short to disturb what is measured
   next. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/team.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define SPINS 2000

typedef struct worker {
    team *of;
    int number;
    pthread_t thread;
} worker;

struct team {
    int threads;
    worker *workers; /* threads - 1 */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_uint loop; /* grows by one with each loop, under the lock */
    atomic_long next;
    atomic_int active;
    int stop;
    long count;
    void (*task)(void *arg, long i, int thread);
    void *arg;
};

static void pause_briefly(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#endif
}

static void take(team *t, int thread)
{
    for (long i; (i = atomic_fetch_add(&t->next, 1)) < t->count;)
        t->task(t->arg, i, thread);
}

static void *work(void *arg)
{
    worker *w = arg;
    team *t = w->of;
    for (unsigned seen = 0;; seen++) {
        for (int i = 0; i < SPINS && atomic_load(&t->loop) == seen; i++)
            pause_briefly();
        pthread_mutex_lock(&t->lock);
        while (atomic_load(&t->loop) == seen)
            pthread_cond_wait(&t->wake, &t->lock);
        pthread_mutex_unlock(&t->lock);
        if (t->stop)
            return NULL;
        take(t, w->number);
        atomic_fetch_sub(&t->active, 1);
    }
}

static void announce(team *t)
{
    pthread_mutex_lock(&t->lock);
    atomic_fetch_add(&t->loop, 1);
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
}

team *team_create(int threads)
{
    team *t = calloc(1, sizeof *t);
    worker *workers = calloc((size_t)threads, sizeof *workers);
    if (!t || !workers) {
        free(t);
        free(workers);
        return NULL;
    }
    t->workers = workers;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    for (t->threads = 1; t->threads < threads; t->threads++) {
        worker *w = &t->workers[t->threads - 1];
        w->of = t;
        w->number = t->threads;
        if (pthread_create(&w->thread, NULL, work, w)) {
            team_destroy(t);
            return NULL;
        }
    }
    return t;
}

void team_destroy(team *t)
{
    if (!t)
        return;
    t->stop = 1;
    announce(t);
    for (int i = 0; i < t->threads - 1; i++)
        pthread_join(t->workers[i].thread, NULL);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    free(t->workers);
    free(t);
}

int team_threads(const team *t) { return t->threads; }

void team_run(
    team *t, long count, void (*task)(void *arg, long i, int thread), void *arg)
{
    t->task = task;
    t->arg = arg;
    t->count = count;
    atomic_store(&t->next, 0);
    if (t->threads == 1 || count < 2) {
        take(t, 0);
        return;
    }
    atomic_store(&t->active, t->threads - 1);
    announce(t);
    take(t, 0);
    while (atomic_load(&t->active))
        pause_briefly();
}
