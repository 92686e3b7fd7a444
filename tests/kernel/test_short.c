/* Convolutions of few taps against the definition, in both layouts; on a GPU with operands
   that are aligned as allocations are, or to one element only. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/short.h"

#include "device/backend.h"

#include <math.h>

/* A sum of n = taps + 1 terms errs by at most n u / (1 - n u) of the sum of their
   magnitudes, and is rounded once. */
static void expect_row(const short_case *c, const array *y, int64_t b, int64_t h)
{
    const danaus_short_desc *d = &c->desc;
    precision f = precision_of(d->dtype);
    int64_t shift = short_shift(c);
    double nu = (double)(d->taps + 1) * f.sum_unit, gamma = nu / (1 - nu);
    for (int64_t t = 0; t < d->length; t++) {
        double sum = c->bias.data ? element_get(c->bias.dtype, c->bias.data, h).re : 0;
        double size = fabs(sum);
        for (int64_t s = 0; s < d->taps; s++) {
            int64_t from = t + shift - s;
            if (from < 0 || from >= d->length)
                continue;
            double term =
                element_get(c->k.dtype, c->k.data, h * d->taps + s).re *
                element_get(c->u.dtype, c->u.data, short_place(c, b, h, from)).re;
            sum += term;
            size += fabs(term);
        }
        double is = element_get(y->dtype, y->data, short_place(c, b, h, t)).re;
        double bound =
            (gamma + 1e-15) * size * (1 + f.unit) + f.unit * fabs(sum) + f.tiny;
        if (!(fabs(is - sum) <= bound))
            fail_msg(
                "%s, %d taps, layout %d: y[%d][%d][%d] is %.9g, not %.9g",
                danaus_dtype_name(d->dtype), (int)d->taps, d->layout, (int)b, (int)h,
                (int)t, is, sum);
    }
}

/* Only u is aligned, only y, both or none. */
static array run_with(danaus_device *device, const short_case *c, int aligned)
{
    array y = array_make(c->desc.dtype, c->u.count);
    short_operand u = short_put(device, &c->u, aligned & 1);
    short_operand to = short_put(device, &y, aligned & 2);
    short_operand k = short_put(device, &c->k, 0),
                  bias = short_put(device, &c->bias, 0);
    assert_ok(
        danaus_short_conv(device, &c->desc, c->batch, k.at, bias.at, u.at, to.at));
    short_take(device, &to);
    short_take(device, &u);
    short_take(device, &k);
    short_take(device, &bias);
    array_expect_guards(&y);
    return y;
}

/* However operands lie, the same bits. */
static array run_short(danaus_device *device, const short_case *c)
{
    array y = run_with(device, c, 3);
    for (int aligned = 0; aligned < 3 && !device->backend->on_host; aligned++) {
        array z = run_with(device, c, aligned);
        assert_true(array_same(&z, &y));
        array_free(&z);
    }
    return y;
}

/* Both layouts have the same numbers: the same bits come out. */
static void expect_same_in_other_layout(
    danaus_device *device, const short_case *c, const array *y)
{
    array u, turned;
    short_case other = short_turned(c, &c->u, &u);
    other.u = u;
    array z = run_short(device, &other);
    short_turned(c, y, &turned);
    assert_true(array_same(&z, &turned));
    array_free(&u);
    array_free(&z);
    array_free(&turned);
}

static void expect_case(danaus_device *device, short_case *c)
{
    array y = run_short(device, c);
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t h = 0; h < c->desc.channels; h++)
            expect_row(c, &y, b, h);
    expect_same_in_other_layout(device, c, &y);
    array_free(&y);
    short_free(c);
}

static void few_taps_are_summed(void **state)
{
    for (int round = 0; round < rounds_of(150); round++) {
        rng r = { (uint64_t)round };
        short_case c = short_random(&r, round);
        expect_case(*state, &c);
    }
}

/* An emulated device, which compiles slowly, takes some. */
static void few_taps_of_every_small_size_are_summed(void **state)
{
    rng some = { 7 };
    for (int number = 0; number < SHORT_SMALL; number++) {
        rng r = { (uint64_t)number };
        if (rng_int(&some, 0, share_of_cases() - 1))
            continue;
        short_case c = short_small(&r, number);
        expect_case(*state, &c);
    }
}

static void it_refuses_what_is_not_few(void **state)
{
    danaus_device *device = *state;
    danaus_short_desc good = { .channels = 1, .length = 4, .taps = 2 }, bad;
    float k[2] = { 1, 2 }, u[4] = { 1, 2, 3, 4 }, y[4];
    bad = good, bad.taps = DANAUS_SHORT_MOST_TAPS + 1;
    assert_status(danaus_short_conv(device, &bad, 1, k, NULL, u, y), DANAUS_ERR_SHAPE);
    bad = good, bad.length = 0;
    assert_status(
        danaus_short_conv(device, &bad, 1, k, NULL, u, y), DANAUS_ERR_ARGUMENT);
    bad = good, bad.dtype = DANAUS_C64;
    assert_status(
        danaus_short_conv(device, &bad, 1, k, NULL, u, y), DANAUS_ERR_ARGUMENT);
    bad = good, bad.layout = (danaus_channels)7;
    assert_status(
        danaus_short_conv(device, &bad, 1, k, NULL, u, y), DANAUS_ERR_ARGUMENT);
    bad = good, bad.reserved[0] = 1;
    assert_status(
        danaus_short_conv(device, &bad, 1, k, NULL, u, y), DANAUS_ERR_ARGUMENT);
    bad = good, bad.channels = INT64_MAX / 4;
    assert_status(danaus_short_conv(device, &bad, 1, k, NULL, u, y), DANAUS_ERR_SHAPE);
    assert_status(
        danaus_short_conv(device, &good, 1, k, NULL, u, u), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_short_conv(device, &good, 1, y + 3, NULL, u, y), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_short_conv(device, &good, 1, k, y, u, y), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_short_conv(device, &good, 1, NULL, NULL, u, y), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_short_conv(NULL, &good, 1, k, NULL, u, y), DANAUS_ERR_ARGUMENT);
    assert_ok(danaus_short_conv(device, &good, 0, NULL, NULL, NULL, NULL));
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(few_taps_are_summed, device),
        cmocka_unit_test_prestate(few_taps_of_every_small_size_are_summed, device),
        cmocka_unit_test_prestate(it_refuses_what_is_not_few, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
