/* Convolutions of operands of any size. Operands times powers of two give the results times
   powers of two, with the same bits, wherever these are normal numbers: also where sums of a
   transform leave the range of the type. That holds on processors; docs/conv.md says what GPUs
   do. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/conv.h"
#include "support/device.h"

#include <math.h>

/* Exponents by which operands are multiplied. */
typedef struct exponents {
    int u, gate_in, gate_out, k, dy;
} exponents;

static void shift(array *a, int exponent)
{
    for (int64_t i = 0; a->data && i < a->count; i++) {
        value v = element_get(a->dtype, a->data, i);
        v.re = ldexp(v.re, exponent);
        v.im = ldexp(v.im, exponent);
        element_put(a->dtype, a->data, i, v);
    }
}

static int is_wide(danaus_dtype dtype)
{
    return dtype == DANAUS_F64 || dtype == DANAUS_C128;
}

static void expect_shifted(
    const conv_case *c, const char *name, const array *base, const array *is, int by)
{
    double step = is_wide(is->dtype) ? 0x1p-1074 : 0x1p-149;
    for (int64_t i = 0; is->data && i < is->count; i++) {
        value should = element_get(base->dtype, base->data, i);
        value found = element_get(is->dtype, is->data, i);
        should = (value){ ldexp(should.re, by), ldexp(should.im, by) };
        if (!(fabs(found.re - should.re) <= step && fabs(found.im - should.im) <= step))
            fail_msg(
                "kind %d, correlate %d, %s, length %d, %d taps: %s[%d] is %.17g %+.17g "
                "i, "
                "not %.17g %+.17g i, of 2^%d",
                c->desc.kind, c->desc.correlate, danaus_dtype_name(c->desc.dtype),
                (int)c->desc.length, (int)c->desc.filter_length, name, (int)i, found.re,
                found.im, should.re, should.im, by);
    }
}

/* Operands lie in [-1, 1] but for their exponents, and a row has fewer than 2^room numbers. */
static exponents draw(rng *r, danaus_dtype dtype, int extras)
{
    int most = is_wide(dtype) ? 1023 : 127, room = 12;
    int least = -most + (is_wide(dtype) ? 60 : 30);
    exponents e = { 0, 0, 0, 0, 0 };
    for (;;) {
        e.u = (int)rng_int(r, least, most);
        e.k = (int)rng_int(r, least, most);
        e.dy = (int)rng_int(r, least, most);
        e.gate_in = extras & 1 ? (int)rng_int(r, least, most) : 0;
        e.gate_out = extras & 2 ? (int)rng_int(r, least, most) : 0;
        int in = e.u + e.gate_in, out = e.dy + e.gate_out, all = in + e.k + room;
        int results[] = { all + e.gate_out, out + e.k + room + e.gate_in,
                          out + e.k + room + e.u, all + e.dy, in + out + room + 4 };
        int fits = 1;
        for (int i = 0; i < 5; i++)
            fits &= results[i] <= most && results[i] >= least;
        if (fits)
            return e;
    }
}

static void check(
    danaus_device *device, rng *r, danaus_conv_desc desc, int64_t batch, int extras)
{
    conv_case c = conv_random(r, &desc, batch, extras);
    array dy = array_random(r, c.desc.dtype, c.u.count);
    conv_outcome base = conv_compute(device, &c, &dy);
    exponents e = draw(r, c.desc.dtype, extras);
    shift(&c.u, e.u);
    shift(&c.gate_in, e.gate_in);
    shift(&c.gate_out, e.gate_out);
    shift(&c.k, e.k);
    shift(&c.k_reverse, e.k);
    shift(&c.skip, e.k);
    shift(&dy, e.dy);
    conv_outcome is = conv_compute(device, &c, &dy);
    int in = e.u + e.gate_in, out = e.dy + e.gate_out;
    const struct {
        const char *name;
        int by;
    } should[CONV_RESULTS] = {
        [CONV_Y] = { "y", in + e.k + e.gate_out },
        [CONV_DU] = { "du", out + e.k + e.gate_in },
        [CONV_DGATE_IN] = { "dgate_in", out + e.k + e.u },
        [CONV_DGATE_OUT] = { "dgate_out", in + e.k + e.dy },
        [CONV_DK] = { "dk", in + out },
        [CONV_DK_REVERSE] = { "dk_reverse", in + out },
        [CONV_DSKIP] = { "dskip", in + out },
    };
    for (int i = 0; i < CONV_RESULTS; i++)
        expect_shifted(&c, should[i].name, &base.of[i], &is.of[i], should[i].by);
    conv_outcome_free(&base);
    conv_outcome_free(&is);
    array_free(&dy);
    conv_free(&c);
}

static void operands_of_any_size_keep_the_bits(void **state)
{
    static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_C64,
                                          DANAUS_C128 };
    for (int round = 0; round < rounds_of(400); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = {
            .channels = rng_int(&r, 1, 3),
            .length = rng_int(&r, 1, 1500),
            .kind = (danaus_conv_kind)rng_int(&r, 0, 2),
            .dtype = types[rng_int(&r, 0, 3)],
            .correlate = (int32_t)rng_int(&r, 0, 1),
        };
        desc.filters = rng_int(&r, 0, 1);
        desc.filter_length = rng_int(&r, 1, rng_int(&r, 0, 1) ? 1500 : 10);
        check(*state, &r, desc, rng_int(&r, 1, 3), (int)rng_int(&r, 0, 7));
    }
}

/* Threads share the parts of such a row. */
static void a_long_row_of_any_size_keeps_the_bits(void **state)
{
    danaus_device *device = *state;
    assert_ok(danaus_device_set_threads(device, 2));
    for (int round = 0; round < rounds_of(4); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = { .channels = 1, .length = 70000 };
        desc.filter_length = 300;
        conv_case c = conv_random(&r, &desc, 1, 0);
        conv_outcome base = conv_compute(device, &c, NULL);
        shift(&c.u, round % 2 ? 122 : -90);
        shift(&c.k, round % 2 ? -100 : 70);
        conv_outcome is = conv_compute(device, &c, NULL);
        expect_shifted(&c, "y", &base.of[CONV_Y], &is.of[CONV_Y], round % 2 ? 22 : -20);
        conv_outcome_free(&base);
        conv_outcome_free(&is);
        conv_free(&c);
    }
    assert_ok(danaus_device_set_threads(device, 0));
}

/* 200 numbers of 1e38 by three taps of 0.1, as somebody found it. */
static void sums_beyond_the_range_are_not_met(void **state)
{
    float u[200], y[200];
    const float k[3] = { 0.1F, 0.1F, 0.1F };
    for (int i = 0; i < 200; i++)
        u[i] = 1e38F;
    danaus_conv_desc desc = { .channels = 1, .length = 200, .filter_length = 3 };
    danaus_conv_plan *plan;
    danaus_spectrum *spectrum;
    assert_ok(danaus_conv_plan_create(*state, &desc, &plan));
    assert_ok(danaus_spectrum_create(plan, *state, k, NULL, NULL, &spectrum));
    assert_ok(danaus_conv_execute(plan, *state, spectrum, 1, u, NULL, NULL, y));
    for (int i = 2; i < 200; i++)
        assert_true(fabsf(y[i] / 3e37F - 1) < 1e-5F);
    danaus_spectrum_destroy(spectrum);
    danaus_conv_plan_destroy(plan);
}

/* A stream takes numbers below the normal ones as zero, and leaves the caller's arithmetic as
   it was. */
static void streams_take_numbers_below_the_normal_ones_as_zero(void **state)
{
    float u[300], y[300], k[200];
    for (int i = 0; i < 300; i++)
        u[i] = i < 150 ? 1e-41F : 1;
    for (int i = 0; i < 200; i++)
        k[i] = 1;
    danaus_stream_desc desc = { .channels = 1, .filter_length = 200 };
    danaus_stream *stream;
    assert_ok(danaus_stream_create(*state, &desc, k, &stream));
    assert_ok(danaus_stream_run(stream, *state, 300, u, y));
    for (int i = 0; i < 150; i++)
        assert_true(y[i] == 0);
    assert_true(fabsf(y[299] - 150) < 1e-3F);
    volatile float least = 1e-38F;
    assert_true(least / 16 > 0);
    danaus_stream_destroy(stream);
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    conv_need(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(operands_of_any_size_keep_the_bits, device),
        cmocka_unit_test_prestate(a_long_row_of_any_size_keeps_the_bits, device),
        cmocka_unit_test_prestate(sums_beyond_the_range_are_not_met, device),
        cmocka_unit_test_prestate(
            streams_take_numbers_below_the_normal_ones_as_zero, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
