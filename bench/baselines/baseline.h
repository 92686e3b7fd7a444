/* What Kronecker-sparse products are compared with: other ways to make the same
   product, each as good as it gets on this machine. A row of baselines.def is one
   of them; the benchmark reads the table. */
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_BASELINE_H
#define BENCH_BASELINE_H

#include "bench/baselines/loops.h"
#include "bench/team.h"

#include "danaus/ks.h"

/* One factor to multiply by. dtype: f32, f64, c64 or c128. */
typedef struct bench_factor {
    danaus_pattern pattern;
    danaus_dtype dtype;
    danaus_layout layout;
    int64_t batch;
    const void *w; /* [a][b][c][d]; it outlives the baseline */
    team *team;
    const loops *loops; /* for dtype and the instruction set */
} bench_factor;

typedef struct baseline {
    const char *name;
    int whole; /* nonzero: takes the product of a chain as one factor (1,M,N,1) */
    /* NULL when memory is out. May run products to choose the best variant: x and
       y are a valid input and room for an output. */
    void *(*create)(const bench_factor *f, const void *x, void *y);
    void (*run)(void *self, const void *x, void *y);
    void (*destroy)(void *self); /* NULL is fine */
    /* The share of a product's time that goes into permutations of x and y when
       they are passes of their own; NULL: there are none. */
    double (*permutations)(void *self, const void *x, void *y);
} baseline;

#define X(name) extern const baseline baseline_##name;
#include "bench/baselines/baselines.def"
#undef X

/* Sizes that many baselines need. */
static inline int64_t factor_rows(const bench_factor *f)
{
    return f->pattern.a * f->pattern.b * f->pattern.d;
}

static inline int64_t factor_cols(const bench_factor *f)
{
    return f->pattern.a * f->pattern.c * f->pattern.d;
}

#endif
