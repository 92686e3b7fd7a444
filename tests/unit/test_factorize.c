/* The hierarchical factorization: exact recovery, bounds, what orthonormal factors are
   for, redundant chains. Every property is one of docs/ks.md, sections 3 to 5. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "factor/refine.h"
#include "math/lapack_library.h"
#include "product/patterns.h"
#include "support/device.h"
#include "support/factors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- two factors ---- */

/* T4.2 */
static void a_low_rank_chain_is_the_truncated_svd(void **state)
{
    (void)state;
    danaus_pattern p[] = { { 1, 20, 4, 1 }, { 1, 4, 31, 1 } };
    for (int complex = 0; complex < 2; complex++) {
        rng r = { 4 };
        matrix w = matrix_gauss(&r, 20, 31, complex);
        double s[20], best = 0, delta;
        matrix_singular_values(w, s);
        for (int k = 4; k < 20; k++)
            best = hypot(best, s[k]);
        ks_factors f = swept(w, complex, p, 2, &delta);
        assert_true(fabs(delta - best) < 1e-10);
        assert_true(fabs(distance_on_support(w, &f) - best) < 1e-10);
        dn_factors_free(&f);
        matrix_free(&w);
    }
}

/* T4.3 */
static void two_factors_are_optimal(void **state)
{
    (void)state;
    danaus_pattern p[] = { { 1, 4, 4, 6 }, { 2, 12, 5, 1 } };
    rng r = { 43 };
    matrix w = matrix_gauss(&r, 24, 10, 0);
    double delta;
    ks_factors f = swept(w, 0, p, 2, &delta);
    double error = distance_on_support(w, &f);
    assert_true(fabs(error - delta) < 1e-10);
    assert_true(fabs(error - split_error(w, p, 2, 1)) < 1e-10);
    readable view = readable_make(w, 0, dn_patterns_product(p, 2));
    ks_run run = { 0 };
    for (int restart = 0; restart < rounds_of(20); restart++) {
        number *start[] = { factor_random(&r, p[0], 0), factor_random(&r, p[1], 0) };
        ks_factors g = factors_from(p, start, 2, 0);
        assert_ok(dn_refine(&run, &view.view, 30, KS_STEP_SINGLE, 0, &g, NULL));
        assert_true(distance_on_support(w, &g) >= error * (1 - 1e-12));
        dn_factors_free(&g);
        free(start[0]);
        free(start[1]);
    }
    readable_free(&view);
    dn_factors_free(&f);
    matrix_free(&w);
}

/* ---- recovery ---- */

static double recovery_error(
    matrix w, int complex, const danaus_pattern *p, int count, const int *order,
    ks_how how)
{
    ks_factors f = factorised(w, complex, p, count, order, how, NULL);
    matrix made = factors_matrix(&f);
    double error = relative_distance(made, w);
    matrix_free(&made);
    dn_factors_free(&f);
    return error;
}

/* The next permutation in lexicographic order; 0 after the last. */
static int next_permutation(int n, int *a)
{
    int i = n - 2, j = n - 1;
    while (i >= 0 && a[i] > a[i + 1])
        i--;
    if (i < 0)
        return 0;
    while (a[j] < a[i])
        j--;
    int swap = a[i];
    a[i] = a[j];
    a[j] = swap;
    for (int x = i + 1, y = n - 1; x < y; x++, y--) {
        swap = a[x];
        a[x] = a[y];
        a[y] = swap;
    }
    return 1;
}

/* T5.1 */
static void every_bracketing_recovers_exact_products(void **state)
{
    (void)state;
    double worst = 0;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(120); round++) {
        rng r = { round };
        danaus_pattern p[6];
        int count = (int)rng_int(&r, 2, 6), complex = (int)(round % 2), orders[42][8];
        random_chainable(&r, count, count < 6 ? 3 : 2, 3, 1, p);
        matrix w = product_random(&r, p, count, complex);
        int trees = tree_orders(0, count, 0, orders);
        for (int t = 0; t < trees; t++)
            for (int fast = 0; fast < 2; fast++)
                worst = fmax(
                    worst, recovery_error(
                               w, complex, p, count, orders[t], (ks_how){ fast, 0 }));
        int order[] = { 1, 2, 3 };
        for (int more = count <= 4; more; more = next_permutation(count - 1, order))
            worst =
                fmax(worst, recovery_error(w, complex, p, count, order, (ks_how){ 0 }));
        matrix_free(&w);
        if (worst > 1e-12)
            fail_msg("round %d: error %g", (int)round, worst);
    }
}

/* T5.2 */
static void large_butterflies_are_recovered(void **state)
{
    (void)state;
    int sizes[][2] = { { 8, 1 }, { 5, 2 }, { 4, 3 }, { 10, 1 } };
    for (int x = 0; x < (rounds_of(4) < 4 ? 3 : 4); x++) {
        rng r = { (uint64_t)x };
        int64_t n = (INT64_C(1) << sizes[x][0]) * sizes[x][1];
        danaus_chain_desc desc = { .kind = DANAUS_CHAIN_BLOCK_BUTTERFLY,
                                   .rows = n,
                                   .cols = n,
                                   .rank = sizes[x][1] };
        danaus_pattern p[10];
        int count, order[10];
        assert_ok(danaus_patterns_make(&desc, p, 10, &count));
        matrix w = product_random(&r, p, count, 0);
        for (int how = DANAUS_ORDER_LEFT_TO_RIGHT; how <= DANAUS_ORDER_BALANCED;
             how++) {
            dn_order_splits((danaus_order)how, p, count, order);
            assert_true(recovery_error(w, 0, p, count, order, (ks_how){ 0 }) < 1e-11);
        }
        matrix_free(&w);
    }
}

/* ---- bounds ---- */

static matrix test_matrix(
    rng *r, uint64_t round, const danaus_pattern *p, int count, int complex)
{
    int64_t rows = p[0].a * p[0].b * p[0].d;
    int64_t cols = p[count - 1].a * p[count - 1].c * p[count - 1].d;
    matrix w = matrix_gauss(r, rows, cols, complex);
    for (int64_t x = 0; round % 3 == 0 && x < rows * cols; x++)
        w.at[x] *= exp(2 * rng_gauss(r));
    if (round % 5 == 0) {
        matrix exact = product_random(r, p, count, complex);
        matrix_add(&exact, 1e-3, w);
        matrix_free(&w);
        w = exact;
    }
    return w;
}

typedef struct judged {
    matrix w;
    const danaus_pattern *p;
    int count, complex;
    double e[8], sum_e, max_e, slack;
} judged;

/* T6.1 to T6.7 for one order; right_first < 0: no tree. */
static void check_bounds(const judged *j, const int *order, int right_first)
{
    double delta[8], sum = 0, squares = 0, largest = 0;
    ks_factors f =
        factorised(j->w, j->complex, j->p, j->count, order, (ks_how){ 0 }, delta);
    double error = distance_on_support(j->w, &f);
    dn_factors_free(&f);
    int forward = 1, backward = 1, splits = j->count - 1;
    for (int s = 0; s < splits; s++) {
        sum += delta[s];
        squares += delta[s] * delta[s];
        largest = fmax(largest, delta[s]);
        forward &= order[s] == s + 1;
        backward &= order[s] == splits - s;
        assert_true(delta[s] <= j->e[s] + j->slack);
    }
    assert_true(fabs(delta[order[0] - 1] - j->e[order[0] - 1]) <= j->slack);
    assert_true(error <= sum + j->slack);
    assert_true(error <= splits * j->max_e + j->slack);
    assert_true(largest <= error + j->slack);
    if (right_first >= 0)
        assert_true(
            error <= tree_bound(order, right_first, j->count, delta) + j->slack);
    if (forward || backward) {
        assert_true(fabs(error - sqrt(squares)) <= 1e3 * j->slack);
        assert_true(error <= j->sum_e + j->slack);
        assert_true(error <= sqrt(splits) * j->max_e + j->slack);
    }
}

static void split_errors_bound_the_error_from_both_sides(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(150); round++) {
        rng r = { round };
        danaus_pattern p[5];
        judged j = { .p = p,
                     .count = (int)rng_int(&r, 2, 5),
                     .complex = (int)(round % 2) };
        random_chainable(&r, j.count, 3, 2, 1, p);
        j.w = test_matrix(&r, round, p, j.count, j.complex);
        j.slack = 1e-10 * matrix_norm(j.w);
        for (int s = 1; s < j.count; s++) {
            j.e[s - 1] = split_error(j.w, p, j.count, s);
            j.sum_e = hypot(j.sum_e, j.e[s - 1]);
            j.max_e = fmax(j.max_e, j.e[s - 1]);
        }
        for (int right_first = 0; right_first < 2; right_first++) {
            int orders[42][8], trees = tree_orders(0, j.count, right_first, orders);
            for (int t = 0; t < trees; t++)
                check_bounds(&j, orders[t], right_first);
        }
        int order[] = { 1, 2, 3, 4 };
        for (int x = 0; x < 3; x++) {
            for (int s = j.count - 2; s > 0; s--) {
                int other = (int)rng_int(&r, 0, s), swap = order[s];
                order[s] = order[other];
                order[other] = swap;
            }
            check_bounds(&j, order, -1);
        }
        matrix_free(&j.w);
    }
}

/* T6.8 */
static void only_sweeps_obey_pythagoras(void **state)
{
    (void)state;
    danaus_pattern p[4];
    int count, order[] = { 2, 1, 3 };
    danaus_chain_desc desc = { .kind = DANAUS_CHAIN_DYADIC, .rows = 16, .cols = 16 };
    assert_ok(danaus_patterns_make(&desc, p, 4, &count));
    double exceeds = 0;
    for (uint64_t round = 0; round < 400; round++) {
        rng r = { round };
        matrix w = matrix_gauss(&r, 16, 16, 0);
        for (int x = 0; x < 256; x++)
            w.at[x] *= exp(3 * rng_gauss(&r));
        double delta[3];
        ks_factors f = factorised(w, 0, p, 4, order, (ks_how){ 0 }, delta);
        double squares = hypot(hypot(delta[0], delta[1]), delta[2]);
        exceeds = fmax(exceeds, distance_on_support(w, &f) / squares);
        dn_factors_free(&f);
        matrix_free(&w);
    }
    assert_true(exceeds > 1.001);
}

/* T6.9 */
static void nothing_found_is_better_than_the_lower_bound(void **state)
{
    (void)state;
    danaus_pattern p[4];
    int count, orders[][3] = { { 1, 2, 3 }, { 3, 2, 1 }, { 2, 1, 3 } };
    danaus_chain_desc desc = { .kind = DANAUS_CHAIN_DYADIC, .rows = 16, .cols = 16 };
    assert_ok(danaus_patterns_make(&desc, p, 4, &count));
    for (uint64_t round = 0; round < 10; round++) {
        rng r = { round };
        matrix w = matrix_gauss(&r, 16, 16, 0);
        readable view = readable_make(w, 0, dn_patterns_product(p, 4));
        ks_run run = { 0 };
        double best = INFINITY, lower = largest_split_error(w, p, 4), first = 0;
        for (int x = 0; x < 4; x++) {
            number *start[4];
            for (int l = 0; l < 4; l++)
                start[l] = factor_random(&r, p[l], 0);
            ks_factors f = x < 3
                               ? factorised(w, 0, p, 4, orders[x], (ks_how){ 0 }, NULL)
                               : factors_from(p, start, 4, 0);
            if (x == 0)
                first = distance_on_support(w, &f);
            assert_ok(dn_refine(&run, &view.view, 30, KS_STEP_PAIR, 0, &f, NULL));
            best = fmin(best, distance_on_support(w, &f));
            dn_factors_free(&f);
            for (int l = 0; l < 4; l++)
                free(start[l]);
        }
        assert_true(lower <= best + 1e-9);
        assert_true(first <= sqrt(3) * best + 1e-9);
        readable_free(&view);
        matrix_free(&w);
    }
}

/* ---- orthonormal factors ---- */

/* One strong direction and k weak ones in a tall middle factor. */
static void tall_example(double strong, int64_t k, double *with, double *without)
{
    danaus_pattern p[] = { { 1, 2, 1, k + 1 }, { 1, k + 1, 2, 1 }, { 2, 1, 2, 1 } };
    matrix w = matrix_make(2 * (k + 1), 4);
    w.at[0] = strong * strong;
    for (int64_t x = 1; x <= k; x++)
        w.at[x * 4 + 1] = 1;
    int order[] = { 1, 2 };
    ks_factors f = factorised(w, 0, p, 3, order, (ks_how){ 0 }, NULL);
    ks_factors g = factorised(w, 0, p, 3, order, (ks_how){ 0, 1 }, NULL);
    *with = distance_on_support(w, &f);
    *without = distance_on_support(w, &g);
    assert_true(*with <= sqrt(2) * largest_split_error(w, p, 3) + 1e-9);
    assert_true(*without > sqrt(2) * largest_split_error(w, p, 3));
    dn_factors_free(&f);
    dn_factors_free(&g);
    matrix_free(&w);
}

/* T7.1, T7.1a, T7.1b */
static void without_orthonormal_factors_errors_have_no_bound(void **state)
{
    (void)state;
    double with, without, large_with, large_without;
    tall_example(10, 120, &with, &without);
    assert_true(without > 5 * with);
    tall_example(15, 250, &large_with, &large_without);
    assert_true(large_without / large_with > without / with);
}

/* T7.2 */
static void square_roots_lose_digits_on_deficient_ranks(void **state)
{
    (void)state;
    double with = 0, without = 0;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(60); round++) {
        rng r = { round };
        danaus_pattern p[5];
        random_chainable(&r, 5, 3, 3, 1, p);
        matrix w = product_random(&r, p, 5, 0);
        int orders[42][8], trees = tree_orders(0, 5, 0, orders);
        for (int t = 0; t < trees; t++) {
            with = fmax(with, recovery_error(w, 0, p, 5, orders[t], (ks_how){ 0 }));
            without =
                fmax(without, recovery_error(w, 0, p, 5, orders[t], (ks_how){ 0, 1 }));
        }
        matrix_free(&w);
    }
    assert_true(with < 1e-13);
    assert_true(rounds_of(60) < 60 || without > 1e-10); /* some round shows it */
}

/* ---- redundant chains ---- */

/* T8.1 to T8.3 */
static void merged_chains_expand_exactly(void **state)
{
    (void)state;
    int worse = 0, better = 0;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(400); round++) {
        rng r = { round };
        danaus_pattern p[5], m[5];
        int count = (int)rng_int(&r, 3, 5), merged, group[6];
        random_chainable(&r, count, 3, 4, 1, p);
        dn_merge_redundant(p, count, group, m, &merged);
        int64_t before = 0, after = 0;
        for (int l = 0; l < count; l++)
            before += p[l].a * p[l].b * p[l].c * p[l].d;
        for (int l = 0; l < merged; l++)
            after += m[l].a * m[l].b * m[l].c * m[l].d;
        danaus_pattern whole = dn_patterns_product(p, count);
        danaus_pattern same = dn_patterns_product(m, merged);
        assert_memory_equal(&whole, &same, sizeof whole);
        assert_ok(danaus_patterns_check_chainable(m, merged));
        assert_true(after <= before && group[0] == 0 && group[merged] == count);
        for (int l = 0; l + 1 < merged; l++)
            assert_false(dn_pair_redundant(m[l], m[l + 1]));
        if (merged < 2 || merged == count)
            continue;
        matrix w = matrix_gauss(
            &r, whole.a * whole.b * whole.d, whole.a * whole.c * whole.d, 0);
        ks_factors f = swept(w, 0, m, merged, NULL), g = swept(w, 0, p, count, NULL);
        double error = distance_on_support(w, &f), direct = distance_on_support(w, &g);
        double lower = largest_split_error(w, m, merged);
        assert_true(error <= sqrt(merged - 1) * lower + 1e-9);
        assert_true(direct >= lower - 1e-9);
        if (merged > 2 && error > 1e-6) {
            worse += direct > error * (1 + 1e-9);
            better += direct < error * (1 - 1e-9);
        }
        ks_run run = { 0 };
        assert_ok(dn_expand(&run, p, count, group, &f));
        assert_int_equal(f.count, count);
        assert_memory_equal(f.p, p, (size_t)count * sizeof *p);
        assert_true(fabs(distance_on_support(w, &f) - error) < 1e-9);
        dn_factors_free(&f);
        dn_factors_free(&g);
        matrix_free(&w);
    }
    assert_true(rounds_of(400) < 400 || worse > better);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_low_rank_chain_is_the_truncated_svd),
        cmocka_unit_test(two_factors_are_optimal),
        cmocka_unit_test(every_bracketing_recovers_exact_products),
        cmocka_unit_test(large_butterflies_are_recovered),
        cmocka_unit_test(split_errors_bound_the_error_from_both_sides),
        cmocka_unit_test(only_sweeps_obey_pythagoras),
        cmocka_unit_test(nothing_found_is_better_than_the_lower_bound),
        cmocka_unit_test(without_orthonormal_factors_errors_have_no_bound),
        cmocka_unit_test(square_roots_lose_digits_on_deficient_ranks),
        cmocka_unit_test(merged_chains_expand_exactly),
    };
    if (dn_lapack_begin(1) != DANAUS_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dn_lapack_end(1);
    return failed;
}
