/* Refinement sweeps and balancing. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "factor/refine.h"
#include "math/lapack_library.h"
#include "product/patterns.h"
#include "support/device.h"
#include "support/factors.h"

#include <complex.h>
#undef complex
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int dyadic(int64_t n, danaus_pattern *p)
{
    int count;
    danaus_chain_desc desc = { .kind = DANAUS_CHAIN_DYADIC, .rows = n, .cols = n };
    assert_ok(danaus_patterns_make(&desc, p, DANAUS_MAX_FACTORS, &count));
    return count;
}

enum { GAUSSIAN, COSINE, KERNEL, CAUCHY, NOISY, NEARLY_EXACT, KINDS };

static matrix example(int kind, const danaus_pattern *p, int count, int64_t n)
{
    rng r = { 10 };
    matrix w = matrix_gauss(&r, n, n, 0);
    for (int64_t k = 0; k < n; k++)
        for (int64_t m = 0; m < n; m++) {
            double x = ((double)k + 0.5) / (double)n, y = ((double)m + 0.5) / (double)n;
            number *at = &w.at[k * n + m];
            if (kind == COSINE)
                *at = cos(3.14159265358979 * (double)k * y) * (k ? 1 : sqrt(0.5));
            if (kind == KERNEL)
                *at = exp(-(x - y) * (x - y) / 0.1);
            if (kind == CAUCHY)
                *at = 1 / (x + y + 0.01);
        }
    if (kind >= NOISY) {
        matrix exact = product_random(&r, p, count, 0);
        double share =
            (kind == NOISY ? 0.1 : 1e-4) * matrix_norm(exact) / matrix_norm(w);
        matrix_add(&exact, share, w);
        matrix_free(&w);
        w = exact;
    }
    return w;
}

/* Refines from left to right's result; history is checked; returns the final error. */
static double refined(
    matrix w, int complex, const danaus_pattern *p, int count, int sweeps,
    sweep_step step)
{
    ks_factors f = swept(w, complex, p, count, NULL);
    double start = distance_on_support(w, &f), norm = matrix_norm(w), history[1024];
    readable view = readable_make(w, complex, dn_patterns_product(p, count));
    ks_run run = { 0 };
    assert_ok(dn_refine(&run, &view.view, sweeps, step, 0, &f, history));
    double end = distance_on_support(w, &f);
    int steps = 2 * sweeps * (count - 1);
    for (int n = 1; n < steps; n++)
        assert_true(history[n] >= history[n - 1] * (1 - 1e-12));
    assert_true(end <= start + 1e-9 * norm);
    readable_free(&view);
    dn_factors_free(&f);
    return end;
}

/* T10.1 to T10.4 */
static void sweeps_never_lose_and_gain_most_without_structure(void **state)
{
    (void)state;
    danaus_pattern p[6];
    dyadic(64, p);
    for (int kind = 0; kind < KINDS; kind++) {
        matrix w = example(kind, p, 6, 64);
        ks_factors f = swept(w, 0, p, 6, NULL);
        double start = distance_on_support(w, &f);
        double one = refined(w, 0, p, 6, 1, KS_STEP_PAIR);
        double five = refined(w, 0, p, 6, 5, KS_STEP_PAIR);
        double single = refined(w, 0, p, 6, 5, KS_STEP_SINGLE);
        double lower = largest_split_error(w, p, 6), slack = 1e-9 * matrix_norm(w);
        assert_true(five <= one + slack && five >= lower - slack);
        assert_true(single <= start + slack && single >= lower - slack);
        double gain = 1 - five / start;
        if (kind == GAUSSIAN)
            assert_true(gain > 0.02 && gain < 0.05);
        if (kind >= NOISY)
            assert_true(gain < 0.02);
        dn_factors_free(&f);
        matrix_free(&w);
    }
}

/* T10.3: what the history lacks to ||W||^2 is the squared error. */
static void the_history_tells_the_error(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(20); round++) {
        rng r = { round };
        danaus_pattern p[4], m[4];
        int count = (int)rng_int(&r, 2, 4), group[5], merged,
            complex = (int)(round % 2);
        random_chainable(&r, count, 4, 2, 0, p);
        dn_merge_redundant(p, count, group, m, &merged);
        danaus_pattern whole = dn_patterns_product(p, count);
        if (merged < 2)
            continue;
        matrix w = matrix_gauss(&r, whole.b, whole.c, complex);
        ks_factors f = swept(w, complex, m, merged, NULL);
        readable view = readable_make(w, complex, whole);
        ks_run run = { 0 };
        double history[64], norm = matrix_norm(w);
        assert_ok(dn_refine(&run, &view.view, 2, KS_STEP_PAIR, 0, &f, history));
        double error = distance_on_support(w, &f), kept = history[4 * (merged - 1) - 1];
        assert_true(fabs(sqrt(fmax(norm * norm - kept, 0)) - error) <= 1e-6 * norm);
        readable_free(&view);
        dn_factors_free(&f);
        matrix_free(&w);
    }
}

/* T10.5 */
static void two_factors_have_nothing_to_gain(void **state)
{
    (void)state;
    danaus_pattern p[] = { { 1, 8, 8, 8 }, { 8, 8, 8, 1 } };
    matrix w = example(GAUSSIAN, p, 2, 64);
    double delta;
    ks_factors f = swept(w, 0, p, 2, &delta);
    assert_true(fabs(refined(w, 0, p, 2, 2, KS_STEP_PAIR) - delta) < 1e-9);
    dn_factors_free(&f);
    matrix_free(&w);
}

/* T10.6: the best middle factor between given outer ones, in normal equations. */
static void one_factor_is_solved_by_projection(void **state)
{
    (void)state;
    danaus_pattern p[] = { { 1, 2, 4, 6 }, { 2, 6, 4, 2 }, { 4, 4, 3, 1 } };
    rng r = { 106 };
    matrix w = matrix_gauss(&r, 12, 12, 0);
    number *start[3];
    for (int l = 0; l < 3; l++)
        start[l] = factor_random(&r, p[l], 0);
    ks_factors f = factors_from(p, start, 3, 0);
    ks_run run = { 0 };
    ks_pair first = dn_pair(p[0], p[1]), last = dn_pair(p[1], p[2]);
    assert_ok(dn_orthonormalise_left(&run, &first, 0, f.w[0], f.w[1]));
    assert_ok(dn_orthonormalise_right(&run, &last, 0, f.w[1], f.w[2]));
    ks_pair rest = dn_pair(p[0], dn_patterns_product(p + 1, 2));
    double *inner = dn_work_alloc(0, rest.p2);
    readable view = readable_make(w, 0, dn_patterns_product(p, 3));
    assert_ok(dn_project_left(&run, &rest, &view.view, f.w[0], inner));
    ks_view projected = dn_view_work(0, rest.p2, inner);
    assert_ok(dn_project_right(&run, &last, &projected, f.w[2], f.w[1]));
    double error = distance_on_support(w, &f);

    /* No change of the middle factor helps: the gradient in every weight is zero. */
    matrix product = factors_matrix(&f);
    matrix_add(&product, -1, w);
    for (int64_t at = 0; at < p[1].a * p[1].b * p[1].c * p[1].d; at++) {
        double kept = f.w[1][at], step = 1e-3;
        f.w[1][at] = kept + step;
        double more = distance_on_support(w, &f);
        f.w[1][at] = kept - step;
        double less = distance_on_support(w, &f);
        f.w[1][at] = kept;
        assert_true(more >= error && less >= error);
        assert_true(fabs(more - less) < 1e-9);
    }
    matrix_free(&product);
    matrix_free(&w);
    readable_free(&view);
    dn_factors_free(&f);
    dn_factors_free(&(ks_factors){ .count = 1, .w = { inner } });
    for (int l = 0; l < 3; l++)
        free(start[l]);
}

/* T11.7 */
static void balancing_changes_no_bit_of_the_product(void **state)
{
    (void)state;
    danaus_pattern p[6];
    int count = dyadic(64, p);
    double strength[] = { 1e6, 1e-4, 1, 1e3, 1e-6, 1 };
    for (int complex = 0; complex < 2; complex++) {
        rng r = { 117 };
        number *w[6];
        for (int l = 0; l < 6; l++) {
            w[l] = factor_random(&r, p[l], complex);
            for (int x = 0; x < 256 / 2; x++)
                w[l][x] *= strength[l];
        }
        ks_factors f = factors_from(p, w, count, complex);
        matrix before = factors_matrix(&f);
        assert_ok(dn_factors_balance(&f, 7));
        matrix after = factors_matrix(&f);
        assert_memory_equal(before.at, after.at, 64 * 64 * sizeof(number));
        double least = INFINITY, most = 0;
        for (int l = 0; l < 6; l++) {
            double norm = sqrt(dn_energy(complex, 1, 128, (dn_matrix){ f.w[l], 0 }));
            least = fmin(least, norm);
            most = fmax(most, norm);
        }
        assert_true(most / least < 4);
        matrix_free(&before);
        matrix_free(&after);
        dn_factors_free(&f);
        for (int l = 0; l < 6; l++)
            free(w[l]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sweeps_never_lose_and_gain_most_without_structure),
        cmocka_unit_test(the_history_tells_the_error),
        cmocka_unit_test(two_factors_have_nothing_to_gain),
        cmocka_unit_test(one_factor_is_solved_by_projection),
        cmocka_unit_test(balancing_changes_no_bit_of_the_product),
    };
    if (dn_lapack_begin(1) != DANAUS_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dn_lapack_end(1);
    return failed;
}
