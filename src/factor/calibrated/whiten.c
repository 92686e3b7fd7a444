/* Starts of calibrated factors. */
// SPDX-License-Identifier: Apache-2.0
#include "factor/calibrated/weighted.h"

#include "factor/calibrated/wide.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/lapack_library.h"
#include "math/pattern.h"

typedef struct columns_of_block {
    int64_t first, step, count;
} columns_of_block;

static columns_of_block columns_of(danaus_pattern p, int64_t block)
{
    return (columns_of_block){ block / p.d * p.c * p.d + block % p.d, p.d, p.c };
}

static int64_t width(const ks_calibration *c) { return c->complex ? 2 : 1; }

/* Copies columns of wide[rows][N] to narrow[rows][c], or back. */
static void copy_columns(
    const ks_calibration *c, columns_of_block b, int64_t rows, int back, double *wide,
    double *narrow)
{
    int64_t n = c->w->cols;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < b.count; k++)
            for (int64_t x = 0; x < width(c); x++) {
                double *u = wide + (r * n + b.first + k * b.step) * width(c) + x;
                double *v = narrow + (r * b.count + k) * width(c) + x;
                *(back ? u : v) = *(back ? v : u);
            }
}

/* lower[c][c] of the Gram matrix of the rows of L that belong to a block; rows[c][N]. */
static void find_lower(
    thread_pool *pool, const ks_calibration *c, columns_of_block b, double *rows,
    double *lower)
{
    int64_t n = c->w->cols, size = n * width(c);
    for (int64_t k = 0; k < b.count; k++)
        dn_copy(
            c->complex, 1, n,
            (dn_matrix){ c->lower + (b.first + k * b.step) * size, n },
            (dn_matrix){ rows + k * size, n });
    dn_gemm g = {
        .complex = c->complex, .adjoint_b = 1, .m = b.count, .n = b.count, .k = n
    };
    dn_wide_times(
        pool, &g, (dn_matrix){ rows, n }, (dn_matrix){ rows, n },
        (dn_matrix){ lower, b.count });
    dn_lapack_alone();
    int failed = dn_cholesky(c->complex, b.count, (dn_matrix){ lower, b.count });
    dn_lapack_as_before();
    for (int64_t k = 0; k < b.count; k++) {
        double *row = lower + k * b.count * width(c);
        int64_t from = failed ? 0 : k + 1;
        dn_zero(
            c->complex, 1, b.count - from,
            (dn_matrix){ row + from * width(c), b.count });
        if (failed)
            row[k * width(c)] = 1;
    }
}

danaus_status dn_whiten(
    thread_pool *pool, const ks_calibration *c, danaus_pattern last, ks_whitened *w)
{
    int64_t m = c->w->rows, n = c->w->cols, blocks = last.a * last.d;
    int64_t tall = m > n ? m : n;
    *w = (ks_whitened){ last, dn_calibration_numbers(c, m, n),
                        dn_calibration_numbers(c, blocks * last.c, last.c) };
    double *from = dn_calibration_numbers(c, tall, last.c);
    double *to = dn_calibration_numbers(c, m, last.c);
    danaus_status status = DANAUS_OK;
    if (!w->matrix || !w->lower || !from || !to)
        status = dn_fail(DANAUS_ERR_MEMORY, "no memory to begin calibration");
    for (int64_t block = 0; block < blocks && status == DANAUS_OK; block++) {
        columns_of_block b = columns_of(last, block);
        double *lower = w->lower + block * last.c * last.c * width(c);
        find_lower(pool, c, b, from, lower);
        copy_columns(c, b, m, 0, c->matrix, from);
        dn_gemm g = { .complex = c->complex, .m = m, .n = b.count, .k = b.count };
        dn_wide_times(
            pool, &g, (dn_matrix){ from, b.count }, (dn_matrix){ lower, b.count },
            (dn_matrix){ to, b.count });
        copy_columns(c, b, m, 1, w->matrix, to);
    }
    dn_free(from);
    dn_free(to);
    return status;
}

void dn_unwhiten(thread_pool *pool, const ks_whitened *w, ks_factors *f)
{
    danaus_pattern p = w->last;
    int64_t size = f->complex ? 2 : 1;
    for (int64_t block = 0; block < p.a * p.d; block++)
        dn_wide_solve(
            pool, f->complex, 0, p.b, p.c,
            (dn_matrix){ f->w[f->count - 1] + block * p.b * p.c * size, p.c },
            (dn_matrix){ w->lower + block * p.c * p.c * size, p.c });
}

void dn_whitened_free(ks_whitened *w)
{
    dn_free(w->matrix);
    dn_free(w->lower);
    *w = (ks_whitened){ 0 };
}

danaus_status dn_weighted_error(
    thread_pool *pool, const ks_calibration *c, const ks_factors *f, double *error)
{
    int64_t m = c->w->rows, n = c->w->cols;
    ks_columns lower = { c->complex, n, n, c->lower };
    ks_columns target = { c->complex, m, n, c->target };
    ks_room r;
    danaus_status status = dn_room_make(c, f, n, &r);
    if (status == DANAUS_OK)
        *error = dn_calibration_residual(pool, f, &lower, &target, &r) + c->floor;
    dn_room_free(&r);
    return status;
}
