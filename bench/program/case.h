/* One problem of a benchmark: a random chain, its plan, and inputs that rotate
   through more memory than the last cache. */
// SPDX-License-Identifier: Apache-2.0
#ifndef PROGRAM_BENCH_CASE_H
#define PROGRAM_BENCH_CASE_H

#include "bench/program/measure.h"

#include "danaus/danaus.h"

typedef struct bench_case {
    danaus_device *device; /* not its own */
    danaus_pattern patterns[DANAUS_MAX_FACTORS];
    int count;
    danaus_dtype dtype;
    danaus_layout layout;
    danaus_math math;
    danaus_effort effort;
    int64_t batch, cache; /* cache: bytes; 0: inputs stay hot */
    /* what follows is made by bench_case_create() */
    int64_t rows, cols;
    danaus_chain *chain;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    rotation inputs;       /* copy 0 of y is the product once bench_case_error() ran */
    void *y;               /* another place for an output */
    void *host_x, *host_y; /* copy 0 of x, and y, where the host can read them */
    int own_host;          /* they are not the device's memory */
    danaus_status failed;  /* of a run */
} bench_case;

/* Makes what a case with its first members set needs. Returns an exit status. */
int bench_case_create(bench_case *c);
void bench_case_destroy(bench_case *c);

/* y = W x by the plan, and waiting for it; of the types that runners have. */
void bench_case_run(void *self, const void *x, void *y);
void bench_case_finish(void *self);

/* Makes the product of copy 0 in c->y and returns its relative error (Frobenius)
   on a few batch columns, against sums in f64; NAN after a failure.
   *seconds gets the time of the product. */
double bench_case_error(bench_case *c, double *seconds);

/* The error that rounding explains: sums of c random terms in each factor round
   sqrt(c) times as much as one; a method that multiplies the factors first adds
   sqrt(N). Four times that. */
double bench_case_bound(const bench_case *c);

/* Floating-point operations, and the bytes of x, y and weights, each once. */
double bench_case_flops(const bench_case *c);
double bench_case_bytes(const bench_case *c);

/* The same chain as factors that run one by one. */
typedef struct one_by_one {
    const bench_case *of;
    danaus_ks_plan *plan[DANAUS_MAX_FACTORS];
    danaus_ks_weights *weights[DANAUS_MAX_FACTORS];
    void *middle[2];
    danaus_status failed;
} one_by_one;

int one_by_one_create(const bench_case *c, one_by_one *o);
void one_by_one_destroy(one_by_one *o);
void one_by_one_run(void *self, const void *x, void *y);
void one_by_one_finish(void *self);

#endif
