/* What users are told of errors: of y, and of every gradient, in f32 at most

       1.2 eps sqrt(log2 n),     eps = 2^-23,

   relative to the result, both in Euclidean norm, against the same convolution in f64,
   for rows of n numbers. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/conv.h"
#include "support/device.h"

#include <math.h>

#define OUTPUTS 7

typedef struct outputs {
    array a[OUTPUTS]; /* y, du, dgate_in, dgate_out, dk, dk_reverse, dskip */
} outputs;

static const char *const names[OUTPUTS] = { "y",  "du",         "dgate_in", "dgate_out",
                                            "dk", "dk_reverse", "dskip" };

static array like(const array *a)
{
    return a->data ? array_make(a->dtype, a->count) : (array){ 0 };
}

static outputs compute(danaus_device *device, const conv_case *c, const array *dy)
{
    danaus_conv_plan *plan = NULL;
    danaus_spectrum *spectrum = NULL;
    outputs o = { { like(&c->u), like(&c->u), like(&c->gate_in), like(&c->gate_out),
                    like(&c->k), like(&c->k_reverse), like(&c->skip) } };
    danaus_conv_gradients g = { o.a[1].data, o.a[2].data, o.a[3].data,   o.a[4].data,
                                o.a[5].data, o.a[6].data, { NULL, NULL } };
    assert_ok(danaus_conv_plan_create(device, &c->desc, &plan));
    assert_ok(danaus_spectrum_create(
        plan, device, c->k.data, c->k_reverse.data, c->skip.data, &spectrum));
    assert_ok(danaus_conv_execute(
        plan, device, spectrum, c->batch, c->u.data, c->gate_in.data, c->gate_out.data,
        o.a[0].data));
    assert_ok(danaus_conv_gradient(
        plan, device, spectrum, c->batch, c->u.data, c->gate_in.data, c->gate_out.data,
        dy->data, &g));
    danaus_spectrum_destroy(spectrum);
    danaus_conv_plan_destroy(plan);
    return o;
}

static array wide(const array *a)
{
    array w = { 0 };
    if (a->data) {
        w = array_make(DANAUS_F64, a->count);
        assert_ok(danaus_convert(a->dtype, a->data, DANAUS_F64, w.data, a->count));
    }
    return w;
}

static double relative_error(const array *is, const array *should)
{
    double error = 0, norm = 0;
    for (int64_t i = 0; i < is->count; i++) {
        double a = element_get(is->dtype, is->data, i).re;
        double b = element_get(should->dtype, should->data, i).re;
        error += (a - b) * (a - b);
        norm += b * b;
    }
    return sqrt(error / norm);
}

static void check(
    danaus_device *device, danaus_conv_desc desc, int64_t batch, int extras)
{
    rng r = { (uint64_t)desc.length };
    conv_case c = conv_random(&r, &desc, batch, extras), exact = c;
    array dy = array_random(&r, DANAUS_F32, c.u.count), wide_dy = wide(&dy);
    exact.desc.dtype = DANAUS_F64;
    exact.u = wide(&c.u), exact.gate_in = wide(&c.gate_in);
    exact.gate_out = wide(&c.gate_out), exact.k = wide(&c.k);
    exact.k_reverse = wide(&c.k_reverse), exact.skip = wide(&c.skip);
    outputs is = compute(device, &c, &dy), should = compute(device, &exact, &wide_dy);
    double n = (double)desc.length;
    for (int i = 0; i < OUTPUTS; i++) {
        double most = 1.2 * 0x1p-23 * sqrt(log2(n));
        if (is.a[i].data && !(relative_error(&is.a[i], &should.a[i]) <= most))
            fail_msg(
                "kind %d, length %d, %d taps: %s errs by %.3g, more than %.3g",
                desc.kind, (int)desc.length, (int)desc.filter_length, names[i],
                relative_error(&is.a[i], &should.a[i]), most);
        array_free(&is.a[i]);
        array_free(&should.a[i]);
    }
    array_free(&dy);
    array_free(&wide_dy);
    conv_free(&c);
    conv_free(&exact);
}

static void errors_grow_like_the_root_of_the_logarithm(void **state)
{
    for (int64_t length = 16; length <= 1 << 20; length *= 4) {
        if (length > (1 << 20) / share_of_cases())
            break;
        check(*state, (danaus_conv_desc){ .channels = 1, .length = length }, 1, 0);
    }
    static const int64_t others[] = { 100, 1000, 3000, 44100, 65537 };
    for (int i = 0; i < 5 && others[i] < (1 << 20) / share_of_cases(); i++)
        check(*state, (danaus_conv_desc){ .channels = 1, .length = others[i] }, 1, 0);
}

/* Of many channels, so that dskip has a norm. */
static void gates_and_kinds_err_no_more(void **state)
{
    for (int kind = 0; kind < 3; kind++)
        for (int64_t length = 64; length <= 65536 / share_of_cases(); length *= 8)
            for (int part = 0; part < 2; part++) {
                danaus_conv_desc desc = {
                    .channels = length < 10000 ? 64 : 8,
                    .length = length,
                    .filter_length = part ? length / 16 : length,
                    .kind = (danaus_conv_kind)kind,
                };
                check(*state, desc, 2, 7);
            }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    conv_need(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(errors_grow_like_the_root_of_the_logarithm, device),
        cmocka_unit_test_prestate(gates_and_kinds_err_no_more, device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
