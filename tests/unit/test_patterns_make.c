/* Chains by name, chainability and its sentences, redundancy, and the search for
   chains of few parameters. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "factor/fit.h"
#include "math/pattern.h"
#include "product/patterns.h"
#include "support/device.h"
#include "support/failing.h"
#include "support/rng.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct made {
    danaus_pattern p[DANAUS_MAX_FACTORS];
    int count;
} made;

static made make(danaus_chain_desc desc)
{
    made m;
    assert_ok(danaus_patterns_make(&desc, m.p, DANAUS_MAX_FACTORS, &m.count));
    return m;
}

static made parse(const char *text)
{
    made m;
    assert_ok(danaus_patterns_parse(text, m.p, DANAUS_MAX_FACTORS, &m.count));
    return m;
}

static void expect_chain(made m, const char *text)
{
    made expected = parse(text);
    assert_int_equal(m.count, expected.count);
    for (int l = 0; l < m.count; l++)
        if (!dn_pattern_equal(m.p[l], expected.p[l]))
            fail_msg("factor %d differs from %s", l, text);
}

static int64_t weights_of_chain(made m)
{
    int64_t sum = 0;
    for (int l = 0; l < m.count; l++)
        sum += dn_pattern_weights(m.p[l]);
    return sum;
}

static int chainable(made m)
{
    int transposed;
    return dn_patterns_direction(m.p, m.count, &transposed) == DANAUS_OK && !transposed;
}

static void expect_shape(made m, int64_t rows, int64_t cols)
{
    assert_ok(danaus_patterns_check(m.p, m.count));
    assert_int_equal(dn_pattern_rows(m.p[0]), rows);
    assert_int_equal(dn_pattern_cols(m.p[m.count - 1]), cols);
}

static int all_ranks_are(made m, int64_t rank)
{
    for (int l = 0; l + 1 < m.count; l++)
        if (dn_pair_rank(m.p[l], m.p[l + 1]) != rank)
            return 0;
    return 1;
}

/* T3.1, T3.2 */
static void dense_and_low_rank_are_what_they_say(void **state)
{
    (void)state;
    expect_chain(make((danaus_chain_desc){ .rows = 6, .cols = 10 }), "1,6,10,1");
    made low = make((danaus_chain_desc){
        .kind = DANAUS_CHAIN_LOW_RANK, .rows = 6, .cols = 10, .rank = 3 });
    expect_chain(low, "1,6,3,1 1,3,10,1");
    assert_true(chainable(low) && all_ranks_are(low, 3));
}

/* T3.3, T3.5 */
static void butterflies_have_their_size_rank_and_parameters(void **state)
{
    (void)state;
    for (int order = 1; order < 8; order++) {
        int64_t n = INT64_C(1) << order;
        made m = make(
            (danaus_chain_desc){ .kind = DANAUS_CHAIN_DYADIC, .rows = n, .cols = n });
        expect_shape(m, n, n);
        assert_true(chainable(m) && all_ranks_are(m, 1));
        assert_int_equal(weights_of_chain(m), 2 * order * n);
    }
    for (int order = 2; order < 5; order++)
        for (int64_t t = 1; t < 4; t++) {
            int64_t n = (INT64_C(1) << order) * t;
            made m = make((danaus_chain_desc){ .kind = DANAUS_CHAIN_BLOCK_BUTTERFLY,
                                               .rows = n,
                                               .cols = n,
                                               .rank = t });
            expect_shape(m, n, n);
            assert_int_equal(m.count, order);
            assert_true(chainable(m) && all_ranks_are(m, t));
        }
}

/* T3.4 */
static void kaleidoscopes_multiply_but_are_not_chainable(void **state)
{
    (void)state;
    made m = make((danaus_chain_desc){
        .kind = DANAUS_CHAIN_KALEIDOSCOPE, .rows = 16, .cols = 16 });
    expect_shape(m, 16, 16);
    assert_int_equal(m.count, 8);
    assert_status(danaus_patterns_check_chainable(m.p, m.count), DANAUS_ERR_SHAPE);
    assert_true(dn_pair_redundant(m.p[3], m.p[4]));
    assert_true(dn_pattern_equal(
        dn_pattern_product(m.p[3], m.p[4]), (danaus_pattern){ 8, 2, 2, 1 }));
}

/* T3.6, T3.7: the Monarch line of the published table. */
static void the_table_monarch_needs_p_squared_to_divide(void **state)
{
    (void)state;
    for (int64_t rows = 1; rows < 37; rows++)
        for (int64_t cols = 1; cols < 37; cols++)
            for (int64_t p = 1; p < 7; p++) {
                if (rows % p || cols % p)
                    continue;
                int64_t m = rows < cols ? rows : cols;
                made chain = { { { 1, rows / p, m / p, p }, { p, m / p, cols / p, 1 } },
                               2 };
                expect_shape(chain, rows, cols);
                assert_int_equal(chainable(chain), m % (p * p) == 0);
                if (m % (p * p) == 0)
                    assert_true(all_ranks_are(chain, m / (p * p)));
            }
}

/* T3.9 */
static void two_factor_monarch_takes_any_divisors(void **state)
{
    (void)state;
    int64_t sizes[][4] = {
        { 21, 16, 3, 4 }, { 12, 25, 4, 5 }, { 64, 64, 8, 8 }, { 12, 16, 2, 4 }
    };
    for (int i = 0; i < 4; i++) {
        int64_t rows = sizes[i][0], cols = sizes[i][1], p = sizes[i][2],
                q = sizes[i][3];
        int64_t row_radices[] = { p, rows / p }, col_radices[] = { q, cols / q };
        made m = make((danaus_chain_desc){ .kind = DANAUS_CHAIN_MONARCH,
                                           .rows = rows,
                                           .cols = cols,
                                           .row_radices = row_radices,
                                           .col_radices = col_radices });
        expect_shape(m, rows, cols);
        assert_true(chainable(m) && all_ranks_are(m, 1));
        assert_int_equal(weights_of_chain(m), rows * q + rows / p * cols);
    }
}

/* T3.10 */
static void monarch_of_any_order_has_full_support(void **state)
{
    (void)state;
    made m = make((danaus_chain_desc){
        .kind = DANAUS_CHAIN_MONARCH, .rows = 1024, .cols = 1024, .order = 3 });
    expect_chain(m, "1,8,8,128 8,8,8,16 64,16,16,1");
    int64_t q[] = { 2, 3, 2, 5 }, p[] = { 3, 2, 2, 2 };
    m = make((danaus_chain_desc){ .kind = DANAUS_CHAIN_RADICES,
                                  .rows = 60,
                                  .cols = 24,
                                  .order = 4,
                                  .row_radices = q,
                                  .col_radices = p });
    expect_shape(m, 60, 24);
    assert_true(chainable(m) && all_ranks_are(m, 1));
    assert_true(dn_pattern_equal(
        dn_patterns_product(m.p, m.count), (danaus_pattern){ 1, 60, 24, 1 }));
    m = make((danaus_chain_desc){
        .kind = DANAUS_CHAIN_MONARCH, .rows = 768, .cols = 3072, .rank = 4 });
    expect_shape(m, 768, 3072);
    expect_chain(m, "1,24,192,32 48,128,64,1");
}

/* Sizes with fewer primes than factors have radices of 1. */
static void monarch_takes_every_size(void **state)
{
    (void)state;
    made m = make((danaus_chain_desc){
        .kind = DANAUS_CHAIN_MONARCH, .rows = 17, .cols = 19, .rank = 3 });
    expect_chain(m, "1,17,3,1 1,3,19,1");
    m = make((danaus_chain_desc){
        .kind = DANAUS_CHAIN_MONARCH, .rows = 17, .cols = 16, .rank = 2 });
    expect_chain(m, "1,17,8,1 4,2,4,1");
    m = make((danaus_chain_desc){
        .kind = DANAUS_CHAIN_MONARCH, .rows = 16, .cols = 19, .rank = 2 });
    expect_chain(m, "1,4,2,4 1,8,19,1");
    for (int64_t rows = 1; rows <= 40; rows++)
        for (int64_t cols = 1; cols <= 40; cols++)
            for (int order = 1; order <= 5; order++) {
                m = make((danaus_chain_desc){ .kind = DANAUS_CHAIN_MONARCH,
                                              .rows = rows,
                                              .cols = cols,
                                              .order = order });
                expect_shape(m, rows, cols);
                assert_true(chainable(m));
                assert_true(dn_pattern_equal(
                    dn_patterns_product(m.p, m.count),
                    (danaus_pattern){ 1, rows, cols, 1 }));
            }
}

/* T3.8, T3.11 */
static void published_chains_are_judged_as_they_should(void **state)
{
    (void)state;
    made vit = parse("1,192,48,2 2,48,192,1"), wide = parse("1,768,192,2 6,64,64,1");
    expect_shape(vit, 384, 384);
    expect_shape(wide, 1536, 384);
    assert_true(chainable(vit) && all_ranks_are(vit, 24));
    assert_true(chainable(wide) && all_ranks_are(wide, 32));
    assert_false(chainable(parse("2,2,2,1 1,2,2,2"))); /* its transpose is */
    made deformable = parse("1,128,128,3 6,64,256,1");
    assert_false(chainable(deformable));
    assert_status(danaus_patterns_check_chainable(deformable.p, 2), DANAUS_ERR_SHAPE);
}

/* T2.8 */
static void a_decreasing_chain_is_accepted_through_its_transpose(void **state)
{
    (void)state;
    made dyadic = make(
        (danaus_chain_desc){ .kind = DANAUS_CHAIN_DYADIC, .rows = 16, .cols = 16 });
    made mirrored = { .count = dyadic.count };
    dn_patterns_transpose(dyadic.p, dyadic.count, mirrored.p);
    int transposed;
    assert_ok(dn_patterns_direction(mirrored.p, mirrored.count, &transposed));
    assert_true(transposed);
    assert_ok(danaus_patterns_check_chainable(mirrored.p, mirrored.count));
}

static void the_sentence_names_the_pair_and_the_condition(void **state)
{
    (void)state;
    struct {
        const char *chain, *words[3];
    } cases[] = {
        { "2,2,2,1 1,2,2,2 2,2,2,1",
          { "factors 0 and 1", "a of the left one must divide a of" } },
        { "1,4,2,2 2,2,4,1 1,4,2,2",
          { "factors 1 and 2", "(2,2,4,1) and (1,4,2,2)", "a of the left" } },
        { "1,8,2,3 1,3,4,2", { "d of the right one must divide d of the left" } },
        { "1,4,3,4 2,6,4,1", { "must divide a c of the left one" } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        made m = parse(cases[i].chain);
        assert_status(danaus_patterns_check_chainable(m.p, m.count), DANAUS_ERR_SHAPE);
        for (int w = 0; w < 3 && cases[i].words[w]; w++)
            if (!strstr(danaus_error_detail(), cases[i].words[w]))
                fail_msg(
                    "\"%s\" lacks \"%s\"", danaus_error_detail(), cases[i].words[w]);
    }
}

static void impossible_names_are_refused_with_a_sentence(void **state)
{
    (void)state;
    int64_t zero[] = { 0, 8 }, wrong[] = { 2, 3 }, good[] = { 2, 4 }, none[] = { 0 };
    danaus_chain_desc cases[] = {
        { .rows = 0, .cols = 4 },
        { .rows = 4, .cols = -1 },
        { .rows = INT64_MAX, .cols = 2 },
        { .kind = DANAUS_CHAIN_DYADIC, .rows = 12, .cols = 12 },
        { .kind = DANAUS_CHAIN_DYADIC, .rows = 16, .cols = 8 },
        { .kind = DANAUS_CHAIN_DYADIC, .rows = 1, .cols = 1 },
        { .kind = DANAUS_CHAIN_BLOCK_BUTTERFLY, .rows = 16, .cols = 16, .rank = 3 },
        { .kind = DANAUS_CHAIN_MONARCH, .rows = 8, .cols = 8, .order = 65 },
        { .kind = DANAUS_CHAIN_MONARCH, .rows = 8, .cols = 8, .order = -1 },
        { .kind = DANAUS_CHAIN_MONARCH, .rows = 8, .cols = 8, .rank = -2 },
        { .kind = DANAUS_CHAIN_MONARCH, .rows = 8, .cols = 8, .rank = INT64_MAX },
        { .kind = DANAUS_CHAIN_RADICES, .rows = 8, .cols = 8 },
        { .kind = DANAUS_CHAIN_RADICES,
          .rows = 8,
          .cols = 8,
          .order = 2,
          .row_radices = zero,
          .col_radices = good },
        { .kind = DANAUS_CHAIN_RADICES,
          .rows = 8,
          .cols = 8,
          .order = 2,
          .row_radices = good,
          .col_radices = wrong },
        { .kind = DANAUS_CHAIN_RADICES,
          .rows = 8,
          .cols = 8,
          .order = 2,
          .ranks = none },
        { .kind = (danaus_chain_kind)99, .rows = 8, .cols = 8 },
        { .rows = 8, .cols = 8, .reserved = { 1 } },
    };
    danaus_pattern p[DANAUS_MAX_FACTORS] = { { 9, 9, 9, 9 } };
    int count = -5;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        danaus_status status =
            danaus_patterns_make(&cases[i], p, DANAUS_MAX_FACTORS, &count);
        if (status == DANAUS_OK || !danaus_error_detail()[0] || count != -5 ||
            p[0].a != 9)
            fail_msg("case %zu is accepted or has touched its outputs", i);
    }
    danaus_chain_desc dyadic = { .kind = DANAUS_CHAIN_DYADIC, .rows = 16, .cols = 16 };
    assert_status(danaus_patterns_make(&dyadic, p, 3, &count), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_patterns_make(NULL, p, 3, &count), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_patterns_make(&dyadic, NULL, 3, &count), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_patterns_make(&dyadic, p, 4, NULL), DANAUS_ERR_ARGUMENT);
    assert_int_equal(count, -5);
}

/* ---- the search ---- */

static int allowed(int64_t rows, int64_t cols, int64_t p, int64_t q, int monotone)
{
    if (!monotone)
        return p > 1 || q > 1;
    if (rows == cols)
        return p > 1 && p == q;
    return p > 1 && q > 1 && (rows > cols ? q >= p : q <= p);
}

/* Fewest weights over all radices, by recursion; -1 if there is no chain. */
static int64_t brute(
    int64_t rows, int64_t cols, int64_t big_q, int64_t big_p, int l, int order,
    int64_t rank, int monotone)
{
    if (l == order)
        return big_q == 1 && big_p == cols ? 0 : -1;
    int64_t best = -1;
    for (int64_t q = 1; q <= big_q; q++)
        for (int64_t p = 1; p <= cols / big_p; p++) {
            if (big_q % q || cols / big_p % p || !allowed(rows, cols, p, q, monotone))
                continue;
            int64_t rest =
                brute(rows, cols, big_q / q, big_p * p, l + 1, order, rank, monotone);
            int64_t cost =
                (l ? rank : 1) * (l + 1 < order ? rank : 1) * big_q * big_p * p;
            if (rest >= 0 && (best < 0 || rest + cost < best))
                best = rest + cost;
        }
    return best;
}

/* T12.1 */
static void the_search_finds_the_smallest_chain(void **state)
{
    (void)state;
    int64_t sizes[][2] = { { 8, 8 }, { 12, 8 }, { 6, 24 }, { 16, 16 }, { 24, 36 } };
    for (int i = 0; i < 5; i++)
        for (int order = 2; order < 4; order++)
            for (int64_t rank = 1; rank < 3; rank++)
                for (int monotone = 0; monotone < 2; monotone++) {
                    int64_t rows = sizes[i][0], cols = sizes[i][1];
                    made m = { .count = order };
                    int found;
                    assert_ok(dn_patterns_cheapest(
                        rows, cols, order, rank, monotone, m.p, &found));
                    int64_t best = brute(rows, cols, rows, 1, 0, order, rank, monotone);
                    assert_int_equal(found, best >= 0);
                    if (!found)
                        continue;
                    assert_int_equal(weights_of_chain(m), best);
                    assert_true(chainable(m) && all_ranks_are(m, rank));
                    expect_shape(m, rows, cols);
                }
}

/* T12.2, T12.2b */
static void radix_four_is_as_small_as_radix_two(void **state)
{
    (void)state;
    int64_t expected[] = {
        65536, 32768, 24576, 20480, 20480, 20480, 20480, 20480, 20480
    };
    int found;
    for (int order = 2; order <= 10; order++) {
        made m = { .count = order };
        assert_ok(dn_patterns_cheapest(1024, 1024, order, 1, 1, m.p, &found));
        assert_true(found);
        assert_int_equal(weights_of_chain(m), expected[order - 2]);
    }
    made m = { .count = 2 };
    assert_ok(dn_patterns_cheapest(1024, 1024, 2, 1, 0, m.p, &found));
    expect_chain(m, "1,1024,1,1 1,1,1024,1");
}

static void a_fit_keeps_its_budget_and_gains_from_a_larger_one(void **state)
{
    (void)state;
    int64_t sizes[][2] = {
        { 1024, 1024 }, { 768, 3072 }, { 3072, 768 }, { 384, 384 }, { 60, 84 }
    };
    for (int i = 0; i < 5; i++) {
        int64_t rows = sizes[i][0], cols = sizes[i][1], last = 0;
        for (int percent = 20; percent <= 90; percent += 10 * case_step()) {
            made m;
            int64_t budget = rows * cols / 100 * percent;
            assert_ok(danaus_patterns_fit(
                rows, cols, budget, m.p, DANAUS_MAX_FACTORS, &m.count));
            expect_shape(m, rows, cols);
            assert_true(chainable(m) && m.count > 1);
            int64_t weights = weights_of_chain(m);
            assert_true(weights <= budget && weights >= last);
            for (int l = 0; l + 1 < m.count; l++)
                assert_false(dn_pair_redundant(m.p[l], m.p[l + 1]));
            last = weights;
        }
        made dense;
        assert_ok(danaus_patterns_fit(
            rows, cols, rows * cols, dense.p, DANAUS_MAX_FACTORS, &dense.count));
        assert_int_equal(dense.count, 1);
    }
}

static void a_fit_says_what_the_smallest_chain_needs(void **state)
{
    (void)state;
    made m = { .count = -5 };
    assert_status(
        danaus_patterns_fit(1024, 1024, 100, m.p, 64, &m.count), DANAUS_ERR_ARGUMENT);
    assert_non_null(strstr(danaus_error_detail(), "the smallest has 2048"));
    assert_status(danaus_patterns_fit(1, 7, 6, m.p, 64, &m.count), DANAUS_ERR_ARGUMENT);
    assert_non_null(strstr(danaus_error_detail(), "the smallest has 7")); /* dense */
    assert_status(danaus_patterns_fit(0, 4, 100, m.p, 64, &m.count), DANAUS_ERR_SHAPE);
    assert_status(
        danaus_patterns_fit(8, 8, 100, NULL, 64, &m.count), DANAUS_ERR_ARGUMENT);
    assert_int_equal(m.count, -5);
    assert_ok(danaus_patterns_fit(7, 11, 40, m.p, 64, &m.count));
    expect_chain(m, "1,7,2,1 1,2,11,1"); /* primes: low rank */
}

static void a_fit_without_memory_says_so(void **state)
{
    (void)state;
    danaus_status status = DANAUS_ERR_MEMORY;
    made m = { .count = -5 };
    for (long n = 1; status != DANAUS_OK; n += case_step()) {
        assert_int_equal(m.count, -5);
        dn_alloc_fail_at(n);
        status = danaus_patterns_fit(64, 64, 2000, m.p, DANAUS_MAX_FACTORS, &m.count);
        dn_alloc_fail_at(0);
        assert_true(status == DANAUS_OK || status == DANAUS_ERR_MEMORY);
    }
}

static void the_null_model_has_its_known_values(void **state)
{
    (void)state;
    assert_true(dn_null_energy(5, 9, 5) == 1);
    assert_true(fabs(dn_null_energy(400, 400, 100) - 0.6230) < 2e-3);
    assert_true(fabs(dn_null_energy(64, 256, 16) - dn_null_energy(256, 64, 16)) == 0);
    double edge = pow(sqrt(32) + sqrt(32), 2) / (32 * 32);
    assert_true(fabs(dn_null_energy(32, 32, 1) / edge - 1) < 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_and_low_rank_are_what_they_say),
        cmocka_unit_test(butterflies_have_their_size_rank_and_parameters),
        cmocka_unit_test(kaleidoscopes_multiply_but_are_not_chainable),
        cmocka_unit_test(the_table_monarch_needs_p_squared_to_divide),
        cmocka_unit_test(two_factor_monarch_takes_any_divisors),
        cmocka_unit_test(monarch_of_any_order_has_full_support),
        cmocka_unit_test(monarch_takes_every_size),
        cmocka_unit_test(published_chains_are_judged_as_they_should),
        cmocka_unit_test(a_decreasing_chain_is_accepted_through_its_transpose),
        cmocka_unit_test(the_sentence_names_the_pair_and_the_condition),
        cmocka_unit_test(impossible_names_are_refused_with_a_sentence),
        cmocka_unit_test(the_search_finds_the_smallest_chain),
        cmocka_unit_test(radix_four_is_as_small_as_radix_two),
        cmocka_unit_test(a_fit_keeps_its_budget_and_gains_from_a_larger_one),
        cmocka_unit_test(a_fit_says_what_the_smallest_chain_needs),
        cmocka_unit_test(a_fit_without_memory_says_so),
        cmocka_unit_test(the_null_model_has_its_known_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
