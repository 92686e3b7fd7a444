/* Factors in work order times many columns.

   Block (i, j) multiplies rows i c d + k d + j of x, which lie d rows apart: a matrix
   of c rows whose leading dimension is d times that of x. Columns are cut into tiles;
   a task is some tiles of some blocks. */
// SPDX-License-Identifier: Apache-2.0
#include "factor/columns.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "math/lapack.h"
#include "math/lapack_library.h"
#include "math/pattern.h"

#include <limits.h>
#include <string.h>

enum {
    TILE = 128, /* columns */
    ROWS = 64,
    CHUNKS = 64,
    LARGE = 8 /* sides of blocks for which BLAS is called */
};

typedef struct columns_job {
    danaus_pattern p;
    const ks_columns *x, *y;
    double *w;
    int64_t units, tiles;
    int chunks;
    void (*unit)(const struct columns_job *job, int64_t block, int64_t tile);
} columns_job;

/* The rows of block (i, j) in x, from column `from` on; `size` is c, or b for y. */
static dn_matrix rows_of_block(
    const ks_columns *x, danaus_pattern p, int64_t block, int64_t size, int64_t from)
{
    int64_t first = block / p.d * size * p.d + block % p.d;
    int64_t width = x->complex ? 2 : 1;
    return (dn_matrix){ x->at + (first * x->count + from) * width, p.d * x->count };
}

static dn_matrix block_of(const columns_job *job, int64_t block)
{
    int64_t width = job->x->complex ? 2 : 1;
    return (dn_matrix){ job->w + block * job->p.b * job->p.c * width, job->p.c };
}

static int64_t tile_columns(const columns_job *job, int64_t tile)
{
    int64_t left = job->x->count - tile * TILE;
    return left < TILE ? left : TILE;
}

static void do_units(void *arg, int chunk)
{
    const columns_job *job = arg;
    int64_t end = job->units * (chunk + 1) / job->chunks;
    for (int64_t n = job->units * chunk / job->chunks; n < end; n++)
        job->unit(job, n / job->tiles, n % job->tiles);
}

static void run_units(thread_pool *pool, columns_job *job, int64_t tiles)
{
    job->tiles = tiles;
    job->units = job->p.a * job->p.d * tiles;
    job->chunks = job->units < CHUNKS ? (int)job->units : CHUNKS;
    dn_lapack_alone();
    dn_pool_run(pool, job->chunks, do_units, job);
    dn_lapack_as_before();
}

static int64_t tiles_of(const ks_columns *x) { return (x->count + TILE - 1) / TILE; }

/* c = a b with the adjoints that g says: BLAS where blocks are large enough for it. */
static void multiply(const dn_gemm *g, dn_matrix a, dn_matrix b, dn_matrix c)
{
    if (MIN(g->m, MIN(g->n, g->k)) >= LARGE && MAX(a.ld, MAX(b.ld, c.ld)) <= INT_MAX)
        dn_gemm_run(g, a, b, c);
    else if (g->adjoint_a)
        dn_adjoint_times(g->complex, g->m, g->n, g->k, a, b, c);
    else if (g->adjoint_b)
        dn_times_adjoint(g->complex, g->m, g->n, g->k, a, b, c);
    else
        dn_times(g->complex, g->m, g->n, g->k, a, b, c);
}

static void times_unit(const columns_job *job, int64_t block, int64_t tile)
{
    danaus_pattern p = job->p;
    dn_gemm g = {
        .complex = job->x->complex, .m = p.b, .n = tile_columns(job, tile), .k = p.c
    };
    multiply(
        &g, block_of(job, block), rows_of_block(job->x, p, block, p.c, tile * TILE),
        rows_of_block(job->y, p, block, p.b, tile * TILE));
}

static void adjoint_unit(const columns_job *job, int64_t block, int64_t tile)
{
    danaus_pattern p = job->p;
    dn_gemm g = { .complex = job->x->complex,
                  .adjoint_a = 1,
                  .m = p.c,
                  .n = tile_columns(job, tile),
                  .k = p.b };
    multiply(
        &g, block_of(job, block), rows_of_block(job->x, p, block, p.b, tile * TILE),
        rows_of_block(job->y, p, block, p.c, tile * TILE));
}

/* A tile is ROWS rows of the block here: sums over columns are not cut. */
static void gradient_unit(const columns_job *job, int64_t block, int64_t tile)
{
    danaus_pattern p = job->p;
    int64_t width = job->x->complex ? 2 : 1, row = tile * ROWS;
    dn_gemm shape = { .complex = job->x->complex,
                      .adjoint_b = 1,
                      .m = MIN(ROWS, p.b - row),
                      .n = p.c,
                      .k = job->x->count };
    dn_matrix y = rows_of_block(job->y, p, block, p.b, 0), g = block_of(job, block);
    y.at += row * y.ld * width;
    g.at += row * g.ld * width;
    multiply(&shape, y, rows_of_block(job->x, p, block, p.c, 0), g);
}

void dn_columns_times(
    thread_pool *pool, danaus_pattern p, const double *w, const ks_columns *x,
    ks_columns *y)
{
    y->rows = dn_pattern_rows(p);
    columns_job job = { .p = p, .x = x, .y = y, .w = (double *)w, .unit = times_unit };
    run_units(pool, &job, tiles_of(x));
}

void dn_columns_adjoint_times(
    thread_pool *pool, danaus_pattern p, const double *w, const ks_columns *x,
    ks_columns *y)
{
    y->rows = dn_pattern_cols(p);
    columns_job job = {
        .p = p, .x = x, .y = y, .w = (double *)w, .unit = adjoint_unit
    };
    run_units(pool, &job, tiles_of(x));
}

void dn_factors_times(
    thread_pool *pool, const ks_factors *f, int from, int end, const ks_columns *x,
    ks_columns *y, ks_columns *u, ks_columns *v)
{
    for (int l = end - 1; l >= from; l--) {
        ks_columns *to = l == from ? y : (end - 1 - l) % 2 ? v : u;
        dn_columns_times(pool, f->p[l], f->w[l], x, to);
        x = to;
    }
    if (from >= end)
        dn_columns_copy(x, y);
}

int64_t dn_factors_widest(const ks_factors *f)
{
    int64_t wide = 1;
    for (int l = 0; l < f->count; l++) {
        int64_t rows = dn_pattern_rows(f->p[l]), cols = dn_pattern_cols(f->p[l]);
        wide = MAX(wide, MAX(rows, cols));
    }
    return wide;
}

void dn_columns_gradient(
    thread_pool *pool, danaus_pattern p, const ks_columns *y, const ks_columns *x,
    double *g)
{
    columns_job job = { .p = p, .x = x, .y = y, .w = g, .unit = gradient_unit };
    run_units(pool, &job, CEIL_DIV(p.b, ROWS));
}

/* ---- orthonormal rows ---- */

typedef struct lq_job {
    danaus_pattern p;
    ks_columns *x;
    double *lower;
    int64_t scratch;
    int chunks;
    int failed[CHUNKS];
} lq_job;

static void do_lq(void *arg, int chunk)
{
    lq_job *job = arg;
    danaus_pattern p = job->p;
    int complex = job->x->complex;
    int64_t blocks = p.a * p.d, end = blocks * (chunk + 1) / job->chunks;
    int64_t size = p.c * p.c * (complex ? 2 : 1);
    double *scratch = dn_alloc((size_t)job->scratch * sizeof *scratch);
    job->failed[chunk] = !scratch;
    for (int64_t n = blocks * chunk / job->chunks; scratch && n < end; n++)
        dn_lq(
            complex, p.c, job->x->count, rows_of_block(job->x, p, n, p.c, 0),
            (dn_matrix){ job->lower + n * size, p.c }, scratch);
    dn_free(scratch);
}

danaus_status dn_columns_lq(
    thread_pool *pool, danaus_pattern p, ks_columns *x, double *lower)
{
    int64_t blocks = p.a * p.d, width = x->complex ? 2 : 1;
    if (x->count < p.c) {
        dn_zero(x->complex, blocks * p.c, p.c, (dn_matrix){ lower, p.c });
        for (int64_t row = 0; row < blocks * p.c; row++)
            lower[(row * p.c + row % p.c) * width] = 1;
        return DANAUS_OK;
    }
    lq_job job = { .p = p, .x = x, .lower = lower };
    TRY(dn_lq_plan(x->complex, p.c, x->count, p.d * x->count, &job.scratch));
    job.chunks = blocks < CHUNKS ? (int)blocks : CHUNKS;
    if (blocks > 1)
        dn_lapack_alone();
    dn_pool_run(pool, job.chunks, do_lq, &job);
    if (blocks > 1)
        dn_lapack_as_before();
    for (int chunk = 0; chunk < job.chunks; chunk++)
        if (job.failed[chunk])
            return dn_fail(DANAUS_ERR_MEMORY, "no memory for the rows of a factor");
    return DANAUS_OK;
}

/* ---- plain arithmetic ---- */

static int64_t parts_of(const ks_columns *x)
{
    return x->rows * x->count * (x->complex ? 2 : 1);
}

void dn_columns_copy(const ks_columns *x, ks_columns *y)
{
    y->rows = x->rows;
    memcpy(y->at, x->at, (size_t)parts_of(x) * sizeof *y->at);
}

void dn_columns_subtract(const ks_columns *x, ks_columns *y)
{
    for (int64_t at = 0; at < parts_of(x); at++)
        y->at[at] = x->at[at] - y->at[at];
}

void dn_columns_add(double s, const ks_columns *x, ks_columns *y)
{
    for (int64_t at = 0; at < parts_of(x); at++)
        y->at[at] += s * x->at[at];
}

double dn_columns_energy(const ks_columns *x)
{
    return dn_energy(0, 1, parts_of(x), (dn_matrix){ x->at, 0 });
}
