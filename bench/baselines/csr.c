/* CSR: a general sparse matrix times a batch. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/baselines/baseline.h"
#include "bench/baselines/parts.h"
#include "bench/memory.h"

#include <stdlib.h>
#include <string.h>

typedef struct csr {
    bench_factor f;
    sparse_rows m;
    void *scratch; /* CSR_BATCH elements a column for each thread; batch-first */
    size_t scratch_bytes;
} csr;

static void destroy(void *any)
{
    csr *self = any;
    if (self) {
        free(self->m.start);
        free(self->m.column);
        free(self->m.value);
        free(self->scratch);
    }
    free(self);
}

/* Row (i, r, j) has the entries (i, k, j), k < c. */
static void fill(csr *self)
{
    danaus_pattern p = self->f.pattern;
    size_t size = danaus_dtype_size(self->f.dtype);
    const char *w = self->f.w;
    char *value = self->m.value;
    int64_t e = 0;
    for (int64_t row = 0; row < self->m.rows; row++) {
        int64_t j = row % p.d, q = row / p.d, i = q / p.b;
        self->m.start[row] = e;
        for (int64_t k = 0; k < p.c; k++, e++) {
            self->m.column[e] = (int32_t)((i * p.c + k) * p.d + j);
            memcpy(
                value + (size_t)e * size, w + (size_t)((q * p.c + k) * p.d + j) * size,
                size);
        }
    }
    self->m.start[self->m.rows] = e;
}

static void *create(const bench_factor *f, const void *x, void *y)
{
    (void)x;
    (void)y;
    csr *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    size_t size = danaus_dtype_size(f->dtype);
    int64_t rows = factor_rows(f), cols = factor_cols(f), entries = rows * f->pattern.c;
    self->f = *f;
    self->m = (sparse_rows){ .rows = rows, .cols = cols, 1, 1, NULL, NULL, NULL };
    self->m.start = bench_alloc(rows + 1, sizeof *self->m.start);
    self->m.column = bench_alloc(entries, sizeof *self->m.column);
    self->m.value = bench_alloc(entries, size);
    int ok = self->m.start && self->m.column && self->m.value;
    if (f->layout == DANAUS_BATCH_FIRST) {
        self->scratch_bytes = ((size_t)(cols * CSR_BATCH) * size + 63) / 64 * 64;
        self->scratch = bench_alloc(team_threads(f->team), self->scratch_bytes);
        ok = ok && self->scratch;
    }
    if (!ok) {
        destroy(self);
        return NULL;
    }
    fill(self);
    return self;
}

static void run(void *any, const void *x, void *y)
{
    const csr *self = any;
    const bench_factor *f = &self->f;
    loop_part whole = { .p = f->pattern, .batch = f->batch, .s1 = f->batch };
    whole.q1 = self->m.rows;
    whole.w = &self->m;
    whole.x = x;
    whole.y = y;
    int first = f->layout == DANAUS_BATCH_FIRST;
    run_parts(
        f->team, &whole, first ? CSR_BATCH : 128,
        first ? f->loops->csr_first : f->loops->csr_last, self->scratch,
        self->scratch_bytes);
}

const baseline baseline_csr = {
    .name = "csr", .create = create, .run = run, .destroy = destroy
};
