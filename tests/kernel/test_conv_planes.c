/* Convolutions of planes and of rows with a centre: y and all gradients, number by number
   against the definition. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/exact.h"
#include "support/planes.h"

#include <stdlib.h>
#include <string.h>

static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_F16, DANAUS_BF16 };

static void check(
    rng *r, danaus_device *device, const danaus_conv_desc *desc, int64_t batch,
    int extras)
{
    conv_case c = conv_random(r, desc, batch, extras);
    array dy = array_random(r, c.desc.dtype, c.u.count);
    conv_outcome o = conv_compute(device, &c, &dy);
    conv_exact exact = conv_exactly(&c, &dy);
    conv_exact_expect(&c, &o, &exact);
    conv_exact_free(&exact);
    conv_outcome_free(&o);
    array_free(&dy);
    conv_free(&c);
}

/* Heights and widths up to 4, filters up to 5 x 5 with every centre, both kinds: some of them
   where each takes a second to compile. */
static void every_small_plane_is_right(void **state)
{
    int number = 0, step = 1 + 8 * (share_of_cases() - 1);
    for (int h = 1; h <= 4; h++)
        for (int w = 1; w <= 4; w++)
            for (int taps = 0; taps < 25; taps++)
                for (int place = 0; place < 50; place++) {
                    danaus_conv_desc desc = { .channels = 1, .length = w, .height = h };
                    int rows = 1 + taps / 5, columns = 1 + taps % 5;
                    desc.filter_height = rows;
                    desc.filter_length = columns;
                    desc.centre[0] = place / 2 / 5;
                    desc.centre[1] = place / 2 % 5;
                    desc.kind = place % 2 ? DANAUS_CIRCULAR : DANAUS_CENTRED;
                    if (desc.centre[0] >= rows || desc.centre[1] >= columns ||
                        number++ % step)
                        continue;
                    rng r = { (uint64_t)number };
                    check(&r, *state, &desc, 1, 4);
                }
}

static void random_planes_are_right(void **state)
{
    for (int round = 0; round < rounds_of(300); round++) {
        rng r = { (uint64_t)round };
        int64_t filters = rng_int(&r, 1, 3), group = rng_int(&r, 1, 3);
        int64_t most = round % 8 ? 20 : 50;
        danaus_conv_desc desc = {
            .channels = filters * group,
            .filters = filters,
            .length = rng_int(&r, 1, most),
            .dtype = types[rng_int(&r, 0, 3)],
        };
        desc.filter_length = rng_int(&r, 1, round % 2 ? 2 * desc.length : 5);
        conv_make_planes(&r, &desc, most);
        check(&r, *state, &desc, rng_int(&r, 1, 3), (int)rng_int(&r, 0, 7));
    }
}

/* Few taps on planes that are cut into windows, and rows wider than vectors. */
static void large_planes_with_few_taps_are_right(void **state)
{
    for (int round = 0; round < rounds_of(12); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = {
            .channels = 2,
            .length = rng_int(&r, 100, 400),
            .height = (int32_t)rng_int(&r, 100, 300 / share_of_cases() + 100),
            .filter_length = rng_int(&r, 1, 4),
            .filter_height = (int32_t)rng_int(&r, 1, 4),
            .kind = round % 2 ? DANAUS_CIRCULAR : DANAUS_CENTRED,
            .dtype = types[round % 4],
        };
        desc.centre[0] = (int32_t)rng_int(&r, 0, desc.filter_height - 1);
        desc.centre[1] = (int32_t)rng_int(&r, 0, desc.filter_length - 1);
        check(&r, *state, &desc, 1, (int)rng_int(&r, 0, 7));
    }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    conv_need(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_small_plane_is_right, device),
        cmocka_unit_test_prestate(random_planes_are_right, device),
        cmocka_unit_test_prestate(large_planes_with_few_taps_are_right, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
