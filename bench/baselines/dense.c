/* Dense: one matrix product with the dense matrix of the whole chain. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/baselines/baseline.h"
#include "bench/baselines/blas.h"

#include <stdlib.h>

static void *create(const bench_factor *f, const void *x, void *y)
{
    (void)x;
    (void)y;
    bench_factor *self = malloc(sizeof *self);
    if (self)
        *self = *f;
    return self;
}

static void run(void *any, const void *x, void *y)
{
    const bench_factor *f = any;
    int64_t m = f->pattern.b, n = f->pattern.c;
    blas_set_threads(team_threads(f->team));
    if (f->batch == 1)
        blas_vector(f->dtype, m, n, f->w, x, 1, y, 1);
    else if (f->layout == DANAUS_BATCH_FIRST)
        blas_multiply(f->dtype, 1, f->batch, m, n, x, n, f->w, n, y, m);
    else
        blas_multiply(f->dtype, 0, m, f->batch, n, f->w, n, x, f->batch, y, f->batch);
}

const baseline baseline_dense = {
    .name = "dense", .whole = 1, .create = create, .run = run, .destroy = free
};
