/* Known transforms as exact chains, against their definitions; and what the
   factorization makes of them. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "ks/transforms.h"
#include "support/element.h"
#include "support/matrix.h"

#include <complex.h>
#undef complex
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

/* The transform by its definition. */
static matrix by_definition(danaus_transform transform, int64_t n, const number *v)
{
    matrix a = matrix_make(n, n);
    for (int64_t k = 0; k < n; k++)
        for (int64_t m = 0; m < n; m++) {
            number z = 0;
            double x = (double)k, y = 2 * (double)m + 1, size = (double)n;
            switch (transform) {
            case DANAUS_DFT: z = cexp(-2 * I * pi * (double)(k * m % n) / size); break;
            case DANAUS_WALSH_HADAMARD:
                z = __builtin_popcountll((unsigned long long)(k & m)) % 2 ? -1 : 1;
                break;
            case DANAUS_DCT2: z = cos(pi * x * y / (2 * size)); break;
            case DANAUS_DST2: z = sin(pi * (x + 1) * y / (2 * size)); break;
            case DANAUS_DCT4: z = cos(pi * (2 * x + 1) * y / (4 * size)); break;
            case DANAUS_CIRCULANT: z = v[(k - m + n) % n]; break;
            case DANAUS_TOEPLITZ: z = v[k - m + n - 1]; break;
            }
            a.at[k * n + m] = z;
        }
    return a;
}

/* The chain's product with the permutation undone: the transform itself. */
static matrix by_chain(danaus_chain *chain, const int64_t *permutation, int64_t n)
{
    matrix b = chain_matrix(chain), a = matrix_make(n, n);
    for (int64_t p = 0; p < b.cols; p++)
        for (int64_t r = 0; r < n && permutation[p] < n; r++)
            a.at[r * n + permutation[p]] = b.at[r * b.cols + p];
    matrix_free(&b);
    return a;
}

static double error_of(danaus_transform transform, int64_t n, danaus_dtype dtype)
{
    int toeplitz = transform == DANAUS_TOEPLITZ;
    int values = toeplitz || transform == DANAUS_CIRCULANT;
    int complex = dtype == DANAUS_C64 || dtype == DANAUS_C128;
    rng r = { (uint64_t)n };
    matrix v = matrix_gauss(&r, toeplitz ? 2 * n - 1 : n, 1, complex);
    void *packed = matrix_pack(v, dtype);
    int64_t *permutation = calloc((size_t)(2 * n), sizeof *permutation);
    danaus_chain *chain = NULL;
    assert_ok(danaus_chain_transform(
        transform, n, dtype, values ? packed : NULL, &chain, permutation));
    matrix exact = by_definition(transform, n, v.at);
    matrix made = by_chain(chain, permutation, n);
    double error = relative_distance(made, exact);
    matrix_free(&exact);
    matrix_free(&made);
    matrix_free(&v);
    free(packed);
    free(permutation);
    danaus_chain_destroy(chain);
    return error;
}

static void expect_error_below(
    danaus_transform transform, int64_t n, danaus_dtype dtype, double bound)
{
    double error = error_of(transform, n, dtype);
    if (!(error < bound))
        fail_msg(
            "transform %d of length %lld in %s errs by %g", (int)transform,
            (long long)n, danaus_dtype_name(dtype), error);
}

/* T9.9 to T9.11, T9.14 to T9.16 */
static void every_transform_is_what_it_says(void **state)
{
    (void)state;
    int64_t lengths[] = { 1,  2,  3,  4,  5,  6,   7,   8,   9,   10,
                          12, 15, 16, 18, 20, 24,  30,  32,  36,  45,
                          48, 60, 61, 64, 72, 100, 122, 128, 210, 256 };
    for (size_t x = 0; x < sizeof lengths / sizeof *lengths; x++)
        for (int t = DANAUS_DFT; t <= DANAUS_TOEPLITZ; t++) {
            int64_t n = lengths[x];
            if (t == DANAUS_WALSH_HADAMARD && (n & (n - 1)))
                continue;
            danaus_transform transform = (danaus_transform)t;
            expect_error_below(transform, n, DANAUS_C128, 1e-13);
            expect_error_below(transform, n, DANAUS_C64, 2e-6);
            if (transform == DANAUS_DFT)
                continue;
            expect_error_below(transform, n, DANAUS_F64, 1e-13);
            expect_error_below(transform, n, DANAUS_F32, 2e-6);
        }
    expect_error_below(DANAUS_DFT, 1024, DANAUS_C128, 1e-14);
    expect_error_below(DANAUS_WALSH_HADAMARD, 1024, DANAUS_F32, 1e-30);
}

/* T9.1, T9.18: the digit reversal must use the radices in the chain's order. */
static void any_radices_make_the_fourier_matrix(void **state)
{
    (void)state;
    int64_t radices[][10] = { { 2, 2, 2, 2, 2, 2 }, { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 },
                              { 4, 4, 4 },          { 8, 8, 16 },
                              { 3, 4, 5 },          { 2, 3, 5, 7 },
                              { 32, 32 },           { 6, 10 },
                              { 5, 4, 3 } };
    for (size_t x = 0; x < sizeof radices / sizeof *radices; x++) {
        int count = 0;
        int64_t n = 1;
        while (count < 10 && radices[x][count])
            n *= radices[x][count++];
        int64_t *permutation = calloc((size_t)n, sizeof *permutation);
        danaus_chain *chain;
        assert_ok(dn_chain_transform(
            DANAUS_DFT, n, radices[x], count, DANAUS_C128, NULL, &chain, permutation));
        assert_int_equal(danaus_chain_count(chain), count);
        matrix exact = by_definition(DANAUS_DFT, n, NULL);
        matrix made = by_chain(chain, permutation, n);
        assert_true(relative_distance(made, exact) < 1e-14);
        matrix_free(&exact);
        matrix_free(&made);
        free(permutation);
        danaus_chain_destroy(chain);
    }
}

/* ---- what the factorization recovers ---- */

static double recovery(
    matrix w, danaus_dtype dtype, const danaus_pattern *p, int count,
    danaus_order order)
{
    danaus_chain *chain = NULL;
    danaus_factorize_result result;
    danaus_factorize_desc desc = { .order = order };
    void *packed = matrix_pack(w, dtype);
    assert_ok(danaus_factorize(packed, dtype, p, count, &desc, &chain, &result));
    matrix product = chain_matrix(chain);
    double error = relative_distance(product, w);
    assert_true(fabs(error - result.error) < 1e-6 + 1e-6 * error);
    matrix_free(&product);
    free(packed);
    danaus_chain_destroy(chain);
    return error;
}

static int radix_chain(
    int64_t n, const int64_t *radices, int order, int64_t rank, danaus_pattern *p)
{
    int count;
    danaus_chain_desc desc = { .kind = DANAUS_CHAIN_RADICES,
                               .rows = n,
                               .cols = n,
                               .order = order,
                               .rank = rank,
                               .row_radices = radices,
                               .col_radices = radices };
    assert_ok(danaus_patterns_make(&desc, p, DANAUS_MAX_FACTORS, &count));
    return count;
}

static void reversal(const int64_t *radices, int count, int64_t n, int64_t *order)
{
    danaus_chain *chain;
    assert_ok(dn_chain_transform(
        DANAUS_DFT, n, radices, count, DANAUS_C128, NULL, &chain, order));
    danaus_chain_destroy(chain);
}

/* T9.2, T9.3, T9.4, T9.5, T11.8 */
static void fourier_matrices_are_recovered_with_their_permutation(void **state)
{
    (void)state;
    int64_t radices[][10] = {
        { 2, 2, 2, 2, 2, 2 }, { 4, 4, 4 }, { 3, 4, 5 },
        { 2, 3, 5, 7 },       { 6, 10 },   { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 },
        { 8, 8, 16 },         { 32, 32 }
    };
    for (size_t x = 0; x < sizeof radices / sizeof *radices; x++) {
        int count = 0;
        int64_t n = 1;
        while (count < 10 && radices[x][count])
            n *= radices[x][count++];
        danaus_pattern p[DANAUS_MAX_FACTORS];
        radix_chain(n, radices[x], count, 1, p);
        int64_t *order = calloc((size_t)n, sizeof *order);
        reversal(radices[x], count, n, order);
        matrix f = by_definition(DANAUS_DFT, n, NULL), w = matrix_columns(f, order);
        assert_true(
            recovery(w, DANAUS_C128, p, count, DANAUS_ORDER_LEFT_TO_RIGHT) < 1e-13);
        assert_true(
            recovery(w, DANAUS_C128, p, count, DANAUS_ORDER_RIGHT_TO_LEFT) < 1e-13);
        assert_true(recovery(w, DANAUS_C64, p, count, DANAUS_ORDER_AUTO) < 1e-5);
        if (n < 1000)
            assert_true(recovery(f, DANAUS_C128, p, count, DANAUS_ORDER_AUTO) > 0.85);
        matrix_free(&f);
        matrix_free(&w);
        free(order);
    }
    int64_t right[] = { 3, 4, 5 }, wrong[] = { 5, 4, 3 }, order[60];
    danaus_pattern p[3];
    radix_chain(60, right, 3, 1, p);
    reversal(wrong, 3, 60, order);
    matrix f = by_definition(DANAUS_DFT, 60, NULL), w = matrix_columns(f, order);
    assert_true(recovery(w, DANAUS_C128, p, 3, DANAUS_ORDER_AUTO) > 0.5);
    matrix_free(&f);
    matrix_free(&w);
}

static void coarser_chains_recover_it_too(void **state)
{
    (void)state;
    int64_t two[] = { 2, 2, 2, 2, 2, 2 }, order[64];
    reversal(two, 6, 64, order);
    matrix f = by_definition(DANAUS_DFT, 64, NULL), w = matrix_columns(f, order);
    const char *chains[] = { "1,8,8,8 8,8,8,1", "1,4,4,16 4,16,16,1",
                             "1,4,4,16 4,4,4,4 16,4,4,1" };
    for (int x = 0; x < 3; x++) {
        danaus_pattern p[4];
        int count;
        assert_ok(danaus_patterns_parse(chains[x], p, 4, &count));
        assert_true(recovery(w, DANAUS_C128, p, count, DANAUS_ORDER_AUTO) < 1e-13);
    }
    /* T9.6: F is symmetric, so its rows in that order give the transposed chain. */
    danaus_pattern dyadic[6], mirrored[6];
    radix_chain(64, two, 6, 1, dyadic);
    for (int l = 0; l < 6; l++)
        mirrored[5 - l] = dyadic[l];
    matrix t = matrix_transposed(w);
    assert_true(recovery(t, DANAUS_C128, mirrored, 6, DANAUS_ORDER_AUTO) < 1e-13);
    matrix_free(&t);
    matrix_free(&f);
    matrix_free(&w);
}

/* T9.7, T9.8 */
static void hadamard_needs_no_permutation_and_suffers_from_one(void **state)
{
    (void)state;
    int64_t two[] = { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 };
    danaus_pattern p[10];
    radix_chain(1024, two, 10, 1, p);
    matrix h = by_definition(DANAUS_WALSH_HADAMARD, 1024, NULL);
    assert_true(recovery(h, DANAUS_F64, p, 10, DANAUS_ORDER_LEFT_TO_RIGHT) < 1e-12);
    assert_true(recovery(h, DANAUS_F64, p, 10, DANAUS_ORDER_BALANCED) < 1e-12);
    assert_true(recovery(h, DANAUS_F32, p, 10, DANAUS_ORDER_AUTO) < 1e-5);
    int64_t *order = calloc(1024, sizeof *order);
    reversal(two, 10, 1024, order);
    matrix w = matrix_columns(h, order);
    assert_true(recovery(w, DANAUS_F64, p, 10, DANAUS_ORDER_AUTO) > 0.9);
    matrix_free(&h);
    matrix_free(&w);
    free(order);
}

/* T9.11, T9.12, T9.13 */
static void cosine_transforms_are_of_block_rank_two(void **state)
{
    (void)state;
    int64_t two[] = { 2, 2, 2, 2, 2, 2, 2, 2 };
    for (int count = 4; count <= 8; count += count < 6 ? 1 : 2) {
        int64_t n = INT64_C(1) << count, order[256], fold[256];
        danaus_pattern p[8], dyadic[8];
        radix_chain(n, two, count, 2, p);
        radix_chain(n, two, count, 1, dyadic);
        reversal(two, count, n, order);
        for (int64_t x = 0; x < n; x++)
            fold[x] = order[x] < n / 2 ? 2 * order[x] : 2 * (n - 1 - order[x]) + 1;
        for (int t = DANAUS_DCT2; t <= DANAUS_DCT4; t++) {
            matrix a = by_definition((danaus_transform)t, n, NULL);
            matrix w = matrix_columns(a, fold);
            assert_true(recovery(w, DANAUS_F64, p, count, DANAUS_ORDER_AUTO) < 1e-12);
            assert_true(
                recovery(w, DANAUS_F64, dyadic, count, DANAUS_ORDER_AUTO) > 0.3);
            matrix_free(&a);
            matrix_free(&w);
        }
    }
}

/* T9.17 */
static void kronecker_products_are_recovered(void **state)
{
    (void)state;
    rng r = { 17 };
    int64_t rows[] = { 3, 5, 2 }, cols[] = { 4, 2, 3 };
    matrix w = matrix_make(1, 1);
    w.at[0] = 1;
    for (int l = 0; l < 3; l++) {
        matrix a = matrix_gauss(&r, rows[l], cols[l], 0);
        matrix next = matrix_make(w.rows * a.rows, w.cols * a.cols);
        for (int64_t x = 0; x < next.rows; x++)
            for (int64_t y = 0; y < next.cols; y++)
                next.at[x * next.cols + y] = w.at[x / a.rows * w.cols + y / a.cols] *
                                             a.at[x % a.rows * a.cols + y % a.cols];
        matrix_free(&w);
        matrix_free(&a);
        w = next;
    }
    danaus_chain_desc desc = { .kind = DANAUS_CHAIN_RADICES,
                               .rows = 30,
                               .cols = 24,
                               .order = 3,
                               .row_radices = rows,
                               .col_radices = cols };
    danaus_pattern p[3];
    int count;
    assert_ok(danaus_patterns_make(&desc, p, 3, &count));
    assert_true(recovery(w, DANAUS_F64, p, 3, DANAUS_ORDER_AUTO) < 1e-13);
    matrix_free(&w);
}

static void what_no_chain_serves_is_refused(void **state)
{
    (void)state;
    danaus_chain *chain = NULL;
    int64_t order[256] = { -7 };
    double v[256] = { 1 };
    assert_status(
        danaus_chain_transform(DANAUS_DFT, 67, DANAUS_C64, NULL, &chain, order),
        DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "length 67 has a prime factor"));
    assert_status(
        danaus_chain_transform(DANAUS_DFT, 64, DANAUS_F32, NULL, &chain, order),
        DANAUS_ERR_UNSUPPORTED);
    assert_status(
        danaus_chain_transform(
            DANAUS_WALSH_HADAMARD, 12, DANAUS_F32, NULL, &chain, order),
        DANAUS_ERR_UNSUPPORTED);
    assert_status(
        danaus_chain_transform(DANAUS_DCT2, 0, DANAUS_F32, NULL, &chain, order),
        DANAUS_ERR_SHAPE);
    assert_status(
        danaus_chain_transform(DANAUS_CIRCULANT, 8, DANAUS_F64, NULL, &chain, order),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_chain_transform(DANAUS_DCT2, 8, DANAUS_F64, v, &chain, order),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_chain_transform(
            (danaus_transform)77, 8, DANAUS_F64, NULL, &chain, order),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_chain_transform(DANAUS_DCT2, 8, (danaus_dtype)77, NULL, &chain, order),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_chain_transform(DANAUS_DCT2, 8, DANAUS_F64, NULL, &chain, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_chain_transform(DANAUS_DCT2, 8, DANAUS_F64, NULL, NULL, order),
        DANAUS_ERR_ARGUMENT);
    assert_null(chain);
    assert_int_equal(order[0], -7);
}

static void missing_memory_is_reported(void **state)
{
    (void)state;
    double v[64] = { 1, 2, 3 };
    for (int t = DANAUS_DFT; t <= DANAUS_TOEPLITZ; t++) {
        danaus_status status = DANAUS_ERR_MEMORY;
        danaus_chain *chain = NULL;
        int64_t order[64] = { -7 };
        for (long n = 1; status != DANAUS_OK; n++) {
            assert_true(!chain && order[0] == -7);
            dn_alloc_fail_at(n);
            status = danaus_chain_transform(
                (danaus_transform)t, 16, DANAUS_C128, t >= DANAUS_CIRCULANT ? v : NULL,
                &chain, order);
            dn_alloc_fail_at(0);
            assert_true(status == DANAUS_OK || status == DANAUS_ERR_MEMORY);
        }
        danaus_chain_destroy(chain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_transform_is_what_it_says),
        cmocka_unit_test(any_radices_make_the_fourier_matrix),
        cmocka_unit_test(fourier_matrices_are_recovered_with_their_permutation),
        cmocka_unit_test(coarser_chains_recover_it_too),
        cmocka_unit_test(hadamard_needs_no_permutation_and_suffers_from_one),
        cmocka_unit_test(cosine_transforms_are_of_block_rank_two),
        cmocka_unit_test(kronecker_products_are_recovered),
        cmocka_unit_test(what_no_chain_serves_is_refused),
        cmocka_unit_test(missing_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
