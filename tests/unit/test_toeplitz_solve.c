/* Toeplitz systems: residuals, in plain loops. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/element.h"
#include "support/failing.h"
#include "support/matrix.h"

#include <complex.h>
#undef complex
#include <math.h>
#include <stdlib.h>
#include <string.h>

static matrix toeplitz_of(matrix v)
{
    int64_t n = (v.rows + 1) / 2;
    matrix t = matrix_make(n, n);
    for (int64_t k = 0; k < n; k++)
        for (int64_t m = 0; m < n; m++)
            t.at[k * n + m] = v.at[k - m + n - 1];
    return t;
}

/* Elimination with pivots errs backwards by at most 3 n growth u ||L|| ||U||; entries are
   divided twice, and come by transforms of n numbers. The generators of random matrices
   grow by less than 64, which the bound allows. */
static void check_system(matrix v, danaus_dtype dtype, int64_t batch, int last, rng *r)
{
    int64_t n = (v.rows + 1) / 2;
    matrix b = matrix_gauss(r, n, batch, precision_of(dtype).complex);
    void *values = matrix_pack(v, dtype), *right;
    matrix rounded = matrix_unpack(dtype, values, v.rows, 1), t = toeplitz_of(rounded);
    matrix turned = matrix_transposed(b);
    right = matrix_pack(last ? b : turned, dtype);
    matrix given = matrix_unpack(dtype, right, last ? n : batch, last ? batch : n);
    array x = array_make(dtype, n * batch);
    assert_ok(danaus_toeplitz_solve(
        dtype, n, values, last ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST, batch, right,
        x.data));
    array_expect_guards(&x);
    matrix found = matrix_unpack(dtype, x.data, given.rows, given.cols);
    matrix columns = last ? matrix_copy(found) : matrix_transposed(found);
    matrix wanted = last ? matrix_copy(given) : matrix_transposed(given);
    matrix product = matrix_times(t, columns);
    double unit = 64 * 3 * (double)n * 0x1p-53 + precision_of(dtype).unit;
    double bound = unit * (matrix_norm(t) * matrix_norm(columns) + matrix_norm(wanted));
    if (!(matrix_distance(product, wanted) <= bound))
        fail_msg(
            "n %lld in %s: residual %g, more than %g", (long long)n,
            danaus_dtype_name(dtype), matrix_distance(product, wanted), bound);
    /* In place. */
    assert_ok(danaus_toeplitz_solve(
        dtype, n, values, last ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST, batch, right,
        right));
    assert_memory_equal(right, x.data, (size_t)(n * batch) * danaus_dtype_size(dtype));
    matrix all[] = { b, rounded, t, turned, given, found, columns, wanted, product };
    for (size_t m = 0; m < sizeof all / sizeof *all; m++)
        matrix_free(&all[m]);
    array_free(&x);
    free(values);
    free(right);
}

static void residuals_are_small(void **state)
{
    (void)state;
    static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_C64,
                                          DANAUS_C128 };
    static const int64_t lengths[] = { 1, 2, 3, 4, 5, 8, 13, 31, 32, 61, 67, 90 };
    for (size_t x = 0; x < sizeof lengths / sizeof *lengths; x++)
        for (int way = 0; way < 8; way++) {
            rng r = { 100 * x + (uint64_t)way };
            danaus_dtype dtype = types[way % 4];
            matrix v =
                matrix_gauss(&r, 2 * lengths[x] - 1, 1, precision_of(dtype).complex);
            check_system(v, dtype, rng_int(&r, 1, 3), way / 4, &r);
            matrix_free(&v);
        }
}

/* Leading blocks are singular, on which methods without pivots fail. */
static void leading_blocks_may_be_singular(void **state)
{
    (void)state;
    for (int64_t n = 2; n <= 40; n += 2) {
        rng r = { (uint64_t)n };
        matrix v = matrix_gauss(&r, 2 * n - 1, 1, 0);
        v.at[n - 1] = 0; /* t_0 */
        check_system(v, DANAUS_F64, 2, 1, &r);
        matrix_free(&v);
        matrix shift = matrix_make(2 * n - 1, 1); /* cyclic: t_1 = t_(1-n) = 1 */
        shift.at[n] = shift.at[0] = 1;
        check_system(shift, DANAUS_F64, 1, 0, &r);
        matrix_free(&shift);
    }
}

static void what_cannot_be_solved_is_refused(void **state)
{
    (void)state;
    double ones[7] = { 1, 1, 1, 1, 1, 1, 1 }, zeros[7] = { 0 },
           nan[7] = { 0, 0, 0, NAN };
    double b[4] = { 1, 2, 3, 4 }, x[4] = { -7 };
    danaus_dtype f64 = DANAUS_F64;
    danaus_layout first = DANAUS_BATCH_FIRST;
    const double *singular[] = { ones, zeros, nan };
    for (int s = 0; s < 3; s++) {
        assert_status(
            danaus_toeplitz_solve(f64, 4, singular[s], first, 1, b, x),
            DANAUS_ERR_ARGUMENT);
        assert_non_null(strstr(danaus_error_detail(), "singular"));
    }
    assert_status(
        danaus_toeplitz_solve(f64, 4, NULL, first, 1, b, x), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_toeplitz_solve(f64, 4, ones, first, 1, NULL, x), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_toeplitz_solve(f64, 4, ones, first, 1, b, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_toeplitz_solve((danaus_dtype)77, 4, ones, first, 1, b, x),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_toeplitz_solve(f64, 4, ones, (danaus_layout)7, 1, b, x),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_toeplitz_solve(f64, 0, ones, first, 1, b, x), DANAUS_ERR_SHAPE);
    assert_status(
        danaus_toeplitz_solve(f64, 4, ones, first, -1, b, x), DANAUS_ERR_SHAPE);
    assert_status(
        danaus_toeplitz_solve(f64, 4, ones, first, INT64_MAX / 2, b, x),
        DANAUS_ERR_SHAPE);
    assert_true(x[0] == -7);
}

static danaus_status solve_one(void *arg)
{
    double x[3], b[3] = { 1, 2, 3 };
    return danaus_toeplitz_solve(DANAUS_F64, 3, arg, DANAUS_BATCH_LAST, 1, b, x);
}

static void missing_memory_is_reported(void **state)
{
    (void)state;
    double v[5] = { 1, 2, 5, 1, 0 };
    assert_in_range(expect_memory_errors(solve_one, v), 5, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(residuals_are_small),
        cmocka_unit_test(leading_blocks_may_be_singular),
        cmocka_unit_test(what_cannot_be_solved_is_refused),
        cmocka_unit_test(missing_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
