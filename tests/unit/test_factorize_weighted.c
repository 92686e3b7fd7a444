/* Calibration: factors that are good for given inputs. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "product/patterns.h"
#include "support/device.h"
#include "support/factors.h"

#include <complex.h>
#undef complex
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct problem {
    danaus_pattern p[5];
    int count, complex;
    danaus_dtype dtype;
    matrix w, x; /* x: samples x cols */
} problem;

static problem problem_make(uint64_t round)
{
    rng r = { round };
    danaus_dtype types[] = { DANAUS_F64, DANAUS_C128, DANAUS_F32, DANAUS_C64 };
    problem q = { .count = (int)rng_int(&r, 1, 4),
                  .complex = (int)(round % 2),
                  .dtype = types[round % 4] };
    random_chainable(&r, q.count, 4, 2, 1, q.p);
    danaus_pattern whole = dn_patterns_product(q.p, q.count);
    int64_t rows = whole.a * whole.b * whole.d, cols = whole.a * whole.c * whole.d;
    q.w = matrix_gauss(&r, rows, cols, q.complex);
    q.x = matrix_gauss(&r, rng_int(&r, 1, 3 * cols), cols, q.complex);
    for (int64_t k = 0; k < cols; k++) {
        double strength = exp(2 * rng_gauss(&r));
        for (int64_t s = 0; s < q.x.rows; s++)
            q.x.at[s * cols + k] *= strength;
    }
    if (round % 3 == 0) { /* the same on the transposed chain */
        danaus_pattern back[5];
        dn_patterns_transpose(q.p, q.count, back);
        memcpy(q.p, back, sizeof back);
        matrix t = matrix_transposed(q.w);
        matrix_free(&q.w);
        matrix_free(&q.x);
        q.w = t;
        q.x = matrix_gauss(&r, 2 * t.cols, t.cols, q.complex);
    }
    return q;
}

static void problem_free(problem *q)
{
    matrix_free(&q->w);
    matrix_free(&q->x);
}

/* ||X W^T - X K^T|| / ||X W^T|| */
static double weighted_error(const problem *q, danaus_chain *chain)
{
    matrix k = chain_matrix(chain), difference = matrix_copy(q->w);
    matrix_add(&difference, -1, k);
    matrix dt = matrix_transposed(difference), wt = matrix_transposed(q->w);
    matrix error = matrix_times(q->x, dt), all = matrix_times(q->x, wt);
    double relative = matrix_norm(error) / matrix_norm(all);
    matrix *each[] = { &k, &difference, &dt, &wt, &error, &all };
    for (int n = 0; n < 6; n++)
        matrix_free(each[n]);
    return relative;
}

static danaus_chain *solve(
    const problem *q, int weighted, int sweeps, danaus_factorize_result *result)
{
    void *w = matrix_pack(q->w, q->dtype), *x = matrix_pack(q->x, q->dtype);
    danaus_factorize_desc desc = { .refine = sweeps,
                                   .inputs = weighted ? x : NULL,
                                   .samples = q->x.rows,
                                   .threads = 1 };
    danaus_chain *chain = NULL;
    assert_ok(danaus_factorize(w, q->dtype, q->p, q->count, &desc, &chain, result));
    free(w);
    free(x);
    return chain;
}

static void calibration_never_loses_and_never_grows(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(80); round++) {
        problem q = problem_make(round);
        int single = q.dtype == DANAUS_F32 || q.dtype == DANAUS_C64;
        double slack = single ? 3e-5 : 1e-9;
        danaus_factorize_result result;
        danaus_chain *plain = solve(&q, 0, 0, &result);
        double last = weighted_error(&q, plain), before = last, dense = result.error;
        int sweeps[] = { 1, 2, 5, 20 };
        for (int n = 0; n < 4; n++) {
            danaus_chain *chain = solve(&q, 1, sweeps[n], &result);
            double error = weighted_error(&q, chain);
            if (error > last + slack)
                fail_msg("round %d: %g after %g", (int)round, error, last);
            assert_true(fabs(error - result.error) < slack);
            assert_true(result.upper_bound >= result.error);
            assert_true(result.upper_bound < before + 1e-3); /* sqrt of the ridge */
            assert_true(result.lower_bound == -1);
            assert_true(result.dense_error >= dense / sqrt(q.count) - slack);
            last = error;
            danaus_chain_destroy(chain);
        }
        danaus_chain_destroy(plain);
        problem_free(&q);
    }
}

/* One of two starts is the factorization without inputs. The upper bound is that of the better
   start, and often much less than the error of the factorization without inputs. */
static void the_better_start_is_taken(void **state)
{
    (void)state;
    int better = 0, all = 0;
    for (uint64_t round = 0; round < 24; round++) {
        problem q = problem_make(round);
        danaus_factorize_result result;
        danaus_chain *plain = solve(&q, 0, 0, &result);
        double without = weighted_error(&q, plain);
        danaus_chain_destroy(plain);
        if (q.count > 2) {
            danaus_chain_destroy(solve(&q, 1, 1, &result));
            better += result.upper_bound < 0.9 * without;
            all++;
        }
        problem_free(&q);
    }
    assert_true(all >= 8 && 2 * better > all);
}

/* For a low-rank chain the optimum is the truncated SVD of X W^T. */
static void a_low_rank_chain_reaches_the_known_optimum(void **state)
{
    (void)state;
    for (int complex = 0; complex < 2; complex++) {
        rng r = { 5 };
        problem q = { .p = { { 1, 24, 4, 1 }, { 1, 4, 20, 1 } },
                      .count = 2,
                      .complex = complex,
                      .dtype = complex ? DANAUS_C128 : DANAUS_F64 };
        q.w = matrix_gauss(&r, 24, 20, complex);
        q.x = matrix_gauss(&r, 90, 20, complex);
        for (int64_t at = 0; at < 90 * 20; at++)
            q.x.at[at] *= exp(-(double)(at % 20) / 8);
        matrix wt = matrix_transposed(q.w), all = matrix_times(q.x, wt);
        double s[24], best = 0;
        matrix_singular_values(all, s);
        for (int k = 4; k < 24; k++)
            best = hypot(best, s[k]);
        best /= matrix_norm(all);
        danaus_factorize_result result;
        danaus_chain *chain = solve(&q, 1, 60, &result);
        assert_true(result.error >= best - 1e-12);
        assert_true(result.error < best * (1 + 1e-4));
        danaus_chain_destroy(chain);
        matrix_free(&wt);
        matrix_free(&all);
        problem_free(&q);
    }
}

static void orthogonal_inputs_change_nothing_for_two_factors(void **state)
{
    (void)state;
    rng r = { 6 };
    problem q = { .p = { { 1, 4, 4, 4 }, { 4, 4, 4, 1 } },
                  .count = 2,
                  .dtype = DANAUS_F64 };
    q.w = matrix_gauss(&r, 16, 16, 0);
    q.x = matrix_make(16, 16);
    for (int k = 0; k < 16; k++)
        q.x.at[k * 16 + (5 * k + 3) % 16] = k % 2 ? 2 : -2;
    danaus_factorize_result plain, weighted;
    danaus_chain_destroy(solve(&q, 0, 0, &plain));
    danaus_chain_destroy(solve(&q, 1, 5, &weighted));
    assert_true(fabs(plain.error - weighted.error) < 1e-12);
    problem_free(&q);
}

static void exact_matrices_stay_exact(void **state)
{
    (void)state;
    danaus_pattern p[] = { { 1, 4, 4, 16 }, { 4, 4, 4, 4 }, { 16, 4, 4, 1 } };
    rng r = { 8 };
    problem q = { .count = 3, .dtype = DANAUS_F64 };
    memcpy(q.p, p, sizeof p);
    q.w = product_random(&r, p, 3, 0);
    q.x = matrix_gauss(&r, 100, 64, 0);
    danaus_factorize_result result;
    danaus_chain_destroy(solve(&q, 1, 3, &result));
    assert_true(result.error < 1e-13 && result.dense_error < 1e-12);
    problem_free(&q);
}

static void bad_or_silent_inputs_are_handled(void **state)
{
    (void)state;
    danaus_pattern p[] = { { 1, 2, 2, 2 }, { 2, 2, 2, 1 } };
    rng r = { 9 };
    matrix w = matrix_gauss(&r, 4, 4, 0);
    void *packed = matrix_pack(w, DANAUS_F64);
    double x[12] = { 0 };
    danaus_factorize_desc desc = { .inputs = x, .samples = 3 };
    danaus_chain *chain = NULL;
    danaus_factorize_result result;
    assert_ok(danaus_factorize(packed, DANAUS_F64, p, 2, &desc, &chain, &result));
    assert_true(result.error == 0 && result.dense_error < 1);
    danaus_chain_destroy(chain);
    chain = NULL;
    x[6] = NAN;
    assert_status(
        danaus_factorize(packed, DANAUS_F64, p, 2, &desc, &chain, &result),
        DANAUS_ERR_ARGUMENT);
    assert_non_null(strstr(danaus_error_detail(), "X[1][2] is NaN"));
    assert_null(chain);
    free(packed);
    matrix_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calibration_never_loses_and_never_grows),
        cmocka_unit_test(the_better_start_is_taken),
        cmocka_unit_test(a_low_rank_chain_reaches_the_known_optimum),
        cmocka_unit_test(orthogonal_inputs_change_nothing_for_two_factors),
        cmocka_unit_test(exact_matrices_stay_exact),
        cmocka_unit_test(bad_or_silent_inputs_are_handled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
