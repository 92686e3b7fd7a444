/* What bench/versus times: problems, and jobs that run them by one library. */
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_VERSUS_WORK_H
#define BENCH_VERSUS_WORK_H

#include "danaus/conv.h"
#include "danaus/ks.h"

#define MOST_SETS 4

typedef struct library {
#define X(name) __typeof__(danaus_##name) *name;
#include "bench/versus/calls.def"
#undef X
    danaus_device *device;
} library;

typedef struct type {
    const char *name;
    danaus_dtype dtype;
    danaus_math math;
} type;

typedef struct problem {
    char name[256];
    danaus_pattern patterns[DANAUS_MAX_FACTORS];
    int count; /* of factors; 0: a convolution */
    danaus_conv_desc conv;
    int gated; /* with two gates and skip */
    int64_t rows, cols, parameters;
    const type *type;
    int last; /* batch-last */
    int64_t batch;
    int gradients; /* nonzero: of x and the weights, instead of y */
    int alone;     /* nonzero: all work is the calling thread's, whose time counts */
} problem;

/* Device memory, shared by both libraries. in[0] is x or u, in[1] dy, then gates. */
typedef struct arrays {
    int sets;
    size_t in_bytes[4], out_bytes, sum_bytes; /* 0: there is none */
    void *in[MOST_SETS][4], *out[MOST_SETS], *sums;
    void *dw[DANAUS_MAX_FACTORS]; /* into sums */
} arrays;

/* What one library has made for a problem. */
typedef struct job {
    library *lib;
    const problem *p;
    const arrays *a;
    danaus_chain *chain;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    danaus_conv_plan *conv_plan;
    danaus_spectrum *spectrum;
    int64_t at;
    int failed;
} job;

/* Sized for a problem and filled with random numbers; 0 if that fails. */
int make_arrays(library *lib, const problem *p, arrays *a);
void free_arrays(library *lib, arrays *a);

/* The plan and what it needs, with random weights; 0 if that fails. */
int prepare(job *j);
void release(job *j);

/* Seconds of a call, over `calls` of them, which are waited for. A call that fails is
   the last and sets `failed`; the library has a sentence about it. */
double turn(job *j, int64_t calls);

/* A number that stands for the bits of all results. */
uint64_t result(job *j);

#endif
