/* Truncated SVD of one block b, m x n, k = min(m, n), rank r. The methods:

   WHOLE    r = k: nothing is lost; the identity and b, or b = LQ.
   PAIR     r = 1, k = 2: eigenvector of the 2 x 2 Gram matrix in closed form.
   GRAM     r = 1: top eigenvector u of b b^H (or of b^H b), then v = u^H b. For rank
            one this loses nothing: an angle error t costs t^2 (s_1^2 - s_2^2), and
            t <= eps s_1^2 / (s_1^2 - s_2^2). The eigenvector comes from Lanczos'
            method with a certificate that none is larger, or from LAPACK.
   LAPACK   r > 1: gesdd. (The Gram matrix would cost eps s_1 / s_r.)
   KRYLOV   fast, r << k: orthonormal basis Q of b z, b b^H b z, ..., for a few random
            z, and one of the methods above for Q^H b, which is small and wide.

   The error is summed from residuals or from dropped singular values, never from
   differences of norms, which cancel. */
// SPDX-License-Identifier: Apache-2.0
#include "math/svd.h"

#include "base/numbers.h"
#include "base/status.h"
#include "math/lapack.h"
#include "math/tridiagonal.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum { WHOLE, PAIR, GRAM, LAPACK, KRYLOV };

/* Krylov: blocks of r + OVERSAMPLING vectors (one vector for r = 1), so many blocks. */
enum { OVERSAMPLING = 2, BLOCKS = 3, BLOCKS_OF_ONE = 7 };

/* Fixed pseudo-random numbers in [-1, 1), which are unrelated to any matrix of interest. */
static void fill_random(double *to, int64_t count)
{
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    for (int64_t i = 0; i < count; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        to[i] = (double)(int64_t)state * 0x1p-63;
    }
}

typedef void rank_one(
    const dn_svd *svd, dn_matrix b, dn_matrix u, double *v, double *dropped);

/* What svd.inc has for an element type. */
typedef struct methods {
    rank_one *rank_one_of_rows, *rank_one_of_columns;
    void (*move_sigma)(
        int64_t m, int64_t n, double energy, dn_sigma from, dn_sigma to, dn_matrix u,
        double *v);
    void (*fix_phase)(int64_t m, int64_t n, dn_matrix u, double *v);
    void (*orthonormalise)(int64_t n, int64_t count, const double *rows, double *row);
    int (*lanczos)(int64_t k, const double *g, double *vector, double *scratch);
} methods;

#define TEXT  "math/svd.inc"
#define TABLE methods
#include "math/variants.inc"

/* ---- the methods ---- */

static int width_of(const dn_svd *svd) { return svd->complex ? 2 : 1; }

/* LAPACK builds differ in the phases of singular vectors; results shall not. */
static void fix_phases(const dn_svd *svd, dn_matrix u, dn_matrix v)
{
    int64_t width = width_of(svd);
    for (int64_t t = 0; t < svd->rank; t++)
        table_of(svd->complex)
            ->fix_phase(
                svd->m, svd->n, (dn_matrix){ u.at + t * width, u.ld },
                v.at + t * v.ld * width);
}

static int64_t lapack_scratch(const dn_svd *svd)
{
    int64_t k = MIN(svd->m, svd->n), values = svd->m * svd->n + (svd->m + svd->n) * k;
    return width_of(svd) * (values + svd->work) + k + dn_gesdd_rest(svd->m, svd->n);
}

static int run_lapack(
    const dn_svd *svd, dn_matrix b, dn_matrix u, dn_matrix v, double *dropped,
    double *scratch)
{
    int64_t m = svd->m, n = svd->n, k = MIN(m, n), w = width_of(svd);
    dn_matrix copy = { dn_take(&scratch, m * n * w), n };
    dn_matrix left = { dn_take(&scratch, m * k * w), k };
    dn_matrix right = { dn_take(&scratch, k * n * w), n };
    double *s = dn_take(&scratch, k), *work = dn_take(&scratch, svd->work * w);
    dn_copy(svd->complex, m, n, b, copy);
    int info = dn_gesdd(
        svd->complex, m, n, copy.at, s, left.at, right.at, work, svd->work, scratch);
    if (info)
        return info;
    *dropped = 0;
    for (int64_t t = svd->rank; t < k; t++)
        *dropped += s[t] * s[t];
    double share = svd->sigma == DN_SIGMA_BOTH ? 0.5 : svd->sigma == DN_SIGMA_LEFT;
    for (int64_t t = 0; t < svd->rank; t++) {
        double to_u = pow(s[t], share), to_v = pow(s[t], 1 - share);
        for (int64_t r = 0; r < m; r++)
            for (int64_t x = 0; x < w; x++)
                u.at[(r * u.ld + t) * w + x] = to_u * left.at[(r * k + t) * w + x];
        for (int64_t x = 0; x < n * w; x++)
            v.at[t * v.ld * w + x] = to_v * right.at[t * n * w + x];
    }
    fix_phases(svd, u, v);
    return 0;
}

static int64_t gram_scratch(const dn_svd *svd)
{
    int64_t k = MIN(svd->m, svd->n);
    int64_t lanczos = width_of(svd) * (k + 2) * k + 5 * k;
    return width_of(svd) * (k * k + svd->m + svd->n) +
           MAX(lanczos, dn_heevr_scratch(svd->complex, k));
}

/* Lanczos' method is several times faster than LAPACK's; where it cannot be certain,
   LAPACK decides. */
static int top_vector(
    const dn_svd *svd, int64_t k, double *gram, double *vector, double *scratch)
{
    int certain = table_of(svd->complex)->lanczos(k, gram, vector, scratch);
    if (certain)
        return 0;
    return dn_heevr(svd->complex, k, gram, vector, scratch);
}

static int run_gram(
    const dn_svd *svd, dn_matrix b, dn_matrix u, dn_matrix v, double *dropped,
    double *scratch)
{
    int64_t m = svd->m, n = svd->n, k = MIN(m, n), w = width_of(svd);
    dn_matrix gram = { dn_take(&scratch, k * k * w), k };
    dn_matrix top = { dn_take(&scratch, m * w), 1 };
    double *row = dn_take(&scratch, n * w);
    int complex = svd->complex, info;
    if (m <= n)
        dn_gram(complex, m, n, b, gram);
    else
        dn_adjoint_times(complex, n, n, m, b, b, gram);
    info = top_vector(svd, k, gram.at, m <= n ? top.at : row, scratch);
    if (info)
        return info;
    dn_sigma from = m <= n ? DN_SIGMA_RIGHT : DN_SIGMA_LEFT;
    if (m <= n) {
        dn_copy(complex, m, 1, top, u);
        dn_adjoint_times(complex, 1, n, m, u, b, v);
    } else {
        dn_adjoint(complex, n, 1, (dn_matrix){ row, 1 }, v);
        dn_times_adjoint(complex, m, 1, n, b, v, u);
    }
    double kept = m <= n ? dn_energy(complex, 1, n, v) : dn_energy(complex, m, 1, u);
    *dropped = dn_residual(complex, m, n, 1, b, u, v, row);
    table_of(svd->complex)->move_sigma(m, n, kept, from, svd->sigma, u, v.at);
    fix_phases(svd, u, v);
    return 0;
}

static int64_t whole_scratch(const dn_svd *svd)
{
    int64_t m = svd->m, n = svd->n, k = MIN(m, n);
    return width_of(svd) * (m * n + k * k) + dn_lq_scratch(svd->complex, k, MAX(m, n));
}

/* Nothing is lost: u v = b exactly, with the identity on the short side, or b = LQ. */
static void run_whole(
    const dn_svd *svd, dn_matrix b, dn_matrix u, dn_matrix v, double *scratch)
{
    int64_t m = svd->m, n = svd->n, k = MIN(m, n), w = width_of(svd);
    int complex = svd->complex, right = svd->sigma == DN_SIGMA_RIGHT;
    dn_matrix unit = right ? u : v;
    if (right ? m == k : n == k) {
        dn_zero(complex, k, k, unit);
        for (int64_t t = 0; t < k; t++)
            unit.at[(t * unit.ld + t) * w] = 1;
        dn_copy(complex, m, n, b, right ? v : u);
    } else if (right) { /* tall: b^H = L Q, u = Q^H, v = L^H */
        dn_matrix q = { dn_take(&scratch, m * n * w), m };
        dn_matrix l = { dn_take(&scratch, k * k * w), k };
        dn_adjoint(complex, m, n, b, q);
        dn_lq(complex, n, m, q, l, scratch);
        dn_adjoint(complex, n, m, q, u);
        dn_adjoint(complex, n, n, l, v);
    } else { /* wide: in place, where LAPACK can count from row to row */
        dn_matrix q =
            v.ld <= INT_MAX ? v : (dn_matrix){ dn_take(&scratch, m * n * w), n };
        dn_copy(complex, m, n, b, q);
        dn_lq(complex, m, n, q, u, scratch);
        if (q.at != v.at)
            dn_copy(complex, m, n, q, v);
    }
}

static int64_t krylov_scratch(const dn_svd *svd, const dn_svd *inner)
{
    int64_t q = svd->basis, m = svd->m, n = svd->n;
    return width_of(svd) * (q * m + 2 * q * n + q * svd->rank + n) + inner->scratch;
}

static danaus_status plan_inner(const dn_svd *svd, dn_svd *inner)
{
    *inner = (dn_svd){ .complex = svd->complex,
                       .m = svd->basis,
                       .n = svd->n,
                       .rank = svd->rank,
                       .sigma = svd->sigma };
    return dn_svd_plan(inner);
}

static int run_krylov(
    const dn_svd *svd, dn_matrix b, dn_matrix u, dn_matrix v, double *dropped,
    double *scratch)
{
    int64_t m = svd->m, n = svd->n, q = svd->basis, w = width_of(svd);
    int64_t step = svd->rank == 1 ? 1 : svd->rank + OVERSAMPLING;
    int complex = svd->complex;
    double *basis = dn_take(&scratch, q * m * w), *image = dn_take(&scratch, q * n * w);
    double *start = dn_take(&scratch, q * n * w), *row = dn_take(&scratch, n * w);
    dn_matrix small = { dn_take(&scratch, q * svd->rank * w), svd->rank };
    fill_random(start, step * n * w);
    for (int64_t done = 0; done < q; done += step) {
        dn_matrix rows = { basis + done * m * w, m };
        dn_matrix from = { done ? image + (done - step) * n * w : start, n };
        dn_times_adjoint(complex, step, m, n, from, b, rows);
        for (int64_t t = done; t < done + step; t++)
            table_of(svd->complex)->orthonormalise(m, t, basis, basis + t * m * w);
        dn_times(complex, step, n, m, rows, b, (dn_matrix){ image + done * n * w, n });
    }
    dn_svd inner;
    plan_inner(svd, &inner);
    int info = dn_svd_run(&inner, (dn_matrix){ image, n }, small, v, dropped, scratch);
    if (info)
        return info;
    dn_adjoint_times(complex, m, svd->rank, q, (dn_matrix){ basis, m }, small, u);
    *dropped = dn_residual(complex, m, n, svd->rank, b, u, v, row);
    return 0;
}

/* ---- the choice ---- */

static int choose_method(dn_svd *svd)
{
    int64_t k = MIN(svd->m, svd->n), r = svd->rank;
    if (svd->sigma == DN_SIGMA_BOTH && (r > 1 || k == 1))
        return LAPACK;
    if (r == k)
        return WHOLE;
    if (r == 1 && k == 2)
        return PAIR;
    svd->basis = r == 1 ? BLOCKS_OF_ONE : BLOCKS * (r + OVERSAMPLING);
    if (svd->fast && svd->basis <= k / 2)
        return KRYLOV;
    return r == 1 ? GRAM : LAPACK;
}

danaus_status dn_svd_plan(dn_svd *svd)
{
    svd->method = choose_method(svd);
    svd->work = 0;
    svd->scratch = 0;
    if (svd->method == LAPACK) {
        TRY(dn_gesdd_plan(svd->complex, svd->m, svd->n, &svd->work));
        svd->scratch = lapack_scratch(svd);
    } else if (svd->method == GRAM) {
        svd->scratch = gram_scratch(svd);
    } else if (svd->method == WHOLE) {
        svd->scratch = whole_scratch(svd);
    } else if (svd->method == KRYLOV) {
        dn_svd inner;
        TRY(plan_inner(svd, &inner));
        svd->scratch = krylov_scratch(svd, &inner);
    }
    return DANAUS_OK;
}

int dn_svd_run(
    const dn_svd *svd, dn_matrix b, dn_matrix u, dn_matrix v, double *dropped,
    double *scratch)
{
    *dropped = 0;
    switch (svd->method) {
    case WHOLE: run_whole(svd, b, u, v, scratch); return 0;
    case PAIR:
        if (svd->m > svd->n)
            table_of(svd->complex)->rank_one_of_columns(svd, b, u, v.at, dropped);
        else
            table_of(svd->complex)->rank_one_of_rows(svd, b, u, v.at, dropped);
        return 0;
    case GRAM: return run_gram(svd, b, u, v, dropped, scratch);
    case LAPACK: return run_lapack(svd, b, u, v, dropped, scratch);
    default: return run_krylov(svd, b, u, v, dropped, scratch);
    }
}
