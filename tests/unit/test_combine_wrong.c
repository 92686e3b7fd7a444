/* Chains that cannot be combined, fused or converted: a status with a sentence, and nothing
   made. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "product/chain.h"
#include "danaus/transforms.h"

#include <string.h>

static danaus_chain *empty(const char *patterns, danaus_dtype dtype)
{
    danaus_pattern p[DANAUS_MAX_FACTORS];
    int count;
    danaus_chain *chain = NULL;
    assert_ok(danaus_patterns_parse(patterns, p, DANAUS_MAX_FACTORS, &count));
    assert_ok(danaus_chain_create(p, count, dtype, &chain));
    return chain;
}

static void expect_refusal(
    danaus_combination how, const char *x, const char *y, danaus_status status,
    const char *words)
{
    danaus_chain *chains[] = { empty(x, DANAUS_F32), empty(y, DANAUS_F32) };
    danaus_chain *made = NULL;
    assert_status(
        danaus_chain_combine(how, (const danaus_chain *const *)chains, 2, &made),
        status);
    assert_null(made);
    assert_non_null(strstr(danaus_error_detail(), words));
    danaus_chain_destroy(chains[0]);
    danaus_chain_destroy(chains[1]);
}

static void chains_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    danaus_status shape = DANAUS_ERR_SHAPE;
    expect_refusal(DANAUS_PRODUCT, "1,2,3,1", "1,4,3,1", shape, "3 columns");
    expect_refusal(DANAUS_SUM, "1,2,3,1", "1,3,2,1", shape, "chain 1 is 3 x 2");
    expect_refusal(DANAUS_HSTACK, "1,2,3,1", "1,3,2,1", shape, "chain 1 is 3 x 2");
    expect_refusal(DANAUS_VSTACK, "1,2,3,1", "1,3,2,1", shape, "chain 1 is 3 x 2");
    expect_refusal(DANAUS_SUM, "2,2,2,1", "1,4,4,1", shape, "(1,4,4,1) in chain 1");
    expect_refusal(
        DANAUS_SUM, "1,4,2,1 1,2,4,1", "2,2,2,1", shape, "chain 1 has 1 factors");
    expect_refusal(
        DANAUS_SUM, "1,2,2,2 2,2,2,1", "1,4,1,1 1,1,4,1", shape,
        "factor 0 is (1,4,1,1)");
    expect_refusal(DANAUS_BLOCK_DIAGONAL, "1,2,3,1", "1,3,3,1", shape, "(1,3,3,1)");
    expect_refusal(DANAUS_BLOCK_DIAGONAL, "1,2,3,1", "1,2,4,1", shape, "(1,2,4,1)");
    expect_refusal(DANAUS_BLOCK_DIAGONAL, "1,2,3,1", "1,2,3,2", shape, "(1,2,3,2)");
    char many[64 * 8 + 1] = "";
    for (int l = 0; l < DANAUS_MAX_FACTORS; l++)
        strcat(many, "2,1,1,1 ");
    expect_refusal(DANAUS_PRODUCT, many, "1,2,2,1", shape, "65 factors");
    expect_refusal(DANAUS_KRONECKER, many, "1,2,2,1", shape, "65 factors");
    expect_refusal(DANAUS_VSTACK, many, many, DANAUS_ERR_ARGUMENT, "64 factors");
}

/* Chains whose numbers no memory holds: sizes are judged before numbers are read. */
static const danaus_chain many_rows = { .count = 1,
                                        .dtype = DANAUS_F32,
                                        .patterns = { { 1LL << 58, 1, 1, 1 } } };
static const danaus_chain tall = { .count = 1,
                                   .dtype = DANAUS_F32,
                                   .patterns = { { 1, 1LL << 58, 1, 1 } } };
static const danaus_chain wide = { .count = 1,
                                   .dtype = DANAUS_F32,
                                   .patterns = { { 1, 1, 1LL << 58, 1 } } };
static const danaus_chain rank_one = {
    .count = 2,
    .dtype = DANAUS_F32,
    .patterns = { { 1, 1LL << 56, 1, 1 }, { 1, 1, 1LL << 56, 1 } },
};

/* So many terms, which are one chain. */
static void expect_too_large(
    danaus_combination how, const danaus_chain *term, int count, const char *words)
{
    const danaus_chain *chains[32];
    danaus_chain *made = NULL;
    for (int s = 0; s < count; s++)
        chains[s] = term;
    assert_status(danaus_chain_combine(how, chains, count, &made), DANAUS_ERR_SHAPE);
    assert_null(made);
    assert_non_null(strstr(danaus_error_detail(), words));
}

static void sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    const char *sizes = "the sizes of factor 0 overflow";
    const char *weights = "whose number of weights overflows";
    expect_too_large(DANAUS_BLOCK_DIAGONAL, &many_rows, 32, sizes);
    expect_too_large(DANAUS_BLOCK_DIAGONAL, &many_rows, 16, weights);
    expect_too_large(DANAUS_HSTACK, &wide, 32, sizes);
    expect_too_large(DANAUS_HSTACK, &wide, 16, weights);
    expect_too_large(DANAUS_VSTACK, &tall, 32, sizes);
    expect_too_large(DANAUS_VSTACK, &tall, 16, weights);
    expect_too_large(DANAUS_SUM, &rank_one, 32, weights);
}

static void kronecker_products_that_overflow_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *left;
        const danaus_chain *right;
        const char *words;
    } cases[] = {
        { "1,1,1,32", &many_rows, "the sizes of a Kronecker product overflow" },
        { "1,1,1,16", &many_rows, "whose number of weights overflows" },
        { "8,1,1,8", &rank_one, "whose number of weights overflows" },
        { "1,9,9,1", &wide, "whose number of weights overflows" },
    };
    for (int i = 0; i < 4; i++) {
        danaus_chain *left = empty(cases[i].left, DANAUS_F32), *made = NULL;
        const danaus_chain *chains[] = { left, cases[i].right };
        assert_status(
            danaus_chain_combine(DANAUS_KRONECKER, chains, 2, &made), DANAUS_ERR_SHAPE);
        assert_null(made);
        assert_non_null(strstr(danaus_error_detail(), cases[i].words));
        danaus_chain_destroy(left);
    }
}

/* Products of factors that fit, alone and two by two, and that no memory holds. */
static void kronecker_products_are_refused_before_anything_is_made(void **state)
{
    (void)state;
    static const struct {
        int count;
        danaus_status status;
        const char *words;
    } cases[] = {
        { 12, DANAUS_ERR_MEMORY, "the weights of a chain" },
        { 30, DANAUS_ERR_SHAPE, "overflow" },
        { 32, DANAUS_ERR_SHAPE, "overflow" },
        { 65, DANAUS_ERR_SHAPE, "65 factors, more than 64" },
    };
    danaus_chain *one = empty("1,8,8,1", DANAUS_F32), *made = NULL;
    const danaus_chain *chains[65];
    for (int n = 0; n < 65; n++)
        chains[n] = one;
    for (int i = 0; i < 4; i++) {
        dn_alloc_fail_at(0);
        assert_status(
            danaus_chain_combine(DANAUS_KRONECKER, chains, cases[i].count, &made),
            cases[i].status);
        assert_int_equal(dn_alloc_fail_at(0), 0);
        assert_null(made);
        assert_non_null(strstr(danaus_error_detail(), cases[i].words));
    }
    danaus_chain_destroy(one);
}

static void what_no_memory_holds_is_refused_before_anything_is_made(void **state)
{
    (void)state;
    danaus_chain *rank = empty("1,3000000,1,1 1,1,3000000,1", DANAUS_F32), *made = NULL;
    const danaus_transform_desc dft = { .kind = DANAUS_DFT, .n = 1 << 30 };
    danaus_pattern large[] = { { 1, 1 << 22, 1 << 22, 1 } };
    danaus_operator *made_operator = NULL;
    float place = 1;
    dn_alloc_fail_at(0);
    assert_status(danaus_chain_to_dense(rank, &place), DANAUS_ERR_MEMORY);
    assert_status(danaus_chain_fuse(rank, 0, 2, &made), DANAUS_ERR_MEMORY);
    assert_status(danaus_chain_create(large, 1, DANAUS_F32, &made), DANAUS_ERR_MEMORY);
    assert_status(danaus_operator_transform(&dft, &made_operator), DANAUS_ERR_MEMORY);
    assert_true(dn_alloc_fail_at(0) <= 1); /* a mark for each block of fused factors */
    assert_true(!made && !made_operator && place == 1);
    danaus_chain_destroy(rank);
}

static void products_that_overflow_are_refused(void **state)
{
    (void)state;
    danaus_chain *made = NULL;
    float dense = 0;
    assert_status(danaus_chain_fuse(&rank_one, 0, 2, &made), DANAUS_ERR_SHAPE);
    assert_null(made);
    assert_non_null(
        strstr(danaus_error_detail(), "(1,72057594037927936,72057594037927936,1)"));
    assert_status(danaus_chain_to_dense(&rank_one, &dense), DANAUS_ERR_MEMORY);
    assert_true(dense == 0);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    danaus_chain *x = empty("1,2,2,1", DANAUS_F32), *y = empty("1,2,2,1", DANAUS_F64);
    danaus_chain *made = NULL;
    const danaus_chain *types[] = { x, y }, *none[] = { x, NULL };
    danaus_status wrong = DANAUS_ERR_ARGUMENT;
    assert_status(danaus_chain_combine(DANAUS_SUM, types, 2, &made), wrong);
    assert_non_null(strstr(danaus_error_detail(), "chain 1 is f64"));
    assert_status(danaus_chain_combine(DANAUS_SUM, none, 2, &made), wrong);
    assert_status(danaus_chain_combine(DANAUS_SUM, types, 0, &made), wrong);
    assert_status(danaus_chain_combine(DANAUS_SUM, NULL, 2, &made), wrong);
    assert_status(danaus_chain_combine(DANAUS_SUM, types, 1, NULL), wrong);
    assert_status(danaus_chain_combine((danaus_combination)6, types, 1, &made), wrong);
    assert_status(danaus_chain_fuse(x, 0, 2, &made), wrong);
    assert_status(danaus_chain_fuse(x, -1, 1, &made), wrong);
    assert_status(danaus_chain_fuse(x, 1, 1, &made), wrong);
    assert_status(danaus_chain_fuse(NULL, 0, 1, &made), wrong);
    assert_status(danaus_chain_transpose(NULL, 0, &made), wrong);
    assert_status(danaus_chain_transpose(x, 0, NULL), wrong);
    assert_status(danaus_chain_scale(NULL, NULL, NULL, &made), wrong);
    assert_status(danaus_chain_convert(x, (danaus_dtype)99, &made), wrong);
    assert_null(made);
    danaus_chain_destroy(x);
    danaus_chain_destroy(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_that_do_not_fit_are_refused),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(kronecker_products_that_overflow_are_refused),
        cmocka_unit_test(kronecker_products_are_refused_before_anything_is_made),
        cmocka_unit_test(what_no_memory_holds_is_refused_before_anything_is_made),
        cmocka_unit_test(products_that_overflow_are_refused),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests_name("combine_wrong", tests, NULL, NULL);
}
