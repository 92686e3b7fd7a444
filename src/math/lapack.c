/* Calls of LAPACK, with its work space. */
// SPDX-License-Identifier: Apache-2.0
#include "math/lapack.h"

#include "math/lapack_library.h"

#include "base/numbers.h"
#include "base/status.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

enum {
    BLOCK = 64, /* columns that LAPACK works on at once, or more */
    HEEVR_WORK = 40
};

/* A row-major b is LAPACK's transpose, n x m, whose left factor is therefore v and
   whose right one is u. */
int dn_gesdd(
    int complex, int64_t m, int64_t n, double *b, double *s, double *u, double *v,
    double *work, int lwork, double *rest)
{
    int rows = (int)n, cols = (int)m, k = (int)MIN(m, n), info = 0;
    int *iwork = (int *)dn_take(&rest, 4 * k);
    if (complex)
        dn_lapack.zgesdd(
            "S", &rows, &cols, b, &rows, s, v, &rows, u, &k, work, &lwork, rest, iwork,
            &info);
    else
        dn_lapack.dgesdd(
            "S", &rows, &cols, b, &rows, s, v, &rows, u, &k, work, &lwork, iwork,
            &info);
    return info;
}

/* Elements of `work`: the documented size, about 4 k^2, and room for blocks of columns. If no
   side is at least 11/6 as long as the other, the reference's code needs k^2 less. Complex
   matrices need k^2, only if a side is that long, and always 2 k^2 of real work space. LAPACK
   itself cannot tell: an answer that is too large for an int wraps. */
danaus_status dn_gesdd_plan(int complex, int64_t m, int64_t n, int *work)
{
    int64_t k = MIN(m, n), square = MIN(k * k, INT_MAX);
    int is_long = 6 * MAX(m, n) + 5 >= 11 * k;
    int64_t need = 9 * k + (complex ? is_long : 4) * square;
    if (need > INT_MAX && !complex && !is_long)
        need -= square;
    if (need > INT_MAX || 2 * square + 8 * k > INT_MAX)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "the singular values of a block of %" PRId64 " x %" PRId64
            " need more work space than LAPACK can count",
            m, n);
    *work = (int)MIN(need + BLOCK * (m + n), INT_MAX);
    return DANAUS_OK;
}

int64_t dn_gesdd_rest(int64_t m, int64_t n)
{
    int64_t k = MIN(m, n), x = MAX(m, n);
    return 4 * k + MAX(5 * k * k + 5 * k, 2 * x * k + 2 * k * k + k);
}

/* What LAPACK takes for the upper half of a row-major g is its lower half, that of
   conj(g). Work: at least 26 k; 38 k for blocks of 32. */
int dn_heevr(int complex, int64_t size, double *g, double *vector, double *scratch)
{
    int k = (int)size, lwork = HEEVR_WORK * k;
    double *rest = scratch, *work = dn_take(&rest, (complex ? 2 : 1) * (int64_t)lwork);
    double none = 0, *values = dn_take(&rest, k);
    int found = 0, info = 0, liwork = 10 * k, lrwork = 24 * k;
    int *iwork = (int *)dn_take(&rest, 5 * k), *support = (int *)dn_take(&rest, 1);
    if (complex) {
        dn_lapack.zheevr(
            "V", "I", "U", &k, g, &k, &none, &none, &k, &k, &none, &found, values,
            vector, &k, support, work, &lwork, rest, &lrwork, iwork, &liwork, &info);
        for (int i = 0; i < k; i++)
            vector[2 * i + 1] = -vector[2 * i + 1];
    } else {
        dn_lapack.dsyevr(
            "V", "I", "U", &k, g, &k, &none, &none, &k, &k, &none, &found, values,
            vector, &k, support, work, &lwork, iwork, &liwork, &info);
    }
    return info;
}

int dn_eigenvalues(int64_t size, double *g, double *values, double *scratch)
{
    int k = (int)size, lwork = HEEVR_WORK * k, liwork = 10 * k, found = 0, info = 0;
    double none = 0, *work = dn_take(&scratch, lwork), *vector = NULL;
    int *iwork = (int *)dn_take(&scratch, 5 * k), *support = (int *)scratch, at = 1;
    dn_lapack.dsyevr(
        "N", "A", "U", &k, g, &k, &none, &none, &at, &k, &none, &found, values, vector,
        &k, support, work, &lwork, iwork, &liwork, &info);
    return info;
}

int64_t dn_heevr_scratch(int complex, int64_t k)
{
    return (complex ? 2 : 1) * HEEVR_WORK * k + 30 * k + 1;
}

static int lq_work(int64_t r) { return (int)MIN(BLOCK * r, INT_MAX); }

int64_t dn_lq_scratch(int complex, int64_t r, int64_t n)
{
    return (complex ? 2 : 1) * (MIN(r, n) + lq_work(r));
}

danaus_status dn_lq_plan(
    int complex, int64_t r, int64_t n, int64_t ld, int64_t *scratch)
{
    if (r > INT_MAX || ld > INT_MAX)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "%" PRId64 " rows of %" PRId64 " numbers that lie %" PRId64
            " apart are too large for LAPACK",
            r, n, ld);
    *scratch = dn_lq_scratch(complex, r, n);
    return DANAUS_OK;
}

/* LAPACK sees a transposed: a^T = Q' R', a = R'^T Q'^T. One row is normalised by
   hand: nearly all blocks of rank-one chains are that. */
void dn_lq(int complex, int64_t r, int64_t n, dn_matrix a, dn_matrix l, double *scratch)
{
    int64_t k = MIN(r, n), w = complex ? 2 : 1;
    if (r == 1) {
        double norm = sqrt(dn_energy(complex, 1, n, a));
        for (int64_t x = 0; x < n * w; x++)
            a.at[x] = norm > 0 ? a.at[x] / norm : x == 0;
        memset(l.at, 0, (size_t)w * sizeof(double));
        l.at[0] = norm;
        return;
    }
    double *tau = dn_take(&scratch, k * w);
    int rows = (int)n, cols = (int)r, small = (int)k, ld = (int)a.ld, info;
    int lwork = lq_work(r);
    if (complex)
        dn_lapack.zgeqrf(&rows, &cols, a.at, &ld, tau, scratch, &lwork, &info);
    else
        dn_lapack.dgeqrf(&rows, &cols, a.at, &ld, tau, scratch, &lwork, &info);
    dn_zero(complex, r, k, l);
    for (int64_t i = 0; i < r; i++)
        dn_copy(
            complex, 1, MIN(i + 1, k), (dn_matrix){ a.at + i * a.ld * w, 0 },
            (dn_matrix){ l.at + i * l.ld * w, 0 });
    if (complex)
        dn_lapack.zungqr(&rows, &small, &small, a.at, &ld, tau, scratch, &lwork, &info);
    else
        dn_lapack.dorgqr(&rows, &small, &small, a.at, &ld, tau, scratch, &lwork, &info);
}

/* BLAS sees c^T = op(b)^T op(a)^T, and op(b)^T is b^T or its adjoint. */
void dn_gemm_run(const dn_gemm *g, dn_matrix a, dn_matrix b, dn_matrix c)
{
    int m = (int)g->n, n = (int)g->m, k = (int)g->k;
    int lda = (int)b.ld, ldb = (int)a.ld, ldc = (int)c.ld;
    double alpha[2] = { 1, 0 }, beta[2] = { g->beta, 0 };
    (g->complex ? dn_lapack.zgemm : dn_lapack.dgemm)(
        g->adjoint_b ? "C" : "N", g->adjoint_a ? "C" : "N", &m, &n, &k, alpha, b.at,
        &lda, a.at, &ldb, beta, c.at, &ldc);
}

/* A row-major g is conj(g) to LAPACK, whose U^H U = conj(g) has U^T = L. */
int dn_cholesky(int complex, int64_t n, dn_matrix g)
{
    int size = (int)n, ld = (int)g.ld, info = 0;
    (complex ? dn_lapack.zpotrf : dn_lapack.dpotrf)("U", &size, g.at, &ld, &info);
    return info;
}

/* y L = x is L^T y^T = x^T, and y L^H = x is conj(L) y^T = x^T. */
void dn_triangle_solve(
    int complex, int adjoint, int64_t m, int64_t n, dn_matrix x, dn_matrix lower)
{
    int rows = (int)n, cols = (int)m, ldx = (int)x.ld, ldl = (int)lower.ld;
    double one[2] = { 1, 0 };
    (complex ? dn_lapack.ztrsm : dn_lapack.dtrsm)(
        "L", "U", adjoint ? "C" : "N", "N", &rows, &cols, one, lower.at, &ldl, x.at,
        &ldx);
}

int64_t dn_interpolate_scratch(int complex, int64_t k, int64_t n)
{
    int64_t lwork = 2 * n + BLOCK * (n + 1);
    return (complex ? 2 : 1) * (k + lwork + k * n) + 2 * n + n;
}

/* The numerical rank of a triangle whose columns are k numbers apart. */
static int64_t rank_of(int complex, int64_t k, const double *columns)
{
    int64_t w = complex ? 2 : 1, rank = 0;
    double first = hypot(columns[0], complex ? columns[1] : 0);
    for (; rank < k; rank++) {
        const double *r = columns + (rank * k + rank) * w;
        if (!(hypot(r[0], complex ? r[1] : 0) > 1e-14 * first))
            break;
    }
    return rank;
}

/* a P = Q (R_1 R_2), and a_2 = Q R_2 = a_1 R_1^-1 R_2. */
void dn_interpolate(
    int complex, int64_t k, int64_t n, double *at, int64_t *pivots, double *scratch)
{
    int64_t w = complex ? 2 : 1, lwork = 2 * n + BLOCK * (n + 1);
    double *tau = dn_take(&scratch, k * w), *work = dn_take(&scratch, lwork * w);
    double *columns = dn_take(&scratch, k * n * w), *rwork = dn_take(&scratch, 2 * n);
    int *order = (int *)scratch, rows = (int)k, cols = (int)n, size = (int)lwork, info;
    memset(order, 0, (size_t)n * sizeof *order);
    memcpy(columns, at, (size_t)(k * n * w) * sizeof *at);
    if (complex)
        dn_lapack.zgeqp3(
            &rows, &cols, columns, &rows, order, tau, work, &size, rwork, &info);
    else
        dn_lapack.dgeqp3(&rows, &cols, columns, &rows, order, tau, work, &size, &info);
    int used = (int)rank_of(complex, k, columns), rest = (int)(n - k);
    double one[2] = { 1, 0 };
    if (used > 0 && rest > 0)
        (complex ? dn_lapack.ztrsm : dn_lapack.dtrsm)(
            "L", "U", "N", "N", &used, &rest, one, columns, &rows, columns + k * k * w,
            &rows);
    memset(at, 0, (size_t)(k * n * w) * sizeof *at);
    for (int64_t t = 0; t < n; t++) {
        double *to = at + (order[t] - 1) * k * w;
        if (t >= k)
            memcpy(to, columns + t * k * w, (size_t)(used * w) * sizeof *at);
        else {
            pivots[t] = order[t] - 1;
            to[t * w] = 1;
        }
    }
}

int dn_lu(int complex, int64_t n, double *a, int *pivots)
{
    int size = (int)n, info = 0;
    (complex ? dn_lapack.zgetrf
             : dn_lapack.dgetrf)(&size, &size, a, &size, pivots, &info);
    return info;
}

void dn_lu_invert(int complex, int64_t n, double *a, const int *pivots, double *work)
{
    int size = (int)n, lwork = size * DN_LU_WORK, info = 0;
    (complex ? dn_lapack.zgetri
             : dn_lapack.dgetri)(&size, a, &size, pivots, work, &lwork, &info);
}

/* LAPACK's matrix is a^T. */
void dn_lu_solve(
    int complex, int64_t n, const double *a, const int *pivots, int64_t count,
    double *rows)
{
    int size = (int)n, columns = (int)count, info = 0;
    (complex ? dn_lapack.zgetrs : dn_lapack.dgetrs)(
        "T", &size, &columns, a, &size, pivots, rows, &size, &info);
}

/* Its norm by rows is that of a by columns. */
double dn_lu_inverse_norm(
    int complex, int64_t n, const double *a, double norm, double *work)
{
    int size = (int)n, info = 0;
    double reciprocal = 0, *rest = work + 4 * n;
    if (complex)
        dn_lapack.zgecon("I", &size, a, &size, &norm, &reciprocal, work, rest, &info);
    else
        dn_lapack.dgecon(
            "I", &size, a, &size, &norm, &reciprocal, work, (int *)rest, &info);
    return 1 / (reciprocal * norm);
}
