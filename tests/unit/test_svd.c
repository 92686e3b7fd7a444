/* Truncated singular value decompositions of one block, by every method, against
   one-sided Jacobi rotations in plain loops. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "math/lapack.h"
#include "math/lapack_library.h"
#include "math/svd.h"
#include "math/tridiagonal.h"
#include "support/device.h"
#include "support/matrix.h"

#include <complex.h>
#undef complex
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct split {
    matrix u, v;
    double dropped;
} split;

/* Leading dimensions are larger than the rows, to see that nothing else is written. */
static double *strided(matrix a, int complex, int64_t ld)
{
    int64_t w = complex ? 2 : 1;
    double *to = calloc((size_t)(a.rows * ld * w + 1), sizeof *to);
    for (int64_t x = 0; x < a.rows * ld * w; x++)
        to[x] = 12345;
    for (int64_t r = 0; r < a.rows; r++)
        for (int64_t k = 0; k < a.cols; k++) {
            to[(r * ld + k) * w] = creal(a.at[r * a.cols + k]);
            if (complex)
                to[(r * ld + k) * w + 1] = cimag(a.at[r * a.cols + k]);
        }
    return to;
}

static matrix unstrided(
    double *from, int64_t rows, int64_t cols, int complex, int64_t ld)
{
    int64_t w = complex ? 2 : 1;
    matrix a = matrix_make(rows, cols);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t k = 0; k < cols; k++) {
            double *e = from + (r * ld + k) * w;
            a.at[r * cols + k] = CMPLX(e[0], complex ? e[1] : 0);
        }
        for (int64_t x = cols * w; x < ld * w; x++)
            assert_true(from[r * ld * w + x] == 12345);
    }
    free(from);
    return a;
}

static split decompose(matrix b, int complex, int64_t rank, dn_sigma sigma, int fast)
{
    dn_svd svd = { .complex = complex,
                   .fast = fast,
                   .m = b.rows,
                   .n = b.cols,
                   .rank = rank,
                   .sigma = sigma };
    assert_ok(dn_svd_plan(&svd));
    double *scratch = calloc((size_t)svd.scratch + 1, sizeof *scratch);
    double *from = strided(b, complex, b.cols + 3);
    matrix nothing_u = matrix_make(b.rows, rank), nothing_v = matrix_make(rank, b.cols);
    double *u = strided(nothing_u, complex, rank + 2);
    double *v = strided(nothing_v, complex, b.cols + 1);
    split s;
    scratch[svd.scratch] = 777;
    int info = dn_svd_run(
        &svd, (dn_matrix){ from, b.cols + 3 }, (dn_matrix){ u, rank + 2 },
        (dn_matrix){ v, b.cols + 1 }, &s.dropped, scratch);
    assert_int_equal(info, 0);
    assert_true(scratch[svd.scratch] == 777);
    s.u = unstrided(u, b.rows, rank, complex, rank + 2);
    s.v = unstrided(v, rank, b.cols, complex, b.cols + 1);
    matrix_free(&nothing_u);
    matrix_free(&nothing_v);
    free(scratch);
    free(from);
    return s;
}

static void split_free(split *s)
{
    matrix_free(&s->u);
    matrix_free(&s->v);
}

/* ||a^H a - I||, or ||a a^H - I||. */
static double orthonormality(matrix a, int of_columns)
{
    matrix t = matrix_transposed(a);
    for (int64_t x = 0; x < a.rows * a.cols; x++)
        t.at[x] = conj(t.at[x]);
    matrix g = of_columns ? matrix_times(t, a) : matrix_times(a, t);
    for (int64_t k = 0; k < g.rows; k++)
        g.at[k * g.cols + k] -= 1;
    double norm = matrix_norm(g);
    matrix_free(&t);
    matrix_free(&g);
    return norm;
}

static double residual(matrix b, const split *s)
{
    matrix made = matrix_times(s->u, s->v);
    double distance = matrix_distance(made, b);
    matrix_free(&made);
    return distance;
}

static double optimum(matrix b, int64_t rank)
{
    double s[256], sum = 0;
    matrix_singular_values(b, s);
    for (int64_t k = rank; k < (b.rows < b.cols ? b.rows : b.cols); k++)
        sum += s[k] * s[k];
    return sqrt(sum);
}

static void check_exact(matrix b, int complex, int64_t rank)
{
    double best = optimum(b, rank), norm = matrix_norm(b);
    for (int sigma = DN_SIGMA_RIGHT; sigma <= DN_SIGMA_BOTH; sigma++) {
        split s = decompose(b, complex, rank, (dn_sigma)sigma, 0);
        if (fabs(residual(b, &s) - best) > 1e-13 * norm ||
            fabs(sqrt(s.dropped) - best) > 1e-13 * norm)
            fail_msg(
                "%d x %d rank %d sigma %d: residual %g, dropped %g, optimum %g",
                (int)b.rows, (int)b.cols, (int)rank, sigma, residual(b, &s),
                sqrt(s.dropped), best);
        if (sigma != DN_SIGMA_BOTH && norm > 0)
            assert_true(
                orthonormality(
                    sigma == DN_SIGMA_RIGHT ? s.u : s.v, sigma == DN_SIGMA_RIGHT) <
                1e-12);
        split_free(&s);
    }
}

/* T11.1, T11.4b, and the closed form */
static void every_shape_and_rank_reaches_the_optimum(void **state)
{
    (void)state;
    int64_t sizes[] = { 1, 2, 3, 4, 5, 8, 17, 40 };
    for (size_t x = 0; x < 8; x++)
        for (size_t y = 0; y < 8; y++)
            for (int complex = 0; complex < 2; complex++) {
                rng r = { x * 8 + y };
                int64_t k = sizes[x] < sizes[y] ? sizes[x] : sizes[y];
                matrix b = matrix_gauss(&r, sizes[x], sizes[y], complex);
                for (int64_t rank = 1; rank <= k; rank = rank < 3 ? rank + 1 : 2 * rank)
                    check_exact(b, complex, rank);
                check_exact(b, complex, k);
                matrix_free(&b);
            }
}

/* T11.1, T11.2, T11.3: the spectrum falls by 10^-fall over the rank. */
static void exact_low_rank_is_reproduced(void **state)
{
    (void)state;
    int64_t sizes[][3] = { { 1, 8, 64 },  { 2, 8, 64 },  { 4, 16, 64 },
                           { 1, 64, 64 }, { 3, 40, 50 }, { 1, 2, 30 } };
    double falls[] = { 0, 3, 6, 8 };
    for (int x = 0; x < 6; x++)
        for (int f = 0; f < 4; f++)
            for (int fast = 0; fast < 2; fast++) {
                int64_t rank = sizes[x][0];
                rng r = { (uint64_t)(4 * x + f) };
                matrix left = matrix_gauss(&r, sizes[x][1], rank, 0);
                matrix right = matrix_gauss(&r, rank, sizes[x][2], 0);
                for (int64_t t = 0; rank > 1 && t < rank; t++)
                    for (int64_t l = 0; l < right.cols; l++)
                        right.at[t * right.cols + l] *=
                            pow(10, -falls[f] * (double)t / (double)(rank - 1));
                matrix b = matrix_times(left, right);
                split s = decompose(b, 0, rank, DN_SIGMA_RIGHT, fast);
                assert_true(residual(b, &s) < (fast ? 1e-12 : 1e-14) * matrix_norm(b));
                split_free(&s);
                matrix_free(&left);
                matrix_free(&right);
                matrix_free(&b);
            }
}

/* T11.4 */
static void the_fast_method_is_near_the_optimum_without_gaps(void **state)
{
    (void)state;
    int64_t sizes[][3] = { { 32, 32, 1 }, { 64, 64, 1 }, { 64, 64, 2 }, { 40, 90, 3 } };
    for (int x = 0; x < 4; x++)
        for (int complex = 0; complex < 2; complex++) {
            double best = 0, found = 0;
            for (uint64_t round = 0; round < (uint64_t)rounds_of(30); round++) {
                rng r = { round };
                matrix b = matrix_gauss(&r, sizes[x][0], sizes[x][1], complex);
                split s = decompose(b, complex, sizes[x][2], DN_SIGMA_RIGHT, 1);
                assert_true(fabs(residual(b, &s) - sqrt(s.dropped)) < 1e-10);
                found += s.dropped;
                best += pow(optimum(b, sizes[x][2]), 2);
                split_free(&s);
                matrix_free(&b);
            }
            assert_true(sqrt(found / best) < 1.006 && found >= best * (1 - 1e-12));
        }
}

/* T11.5, T11.6 */
static void zeros_and_deficient_ranks_are_harmless(void **state)
{
    (void)state;
    int64_t sizes[][2] = {
        { 1, 5 }, { 5, 1 }, { 2, 9 }, { 9, 2 }, { 6, 7 }, { 40, 33 }
    };
    for (int x = 0; x < 6; x++)
        for (int complex = 0; complex < 2; complex++)
            for (int ones = 0; ones < 2; ones++) {
                matrix b = matrix_make(sizes[x][0], sizes[x][1]);
                int64_t k = b.rows < b.cols ? b.rows : b.cols;
                for (int64_t at = 0; at < b.rows * b.cols; at++)
                    b.at[at] = ones;
                for (int64_t rank = 1; rank <= k; rank++)
                    check_exact(b, complex, rank);
                for (int fast = 0; fast < 2; fast++) {
                    split s = decompose(b, complex, 1, DN_SIGMA_RIGHT, fast);
                    matrix made = matrix_times(s.u, s.v);
                    assert_true(ones || matrix_norm(made) == 0);
                    assert_true(
                        isfinite(matrix_norm(s.u)) && isfinite(matrix_norm(s.v)));
                    matrix_free(&made);
                    split_free(&s);
                }
                matrix_free(&b);
            }
}

/* Two leading singular values that are equal: any vector between them is right. */
static void equal_singular_values_are_harmless(void **state)
{
    (void)state;
    for (int64_t n = 2; n <= 32; n *= 2)
        for (int complex = 0; complex < 2; complex++) {
            matrix b = matrix_make(n, n);
            for (int64_t k = 0; k < n; k++)
                b.at[k * n + (k + 1) % n] = complex ? CMPLX(0, 1) : 1;
            for (int64_t rank = 1; rank <= n; rank *= 2)
                check_exact(b, complex, rank);
            matrix_free(&b);
        }
}

static void the_largest_entry_of_a_left_vector_is_positive(void **state)
{
    (void)state;
    for (int complex = 0; complex < 2; complex++)
        for (int64_t rank = 1; rank < 4; rank += 2) {
            rng r = { 3 };
            matrix b = matrix_gauss(&r, 12, 9, complex);
            split s = decompose(b, complex, rank, DN_SIGMA_RIGHT, 0);
            for (int64_t t = 0; t < rank; t++) {
                number largest = 0;
                for (int64_t k = 0; k < 12; k++)
                    if (cabs(s.u.at[k * rank + t]) > cabs(largest))
                        largest = s.u.at[k * rank + t];
                assert_true(creal(largest) > 0 && fabs(cimag(largest)) < 1e-15);
            }
            split_free(&s);
            matrix_free(&b);
        }
}

static void rows_are_factored_into_lower_times_orthonormal(void **state)
{
    (void)state;
    int64_t sizes[][2] = { { 1, 1 }, { 1, 7 }, { 3, 8 }, { 8, 3 }, { 5, 5 }, { 4, 1 } };
    for (int x = 0; x < 6; x++)
        for (int complex = 0; complex < 2; complex++)
            for (int zero = 0; zero < 2; zero++) {
                rng r = { (uint64_t)x };
                int64_t rows = sizes[x][0], n = sizes[x][1], k = rows < n ? rows : n;
                matrix a =
                    zero ? matrix_make(rows, n) : matrix_gauss(&r, rows, n, complex);
                matrix nothing = matrix_make(rows, k);
                double *q = strided(a, complex, n + 2);
                double *l = strided(nothing, complex, k + 1);
                double *scratch =
                    calloc((size_t)dn_lq_scratch(complex, rows, n), sizeof *scratch);
                dn_lq(
                    complex, rows, n, (dn_matrix){ q, n + 2 }, (dn_matrix){ l, k + 1 },
                    scratch);
                matrix lower = unstrided(l, rows, k, complex, k + 1);
                matrix all = unstrided(q, rows, n, complex, n + 2);
                matrix rows_of_q = { k, n, all.at },
                       made = matrix_times(lower, rows_of_q);
                assert_true(matrix_distance(made, a) <= 1e-13 * (1 + matrix_norm(a)));
                assert_true(orthonormality(rows_of_q, 0) < 1e-13);
                for (int64_t i = 0; i < rows; i++)
                    for (int64_t t = i + 1; t < k; t++)
                        assert_true(cabs(lower.at[i * k + t]) == 0);
                matrix *each[] = { &a, &nothing, &lower, &all, &made };
                for (int y = 0; y < 5; y++)
                    matrix_free(each[y]);
                free(scratch);
            }
}

/* ---- sizes that LAPACK's 32 bits can hold ---- */

static double queried(int complex, int64_t m, int64_t n)
{
    int rows = (int)n, cols = (int)m, k = (int)(m < n ? m : n), all = -1, info = 0;
    int none[8];
    double x[2], work[2] = { 0 }, rest[1];
    if (complex)
        dn_lapack.zgesdd(
            "S", &rows, &cols, x, &rows, x, x, &rows, x, &k, work, &all, rest, none,
            &info);
    else
        dn_lapack.dgesdd(
            "S", &rows, &cols, x, &rows, x, x, &rows, x, &k, work, &all, none, &info);
    return work[0];
}

/* Planning allocates nothing: blocks of any size can be looked at. */
static void work_space_is_all_that_lapack_can_use(void **state)
{
    (void)state;
    int64_t sizes[] = { 2, 3, 7, 11, 20, 22, 64, 100, 300, 550, 1000, 5000, 20000 };
    enum { COUNT = sizeof sizes / sizeof *sizes };
    for (int complex = 0; complex < 2; complex++)
        for (int x = 0; x < COUNT; x++)
            for (int y = 0; y < COUNT; y++) {
                dn_svd svd = { .complex = complex,
                               .m = sizes[x],
                               .n = sizes[y],
                               .rank = 1,
                               .sigma = DN_SIGMA_BOTH };
                svd.rank = svd.m < svd.n ? svd.m : svd.n;
                assert_ok(dn_svd_plan(&svd));
                assert_true(svd.work >= queried(complex, svd.m, svd.n));
                assert_true(svd.scratch > svd.m * svd.n + svd.work);
            }
}

static void blocks_beyond_lapack_are_refused(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n;
        int complex, fits;
    } cases[] = {
        { 23000, 23000, 0, 1 },     { 26700, 26700, 0, 1 }, { 26800, 26800, 0, 0 },
        { 27000, 27000, 0, 0 },     { 50000, 50000, 0, 0 }, { 24000, 50000, 0, 0 },
        { 60000, 24000, 0, 0 },     { 5, 1 << 30, 0, 1 },   { 1 << 30, 20000, 0, 1 },
        { 32000, 32000, 1, 1 },     { 33000, 33000, 1, 0 }, { INT_MAX, INT_MAX, 1, 0 },
        { INT_MAX, INT_MAX, 0, 0 },
    };
    for (size_t x = 0; x < sizeof cases / sizeof *cases; x++) {
        int64_t m = cases[x].m, n = cases[x].n;
        dn_svd svd = { .complex = cases[x].complex, .m = m, .n = n, .rank = 3 };
        danaus_status status = dn_svd_plan(&svd);
        if ((status == DANAUS_OK) != cases[x].fits)
            fail_msg("%d x %d: status %d", (int)m, (int)n, (int)status);
        if (cases[x].fits)
            assert_true(svd.work > 0);
        else
            assert_status(status, DANAUS_ERR_UNSUPPORTED);
        svd.fast = 1;
        assert_ok(dn_svd_plan(&svd));
    }
    int64_t scratch = 0, most = INT_MAX;
    assert_ok(dn_lq_plan(0, 3, 4, most, &scratch));
    assert_ok(dn_lq_plan(0, most, most, most, &scratch));
    assert_true(scratch >= 2 * most);
    assert_status(dn_lq_plan(0, 3, 4, most + 1, &scratch), DANAUS_ERR_UNSUPPORTED);
    assert_status(dn_lq_plan(0, most + 1, 4, 9, &scratch), DANAUS_ERR_UNSUPPORTED);
}

/* Two rows of eight gigabytes each, of which some bytes are touched. */
static void rows_may_lie_farther_apart_than_lapack_counts(void **state)
{
    (void)state;
    int64_t ld = (INT64_C(1) << 31) + 8;
    size_t bytes = (size_t)(ld + 8) * sizeof(double);
    void *at = mmap(
        NULL, bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        skip();
    double b[10] = { 1, 2, 3, 4, 5, -1, 0, 2, 1, 1 }, u[4], *v = at, dropped, product;
    dn_svd svd = { .m = 2, .n = 5, .rank = 2, .sigma = DN_SIGMA_LEFT };
    assert_ok(dn_svd_plan(&svd));
    double *scratch = calloc((size_t)svd.scratch, sizeof *scratch);
    assert_int_equal(
        dn_svd_run(
            &svd, (dn_matrix){ b, 5 }, (dn_matrix){ u, 2 }, (dn_matrix){ v, ld },
            &dropped, scratch),
        0);
    for (int r = 0; r < 2; r++)
        for (int k = 0; k < 5; k++) {
            product = u[2 * r] * v[k] + u[2 * r + 1] * v[ld + k];
            assert_true(fabs(product - b[5 * r + k]) < 1e-13);
        }
    free(scratch);
    munmap(at, bytes);
}

/* Lanczos' method starts from these numbers; it must notice that it cannot see a top
   vector that is orthogonal to them. */
static void a_start_that_misses_the_top_vector_is_noticed(void **state)
{
    (void)state;
    double start[3], norm = 0;
    uint64_t random = UINT64_C(0x9e3779b97f4a7c15);
    for (int k = 0; k < 3; k++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        start[k] = (double)(int64_t)random * 0x1p-63;
        norm = hypot(norm, start[k]);
    }
    matrix left = matrix_make(3, 2), right = matrix_make(2, 5);
    double across = hypot(start[0], start[1]);
    left.at[0] = start[1] / across;
    left.at[2] = -start[0] / across;
    for (int k = 0; k < 3; k++)
        left.at[2 * k + 1] = start[k] / norm;
    right.at[1] = 2;
    right.at[5 + 3] = sqrt(3);
    matrix b = matrix_times(left, right);
    check_exact(b, 0, 1);
    matrix_free(&left);
    matrix_free(&right);
    matrix_free(&b);
}

static void tridiagonal_matrices_give_their_top_eigenpair(void **state)
{
    (void)state;
    for (int n = 1; n <= 40; n++) {
        rng r = { (uint64_t)n };
        double alpha[40], beta[40], y[40], scratch[80], s[40], error = 0, norm = 0;
        matrix t = matrix_make(n, n);
        for (int i = 0; i < n; i++) {
            alpha[i] = 2 + rng_unit(&r);
            beta[i] = n % 3 ? rng_unit(&r) : pow(10, -12 * rng_unit(&r));
            t.at[i * n + i] = alpha[i];
            if (i)
                t.at[i * n + i - 1] = t.at[(i - 1) * n + i] = beta[i - 1];
        }
        matrix_singular_values(t, s);
        double top = dn_tridiagonal_top(n, alpha, beta, y, scratch);
        assert_true(fabs(top - s[0]) < 1e-13 * s[0]);
        for (int i = 0; i < n; i++) {
            double z = (alpha[i] - top) * y[i] + (i ? beta[i - 1] * y[i - 1] : 0) +
                       (i + 1 < n ? beta[i] * y[i + 1] : 0);
            error = hypot(error, z);
            norm = hypot(norm, y[i]);
        }
        if (error > 1e-12 || fabs(norm - 1) > 1e-14)
            fail_msg("n = %d: residual %g, norm %.17g", n, error, norm);
        matrix_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_and_rank_reaches_the_optimum),
        cmocka_unit_test(exact_low_rank_is_reproduced),
        cmocka_unit_test(the_fast_method_is_near_the_optimum_without_gaps),
        cmocka_unit_test(zeros_and_deficient_ranks_are_harmless),
        cmocka_unit_test(equal_singular_values_are_harmless),
        cmocka_unit_test(the_largest_entry_of_a_left_vector_is_positive),
        cmocka_unit_test(work_space_is_all_that_lapack_can_use),
        cmocka_unit_test(blocks_beyond_lapack_are_refused),
        cmocka_unit_test(rows_may_lie_farther_apart_than_lapack_counts),
        cmocka_unit_test(a_start_that_misses_the_top_vector_is_noticed),
        cmocka_unit_test(tridiagonal_matrices_give_their_top_eigenpair),
        cmocka_unit_test(rows_are_factored_into_lower_times_orthonormal),
    };
    if (dn_lapack_begin(1) != DANAUS_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dn_lapack_end(1);
    return failed;
}
