/* Inverses, solutions and determinants of chains of square blocks, against dense matrices in
   plain loops.

   What LAPACK makes of a block of b x b is wrong by a few b units relative to its condition;
   blocks here have at most 6 rows, and L <= 4 factors multiply their errors, so that residuals
   stay below 20 units of the type times the bound that danaus_condition has. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/chains.h"
#include "support/device.h"
#include "support/failing.h"
#include "support/matrix.h"

#include <complex.h>
#undef complex
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 100, MOST_FACTORS = 4 };

static double unit_of(danaus_chain *chain)
{
    return fmax(precision_of(danaus_chain_dtype(chain)).unit, DBL_EPSILON / 2);
}

/* Factors (a, b, b, d) of one size: blocks of at most 6. */
static int square_patterns(rng *r, danaus_pattern *p)
{
    static const int64_t sizes[] = { 1, 6, 12, 30, 36, 42, 60, 210 };
    int64_t n = sizes[rng_int(r, 0, 7)];
    int count = (int)rng_int(r, 1, MOST_FACTORS);
    for (int l = 0; l < count; l++) {
        int64_t b = rng_int(r, 1, 6), a = rng_int(r, 1, n);
        while (n % b)
            b--;
        while (n / b % a)
            a--;
        p[l] = (danaus_pattern){ a, b, b, n / b / a };
    }
    return count;
}

/* With 2 added to the diagonals of blocks they are far from singular. */
static random_chain square_chain(rng *r, danaus_dtype dtype)
{
    danaus_pattern p[MOST_FACTORS];
    int count = square_patterns(r, p);
    random_chain c = chain_random(r, p, count, dtype, 0);
    for (int l = 0; l < count; l++)
        for (int64_t block = 0; block < p[l].a * p[l].d; block++)
            for (int64_t k = 0; k < p[l].b; k++) {
                int64_t i = block / p[l].d, j = block % p[l].d, b = p[l].b;
                int64_t at = ((i * b + k) * b + k) * p[l].d + j;
                element_put(
                    dtype, danaus_chain_weights(c.chain, l), at, (value){ 3, 0 });
            }
    return c;
}

static matrix identity(int64_t n)
{
    matrix one = matrix_make(n, n);
    for (int64_t k = 0; k < n; k++)
        one.at[k * n + k] = 1;
    return one;
}

static double norm_1(matrix a)
{
    double largest = 0;
    for (int64_t k = 0; k < a.cols; k++) {
        double sum = 0;
        for (int64_t r = 0; r < a.rows; r++)
            sum += cabs(a.at[r * a.cols + k]);
        largest = fmax(largest, sum);
    }
    return largest;
}

static const danaus_dtype types[] = { DANAUS_F64, DANAUS_C128, DANAUS_F32, DANAUS_C64,
                                      DANAUS_BF16 };

static danaus_dtype type_of(uint64_t round) { return types[round % 5]; }

/* ---- inverses ---- */

static void inverses_times_their_chains_are_one(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(ROUNDS); round++) {
        rng r = { round };
        random_chain c = square_chain(&r, type_of(round));
        danaus_chain *inverse = NULL;
        danaus_condition condition;
        assert_ok(
            danaus_chain_invert(c.chain, (int)rng_int(&r, 0, 3), &inverse, &condition));
        assert_int_equal(danaus_chain_count(inverse), c.count);
        for (int l = 0; l < c.count; l++) {
            danaus_pattern p = danaus_chain_pattern(inverse, c.count - 1 - l);
            assert_memory_equal(&p, &c.p[l], sizeof p);
        }
        matrix w = chain_matrix(c.chain), x = chain_matrix(inverse);
        matrix left = matrix_times(x, w), right = matrix_times(w, x);
        matrix one = identity(w.rows);
        double allowed = 20 * unit_of(c.chain) * condition.bound * sqrt((double)w.rows);
        assert_true(matrix_distance(left, one) <= allowed);
        assert_true(matrix_distance(right, one) <= allowed);
        /* The certificate holds, but for what was rounded. */
        double found = norm_1(w) * norm_1(x);
        assert_true(found <= condition.bound * (1 + c.count * 64 * unit_of(c.chain)));
        assert_true(condition.largest >= 1 - 1e-12);
        danaus_pattern worst = danaus_chain_pattern(c.chain, condition.factor);
        assert_in_range(condition.i, 0, worst.a - 1);
        assert_in_range(condition.j, 0, worst.d - 1);
        matrix *each[] = { &w, &x, &left, &right, &one };
        for (int n = 0; n < 5; n++)
            matrix_free(each[n]);
        danaus_chain_destroy(inverse);
        chain_free(&c);
    }
}

/* The block, its matrix and its inverse by Cramer's rule. */
static void the_worst_block_is_named_with_its_condition(void **state)
{
    (void)state;
    danaus_pattern p[] = { { 3, 2, 2, 5 }, { 5, 2, 2, 3 } };
    rng r = { 1 };
    random_chain c = chain_random(&r, p, 2, DANAUS_F64, 0);
    for (int l = 0; l < 2; l++)
        for (int64_t at = 0; at < 60; at++)
            element_put(
                DANAUS_F64, danaus_chain_weights(c.chain, l), at,
                (value){ at / p[l].d % 4 == 0 || at / p[l].d % 4 == 3, 0 });
    /* (1 1; 1 1.5) in block (2, 1) of factor 1: 2.5 (2.5 / 0.5) */
    double *w = danaus_chain_weights(c.chain, 1);
    const double block[] = { 1, 1, 1, 1.5 };
    for (int x = 0; x < 4; x++)
        w[(2 * 4 + x) * 3 + 1] = block[x];
    danaus_chain *inverse = NULL;
    danaus_condition condition;
    assert_ok(danaus_chain_invert(c.chain, 1, &inverse, &condition));
    assert_int_equal(condition.factor, 1);
    assert_int_equal(condition.i, 2);
    assert_int_equal(condition.j, 1);
    assert_true(fabs(condition.largest - 12.5) < 1e-13);
    assert_true(fabs(condition.bound - 12.5) < 1e-13);
    danaus_chain_destroy(inverse);
    array b = array_random(&r, DANAUS_F64, 30);
    danaus_condition estimate;
    assert_ok(danaus_chain_solve(
        c.chain, 1, DANAUS_BATCH_FIRST, 1, b.data, b.data, &estimate));
    assert_int_equal(estimate.factor, 1);
    assert_int_equal(estimate.i, 2);
    assert_int_equal(estimate.j, 1);
    assert_true(fabs(estimate.largest - 12.5) < 1e-12);
    array_free(&b);
    chain_free(&c);
}

/* Blocks of 1 x 1 have a condition of 1 each, and their matrix that of its range. */
static void a_diagonal_is_bounded_by_its_range(void **state)
{
    (void)state;
    danaus_pattern p = { 20, 1, 1, 15 };
    danaus_chain *chain = NULL, *inverse = NULL;
    assert_ok(danaus_chain_create(&p, 1, DANAUS_F32, &chain));
    float *w = danaus_chain_weights(chain, 0);
    for (int x = 0; x < 300; x++)
        w[x] = x == 5 ? -8.0f : x == 40 ? 0.25f : 1;
    danaus_condition condition;
    assert_ok(danaus_chain_invert(chain, 0, &inverse, &condition));
    assert_true(condition.largest == 1 && condition.bound == 32);
    assert_true(((float *)danaus_chain_weights(inverse, 0))[5] == -0.125f);
    danaus_chain_destroy(inverse);
    danaus_chain_destroy(chain);
}

/* (A B)^-1 = B^-1 A^-1, and (W^H)^-1 = (W^-1)^H but for rounding. */
static void inverses_of_products_and_adjoints(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(ROUNDS); round++) {
        rng r = { round };
        random_chain c = square_chain(&r, type_of(round));
        danaus_chain *inverse = NULL, *turned = NULL, *of_turned = NULL, *back = NULL;
        danaus_condition condition;
        assert_ok(danaus_chain_invert(c.chain, 2, &inverse, &condition));
        for (int l = 0; l < c.count; l++) {
            danaus_chain *factor = NULL, *alone = NULL;
            assert_ok(danaus_chain_create(&c.p[l], 1, c.dtype, &factor));
            size_t bytes = (size_t)c.w[l].count * danaus_dtype_size(c.dtype);
            memcpy(
                danaus_chain_weights(factor, 0), danaus_chain_weights(c.chain, l),
                bytes);
            assert_ok(danaus_chain_invert(factor, 1, &alone, NULL));
            assert_memory_equal(
                danaus_chain_weights(alone, 0),
                danaus_chain_weights(inverse, c.count - 1 - l), bytes);
            danaus_chain_destroy(factor);
            danaus_chain_destroy(alone);
        }
        assert_ok(danaus_chain_transpose(c.chain, 1, &turned));
        assert_ok(danaus_chain_invert(turned, 1, &of_turned, NULL));
        assert_ok(danaus_chain_transpose(of_turned, 1, &back));
        matrix x = chain_matrix(inverse), y = chain_matrix(back);
        assert_true(
            relative_distance(y, x) <=
            20 * unit_of(c.chain) * condition.bound * sqrt((double)x.rows));
        matrix_free(&x);
        matrix_free(&y);
        danaus_chain_destroy(inverse);
        danaus_chain_destroy(turned);
        danaus_chain_destroy(of_turned);
        danaus_chain_destroy(back);
        chain_free(&c);
    }
}

/* ---- solutions ---- */

static void solutions_solve_in_both_layouts(void **state)
{
    (void)state;
    static const int64_t batches[] = { 0, 1, 3, 127, 128, 300 };
    for (uint64_t round = 0; round < (uint64_t)rounds_of(ROUNDS); round++) {
        rng r = { round };
        random_chain c = square_chain(&r, type_of(round));
        int64_t n = c.rows, batch = batches[rng_int(&r, 0, 5)];
        danaus_layout layout = (danaus_layout)rng_int(&r, 0, 1);
        array b = array_random(&r, c.dtype, n * batch);
        array x = array_make(c.dtype, n * batch);
        danaus_condition condition;
        assert_ok(danaus_chain_solve(
            c.chain, (int)rng_int(&r, 0, 3), layout, batch, b.data, x.data,
            &condition));
        array_expect_guards(&x);
        int first = layout == DANAUS_BATCH_FIRST;
        matrix rows =
            matrix_unpack(c.dtype, x.data, first ? batch : n, first ? n : batch);
        matrix right =
            matrix_unpack(c.dtype, b.data, first ? batch : n, first ? n : batch);
        matrix columns = first ? matrix_transposed(rows) : matrix_copy(rows);
        matrix wanted = first ? matrix_transposed(right) : matrix_copy(right);
        matrix w = chain_matrix(c.chain), product = matrix_times(w, columns);
        double size = matrix_norm(w) * matrix_norm(columns) * condition.bound;
        assert_true(matrix_distance(product, wanted) <= 20 * unit_of(c.chain) * size);
        /* In place, and on other threads, the same bits. */
        assert_ok(danaus_chain_solve(c.chain, 1, layout, batch, b.data, b.data, NULL));
        assert_true(array_same(&b, &x));
        matrix *each[] = { &rows, &right, &columns, &wanted, &w, &product };
        for (int m = 0; m < 6; m++)
            matrix_free(each[m]);
        array_free(&b);
        array_free(&x);
        chain_free(&c);
    }
}

/* ---- determinants ---- */

/* The logarithm of its modulus is added, and its phase returned, 0 for a singular matrix: by
   elimination with row pivoting, of a copy. */
static number determinant(matrix a, double *log_modulus)
{
    matrix u = matrix_copy(a);
    int64_t n = u.rows;
    number phase = 1;
    for (int64_t k = 0; k < n && phase != 0; k++) {
        int64_t pivot = k;
        for (int64_t r = k; r < n; r++)
            if (cabs(u.at[r * n + k]) > cabs(u.at[pivot * n + k]))
                pivot = r;
        for (int64_t l = 0; l < n; l++) {
            number kept = u.at[k * n + l];
            u.at[k * n + l] = u.at[pivot * n + l];
            u.at[pivot * n + l] = kept;
        }
        double modulus = cabs(u.at[k * n + k]);
        *log_modulus += log(modulus);
        phase *= modulus > 0 ? (pivot == k ? 1 : -1) * u.at[k * n + k] / modulus : 0;
        for (int64_t r = k + 1; r < n && modulus > 0; r++) {
            number by = u.at[r * n + k] / u.at[k * n + k];
            for (int64_t l = k; by != 0 && l < n; l++)
                u.at[r * n + l] -= by * u.at[k * n + l];
        }
    }
    matrix_free(&u);
    return phase;
}

static void determinants_are_those_of_matrices(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(ROUNDS); round++) {
        rng r = { round };
        danaus_pattern p[MOST_FACTORS];
        int count = square_patterns(&r, p);
        random_chain c = chain_random(&r, p, count, type_of(round), 0);
        double log_modulus, phase[2], expected = 0;
        number turned = 1;
        assert_ok(danaus_chain_determinant(
            c.chain, (int)rng_int(&r, 0, 2), &log_modulus, phase));
        for (int l = 0; l < count; l++) {
            matrix w =
                matrix_unpack(c.dtype, c.w[l].data, p[l].a * p[l].b, p[l].c * p[l].d);
            matrix k = factor_dense(p[l], w.at);
            turned *= determinant(k, &expected);
            matrix_free(&w);
            matrix_free(&k);
        }
        if (!precision_of(c.dtype).complex)
            assert_true(phase[1] == 0 && fabs(phase[0]) == (turned != 0));
        danaus_condition condition;
        danaus_status status = danaus_chain_solve(
            c.chain, 1, DANAUS_BATCH_LAST, 0, NULL, NULL, &condition);
        assert_int_equal(status, turned == 0 ? DANAUS_ERR_ARGUMENT : DANAUS_OK);
        if (turned == 0) {
            assert_true(phase[0] == 0 && phase[1] == 0 && log_modulus == -INFINITY);
        } else {
            double allowed = 20 * DBL_EPSILON * (double)c.rows * condition.bound;
            assert_true(fabs(log_modulus - expected) <= allowed);
            assert_true(cabs(CMPLX(phase[0], phase[1]) - turned) <= allowed);
        }
        chain_free(&c);
    }
}

/* ---- what has no inverse ---- */

static danaus_chain *chain_of(const char *patterns, danaus_dtype dtype)
{
    danaus_pattern p[DANAUS_MAX_FACTORS];
    int count;
    danaus_chain *chain = NULL;
    assert_ok(danaus_patterns_parse(patterns, p, DANAUS_MAX_FACTORS, &count));
    assert_ok(danaus_chain_create(p, count, dtype, &chain));
    for (int l = 0; l < count; l++)
        for (int64_t at = 0; at < p[l].a * p[l].b * p[l].c * p[l].d; at++) {
            int64_t k = at / p[l].d % p[l].c, row = at / p[l].d / p[l].c % p[l].b;
            element_put(
                dtype, danaus_chain_weights(chain, l), at, (value){ k == row, 0 });
        }
    return chain;
}

/* No call accepts it, and none touches its outputs. */
static void expect_refused(danaus_chain *chain, danaus_status status, const char *words)
{
    danaus_chain *inverse = NULL;
    danaus_condition condition = { .bound = 7 };
    assert_status(danaus_chain_invert(chain, 0, &inverse, &condition), status);
    assert_null(inverse);
    assert_non_null(strstr(danaus_error_detail(), words));
    array b = array_make(danaus_chain_dtype(chain), danaus_chain_rows(chain));
    danaus_status solved =
        danaus_chain_solve(chain, 0, DANAUS_BATCH_LAST, 1, b.data, b.data, &condition);
    assert_int_equal(solved, status);
    assert_true(array_untouched(&b));
    assert_true(condition.bound == 7);
    array_free(&b);
}

static void singular_blocks_are_named(void **state)
{
    (void)state;
    danaus_chain *chain = chain_of("1,6,6,1 3,1,1,2 1,3,3,2", DANAUS_F64);
    double *w = danaus_chain_weights(chain, 2), log_modulus, phase[2];
    assert_ok(danaus_chain_determinant(chain, 1, &log_modulus, phase));
    assert_true(log_modulus == 0 && phase[0] == 1);
    for (int x = 0; x < 9;
         x++) /* block (0, 1): a column of zeros, which rounding keeps */
        w[x * 2 + 1] = x % 3 == 1 ? 0 : 2 * x + 1;
    expect_refused(chain, DANAUS_ERR_ARGUMENT, "block (0, 1) of factor 2 is singular");
    assert_ok(danaus_chain_determinant(chain, 1, &log_modulus, phase));
    assert_true(isinf(log_modulus) && log_modulus < 0);
    assert_true(phase[0] == 0 && phase[1] == 0);
    danaus_chain_destroy(chain);
}

static void numbers_that_are_not_finite_are_named(void **state)
{
    (void)state;
    const double bad[] = { NAN, INFINITY, -INFINITY };
    for (int x = 0; x < 3; x++) {
        danaus_chain *chain = chain_of("2,3,3,1 1,2,2,3", DANAUS_C128);
        double *w = danaus_chain_weights(chain, 0), log_modulus = 5, phase[2];
        w[2 * 11 + 1] = bad[x];
        expect_refused(
            chain, DANAUS_ERR_ARGUMENT,
            "block (1, 0) of factor 0 has numbers that are not finite");
        assert_status(
            danaus_chain_determinant(chain, 1, &log_modulus, phase),
            DANAUS_ERR_ARGUMENT);
        assert_true(log_modulus == 5);
        danaus_chain_destroy(chain);
    }
    danaus_chain *tiny = chain_of("1,1,1,1", DANAUS_F64), *inverse = NULL;
    *(double *)danaus_chain_weights(tiny, 0) = 1e-310;
    assert_status(danaus_chain_invert(tiny, 1, &inverse, NULL), DANAUS_ERR_ARGUMENT);
    assert_non_null(strstr(danaus_error_detail(), "an inverse whose numbers"));
    danaus_chain_destroy(tiny);
}

static void other_blocks_and_arguments_are_refused(void **state)
{
    (void)state;
    danaus_chain *chain = chain_of("1,6,12,1 2,6,3,1", DANAUS_F32), *inverse = NULL;
    expect_refused(chain, DANAUS_ERR_SHAPE, "blocks of 6 x 12");
    danaus_chain *square = chain_of("1,2,2,1", DANAUS_F32);
    float b[2] = { 0 };
    double log_modulus, phase[2];
    danaus_status wrong = DANAUS_ERR_ARGUMENT;
    danaus_layout first = DANAUS_BATCH_FIRST;
    assert_status(danaus_chain_invert(NULL, 0, &inverse, NULL), wrong);
    assert_status(danaus_chain_invert(square, 0, NULL, NULL), wrong);
    assert_status(danaus_chain_invert(square, -1, &inverse, NULL), wrong);
    assert_status(danaus_chain_solve(NULL, 0, first, 1, b, b, NULL), wrong);
    assert_status(danaus_chain_solve(square, 0, first, 1, NULL, b, NULL), wrong);
    assert_status(
        danaus_chain_solve(square, 0, (danaus_layout)2, 1, b, b, NULL), wrong);
    assert_status(
        danaus_chain_solve(square, 0, first, -1, b, b, NULL), DANAUS_ERR_SHAPE);
    assert_status(
        danaus_chain_solve(square, 0, first, INT64_MAX / 8, b, b, NULL),
        DANAUS_ERR_SHAPE);
    assert_ok(danaus_chain_solve(square, 0, first, 0, NULL, NULL, NULL));
    assert_status(danaus_chain_determinant(NULL, 0, &log_modulus, phase), wrong);
    assert_status(danaus_chain_determinant(square, 0, NULL, phase), wrong);
    assert_status(danaus_chain_determinant(square, 0, &log_modulus, NULL), wrong);
    danaus_chain_destroy(square);
    danaus_chain_destroy(chain);
}

/* ---- memory ---- */

static danaus_status invert_and_solve(void *arg)
{
    danaus_chain *chain = arg, *inverse = NULL;
    double b[12] = { 1 }, log_modulus, phase[2];
    danaus_condition condition;
    danaus_status status = danaus_chain_invert(chain, 2, &inverse, &condition);
    assert_int_equal(inverse == NULL, status != DANAUS_OK);
    danaus_chain_destroy(inverse);
    if (status == DANAUS_OK)
        status = danaus_chain_solve(chain, 2, DANAUS_BATCH_LAST, 2, b, b, &condition);
    if (status == DANAUS_OK)
        status = danaus_chain_determinant(chain, 2, &log_modulus, phase);
    return status;
}

static void memory_that_runs_out_is_told(void **state)
{
    (void)state;
    danaus_chain *chain = chain_of("2,3,3,1 1,2,2,3", DANAUS_F64);
    assert_in_range(expect_memory_errors(invert_and_solve, chain), 15, 100);
    danaus_chain_destroy(chain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inverses_times_their_chains_are_one),
        cmocka_unit_test(the_worst_block_is_named_with_its_condition),
        cmocka_unit_test(a_diagonal_is_bounded_by_its_range),
        cmocka_unit_test(inverses_of_products_and_adjoints),
        cmocka_unit_test(solutions_solve_in_both_layouts),
        cmocka_unit_test(determinants_are_those_of_matrices),
        cmocka_unit_test(singular_blocks_are_named),
        cmocka_unit_test(numbers_that_are_not_finite_are_named),
        cmocka_unit_test(other_blocks_and_arguments_are_refused),
        cmocka_unit_test(memory_that_runs_out_is_told),
    };
    return cmocka_run_group_tests_name("inverse", tests, NULL, NULL);
}
