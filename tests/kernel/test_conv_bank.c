/* Filter banks: each channel has the numbers of a convolution of its own signal. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/conv.h"
#include "support/device.h"
#include "support/exact.h"
#include "support/planes.h"

#include "device/conv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_F16, DANAUS_BF16 };

static danaus_conv_desc random_bank(rng *r, int64_t most)
{
    int64_t signals = rng_int(r, 1, 3), share = rng_int(r, 2, 40);
    danaus_conv_desc desc = { .channels = signals * share,
                              .signals = (int32_t)signals,
                              .filters = rng_int(r, 0, 1) ? signals * share : signals,
                              .length = rng_int(r, 1, most),
                              .kind = (danaus_conv_kind)rng_int(r, 0, 2),
                              .dtype = types[rng_int(r, 0, 3)] };
    desc.filter_length = rng_int(r, 1, rng_int(r, 0, 1) ? 2 * desc.length : 30);
    if (rng_int(r, 0, 3) == 0 && most < 100)
        conv_make_planes(r, &desc, 8);
    return desc;
}

/* Every signal once for each of its channels, in an array like u of the case. */
static array spread(const conv_case *c, const array *signals)
{
    const danaus_conv_desc *d = &c->desc;
    int64_t rows = conv_rows(c), share = d->channels / d->signals;
    array all = array_make(d->dtype, c->u.count);
    size_t row = (size_t)(c->u.count / rows) * danaus_dtype_size(d->dtype);
    for (int64_t i = 0; i < rows; i++)
        memcpy(
            (char *)all.data + (size_t)i * row,
            (const char *)signals->data + (size_t)(i / share) * row, row);
    return all;
}

static array random_signals(rng *r, const conv_case *c)
{
    return array_random(
        r, c->desc.dtype, c->u.count * c->desc.signals / c->desc.channels);
}

/* y of the bank, which reads the signals themselves. */
static array run_bank(
    danaus_device *device, const conv_case *c, const array *u, const array *gates)
{
    danaus_conv_plan *plan = NULL;
    danaus_spectrum *spectrum = NULL;
    array y = array_make(c->desc.dtype, c->u.count);
    assert_ok(danaus_conv_plan_create(device, &c->desc, &plan));
    assert_ok(danaus_spectrum_create(
        plan, device, c->k.data, c->k_reverse.data, c->skip.data, &spectrum));
    assert_ok(danaus_conv_execute(
        plan, device, spectrum, c->batch, u->data, gates[0].data, gates[1].data,
        y.data));
    array_expect_guards(&y);
    danaus_spectrum_destroy(spectrum);
    danaus_conv_plan_destroy(plan);
    return y;
}

static int has_banks(danaus_device *device) { return device->backend->conv->has_banks; }

static void channels_have_the_signal_that_they_share(void **state)
{
    for (int round = 0; round < rounds_of(120); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_bank(&r, round % 8 ? 60 : 3000);
        conv_case c = conv_random(&r, &desc, rng_int(&r, 1, 2), round & 4), own = c;
        array u = random_signals(&r, &c), gates[2] = { { 0 } };
        own.u = spread(&c, &u);
        for (int i = 0; i < 2; i++)
            if (round >> i & 1)
                gates[i] = random_signals(&r, &c);
        own.gate_in = gates[0].data ? spread(&c, &gates[0]) : (array){ 0 };
        own.gate_out = gates[1].data ? spread(&c, &gates[1]) : (array){ 0 };
        conv_outcome made = { { { 0 } } };
        made.of[CONV_Y] = run_bank(*state, &c, &u, gates);
        conv_exact exact = conv_exactly(&own, &own.u);
        conv_exact_expect(&own, &made, &exact);
        conv_exact_free(&exact);
        conv_outcome_free(&made);
        array_free(&u);
        array_free(&own.u);
        for (int i = 0; i < 2; i++)
            array_free(&gates[i]);
        array_free(&own.gate_in);
        array_free(&own.gate_out);
        conv_free(&c);
    }
}

/* Huge and tiny signals are scaled, as in convolutions without banks (test_conv_range.c). */
static void signals_of_any_size_are_convolved(void **state)
{
    for (int power = -120; power <= 120; power += 80) {
        rng r = { (uint64_t)(power + 200) };
        danaus_conv_desc desc = { .channels = 6, .signals = 2, .length = 300 };
        conv_case c = conv_random(&r, &desc, 1, 0);
        array u = random_signals(&r, &c), none[2] = { { 0 } };
        array plain = run_bank(*state, &c, &u, none);
        for (int64_t i = 0; i < u.count; i++)
            ((float *)u.data)[i] = ldexpf(((float *)u.data)[i], power);
        array scaled = run_bank(*state, &c, &u, none);
        for (int64_t i = 0; i < plain.count; i++) {
            float is = ldexpf(((float *)scaled.data)[i], -power);
            assert_true(fabsf(is - ((float *)plain.data)[i]) < 1e-3f);
        }
        array_free(&plain);
        array_free(&scaled);
        array_free(&u);
        conv_free(&c);
    }
}

static void threads_do_not_change_a_bit(void **state)
{
    for (int round = 0; round < rounds_of(10); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc desc = random_bank(&r, 3000);
        conv_case c = conv_random(&r, &desc, 2, 0);
        array u = random_signals(&r, &c), none[2] = { { 0 } };
        assert_ok(danaus_device_set_threads(*state, 1));
        array one = run_bank(*state, &c, &u, none);
        assert_ok(danaus_device_set_threads(*state, 5));
        array five = run_bank(*state, &c, &u, none);
        assert_ok(danaus_device_set_threads(*state, 0));
        assert_true(array_same(&one, &five));
        array_free(&one);
        array_free(&five);
        array_free(&u);
        conv_free(&c);
    }
}

static void banks_refuse_what_they_cannot_do(void **state)
{
    danaus_device *device = *state;
    danaus_conv_desc desc = { .channels = 6, .length = 5, .signals = 2 }, bad = desc;
    danaus_conv_plan *plan = NULL;
    bad.signals = 4;
    assert_status(danaus_conv_plan_create(device, &bad, &plan), DANAUS_ERR_SHAPE);
    bad.signals = -1;
    assert_status(danaus_conv_plan_create(device, &bad, &plan), DANAUS_ERR_SHAPE);
    if (!has_banks(device)) {
        danaus_status unsupported = DANAUS_ERR_UNSUPPORTED;
        assert_status(danaus_conv_plan_create(device, &desc, &plan), unsupported);
        assert_non_null(strstr(danaus_error_detail(), "filter banks"));
        return;
    }
    float k[30] = { 0 }, u[30] = { 0 }, to[30];
    danaus_spectrum *spectrum = NULL;
    const danaus_conv_gradients g = { .du = to };
    assert_ok(danaus_conv_plan_create(device, &desc, &plan));
    assert_ok(danaus_spectrum_create(plan, device, k, NULL, NULL, &spectrum));
    assert_status(
        danaus_conv_gradient(plan, device, spectrum, 1, u, NULL, NULL, u, &g),
        DANAUS_ERR_UNSUPPORTED);
    danaus_spectrum_destroy(spectrum);
    danaus_conv_plan_destroy(plan);
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    conv_need(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(channels_have_the_signal_that_they_share, device),
        cmocka_unit_test_prestate(signals_of_any_size_are_convolved, device),
        cmocka_unit_test_prestate(threads_do_not_change_a_bit, device),
        cmocka_unit_test_prestate(banks_refuse_what_they_cannot_do, device),
    };
    const struct CMUnitTest refusals[] = {
        cmocka_unit_test_prestate(banks_refuse_what_they_cannot_do, device),
    };
    int failed = has_banks(device) ? cmocka_run_group_tests(tests, NULL, NULL)
                                   : cmocka_run_group_tests(refusals, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
