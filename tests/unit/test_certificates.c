/* What danaus_factorize() certifies against the best errors of single splits, which are
   found by Jacobi rotations in rectangles that are found from the supports alone
   (support/factors.h); steps of refinement and calibration that must not be left out. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "factor/calibrated/weighted.h"
#include "math/pattern.h"
#include "product/patterns.h"
#include "support/device.h"
#include "support/factors.h"

#include <complex.h>
#undef complex
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_C64, DANAUS_C128 };

/* A matrix with the errors of its splits, over the norm of it all. */
typedef struct subject {
    danaus_pattern p[5];
    int count, complex;
    danaus_dtype dtype;
    matrix w; /* representable in its type */
    double norm, off, split[5], largest, least;
} subject;

static subject subject_make(uint64_t round)
{
    rng r = { round };
    subject q = { .count = (int)rng_int(&r, 2, 5), .dtype = types[round % 4] };
    q.complex = q.dtype == DANAUS_C64 || q.dtype == DANAUS_C128;
    random_chainable(&r, q.count, 3, 2, 1, q.p);
    danaus_pattern whole = dn_patterns_product(q.p, q.count);
    matrix w = matrix_gauss(
        &r, whole.a * whole.b * whole.d, whole.a * whole.c * whole.d, q.complex);
    void *packed = matrix_pack(w, q.dtype);
    q.w = matrix_unpack(q.dtype, packed, w.rows, w.cols);
    q.norm = matrix_norm(q.w);
    for (int64_t row = 0; row < w.rows; row++)
        for (int64_t col = 0; col < w.cols; col++)
            if (!in_support(whole, row, col))
                q.off = hypot(q.off, cabs(q.w.at[row * w.cols + col]) / q.norm);
    q.least = INFINITY;
    for (int s = 1; s < q.count; s++) {
        q.split[s] = hypot(split_error(q.w, q.p, q.count, s) / q.norm, q.off);
        q.largest = fmax(q.largest, q.split[s]);
        q.least = fmin(q.least, q.split[s]);
    }
    free(packed);
    matrix_free(&w);
    return q;
}

/* What the split errors promise at most: added up in balanced trees, else in quadrature.
   The errors that a run finds are smaller. */
static double promised(const subject *q, danaus_order order)
{
    double squares = 0, sum = 0;
    for (int s = 1; s < q->count; s++) {
        double delta = sqrt(fmax(q->split[s] * q->split[s] - q->off * q->off, 0));
        squares = hypot(squares, delta);
        sum += delta;
    }
    return hypot(order == DANAUS_ORDER_BALANCED ? sum : squares, q->off);
}

static void check_subject(const subject *q, danaus_order order, int refine)
{
    danaus_factorize_desc desc = { .order = order, .refine = refine, .threads = 1 };
    danaus_factorize_result found;
    danaus_chain *chain = NULL;
    void *packed = matrix_pack(q->w, q->dtype);
    double single = q->dtype == DANAUS_F32 || q->dtype == DANAUS_C64 ? 1e-6 : 1e-11;
    assert_ok(
        danaus_factorize(packed, q->dtype, q->p, q->count, &desc, &chain, &found));
    matrix made = chain_matrix(chain);
    double error = matrix_distance(made, q->w) / q->norm;
    double first = order == DANAUS_ORDER_LEFT_TO_RIGHT   ? q->split[1]
                   : order == DANAUS_ORDER_RIGHT_TO_LEFT ? q->split[q->count - 1]
                                                         : q->least;
    if (found.lower_bound > q->largest + 1e-11)
        fail_msg("certified %.15g, best is %.15g", found.lower_bound, q->largest);
    if (found.lower_bound < first - 1e-11)
        fail_msg("certified %.15g, first split %.15g", found.lower_bound, first);
    assert_true(error >= q->largest - 1e-11); /* whatever was reported */
    assert_true(fabs(error - found.error) < single);
    assert_true(error <= promised(q, order) + single);
    assert_true(found.upper_bound <= promised(q, order) + single);
    assert_true(q->count > 2 || fabs(error - found.lower_bound) < single);
    matrix_free(&made);
    danaus_chain_destroy(chain);
    free(packed);
}

static void bounds_are_those_of_the_best_splits(void **state)
{
    (void)state;
    int refined = 0;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(40); round++) {
        subject q = subject_make(round);
        for (int order = 0; order <= DANAUS_ORDER_BALANCED; order++)
            for (int refine = 0; refine <= 3; refine += 3, refined++)
                check_subject(&q, (danaus_order)order, refine);
        matrix_free(&q.w);
    }
    assert_true(refined >= 8);
}

/* Nothing that is called better is better than the best. */
static void no_improvement_passes_the_lower_bound(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(20); round++) {
        subject q = subject_make(4 * round + 1 + round % 2 * 2); /* f64, c128 */
        rng r = { round };
        matrix inputs = matrix_gauss(&r, 2 * q.w.cols, q.w.cols, q.complex);
        void *w = matrix_pack(q.w, q.dtype), *x = matrix_pack(inputs, q.dtype);
        danaus_factorize_desc desc = {
            .inputs = x, .samples = inputs.rows, .refine = 8, .threads = 1
        };
        danaus_factorize_result found;
        danaus_chain *chain = NULL;
        assert_ok(danaus_factorize(w, q.dtype, q.p, q.count, &desc, &chain, &found));
        assert_true(found.dense_error >= q.largest - 1e-11);
        assert_true(found.error <= found.upper_bound + 1e-12);
        danaus_chain_destroy(chain);
        free(w);
        free(x);
        matrix_free(&inputs);
        matrix_free(&q.w);
    }
}

/* ---- calibration's steps ---- */

/* Three butterflies and a triangle, as weighted.h takes them. */
enum { SIZE = 8 };

typedef struct least_squares {
    ks_dense dense;
    ks_calibration c;
    ks_factors f;
    double lower[SIZE * SIZE], target[SIZE * SIZE];
} least_squares;

/* Factors, and as target what their product makes of a triangle, up to rounding. */
static void start(least_squares *q, uint64_t round)
{
    danaus_pattern p[] = { { 1, 2, 2, 4 }, { 2, 2, 2, 2 }, { 4, 2, 2, 1 } };
    rng r = { round };
    number *w[3];
    *q = (least_squares){ .dense = { NULL, DANAUS_F64, SIZE, SIZE } };
    for (int i = 0; i < 3; i++)
        w[i] = factor_random(&r, p[i], 0);
    q->f = factors_from(p, w, 3, 0);
    matrix l = matrix_gauss(&r, SIZE, SIZE, 0);
    for (int row = 0; row < SIZE; row++)
        for (int col = row + 1; col < SIZE; col++)
            l.at[row * SIZE + col] = 0;
    matrix product = chain_product(p, w, 3), target = matrix_times(product, l);
    for (int x = 0; x < SIZE * SIZE; x++) {
        q->lower[x] = creal(l.at[x]);
        q->target[x] = creal(target.at[x]);
    }
    q->c = (ks_calibration){ .w = &q->dense, .lower = q->lower, .target = q->target };
    for (int i = 0; i < 3; i++)
        free(w[i]);
    matrix_free(&product);
    matrix_free(&l);
    matrix_free(&target);
}

static double error_of(const least_squares *q)
{
    double error;
    assert_ok(dn_weighted_error(NULL, &q->c, &q->f, &error));
    return error;
}

/* Where nothing is left to gain every other step would make the error larger, by
   rounding. */
static void worse_steps_are_rejected(void **state)
{
    (void)state;
    int gained = 0;
    for (uint64_t round = 0; round < 50; round++) {
        least_squares q;
        ks_run run = { 0 };
        start(&q, round);
        double first = error_of(&q);
        assert_ok(dn_weighted_refine(&run, &q.c, 0, 3, 1, &q.f));
        double error = error_of(&q);
        if (error > first)
            fail_msg("round %d: %g after %g", (int)round, error, first);
        gained += error < first;
        dn_factors_free(&q.f);
    }
    assert_true(gained > 10);
}

/* The share of the target that one pass leaves when the last factor is lost: the
   geometric mean. */
static double left_without_the_last(int chainable)
{
    double logarithms = 0;
    enum { ROUNDS = 20 };
    for (uint64_t round = 0; round < ROUNDS; round++) {
        least_squares q;
        ks_run run = { 0 };
        start(&q, round);
        memset(q.f.w[2], 0, (size_t)dn_pattern_weights(q.f.p[2]) * sizeof(double));
        double all = error_of(&q);
        assert_ok(dn_weighted_refine(&run, &q.c, chainable, 1, 1, &q.f));
        logarithms += log(error_of(&q) / all) / 2;
        dn_factors_free(&q.f);
    }
    return exp(logarithms / ROUNDS);
}

/* Ten steps of conjugate gradients find it where the factors before are orthonormal, which
   the pass makes them if the chain allows it; elsewhere they are on their way. */
static void a_lost_factor_is_found_in_one_pass(void **state)
{
    (void)state;
    double found = left_without_the_last(1), on_the_way = left_without_the_last(0);
    if (found > 5e-4 || found > on_the_way / 10)
        fail_msg("%g are left, and %g elsewhere", found, on_the_way);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_are_those_of_the_best_splits),
        cmocka_unit_test(no_improvement_passes_the_lower_bound),
        cmocka_unit_test(worse_steps_are_rejected),
        cmocka_unit_test(a_lost_factor_is_found_in_one_pass),
    };
    return cmocka_run_group_tests_name("certificates", tests, NULL, NULL);
}
