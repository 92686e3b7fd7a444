/* The baselines of bench/baselines as runners on a case. */
// SPDX-License-Identifier: Apache-2.0
#ifndef PROGRAM_RIVALS_H
#define PROGRAM_RIVALS_H

#include "bench/program/case.h"

#include "bench/team.h"

enum { MAX_RIVALS = 8 };

typedef struct rival rival;

typedef struct rivals {
    int count;
    rival *list[MAX_RIVALS];
} rivals;

/* Number of baselines in this program, and their names. */
int rivals_known(void);
const char *rivals_name(int index);

/* Names of baselines, "bmm,einsum", as bits by index: all for NULL, none where one of
   the names is not known. */
unsigned rivals_set(const char *names);

/* BLAS chooses kernels and waiting times when it is loaded, from the environment:
   starts the program again with what serves a fair measurement, unless that is set
   already. argv is main's. */
void rivals_restart(char **argv);

/* What BLAS says it is; "none" when the program was built without one. */
void rivals_describe(char *text, size_t size);

/* Makes the baselines of the set that can take the case in memory and in time: peak is
   in operations per second. The others are left out. */
void rivals_create(
    bench_case *c, team *t, const char *instructions, double peak, unsigned set,
    rivals *r);
void rivals_destroy(rivals *r);

const char *rival_name(const rival *one);
void rival_run(void *one, const void *x, void *y);

/* Runs it into copy 0 of y and compares with c->y: relative difference. *seconds
   gets the time of the run. */
double rival_difference(rival *one, bench_case *c, double *seconds);

/* Share of its time that permutations take; NAN when it has none. */
double rival_permutations(rival *one, bench_case *c);

#endif
