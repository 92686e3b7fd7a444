/* Algebra of patterns, their text, and the checks of a chain. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "math/pattern.h"
#include "support/rng.h"

#include <stdio.h>
#include <string.h>

static void sizes_follow_the_definition(void **state)
{
    (void)state;
    danaus_pattern p = { 2, 3, 5, 7 }, t = dn_pattern_adjoint(p);
    assert_int_equal(dn_pattern_rows(p), 42);
    assert_int_equal(dn_pattern_cols(p), 70);
    assert_int_equal(dn_pattern_weights(p), 210);
    assert_int_equal(dn_pattern_rows(t), 70);
    assert_int_equal(dn_pattern_cols(t), 42);
    assert_true(dn_pattern_equal(dn_pattern_adjoint(t), p));
    assert_false(dn_pattern_equal(t, p));
}

/* True if entry (row, col) is in the support I_a (x) 1_{b x c} (x) I_d. */
static int holds(danaus_pattern p, int64_t row, int64_t col)
{
    return row / (p.b * p.d) == col / (p.c * p.d) && row % p.d == col % p.d;
}

/* Every path row -> middle -> col of two factors lies in the product's support. */
static void the_product_holds_every_path(void **state)
{
    (void)state;
    for (uint64_t round = 0; round < 300; round++) {
        rng r = { round };
        danaus_pattern p = { rng_int(&r, 1, 4), rng_int(&r, 1, 3), rng_int(&r, 1, 4),
                             rng_int(&r, 1, 4) };
        int64_t middle = dn_pattern_cols(p), a = rng_int(&r, 1, middle);
        while (middle % a)
            a--;
        int64_t d = rng_int(&r, 1, middle / a);
        while (middle / a % d)
            d--;
        danaus_pattern q = { a, middle / a / d, rng_int(&r, 1, 3), d };
        danaus_pattern w = dn_pattern_product(p, q);
        assert_int_equal(dn_pattern_rows(w), dn_pattern_rows(p));
        assert_int_equal(dn_pattern_cols(w), dn_pattern_cols(q));
        for (int64_t row = 0; row < dn_pattern_rows(p); row++)
            for (int64_t m = 0; m < middle; m++)
                for (int64_t col = 0; col < dn_pattern_cols(q); col++)
                    if (holds(p, row, m) && holds(q, m, col))
                        assert_true(holds(w, row, col));
    }
}

static void a_chainable_product_is_exact(void **state)
{
    (void)state;
    danaus_pattern w = dn_pattern_product(
        (danaus_pattern){ 1, 192, 48, 2 }, (danaus_pattern){ 2, 48, 192, 1 });
    assert_true(dn_pattern_equal(w, (danaus_pattern){ 1, 384, 384, 1 }));
    w = dn_pattern_product(
        (danaus_pattern){ 2, 2, 2, 4 }, (danaus_pattern){ 4, 2, 2, 2 });
    assert_true(dn_pattern_equal(w, (danaus_pattern){ 2, 4, 4, 2 }));
}

static void a_text_becomes_patterns(void **state)
{
    (void)state;
    danaus_pattern p[4];
    int count = 0;
    assert_ok(danaus_patterns_parse(" 1,192,48,2\t2,48,192,1\n", p, 4, &count));
    assert_int_equal(count, 2);
    assert_true(dn_pattern_equal(p[0], (danaus_pattern){ 1, 192, 48, 2 }));
    assert_true(dn_pattern_equal(p[1], (danaus_pattern){ 2, 48, 192, 1 }));
}

static void a_wrong_text_is_refused_and_nothing_written(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        danaus_status status;
    } wrong[] = {
        { "", DANAUS_ERR_ARGUMENT },
        { "  ", DANAUS_ERR_ARGUMENT },
        { "1,2,3", DANAUS_ERR_ARGUMENT },
        { "1,2,3,4,5", DANAUS_ERR_ARGUMENT },
        { "1,2,3,x", DANAUS_ERR_ARGUMENT },
        { "1,2,,4", DANAUS_ERR_ARGUMENT },
        { "0,2,3,4", DANAUS_ERR_ARGUMENT },
        { "-1,2,3,4", DANAUS_ERR_ARGUMENT },
        { "+1,2,3,4", DANAUS_ERR_ARGUMENT },
        { "1.5,2,3,4", DANAUS_ERR_ARGUMENT },
        { "1,2,3,99999999999999999999", DANAUS_ERR_ARGUMENT },
        { "1,2,3,4;1,2,3,4", DANAUS_ERR_ARGUMENT },
        { "1,1,1,1 1,1,1,1 1,1,1,1 1,1,1,1", DANAUS_ERR_ARGUMENT },
        { "1,2,3,1 1,2,3,1", DANAUS_ERR_SHAPE },
        { "4294967296,4294967296,1,1", DANAUS_ERR_SHAPE },
        { "1,1,1,9223372036854775807", DANAUS_ERR_SHAPE },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        danaus_pattern p[3] = { { 7, 7, 7, 7 } };
        int count = -1;
        assert_status(
            danaus_patterns_parse(wrong[i].text, p, 3, &count), wrong[i].status);
        assert_int_equal(count, -1);
        assert_int_equal(p[0].a, 7);
    }
}

static void missing_arguments_are_refused(void **state)
{
    (void)state;
    danaus_pattern p = { 1, 1, 1, 1 };
    int count = 0;
    assert_status(danaus_patterns_parse(NULL, &p, 1, &count), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_patterns_parse("1,1,1,1", NULL, 1, &count), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_patterns_parse("1,1,1,1", &p, 1, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_patterns_parse("1,1,1,1", &p, 0, &count), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_patterns_parse("1,1,1,1", &p, -1, &count), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_patterns_check(NULL, 1), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_patterns_check(&p, 0), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_patterns_check(&p, DANAUS_MAX_FACTORS + 1), DANAUS_ERR_ARGUMENT);
}

static void as_many_factors_as_promised_and_no_more(void **state)
{
    (void)state;
    char text[16 * (DANAUS_MAX_FACTORS + 1)] = "";
    danaus_pattern p[DANAUS_MAX_FACTORS + 1];
    int count = 0;
    for (int i = 0; i < DANAUS_MAX_FACTORS; i++)
        strcat(text, "1,1,1,1 ");
    assert_ok(danaus_patterns_parse(text, p, DANAUS_MAX_FACTORS + 1, &count));
    assert_int_equal(count, DANAUS_MAX_FACTORS);
    strcat(text, "1,1,1,1");
    assert_status(
        danaus_patterns_parse(text, p, DANAUS_MAX_FACTORS + 1, &count),
        DANAUS_ERR_ARGUMENT);
}

static void the_sentence_names_the_factor(void **state)
{
    (void)state;
    danaus_pattern p[3] = { { 1, 2, 3, 1 }, { 1, 3, 4, 1 }, { 1, 5, 6, 1 } };
    assert_status(danaus_patterns_check(p, 3), DANAUS_ERR_SHAPE);
    assert_string_equal(
        danaus_error_detail(), "factor 1 has 4 columns but factor 2 has 5 rows");
    p[1].d = 0;
    assert_status(danaus_patterns_check(p, 3), DANAUS_ERR_SHAPE);
    assert_string_equal(
        danaus_error_detail(),
        "factor 1 has pattern (1,3,4,0); every entry must be at least 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_follow_the_definition),
        cmocka_unit_test(the_product_holds_every_path),
        cmocka_unit_test(a_chainable_product_is_exact),
        cmocka_unit_test(a_text_becomes_patterns),
        cmocka_unit_test(a_wrong_text_is_refused_and_nothing_written),
        cmocka_unit_test(missing_arguments_are_refused),
        cmocka_unit_test(as_many_factors_as_promised_and_no_more),
        cmocka_unit_test(the_sentence_names_the_factor),
    };
    return cmocka_run_group_tests_name("pattern", tests, NULL, NULL);
}
