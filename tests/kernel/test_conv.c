/* Convolutions of every kind, length and type against the definition. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/conv.h"
#include "support/device.h"

static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_F16, DANAUS_BF16 };
static const danaus_conv_kind kinds[] = { DANAUS_CAUSAL, DANAUS_CIRCULAR,
                                          DANAUS_BIDIRECTIONAL };

static void check(
    rng *r, danaus_device *device, const danaus_conv_desc *desc, int64_t batch,
    int extras)
{
    conv_case c = conv_random(r, desc, batch, extras);
    array y = conv_run(device, &c);
    conv_result expected = conv_direct(&c);
    conv_expect(&c, &y, &expected);
    conv_result_free(&expected);
    array_free(&y);
    conv_free(&c);
}

static void every_length_and_kind_is_right(void **state)
{
    for (int kind = 0; kind < 3; kind++)
        for (int64_t length = 1; length <= 512; length += share_of_cases()) {
            rng r = { (uint64_t)length };
            danaus_conv_desc desc = { .channels = 1,
                                      .length = length,
                                      .kind = kinds[kind] };
            check(&r, *state, &desc, 1, 0);
            desc.dtype = DANAUS_F64;
            check(&r, *state, &desc, 1, 0);
        }
}

static void random_filters_gates_and_types_are_right(void **state)
{
    for (int round = 0; round < rounds_of(400); round++) {
        rng r = { (uint64_t)round };
        int64_t filters = rng_int(&r, 1, 3), group = rng_int(&r, 1, 3);
        danaus_conv_desc desc = {
            .channels = filters * group,
            .filters = filters,
            .length = rng_int(&r, 1, round % 4 ? 300 : 3000),
            .kind = kinds[round % 3],
            .dtype = types[rng_int(&r, 0, 3)],
        };
        desc.filter_length = rng_int(&r, 1, round % 2 ? 2 * desc.length : 40);
        check(&r, *state, &desc, rng_int(&r, 1, 3), (int)rng_int(&r, 0, 7));
    }
}

/* Lengths at which transforms leave the caches and short filters make windows. */
static void long_rows_are_right(void **state)
{
    static const int64_t sizes[][2] = { { 70000, 300 }, { 40000, 20 }, { 200003, 40 } };
    for (int s = 0; s < 3; s++)
        for (int kind = 0; kind < 3; kind++) {
            rng r = { (uint64_t)s };
            danaus_conv_desc desc = {
                .channels = 2,
                .length = sizes[s][0] / share_of_cases(),
                .filter_length = sizes[s][1],
                .kind = kinds[kind],
                .dtype = types[(s + kind) % 2],
            };
            check(&r, *state, &desc, 1, 7);
        }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    conv_need(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_length_and_kind_is_right, device),
        cmocka_unit_test_prestate(random_filters_gates_and_types_are_right, device),
        cmocka_unit_test_prestate(long_rows_are_right, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
