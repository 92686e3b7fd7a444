/* What the factorization makes of known transforms: it recovers them. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "operator/transforms/transforms.h"
#include "support/device.h"
#include "support/operators.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static danaus_operator *fourier_of(int64_t n, const int64_t *radices, int count)
{
    danaus_transform_desc desc = { .kind = DANAUS_DFT, .dtype = DANAUS_C128, .n = n };
    danaus_operator *made;
    assert_ok(dn_fourier(&desc, radices, count, &made));
    return made;
}

static matrix definition_of(danaus_transform kind, int64_t n)
{
    danaus_transform_desc desc = { .kind = kind, .n = n };
    return transform_by_definition(&desc, NULL);
}

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
    danaus_operator *made = fourier_of(n, radices, count);
    memcpy(order, danaus_operator_order(made, 1, NULL), (size_t)n * sizeof *order);
    danaus_operator_destroy(made);
}

/* Small matrices run every line: those of 1,024 rows are for the processor itself. */
static int64_t most_size(void) { return share_of_cases() > 1 ? 256 : 1024; }

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
        if (n > most_size())
            continue;
        danaus_pattern p[DANAUS_MAX_FACTORS];
        radix_chain(n, radices[x], count, 1, p);
        int64_t *order = calloc((size_t)n, sizeof *order);
        reversal(radices[x], count, n, order);
        matrix f = definition_of(DANAUS_DFT, n), w = matrix_columns(f, order);
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
    matrix f = definition_of(DANAUS_DFT, 60), w = matrix_columns(f, order);
    assert_true(recovery(w, DANAUS_C128, p, 3, DANAUS_ORDER_AUTO) > 0.5);
    matrix_free(&f);
    matrix_free(&w);
}

static void coarser_chains_recover_it_too(void **state)
{
    (void)state;
    int64_t two[] = { 2, 2, 2, 2, 2, 2 }, order[64];
    reversal(two, 6, 64, order);
    matrix f = definition_of(DANAUS_DFT, 64), w = matrix_columns(f, order);
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
    int64_t n = most_size();
    int count = n == 1024 ? 10 : 8;
    danaus_pattern p[10];
    radix_chain(n, two, count, 1, p);
    matrix h = definition_of(DANAUS_WALSH_HADAMARD, n);
    assert_true(recovery(h, DANAUS_F64, p, count, DANAUS_ORDER_LEFT_TO_RIGHT) < 1e-12);
    assert_true(recovery(h, DANAUS_F64, p, count, DANAUS_ORDER_BALANCED) < 1e-12);
    assert_true(recovery(h, DANAUS_F32, p, count, DANAUS_ORDER_AUTO) < 1e-5);
    int64_t *order = calloc((size_t)n, sizeof *order);
    reversal(two, count, n, order);
    matrix w = matrix_columns(h, order);
    assert_true(recovery(w, DANAUS_F64, p, count, DANAUS_ORDER_AUTO) > 0.8);
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
        static const danaus_transform kinds[] = { DANAUS_DCT2, DANAUS_DST2,
                                                  DANAUS_DCT4 };
        for (int t = 0; t < 3; t++) {
            matrix a = definition_of(kinds[t], n);
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
        matrix next = matrix_kronecker(w, a);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fourier_matrices_are_recovered_with_their_permutation),
        cmocka_unit_test(coarser_chains_recover_it_too),
        cmocka_unit_test(hadamard_needs_no_permutation_and_suffers_from_one),
        cmocka_unit_test(cosine_transforms_are_of_block_rank_two),
        cmocka_unit_test(kronecker_products_are_recovered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
