/* The least error of linear layers of a rank (least.h). */
// SPDX-License-Identifier: Apache-2.0
#include "model/compress/least.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "math/lapack.h"

#include <math.h>

/* Relative rounding error of squared errors that come from sums of f32 products. */
#define ROUNDING 1e-5

danaus_status dn_targets_make(int64_t size, int64_t count, targets *t)
{
    size_t numbers = (size_t)(size * (size + 1));
    double *at = dn_calloc(numbers, sizeof *at);
    if (!at)
        return dn_fail_memory(numbers * sizeof *at, "targets of a layer");
    *t = (targets){ .size = size, .count = count };
    t->tt = dn_take(&at, size * size);
    t->t = dn_take(&at, size);
    return DANAUS_OK;
}

void dn_targets_free(targets *t)
{
    dn_free(t->tt);
    *t = (targets){ 0 };
}

/* ---- targets that a dense layer makes ---- */

/* a[cols][rows] = W^T, or, where W has more rows than columns, L of W^T = L Q in its place. */
static danaus_status turn(int64_t rows, int64_t cols, const double *weight, double *a)
{
    int64_t count;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            a[j * rows + i] = weight[i * cols + j];
    if (rows <= cols)
        return DANAUS_OK;
    TRY(dn_lq_plan(0, cols, rows, rows, &count));
    double *l = dn_calloc((size_t)(cols * cols + count), sizeof *l);
    if (!l)
        return dn_fail_memory((size_t)(cols * cols) * sizeof *l, "a triangle");
    dn_lq(
        0, cols, rows, (dn_matrix){ a, rows }, (dn_matrix){ l, cols }, l + cols * cols);
    for (int64_t i = 0; i < cols * cols; i++)
        a[i] = l[i];
    dn_free(l);
    return DANAUS_OK;
}

/* t = A^T x, t t^T = A^T x x^T A */
static danaus_status map(
    int64_t cols, double *a, const double *x, const double *xx, targets *t)
{
    int64_t size = t->size;
    double *part = dn_calloc((size_t)(cols * size), sizeof *part);
    if (!part)
        return dn_fail_memory((size_t)(cols * size) * sizeof *part, "products");
    dn_gemm first = { .m = cols, .n = size, .k = cols };
    dn_gemm second = { .adjoint_a = 1, .m = size, .n = size, .k = cols };
    dn_matrix of_x = { (double *)(uintptr_t)xx, cols }, of_a = { a, size };
    dn_gemm_run(&first, of_x, of_a, (dn_matrix){ part, size });
    dn_gemm_run(&second, of_a, (dn_matrix){ part, size }, (dn_matrix){ t->tt, size });
    for (int64_t j = 0; j < cols; j++)
        for (int64_t i = 0; i < size; i++)
            t->t[i] += a[j * size + i] * x[j];
    dn_free(part);
    return DANAUS_OK;
}

danaus_status dn_targets_map(
    int64_t rows, int64_t cols, const double *weight, int64_t count, const double *x,
    const double *xx, targets *t)
{
    double *a = dn_calloc((size_t)(rows * cols), sizeof *a);
    if (!a)
        return dn_fail_memory((size_t)(rows * cols) * sizeof *a, "weights");
    danaus_status status = turn(rows, cols, weight, a);
    if (status == DANAUS_OK)
        status = dn_targets_make(MIN(rows, cols), count, t);
    if (status == DANAUS_OK && (status = map(cols, a, x, xx, t)) != DANAUS_OK)
        dn_targets_free(t);
    dn_free(a);
    return status;
}

/* ---- the bound ---- */

/* Squares of singular values of centred targets, ascending. */
static danaus_status find_squares(targets *t, double *squares)
{
    int64_t size = t->size, scratch = dn_heevr_scratch(0, size);
    for (int64_t i = 0; i < size; i++)
        for (int64_t j = 0; j < size; j++)
            t->tt[i * size + j] -= t->t[i] * t->t[j] / (double)t->count;
    double *work = dn_calloc((size_t)scratch, sizeof *work);
    if (!work)
        return dn_fail_memory((size_t)scratch * sizeof *work, "singular values");
    int failed = dn_eigenvalues(size, t->tt, squares, work);
    dn_free(work);
    return failed ? dn_fail(
                        DANAUS_ERR_ARGUMENT,
                        "singular values of the targets of a layer do not converge")
                  : DANAUS_OK;
}

danaus_status dn_targets_bound(targets *t, fit *f)
{
    double *squares = dn_calloc((size_t)t->size, sizeof *squares);
    if (!squares)
        return dn_fail_memory((size_t)t->size * sizeof *squares, "singular values");
    danaus_status status = find_squares(t, squares);
    double rest = 0, all = 0, error = f->error * f->error;
    for (int64_t i = 0; i < t->size; i++) {
        double square = MAX(squares[i], 0);
        rest += i < t->size - f->rank ? square : 0;
        all += square;
    }
    double least = rest / MAX(all, 1e-300);
    /* What is further past the error stays, and shows. */
    f->lower_bound = sqrt(least <= error + ROUNDING ? MIN(least, error) : least);
    dn_free(squares);
    return status;
}
