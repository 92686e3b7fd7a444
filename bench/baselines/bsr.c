/* Block-sparse: the block-diagonal matrix that a factor is once its rows and
   columns are permuted, in dense blocks of at most 16 x 16. For d > 1 x is permuted
   first and y afterwards. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/baselines/baseline.h"
#include "bench/baselines/parts.h"
#include "bench/memory.h"

#include <stdlib.h>
#include <string.h>

typedef struct bsr {
    bench_factor f;
    sparse_rows m;
    void *x, *y; /* permuted; NULL for d = 1 */
} bsr;

static void destroy(void *any)
{
    bsr *self = any;
    if (self) {
        free(self->m.start);
        free(self->m.column);
        free(self->m.value);
        free(self->x);
        free(self->y);
    }
    free(self);
}

static int64_t divisor_within_16(int64_t n)
{
    int64_t d = 16;
    while (n % d)
        d--;
    return d;
}

/* Block row R is in block (i, j) = R / (b / rows); its blocks run over c. */
static void fill(bsr *self, const char *blocks)
{
    danaus_pattern p = self->f.pattern;
    size_t size = danaus_dtype_size(self->f.dtype);
    int64_t rows = self->m.block_rows, cols = self->m.block_cols, e = 0;
    char *value = self->m.value;
    for (int64_t R = 0; R < self->m.rows / rows; R++) {
        int64_t block = R / (p.b / rows);
        self->m.start[R] = e;
        for (int64_t C = 0; C < p.c / cols; C++, e++) {
            self->m.column[e] = (int32_t)(block * (p.c / cols) + C);
            for (int64_t k = 0; k < cols; k++)
                for (int64_t r = 0; r < rows; r++) {
                    int64_t from = (R * rows + r) * p.c + C * cols + k;
                    memcpy(value, blocks + (size_t)from * size, size);
                    value += size;
                }
        }
    }
    self->m.start[self->m.rows / rows] = e;
}

static void *create(const bench_factor *f, const void *x, void *y)
{
    (void)x;
    (void)y;
    bsr *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    danaus_pattern p = f->pattern;
    size_t size = danaus_dtype_size(f->dtype);
    int64_t rows = divisor_within_16(p.b), cols = divisor_within_16(p.c);
    int64_t entries = p.a * p.b * p.c * p.d;
    self->f = *f;
    self->m =
        (sparse_rows){ factor_rows(f), factor_cols(f), rows, cols, NULL, NULL, NULL };
    self->m.start = bench_alloc(self->m.rows / rows + 1, sizeof *self->m.start);
    self->m.column = bench_alloc(entries / (rows * cols), sizeof *self->m.column);
    self->m.value = bench_alloc(entries, size);
    int ok = self->m.start && self->m.column && self->m.value;
    if (p.d > 1) {
        self->x = bench_alloc(f->batch * self->m.cols, size);
        self->y = bench_alloc(f->batch * self->m.rows, size);
        ok = ok && self->x && self->y;
    }
    char *blocks = ok ? repack_weights(f, 1) : NULL;
    if (!blocks) {
        destroy(self);
        return NULL;
    }
    fill(self, blocks);
    free(blocks);
    return self;
}

static void run(void *any, const void *x, void *y)
{
    const bsr *self = any;
    const bench_factor *f = &self->f;
    loop_part whole = { .p = f->pattern, .batch = f->batch, .s1 = f->batch };
    whole.q1 = self->m.rows / self->m.block_rows;
    whole.w = &self->m;
    whole.x = self->x ? self->x : x;
    whole.y = self->y ? self->y : y;
    if (self->x)
        permute_lanes(f, x, self->x, 0);
    if (f->layout == DANAUS_BATCH_FIRST)
        run_parts(f->team, &whole, 4, f->loops->bsr_first, NULL, 0);
    else
        run_parts(f->team, &whole, 64, f->loops->bsr_last, NULL, 0);
    if (self->y)
        permute_lanes(f, self->y, y, 1);
}

const baseline baseline_bsr = {
    .name = "bsr", .create = create, .run = run, .destroy = destroy
};
