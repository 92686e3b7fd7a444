/* Fits of layers to moments (fit.h). */
// SPDX-License-Identifier: Apache-2.0
#include "model/compress/fit.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "math/lapack.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* `count` doubles that are zero; NULL, with the sentence: there is no memory. */
static double *zeros(int64_t count)
{
    double *block = dn_calloc((size_t)count, sizeof *block);
    if (!block)
        dn_fail_memory((size_t)count * sizeof *block, "fitting a layer");
    return block;
}

static dn_matrix matrix(double *at, int64_t ld) { return (dn_matrix){ at, ld }; }

static dn_matrix constant(const double *at, int64_t ld)
{
    return (dn_matrix){ (double *)(uintptr_t)at, ld };
}

danaus_status dn_moments_make(int64_t rows, int64_t cols, moments *m)
{
    double *at = zeros((rows + 1) * (cols + 1) + cols * cols);
    if (!at)
        return DANAUS_ERR_MEMORY;
    *m = (moments){ .rows = rows, .cols = cols };
    m->x = dn_take(&at, cols);
    m->y = dn_take(&at, rows);
    m->xx = dn_take(&at, cols * cols);
    m->yx = dn_take(&at, rows * cols);
    return DANAUS_OK;
}

void dn_moments_free(moments *m) { dn_free(m->x); }

void dn_moments_map(const double *weight, moments *m)
{
    int64_t rows = m->rows, cols = m->cols;
    dn_gemm product = { .m = rows, .n = cols, .k = cols };
    dn_gemm_run(
        &product, constant(weight, cols), matrix(m->xx, cols), matrix(m->yx, cols));
    for (int64_t i = 0; i < rows; i++) {
        m->y[i] = 0;
        for (int64_t j = 0; j < cols; j++)
            m->y[i] += weight[i * cols + j] * m->x[j];
    }
}

/* ---- the problem ---- */

static void fill_problem(const moments *m, double ridge, fit_problem *p)
{
    int64_t rows = p->rows, cols = p->cols;
    double n = (double)m->count, diagonal = 0;
    for (int64_t i = 0; i < cols; i++)
        p->mean_x[i] = m->x[i] / n;
    p->energy = m->energy / n;
    for (int64_t i = 0; i < rows; i++) {
        p->mean_y[i] = m->y[i] / n;
        p->energy -= p->mean_y[i] * p->mean_y[i];
    }
    for (int64_t i = 0; i < cols; i++) {
        for (int64_t j = 0; j < cols; j++)
            p->gram[i * cols + j] =
                m->xx[i * cols + j] / n - p->mean_x[i] * p->mean_x[j];
        diagonal += p->gram[i * cols + i];
    }
    p->lambda = ridge * MAX(diagonal / (double)cols, 1e-30);
    for (int64_t i = 0; i < cols; i++)
        p->gram[i * cols + i] += p->lambda;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            p->cross[i * cols + j] = m->yx[i * cols + j] / n -
                                     p->mean_y[i] * p->mean_x[j] +
                                     p->lambda * p->weight[i * cols + j];
}

/* m[M][N] becomes S^T m L^-T. */
static danaus_status weigh(const fit_problem *p, double *m)
{
    int64_t rows = p->rows, cols = p->cols;
    dn_triangle_solve(0, 1, rows, cols, matrix(m, cols), matrix(p->root, cols));
    if (!p->side)
        return DANAUS_OK;
    double *weighed = zeros(rows * cols);
    if (!weighed)
        return DANAUS_ERR_MEMORY;
    dn_gemm product = { .adjoint_a = 1, .m = rows, .n = cols, .k = rows };
    dn_gemm_run(
        &product, constant(p->side, rows), matrix(m, cols), matrix(weighed, cols));
    memcpy(m, weighed, (size_t)(rows * cols) * sizeof *m);
    dn_free(weighed);
    return DANAUS_OK;
}

static danaus_status whiten(fit_problem *p)
{
    int64_t rows = p->rows, cols = p->cols;
    memcpy(p->root, p->gram, (size_t)(cols * cols) * sizeof *p->root);
    if (dn_cholesky(0, cols, matrix(p->root, cols)))
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "the inputs of a layer of %" PRId64 " x %" PRId64
            " are not finite, or all the same",
            rows, cols);
    memcpy(p->white, p->cross, (size_t)(rows * cols) * sizeof *p->white);
    return weigh(p, p->white);
}

danaus_status dn_problem_make(
    const moments *m, const double *weight, const double *side, double ridge,
    fit_problem *p)
{
    int64_t rows = m->rows, cols = m->cols;
    if (m->count < 2)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a layer saw %" PRId64 " tokens; it needs more",
            m->count);
    double *at = zeros(rows + cols + 2 * cols * (rows + cols));
    if (!at)
        return DANAUS_ERR_MEMORY;
    *p = (fit_problem){ .rows = rows, .cols = cols, .weight = weight, .side = side };
    p->mean_x = dn_take(&at, cols);
    p->mean_y = dn_take(&at, rows);
    p->gram = dn_take(&at, cols * cols);
    p->root = dn_take(&at, cols * cols);
    p->cross = dn_take(&at, rows * cols);
    p->white = dn_take(&at, rows * cols);
    fill_problem(m, ridge, p);
    danaus_status status = whiten(p);
    if (status != DANAUS_OK)
        dn_problem_free(p);
    return status;
}

void dn_problem_free(fit_problem *p) { dn_free(p->mean_x); }

/* ---- singular values ---- */

/* white = u[M][k] diag(s) v[k][N], k = min(M, N), in a block that begins with s. */
typedef struct decomposition {
    double *s, *u, *v;
} decomposition;

static danaus_status decompose(const fit_problem *p, decomposition *d)
{
    int64_t rows = p->rows, cols = p->cols, k = MIN(rows, cols);
    int lwork;
    TRY(dn_gesdd_plan(0, rows, cols, &lwork));
    double *at = zeros(k * (1 + rows + cols));
    double *scratch = zeros(rows * cols + lwork + dn_gesdd_rest(rows, cols));
    d->s = at;
    danaus_status status = at && scratch ? DANAUS_OK : DANAUS_ERR_MEMORY;
    if (status == DANAUS_OK) {
        double *b = scratch, *work = b + rows * cols;
        d->s = dn_take(&at, k);
        d->u = dn_take(&at, rows * k);
        d->v = dn_take(&at, k * cols);
        memcpy(b, p->white, (size_t)(rows * cols) * sizeof *b);
        if (dn_gesdd(0, rows, cols, b, d->s, d->u, d->v, work, lwork, work + lwork))
            status = dn_fail(
                DANAUS_ERR_ARGUMENT, "singular values of a layer do not converge");
    }
    dn_free(scratch);
    if (status != DANAUS_OK)
        dn_free(d->s);
    return status;
}

danaus_status dn_problem_gains(const fit_problem *p, double *gains)
{
    decomposition d;
    TRY(decompose(p, &d));
    for (int64_t i = 0; i < MIN(p->rows, p->cols); i++)
        gains[i] = d.s[i] * d.s[i];
    dn_free(d.s);
    return DANAUS_OK;
}

/* ---- fits ---- */

int64_t dn_fit_parameters(int64_t rows, int64_t cols, int64_t rank)
{
    return rank * (rows + cols - rank);
}

void dn_fit_free(fit *f)
{
    dn_free(f->kept);
    dn_free(f->basis);
    danaus_chain_destroy(f->chain[0]);
    danaus_chain_destroy(f->chain[1]);
    *f = (fit){ 0 };
}

danaus_status dn_fit_make(int64_t rows, int64_t cols, int64_t rank, fit *f)
{
    double *at = zeros(rank * (rows + cols) + rows);
    *f = (fit){ .rows = rows, .cols = cols, .rank = rank };
    f->kept = dn_calloc((size_t)rank + 1, sizeof *f->kept);
    f->basis = at;
    if (!at || !f->kept) {
        dn_fit_free(f);
        return dn_fail_memory((size_t)(rank * cols) * sizeof *at, "a layer");
    }
    f->basis = dn_take(&at, rank * cols);
    f->left = dn_take(&at, rows * rank);
    f->bias = dn_take(&at, rows);
    return DANAUS_OK;
}

/* left = S^-T U_r, and right = diag(s) V_r L^-1, in place of basis. */
static danaus_status fill_low_rank(const fit_problem *p, const decomposition *d, fit *f)
{
    int64_t rows = f->rows, cols = f->cols, r = f->rank, k = MIN(rows, cols);
    for (int64_t t = 0; t < r; t++)
        for (int64_t j = 0; j < cols; j++)
            f->basis[t * cols + j] = d->s[t] * d->v[t * cols + j];
    dn_triangle_solve(0, 0, r, cols, matrix(f->basis, cols), matrix(p->root, cols));
    double *turned = zeros(r * rows);
    if (!turned)
        return DANAUS_ERR_MEMORY;
    for (int64_t t = 0; t < r; t++)
        for (int64_t i = 0; i < rows; i++)
            turned[t * rows + i] = d->u[i * k + t];
    if (p->side)
        dn_triangle_solve(0, 0, r, rows, matrix(turned, rows), constant(p->side, rows));
    for (int64_t t = 0; t < r; t++)
        for (int64_t i = 0; i < rows; i++)
            f->left[i * r + t] = turned[t * rows + i];
    dn_free(turned);
    return DANAUS_OK;
}

/* The rows of left that QR with column pivoting takes first become rows of the identity,
   and basis the same rows of left basis. */
static danaus_status interpolate(fit *f)
{
    int64_t rows = f->rows, cols = f->cols, r = f->rank;
    double *scratch = zeros(r * rows + dn_interpolate_scratch(0, r, rows));
    double *basis = zeros(r * (cols + r));
    danaus_status status = scratch && basis ? DANAUS_OK : DANAUS_ERR_MEMORY;
    if (status == DANAUS_OK) {
        double *left = scratch, *kept = basis + r * cols;
        memcpy(left, f->left, (size_t)(rows * r) * sizeof *left);
        dn_interpolate(0, r, rows, f->left, f->kept, scratch + r * rows);
        for (int64_t t = 0; t < r; t++)
            memcpy(kept + t * r, left + f->kept[t] * r, (size_t)r * sizeof *kept);
        dn_gemm product = { .m = r, .n = cols, .k = r };
        dn_gemm_run(
            &product, matrix(kept, r), matrix(f->basis, cols), matrix(basis, cols));
        memcpy(f->basis, basis, (size_t)(r * cols) * sizeof *basis);
    }
    dn_free(scratch);
    dn_free(basis);
    return status;
}

/* bias = mean(y) - K mean(x). */
static void fill_bias(const fit_problem *p, const double *dense, fit *f)
{
    for (int64_t i = 0; i < f->rows; i++) {
        f->bias[i] = p->mean_y[i];
        for (int64_t j = 0; j < f->cols; j++)
            f->bias[i] -= dense[i * f->cols + j] * p->mean_x[j];
    }
}

/* energy + sum of (K (A - lambda 1) - 2 (C - lambda W)) K, over the energy. seen: K A. */
static double error_of(const fit_problem *p, const double *dense, const double *seen)
{
    double square = p->energy;
    for (int64_t i = 0; i < p->rows * p->cols; i++)
        square += (seen[i] - p->lambda * dense[i] -
                   2 * (p->cross[i] - p->lambda * p->weight[i])) *
                  dense[i];
    return sqrt(MAX(square, 0) / MAX(p->energy, 1e-300));
}

/* ||S^T (C A^-1 - K) L||^2 = ||S^T (C - K A) L^-T||^2. left: C - K A, which goes. */
static danaus_status loss_of(const fit_problem *p, double *left, double *loss)
{
    TRY(weigh(p, left));
    *loss = 0;
    for (int64_t i = 0; i < p->rows * p->cols; i++)
        *loss += left[i] * left[i];
    return DANAUS_OK;
}

/* Writes the bias, the error and the loss of a fit whose K is dense[M][N]. */
static danaus_status rate_dense(const fit_problem *p, const double *dense, fit *f)
{
    int64_t rows = f->rows, cols = f->cols;
    double *seen = zeros(rows * cols);
    if (!seen)
        return DANAUS_ERR_MEMORY;
    dn_gemm product = { .m = rows, .n = cols, .k = cols };
    dn_gemm_run(
        &product, constant(dense, cols), matrix(p->gram, cols), matrix(seen, cols));
    fill_bias(p, dense, f);
    f->error = error_of(p, dense, seen);
    for (int64_t i = 0; i < rows * cols; i++)
        seen[i] = p->cross[i] - seen[i];
    danaus_status status = loss_of(p, seen, &f->loss);
    dn_free(seen);
    return status;
}

/* dense[M][N] = K of a fit: the sum of its chains, or what the basis spans. */
static danaus_status multiply_out(const fit *f, double *dense, double *room)
{
    int64_t numbers = f->rows * f->cols;
    if (f->dense) {
        memcpy(dense, f->basis, (size_t)numbers * sizeof *dense);
    } else if (!f->chain[0]) {
        dn_gemm product = { .m = f->rows, .n = f->cols, .k = f->rank };
        dn_gemm_run(
            &product, matrix(f->left, f->rank), matrix(f->basis, f->cols),
            matrix(dense, f->cols));
    }
    for (int n = 0; n < 2 && f->chain[n]; n++) {
        TRY(danaus_chain_to_dense(f->chain[n], room));
        for (int64_t i = 0; i < numbers; i++)
            dense[i] += room[i];
    }
    return DANAUS_OK;
}

danaus_status dn_fit_rate(const fit_problem *p, fit *f)
{
    double *dense = zeros(2 * f->rows * f->cols);
    if (!dense)
        return DANAUS_ERR_MEMORY;
    danaus_status status = multiply_out(f, dense, dense + f->rows * f->cols);
    if (status == DANAUS_OK)
        status = rate_dense(p, dense, f);
    dn_free(dense);
    return status;
}

static danaus_status fit_dense(const fit_problem *p, fit *f)
{
    int64_t rows = f->rows, cols = f->cols;
    memcpy(f->basis, p->cross, (size_t)(rows * cols) * sizeof *f->basis);
    dn_triangle_solve(0, 1, rows, cols, matrix(f->basis, cols), matrix(p->root, cols));
    dn_triangle_solve(0, 0, rows, cols, matrix(f->basis, cols), matrix(p->root, cols));
    f->dense = 1;
    return dn_fit_rate(p, f);
}

static danaus_status fit_rank(const fit_problem *p, fit *f)
{
    decomposition d;
    TRY(decompose(p, &d));
    danaus_status status = fill_low_rank(p, &d, f);
    dn_free(d.s);
    TRY(status);
    TRY(interpolate(f));
    return dn_fit_rate(p, f);
}

danaus_status dn_problem_fit(const fit_problem *p, int64_t rank, fit *f)
{
    TRY(dn_fit_make(p->rows, p->cols, rank ? rank : p->rows, f));
    danaus_status status = rank ? fit_rank(p, f) : fit_dense(p, f);
    if (status != DANAUS_OK)
        dn_fit_free(f);
    return status;
}

danaus_status dn_side_make(int64_t rows, int64_t count, double *g)
{
    double level = 0;
    for (int64_t i = 0; i < rows * rows; i++)
        g[i] /= (double)count;
    for (int64_t i = 0; i < rows; i++)
        level += g[i * rows + i] / (double)rows;
    for (int64_t i = 0; i < rows; i++)
        g[i * rows + i] += MAX(1e-3 * level, 1e-30);
    if (dn_cholesky(0, rows, matrix(g, rows)))
        return dn_fail(DANAUS_ERR_ARGUMENT, "gradients of a layer are not finite");
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = i + 1; j < rows; j++)
            g[i * rows + j] = 0;
    return DANAUS_OK;
}
