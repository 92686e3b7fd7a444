/* Complex convolutions, and correlations of all types: y and all gradients, number by number
   against the definition. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/complex_conv.h"
#include "support/device.h"
#include "support/planes.h"

#include <stdlib.h>
#include <string.h>

static const danaus_dtype types[] = { DANAUS_C64, DANAUS_C128, DANAUS_C64, DANAUS_F32,
                                      DANAUS_F64, DANAUS_F16,  DANAUS_BF16 };

static void check(
    rng *r, danaus_device *device, const danaus_conv_desc *desc, int64_t batch,
    int extras)
{
    conv_case c = conv_random(r, desc, batch, extras);
    array dy = array_random(r, c.desc.dtype, c.u.count);
    conv_outcome o = conv_compute(device, &c, &dy);
    complex_exact exact = complex_exactly(&c, &dy);
    complex_exact_expect(&c, &o, &exact);
    complex_exact_free(&exact);
    conv_outcome_free(&o);
    array_free(&dy);
    conv_free(&c);
}

/* Complex, or a correlation, as other tests have the rest. */
static danaus_conv_desc random_desc(rng *r, int64_t most)
{
    int64_t filters = rng_int(r, 1, 3), group = rng_int(r, 1, 3);
    danaus_conv_desc desc = { .channels = filters * group, .filters = filters };
    desc.length = rng_int(r, 1, most);
    desc.filter_length = rng_int(r, 1, rng_int(r, 0, 1) ? 2 * desc.length : 9);
    desc.dtype = types[rng_int(r, 0, 6)];
    desc.correlate = desc.dtype == DANAUS_C64 || desc.dtype == DANAUS_C128
                         ? (int32_t)rng_int(r, 0, 1)
                         : 1;
    return desc;
}

/* All kinds, lengths and taps up to 6, convolutions and correlations: some of them where each
   takes a second to compile. */
static void every_small_row_is_right(void **state)
{
    int number = 0, step = 1 + 4 * (share_of_cases() - 1);
    for (int length = 1; length <= 6; length++)
        for (int taps = 1; taps <= 6; taps++)
            for (int kind = 0; kind < 3; kind++)
                for (int correlate = 0; correlate < 2; correlate++) {
                    danaus_conv_desc desc = { .channels = 2,
                                              .filters = 1,
                                              .length = length,
                                              .filter_length = taps,
                                              .kind = (danaus_conv_kind)kind,
                                              .dtype = DANAUS_C64,
                                              .correlate = correlate };
                    rng r = { (uint64_t)number };
                    if (number++ % step == 0)
                        check(&r, *state, &desc, 2, number % 8);
                }
}

static void random_rows_are_right(void **state)
{
    for (int round = 0; round < rounds_of(400); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, round % 8 ? 70 : 700);
        desc.kind = (danaus_conv_kind)rng_int(&r, 0, 2);
        if (desc.kind == DANAUS_CIRCULAR)
            desc.centre[1] = (int32_t)rng_int(&r, 0, desc.filter_length - 1);
        check(&r, *state, &desc, rng_int(&r, 1, 3), (int)rng_int(&r, 0, 7));
    }
}

static void random_planes_are_right(void **state)
{
    for (int round = 0; round < rounds_of(200); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_desc(&r, 15);
        conv_make_planes(&r, &desc, 15);
        check(&r, *state, &desc, rng_int(&r, 1, 2), (int)rng_int(&r, 0, 7));
    }
}

/* Few taps, of rows that are cut into windows; and windows of several passes. */
static void long_rows_are_right(void **state)
{
    for (int round = 0; round < rounds_of(12); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = {
            .channels = 2,
            .filters = 1,
            .length = rng_int(&r, 5000, 20000 / share_of_cases() + 5000),
            .filter_length = rng_int(&r, 1, 300),
            .kind = (danaus_conv_kind)(round % 3),
            .dtype = round % 2 ? DANAUS_C128 : DANAUS_C64,
            .correlate = round / 2 % 2,
        };
        check(&r, *state, &desc, 1, (int)rng_int(&r, 0, 7));
    }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    conv_need(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_small_row_is_right, device),
        cmocka_unit_test_prestate(random_rows_are_right, device),
        cmocka_unit_test_prestate(random_planes_are_right, device),
        cmocka_unit_test_prestate(long_rows_are_right, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
