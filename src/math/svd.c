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

   What is dropped is summed from residuals or from dropped singular values, never
   from differences of norms, which cancel. */
// SPDX-License-Identifier: Apache-2.0
#include "math/svd.h"

#include "math/tridiagonal.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { WHOLE, PAIR, GRAM, LAPACK, KRYLOV };

/* Krylov: blocks of r + OVERSAMPLING vectors (one vector for r = 1), so many blocks. */
enum { OVERSAMPLING = 2, BLOCKS = 3, BLOCKS_OF_ONE = 7 };

/* Fixed numbers in [-1, 1): what is random about them is that no matrix of interest
   has anything to do with them. */
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

#define TARGET
#define LANES    4
#define COMPLEX  0
#define FN(name) name##_real
#include "math/svd.inc"
#define COMPLEX  1
#define FN(name) name##_complex
#include "math/svd.inc"
#undef TARGET
#undef LANES

#ifdef __x86_64__
#    define TARGET   __attribute__((target("avx2,fma")))
#    define LANES    8
#    define COMPLEX  0
#    define FN(name) name##_real_avx2
#    include "math/svd.inc"
#    define COMPLEX  1
#    define FN(name) name##_complex_avx2
#    include "math/svd.inc"

static const methods *methods_of(const dn_svd *svd)
{
    if (dn_has_avx2())
        return svd->complex ? &methods_complex_avx2 : &methods_real_avx2;
    return svd->complex ? &methods_complex : &methods_real;
}
#else
static const methods *methods_of(const dn_svd *svd)
{
    return svd->complex ? &methods_complex : &methods_real;
}
#endif

/* ---- LAPACK: column-major, so that it sees every matrix transposed ---- */

void dgesdd_(
    const char *job, const int *m, const int *n, double *a, const int *lda, double *s,
    double *u, const int *ldu, double *vt, const int *ldvt, double *work,
    const int *lwork, int *iwork, int *info);
void zgesdd_(
    const char *job, const int *m, const int *n, double *a, const int *lda, double *s,
    double *u, const int *ldu, double *vt, const int *ldvt, double *work,
    const int *lwork, double *rwork, int *iwork, int *info);
void dsyevr_(
    const char *job, const char *range, const char *half, const int *n, double *a,
    const int *lda, const double *vl, const double *vu, const int *il, const int *iu,
    const double *tolerance, int *found, double *w, double *z, const int *ldz,
    int *support, double *work, const int *lwork, int *iwork, const int *liwork,
    int *info);
void zheevr_(
    const char *job, const char *range, const char *half, const int *n, double *a,
    const int *lda, const double *vl, const double *vu, const int *il, const int *iu,
    const double *tolerance, int *found, double *w, double *z, const int *ldz,
    int *support, double *work, const int *lwork, double *rwork, const int *lrwork,
    int *iwork, const int *liwork, int *info);
void dgeqrf_(
    const int *m, const int *n, double *a, const int *lda, double *tau, double *work,
    const int *lwork, int *info);
void zgeqrf_(
    const int *m, const int *n, double *a, const int *lda, double *tau, double *work,
    const int *lwork, int *info);
void dorgqr_(
    const int *m, const int *n, const int *k, double *a, const int *lda,
    const double *tau, double *work, const int *lwork, int *info);
void zungqr_(
    const int *m, const int *n, const int *k, double *a, const int *lda,
    const double *tau, double *work, const int *lwork, int *info);

/* OpenBLAS has these; with another BLAS they are NULL and nothing is done. */
__attribute__((weak)) int openblas_get_num_threads(void);
__attribute__((weak)) void openblas_set_num_threads(int threads);

static atomic_flag changing = ATOMIC_FLAG_INIT;
static int callers, threads_before;

static void change_callers(int by)
{
    if (!openblas_get_num_threads || !openblas_set_num_threads)
        return;
    while (atomic_flag_test_and_set(&changing))
        continue;
    if (callers == 0)
        threads_before = openblas_get_num_threads();
    callers += by;
    openblas_set_num_threads(callers ? 1 : threads_before);
    atomic_flag_clear(&changing);
}

void dn_lapack_alone(void) { change_callers(1); }

void dn_lapack_as_before(void) { change_callers(-1); }

static int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t larger(int64_t x, int64_t y) { return x > y ? x : y; }

/* The next `count` doubles of a scratch area. */
static double *take(double **scratch, int64_t count)
{
    double *taken = *scratch;
    *scratch += count;
    return taken;
}

/* b[m][n] = u[m][k] diag(s) v[k][n]; b is destroyed. A row-major b is LAPACK's
   transpose, n x m, whose left factor is therefore v and whose right one is u. With
   lwork = -1 the best lwork is written to work[0]. */
static int gesdd(
    int complex, int64_t m, int64_t n, double *b, double *s, double *u, double *v,
    double *work, int lwork, double *rest)
{
    int rows = (int)n, cols = (int)m, k = (int)smaller(m, n), info = 0;
    int *iwork = (int *)(rest ? take(&rest, 4 * k) : NULL);
    if (complex)
        zgesdd_(
            "S", &rows, &cols, b, &rows, s, v, &rows, u, &k, work, &lwork, rest, iwork,
            &info);
    else
        dgesdd_(
            "S", &rows, &cols, b, &rows, s, v, &rows, u, &k, work, &lwork, iwork,
            &info);
    return info;
}

/* Doubles of integer and real work space that gesdd needs beside `work`. */
static int64_t gesdd_rest(int64_t m, int64_t n)
{
    int64_t k = smaller(m, n), x = larger(m, n);
    return 4 * k + larger(5 * k * k + 5 * k, 2 * x * k + 2 * k * k + k);
}

/* The top eigenvector of g[k][k], which is destroyed. What LAPACK takes for the upper
   half of a row-major g is its lower half, that of conj(g). rest: heevr_rest(k)
   doubles. */
static int heevr(
    int complex, int k, double *g, double *vector, double *work, int lwork,
    double *rest)
{
    double none = 0, *values = take(&rest, k);
    int found = 0, info = 0, liwork = 10 * k, lrwork = 24 * k;
    int *iwork = (int *)take(&rest, 5 * k), *support = (int *)take(&rest, 1);
    if (complex) {
        zheevr_(
            "V", "I", "U", &k, g, &k, &none, &none, &k, &k, &none, &found, values,
            vector, &k, support, work, &lwork, rest, &lrwork, iwork, &liwork, &info);
        for (int i = 0; i < k; i++)
            vector[2 * i + 1] = -vector[2 * i + 1];
    } else {
        dsyevr_(
            "V", "I", "U", &k, g, &k, &none, &none, &k, &k, &none, &found, values,
            vector, &k, support, work, &lwork, iwork, &liwork, &info);
    }
    return info;
}

static int64_t heevr_rest(int64_t k) { return 30 * k + 1; }

/* ---- the methods ---- */

static int width_of(const dn_svd *svd) { return svd->complex ? 2 : 1; }

/* LAPACK builds differ in the phases of singular vectors; results shall not. */
static void fix_phases(const dn_svd *svd, dn_matrix u, dn_matrix v)
{
    int64_t width = width_of(svd);
    for (int64_t t = 0; t < svd->rank; t++)
        methods_of(svd)->fix_phase(
            svd->m, svd->n, (dn_matrix){ u.at + t * width, u.ld },
            v.at + t * v.ld * width);
}

static int64_t lapack_scratch(const dn_svd *svd)
{
    int64_t k = smaller(svd->m, svd->n),
            values = svd->m * svd->n + (svd->m + svd->n) * k;
    return width_of(svd) * (values + svd->work) + k + gesdd_rest(svd->m, svd->n);
}

static int run_lapack(
    const dn_svd *svd, dn_matrix b, dn_matrix u, dn_matrix v, double *dropped,
    double *scratch)
{
    int64_t m = svd->m, n = svd->n, k = smaller(m, n), w = width_of(svd);
    dn_matrix copy = { take(&scratch, m * n * w), n };
    dn_matrix left = { take(&scratch, m * k * w), k };
    dn_matrix right = { take(&scratch, k * n * w), n };
    double *s = take(&scratch, k), *work = take(&scratch, svd->work * w);
    dn_copy(svd->complex, m, n, b, copy);
    int info = gesdd(
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
    int64_t k = smaller(svd->m, svd->n);
    int64_t lanczos = width_of(svd) * (k + 2) * k + 5 * k;
    int64_t lapack = width_of(svd) * svd->work + heevr_rest(k);
    return width_of(svd) * (k * k + svd->m + svd->n) + larger(lanczos, lapack);
}

/* Lanczos' method is several times faster than LAPACK's; where it cannot be certain,
   LAPACK decides. */
static int top_vector(
    const dn_svd *svd, int64_t k, double *gram, double *vector, double *scratch)
{
    int certain = methods_of(svd)->lanczos(k, gram, vector, scratch);
    if (certain)
        return 0;
    double *work = take(&scratch, svd->work * width_of(svd));
    return heevr(svd->complex, (int)k, gram, vector, work, svd->work, scratch);
}

static int run_gram(
    const dn_svd *svd, dn_matrix b, dn_matrix u, dn_matrix v, double *dropped,
    double *scratch)
{
    int64_t m = svd->m, n = svd->n, k = smaller(m, n), w = width_of(svd);
    dn_matrix gram = { take(&scratch, k * k * w), k };
    dn_matrix top = { take(&scratch, m * w), 1 };
    double *row = take(&scratch, n * w);
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
    methods_of(svd)->move_sigma(m, n, kept, from, svd->sigma, u, v.at);
    fix_phases(svd, u, v);
    return 0;
}

static int64_t lq_scratch(int complex, int64_t r, int64_t n)
{
    int64_t k = smaller(r, n);
    return (complex ? 2 : 1) * (k + 64 * larger(r, k));
}

int64_t dn_lq_scratch(int complex, int64_t r, int64_t n)
{
    return lq_scratch(complex, r, n);
}

/* LAPACK sees a transposed: a^T = Q' R', a = R'^T Q'^T. One row is normalised by
   hand: nearly all blocks of rank-one chains are that. */
void dn_lq(int complex, int64_t r, int64_t n, dn_matrix a, dn_matrix l, double *scratch)
{
    int64_t k = smaller(r, n), w = complex ? 2 : 1;
    if (r == 1) {
        double norm = sqrt(dn_energy(complex, 1, n, a));
        for (int64_t x = 0; x < n * w; x++)
            a.at[x] = norm > 0 ? a.at[x] / norm : x == 0;
        memset(l.at, 0, (size_t)w * sizeof(double));
        l.at[0] = norm;
        return;
    }
    double *tau = take(&scratch, k * w);
    int rows = (int)n, cols = (int)r, small = (int)k, ld = (int)a.ld, info;
    int lwork = (int)(64 * larger(r, k));
    if (complex)
        zgeqrf_(&rows, &cols, a.at, &ld, tau, scratch, &lwork, &info);
    else
        dgeqrf_(&rows, &cols, a.at, &ld, tau, scratch, &lwork, &info);
    dn_zero(complex, r, k, l);
    for (int64_t i = 0; i < r; i++)
        dn_copy(
            complex, 1, smaller(i + 1, k), (dn_matrix){ a.at + i * a.ld * w, 0 },
            (dn_matrix){ l.at + i * l.ld * w, 0 });
    if (complex)
        zungqr_(&rows, &small, &small, a.at, &ld, tau, scratch, &lwork, &info);
    else
        dorgqr_(&rows, &small, &small, a.at, &ld, tau, scratch, &lwork, &info);
}

static int64_t whole_scratch(const dn_svd *svd)
{
    int64_t m = svd->m, n = svd->n, k = smaller(m, n);
    return width_of(svd) * (m * n + k * k) + lq_scratch(svd->complex, k, larger(m, n));
}

/* Nothing is lost: u v = b exactly, with the identity on the short side, or b = LQ. */
static void run_whole(
    const dn_svd *svd, dn_matrix b, dn_matrix u, dn_matrix v, double *scratch)
{
    int64_t m = svd->m, n = svd->n, k = smaller(m, n), w = width_of(svd);
    int complex = svd->complex, right = svd->sigma == DN_SIGMA_RIGHT;
    dn_matrix unit = right ? u : v;
    if (right ? m == k : n == k) {
        dn_zero(complex, k, k, unit);
        for (int64_t t = 0; t < k; t++)
            unit.at[(t * unit.ld + t) * w] = 1;
        dn_copy(complex, m, n, b, right ? v : u);
    } else if (right) { /* tall: b^H = L Q, u = Q^H, v = L^H */
        dn_matrix q = { take(&scratch, m * n * w), m };
        dn_matrix l = { take(&scratch, k * k * w), k };
        dn_adjoint(complex, m, n, b, q);
        dn_lq(complex, n, m, q, l, scratch);
        dn_adjoint(complex, n, m, q, u);
        dn_adjoint(complex, n, n, l, v);
    } else { /* wide */
        dn_copy(complex, m, n, b, v);
        dn_lq(complex, m, n, v, u, scratch);
    }
}

static int64_t krylov_scratch(const dn_svd *svd, const dn_svd *inner)
{
    int64_t q = svd->basis, m = svd->m, n = svd->n;
    return width_of(svd) * (q * m + 2 * q * n + q * svd->rank + n) + inner->scratch;
}

static dn_svd inner_of(const dn_svd *svd)
{
    dn_svd inner = { .complex = svd->complex,
                     .m = svd->basis,
                     .n = svd->n,
                     .rank = svd->rank,
                     .sigma = svd->sigma };
    dn_svd_plan(&inner);
    return inner;
}

static int run_krylov(
    const dn_svd *svd, dn_matrix b, dn_matrix u, dn_matrix v, double *dropped,
    double *scratch)
{
    int64_t m = svd->m, n = svd->n, q = svd->basis, w = width_of(svd);
    int64_t step = svd->rank == 1 ? 1 : svd->rank + OVERSAMPLING;
    int complex = svd->complex;
    double *basis = take(&scratch, q * m * w), *image = take(&scratch, q * n * w);
    double *start = take(&scratch, q * n * w), *row = take(&scratch, n * w);
    dn_matrix small = { take(&scratch, q * svd->rank * w), svd->rank };
    fill_random(start, step * n * w);
    for (int64_t done = 0; done < q; done += step) {
        dn_matrix rows = { basis + done * m * w, m };
        dn_matrix from = { done ? image + (done - step) * n * w : start, n };
        dn_times_adjoint(complex, step, m, n, from, b, rows);
        for (int64_t t = done; t < done + step; t++)
            methods_of(svd)->orthonormalise(m, t, basis, basis + t * m * w);
        dn_times(complex, step, n, m, rows, b, (dn_matrix){ image + done * n * w, n });
    }
    dn_svd inner = inner_of(svd);
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
    int64_t k = smaller(svd->m, svd->n), r = svd->rank;
    if (svd->sigma == DN_SIGMA_BOTH && (r > 1 || k == 1))
        return LAPACK;
    if (r == k)
        return WHOLE;
    if (r == 1 && k == 2)
        return PAIR;
    svd->basis = (int)(r == 1 ? BLOCKS_OF_ONE : BLOCKS * (r + OVERSAMPLING));
    if (svd->fast && svd->basis <= k / 2)
        return KRYLOV;
    return r == 1 ? GRAM : LAPACK;
}

void dn_svd_plan(dn_svd *svd)
{
    double best[2] = { 0 };
    int64_t k = smaller(svd->m, svd->n);
    svd->method = choose_method(svd);
    svd->work = 0;
    svd->scratch = 0;
    if (svd->method == LAPACK) {
        gesdd(svd->complex, svd->m, svd->n, best, best, best, best, best, -1, NULL);
        svd->work = (int)best[0];
        svd->scratch = lapack_scratch(svd);
    } else if (svd->method == GRAM) {
        svd->work = 40 * (int)k; /* at least 26 k; 38 k for blocks of 32 */
        svd->scratch = gram_scratch(svd);
    } else if (svd->method == WHOLE) {
        svd->scratch = whole_scratch(svd);
    } else if (svd->method == KRYLOV) {
        dn_svd inner = inner_of(svd);
        svd->scratch = krylov_scratch(svd, &inner);
    }
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
            methods_of(svd)->rank_one_of_columns(svd, b, u, v.at, dropped);
        else
            methods_of(svd)->rank_one_of_rows(svd, b, u, v.at, dropped);
        return 0;
    case GRAM: return run_gram(svd, b, u, v, dropped, scratch);
    case LAPACK: return run_lapack(svd, b, u, v, dropped, scratch);
    default: return run_krylov(svd, b, u, v, dropped, scratch);
    }
}
