/* Convolutions of few taps against the definition, in both layouts. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/conv.h"
#include "support/device.h"

#include <math.h>
#include <string.h>

static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_F16, DANAUS_BF16 };

typedef struct short_case {
    danaus_short_desc desc;
    int64_t batch;
    array k, bias, u;
} short_case;

static int64_t place(const short_case *c, int64_t b, int64_t h, int64_t t)
{
    const danaus_short_desc *d = &c->desc;
    return d->layout == DANAUS_CHANNELS_LAST ? (b * d->length + t) * d->channels + h
                                             : (b * d->channels + h) * d->length + t;
}

/* A sum of n = taps + 1 terms errs by at most n u / (1 - n u) of the sum of their
   magnitudes, and is rounded once. */
static void expect_row(const short_case *c, const array *y, int64_t b, int64_t h)
{
    const danaus_short_desc *d = &c->desc;
    precision f = precision_of(d->dtype);
    int64_t shift = d->centred ? (d->taps - 1) / 2 : 0;
    double nu = (double)(d->taps + 1) * f.sum_unit, gamma = nu / (1 - nu);
    for (int64_t t = 0; t < d->length; t++) {
        double sum = c->bias.data ? element_get(c->bias.dtype, c->bias.data, h).re : 0;
        double size = fabs(sum);
        for (int64_t s = 0; s < d->taps; s++) {
            int64_t from = t + shift - s;
            if (from < 0 || from >= d->length)
                continue;
            double term = element_get(c->k.dtype, c->k.data, h * d->taps + s).re *
                          element_get(c->u.dtype, c->u.data, place(c, b, h, from)).re;
            sum += term;
            size += fabs(term);
        }
        double is = element_get(y->dtype, y->data, place(c, b, h, t)).re;
        double bound =
            (gamma + 1e-15) * size * (1 + f.unit) + f.unit * fabs(sum) + f.tiny;
        if (!(fabs(is - sum) <= bound))
            fail_msg(
                "%s, %d taps, layout %d: y[%d][%d][%d] is %.9g, not %.9g",
                danaus_dtype_name(d->dtype), (int)d->taps, d->layout, (int)b, (int)h,
                (int)t, is, sum);
    }
}

static array run_short(danaus_device *device, const short_case *c)
{
    array y = array_make(c->desc.dtype, c->u.count);
    assert_ok(danaus_short_conv(
        device, &c->desc, c->batch, c->k.data, c->bias.data, c->u.data, y.data));
    array_expect_guards(&y);
    return y;
}

/* Both layouts have the same numbers: the same bits come out. */
static void expect_same_in_other_layout(
    danaus_device *device, const short_case *c, const array *y)
{
    short_case other = *c;
    const danaus_short_desc *d = &c->desc;
    size_t size = danaus_dtype_size(d->dtype);
    other.desc.layout = d->layout == DANAUS_CHANNELS_LAST ? DANAUS_CHANNELS_FIRST
                                                          : DANAUS_CHANNELS_LAST;
    other.u = array_make(d->dtype, c->u.count);
    for (int pass = 0; pass < 2; pass++) {
        array z = pass ? run_short(device, &other) : (array){ 0 };
        for (int64_t b = 0; b < c->batch; b++)
            for (int64_t h = 0; h < d->channels; h++)
                for (int64_t t = 0; t < d->length; t++) {
                    size_t here = (size_t)place(c, b, h, t) * size;
                    size_t there = (size_t)place(&other, b, h, t) * size;
                    if (pass)
                        assert_memory_equal(
                            (char *)z.data + there, (char *)y->data + here, size);
                    else
                        memcpy(
                            (char *)other.u.data + there, (char *)c->u.data + here,
                            size);
                }
        array_free(&z);
    }
    array_free(&other.u);
}

static void few_taps_are_summed(void **state)
{
    danaus_device *device = *state;
    for (int round = 0; round < rounds_of(150); round++) {
        rng r = { (uint64_t)round };
        short_case c = { .batch = rng_int(&r, 1, 3) };
        c.desc = (danaus_short_desc){
            .channels = rng_int(&r, 1, round % 10 == 9 ? 1200 : 40),
            .length = rng_int(&r, 1, round % 10 == 5 ? 3000 : 150),
            .taps = rng_int(&r, 1, round % 2 ? 5 : DANAUS_SHORT_MOST_TAPS),
            .centred = (int)(rng_next(&r) % 2),
            .layout = rng_next(&r) % 2 ? DANAUS_CHANNELS_LAST : DANAUS_CHANNELS_FIRST,
            .dtype = types[round % 4],
        };
        danaus_dtype sums = sum_type(c.desc.dtype);
        c.k = array_random(&r, sums, c.desc.channels * c.desc.taps);
        if (rng_next(&r) % 2)
            c.bias = array_random(&r, sums, c.desc.channels);
        c.u = array_random(&r, c.desc.dtype, c.batch * c.desc.channels * c.desc.length);
        array y = run_short(device, &c);
        for (int64_t b = 0; b < c.batch; b++)
            for (int64_t h = 0; h < c.desc.channels; h++)
                expect_row(&c, &y, b, h);
        expect_same_in_other_layout(device, &c, &y);
        array_free(&y);
        array_free(&c.k);
        array_free(&c.bias);
        array_free(&c.u);
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
    conv_need(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(few_taps_are_summed, device),
        cmocka_unit_test_prestate(it_refuses_what_is_not_few, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
