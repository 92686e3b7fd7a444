/* Products that end with gates, y = activation(u) v, through the public interface: right where
   a device has rows for them, and refused elsewhere. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "device/backend.h"
#include "support/chains.h"
#include "support/device.h"

#include <string.h>

static const danaus_dtype halves[] = { DANAUS_F16, DANAUS_BF16 };

/* True if the device has a row for gated products of this pattern. */
static int can_gate(const danaus_device *dev, danaus_dtype dtype, danaus_pattern p)
{
    problem asked = { .pattern = p,
                      .dtype = dtype,
                      .layout = DANAUS_BATCH_FIRST,
                      .batch = 1000,
                      .gated = 1 };
    for (const kernel *k = dev->kernels; k->name; k++)
        if (dn_is_usable(dev, k, &asked))
            return 1;
    return 0;
}

/* With a plan, or the refusal of one by a device without rows. */
static void check(danaus_device *dev, rng *r, const danaus_pattern *p, int count)
{
    danaus_dtype dtype = halves[rng_next(r) % 2];
    random_chain c = chain_random(r, p, count, dtype, (int)(rng_next(r) % 2));
    danaus_ks_desc desc = { .layout = DANAUS_BATCH_FIRST,
                            .dtype = dtype,
                            .activation = random_activation(r, dtype),
                            .bias = (int)(rng_next(r) % 2),
                            .scale = rng_next(r) % 2 ? 0.75 : 0,
                            .gated = 1 };
    danaus_ks_plan *plan = NULL;
    danaus_status status = danaus_ks_plan_create(dev, p, count, &desc, &plan);
    danaus_ks_plan_destroy(plan);
    if (can_gate(dev, dtype, p[0])) {
        assert_ok(status);
        check_product(r, dev, &c, &desc, rng_int(r, 1, 700));
    } else
        assert_status(status, DANAUS_ERR_UNSUPPORTED);
    chain_free(&c);
}

static void products_of_random_shapes_are_right(void **state)
{
    for (int round = 0; round < rounds_of(60); round++) {
        rng r = { (uint64_t)round };
        int64_t unit = round % 2 ? 8 : 1;
        danaus_pattern p = { 2 * rng_int(&r, 1, 3), unit * rng_int(&r, 8, 400 / unit),
                             unit * rng_int(&r, 8, 300 / unit), 1 };
        check(*state, &r, &p, 1);
    }
}

/* The layer of M2-BERT, and one that factors come before. */
static void known_layers_are_right(void **state)
{
    static const danaus_pattern layer = { 4, 1536, 192, 1 };
    static const danaus_pattern chain[] = { { 4, 96, 64, 1 }, { 1, 64, 64, 4 } };
    for (int round = 0; round < rounds_of(4); round++) {
        rng r = { (uint64_t)round };
        check(*state, &r, &layer, 1);
        check(*state, &r, chain, 2);
    }
}

static void a_plan_says_that_it_is_gated(void **state)
{
    const danaus_pattern p = { 2, 64, 64, 1 };
    const danaus_ks_desc desc = { .layout = DANAUS_BATCH_FIRST,
                                  .dtype = DANAUS_F16,
                                  .activation = DANAUS_SILU,
                                  .gated = 1 };
    danaus_ks_plan *plan = NULL;
    char words[200];
    if (danaus_ks_plan_create(*state, &p, 1, &desc, &plan) == DANAUS_ERR_UNSUPPORTED) {
        print_message("only GPUs with tensor cores have rows with gates\n");
        skip();
    }
    danaus_ks_plan_describe(plan, words, sizeof words);
    assert_non_null(strstr(words, ", then SiLU, gated"));
    danaus_ks_plan_destroy(plan);
}

static void what_has_no_rows_is_refused(void **state)
{
    static const struct {
        danaus_pattern p;
        danaus_ks_desc desc;
    } wrong[] = {
        { { 2, 64, 64, 1 }, { .dtype = DANAUS_F32 } },
        { { 3, 64, 64, 1 }, { .dtype = DANAUS_F16 } },
        { { 2, 64, 64, 4 }, { .dtype = DANAUS_F16 } },
        { { 2, 64, 64, 1 }, { .dtype = DANAUS_C64 } },
        { { 2, 64, 64, 1 }, { .dtype = DANAUS_F16, .layout = DANAUS_BATCH_LAST } },
        { { 2, 64, 64, 1 }, { .dtype = DANAUS_F16, .residual = 1 } },
        { { 2, 64, 64, 1 }, { .dtype = DANAUS_F16, .gradients = 1 } },
        { { 2, 64, 64, 1 }, { .dtype = DANAUS_F16, .adjoint = 1 } },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        danaus_ks_desc desc = wrong[i].desc;
        danaus_ks_plan *plan = NULL;
        desc.gated = 1;
        assert_status(
            danaus_ks_plan_create(*state, &wrong[i].p, 1, &desc, &plan),
            DANAUS_ERR_UNSUPPORTED);
        assert_null(plan);
    }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(products_of_random_shapes_are_right, device),
        cmocka_unit_test_prestate(known_layers_are_right, device),
        cmocka_unit_test_prestate(a_plan_says_that_it_is_gated, device),
        cmocka_unit_test_prestate(what_has_no_rows_is_refused, device),
    };
    int failed = cmocka_run_group_tests_name("gated", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
