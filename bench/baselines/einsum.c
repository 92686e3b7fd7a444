/* Direct loops over (i, r, k, j) and the batch, as a compiler makes them fast. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/baselines/baseline.h"
#include "bench/baselines/parts.h"

#include <stdlib.h>

typedef struct einsum {
    bench_factor f;
    void *w; /* [a][c][b][d] for batch-first; else NULL and f.w serves */
} einsum;

static void destroy(void *any)
{
    einsum *self = any;
    if (self)
        free(self->w);
    free(self);
}

static void *create(const bench_factor *f, const void *x, void *y)
{
    (void)x;
    (void)y;
    einsum *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    self->f = *f;
    if (f->layout == DANAUS_BATCH_FIRST && !(self->w = repack_weights(f, 0))) {
        destroy(self);
        return NULL;
    }
    return self;
}

static void run(void *any, const void *x, void *y)
{
    const einsum *self = any;
    const bench_factor *f = &self->f;
    loop_part whole = { .p = f->pattern, .batch = f->batch, .s1 = f->batch };
    whole.q1 = f->pattern.a * f->pattern.b;
    whole.w = self->w ? self->w : f->w;
    whole.x = x;
    whole.y = y;
    if (f->layout == DANAUS_BATCH_FIRST)
        run_parts(f->team, &whole, 4, f->loops->einsum_first, NULL, 0);
    else
        run_parts(f->team, &whole, 128, f->loops->einsum_last, NULL, 0);
}

const baseline baseline_einsum = {
    .name = "einsum", .create = create, .run = run, .destroy = destroy
};
