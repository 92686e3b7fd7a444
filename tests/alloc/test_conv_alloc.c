/* The n-th allocation fails in convolutions, for every n: the call says MEMORY, its
   outputs keep their values, and nothing is lost (the address sanitizer looks). */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "device/backend.h"
#include "support/conv.h"
#include "support/device.h"

#include <string.h>

#define MOST_ALLOCATIONS 1000

static const char *name = "cpu"; /* of the device */

/* Streams, and few taps. */
static danaus_status try_others(
    danaus_device *device, const conv_case *c, array *y, danaus_stream **stream)
{
    danaus_stream_desc desc = { .channels = c->desc.channels,
                                .filters = c->desc.filters,
                                .filter_length = c->desc.filter_length };
    danaus_short_desc few = { .channels = c->desc.channels,
                              .length = c->desc.length,
                              .taps = 3,
                              .layout = DANAUS_CHANNELS_LAST };
    array dk = array_make(DANAUS_F32, c->k.count),
          du = array_make(c->desc.dtype, c->u.count);
    danaus_short_gradients g = { .du = du.data, .dk = dk.data };
    danaus_hyena_desc mixed = { .channels = c->desc.channels,
                                .length = c->desc.length,
                                .taps = 3 };
    danaus_hyena_plan *plan = NULL;
    danaus_status s = danaus_hyena_plan_create(device, &mixed, &plan);
    danaus_hyena_plan_destroy(plan);
    s = s ? s : danaus_stream_create(device, &desc, c->k.data, stream);
    s = s ? s : danaus_stream_run(*stream, device, c->desc.length, c->u.data, y->data);
    s = s ? s : danaus_short_conv(device, &few, 1, c->k.data, NULL, c->u.data, y->data);
    s = s ? s
          : danaus_short_conv_gradient(
                device, &few, 1, c->k.data, c->u.data, y->data, &g);
    array_free(&dk);
    array_free(&du);
    return s;
}

/* Runs everything with the n-th allocation failing; counts what was allocated. */
static danaus_status try_all(const conv_case *c, long n, long *made, array *y)
{
    danaus_device *device = NULL;
    danaus_conv_plan *plan = NULL;
    danaus_spectrum *spectrum = NULL;
    danaus_stream *stream = NULL;
    int64_t offsets[] = { 0, 7, c->desc.length };
    array dk = array_make(DANAUS_F32, c->k.count),
          du = array_make(c->desc.dtype, c->u.count);
    assert_ok(danaus_device_open(name, &device));
    const void *u = to_device(device, &c->u);
    void *on_y = to_device(device, y);
    danaus_conv_gradients g = { .du = to_device(device, &du),
                                .dk = to_device(device, &dk) };
    dn_alloc_fail_at(n);
    danaus_status s = danaus_conv_plan_create(device, &c->desc, &plan);
    s = s ? s
          : danaus_spectrum_create(
                plan, device, c->k.data, NULL, c->skip.data, &spectrum);
    if (!s && c->desc.packed)
        s = danaus_conv_execute_packed(
            plan, device, spectrum, 2, offsets, u, NULL, NULL, on_y);
    else if (!s)
        s = danaus_conv_execute(plan, device, spectrum, c->batch, u, NULL, NULL, on_y);
    copy_from_device(device, y, on_y);
    if (s)
        assert_true(array_untouched(y));
    if (!s && c->desc.packed)
        s = danaus_conv_gradient_packed(
            plan, device, spectrum, 2, offsets, u, NULL, NULL, u, &g);
    else if (!s)
        s = danaus_conv_gradient(
            plan, device, spectrum, c->batch, u, NULL, NULL, u, &g);
    copy_from_device(device, &du, g.du);
    copy_from_device(device, &dk, g.dk);
    if (s)
        assert_true(array_untouched(&du) && array_untouched(&dk));
    if (!s && device->backend->on_host)
        s = try_others(device, c, y, &stream);
    *made = dn_alloc_fail_at(0);
    from_device(device, &c->u, (void *)(uintptr_t)u);
    from_device(device, y, on_y);
    from_device(device, &du, g.du);
    from_device(device, &dk, g.dk);
    danaus_stream_destroy(stream);
    danaus_spectrum_destroy(spectrum);
    danaus_conv_plan_destroy(plan);
    danaus_device_close(device);
    array_free(&dk);
    array_free(&du);
    return s;
}

static void every_allocation_fails(danaus_conv_desc desc)
{
    rng r = { 1 };
    conv_case c = conv_random(&r, &desc, 1, 4);
    long made = 0;
    int failures = 0;
    for (long n = 1; n < MOST_ALLOCATIONS; n++) {
        array y = array_make(c.desc.dtype, c.u.count);
        danaus_status status = try_all(&c, n, &made, &y);
        array_free(&y);
        if (status != DANAUS_OK) {
            assert_int_equal(status, DANAUS_ERR_MEMORY);
            failures++;
        }
        if (made < n) {
            assert_int_equal(status, DANAUS_OK);
            break;
        }
    }
    assert_in_range(failures, 8, MOST_ALLOCATIONS);
    conv_free(&c);
}

static void convolutions_survive(void **state)
{
    (void)state;
    danaus_conv_desc desc = { .channels = 2, .length = 900, .filter_length = 700 };
    every_allocation_fails(desc);
    if (strcmp(name, "cpu")) /* one is enough where plans take long */
        return;
    desc.packed = 1;
    every_allocation_fails(desc);
    desc.packed = 0, desc.keep[1] = 5;
    every_allocation_fails(desc);
}

static danaus_status measure_plan(danaus_device *device)
{
    danaus_conv_desc desc = { .channels = 2, .length = 100, .effort = DANAUS_MEASURE };
    danaus_conv_plan *plan = NULL;
    danaus_status status = danaus_conv_plan_create(device, &desc, &plan);
    danaus_conv_plan_destroy(plan);
    return status;
}

static int give_up_late(void *user, double done)
{
    (void)done;
    return ++*(int *)user > 3;
}

static danaus_status calibrate(danaus_device *device)
{
    int calls = 0;
    return danaus_device_calibrate(device, give_up_late, &calls);
}

/* Some of the first allocations of measurements; later ones are the same again. */
static void measurements_survive(void **state)
{
    (void)state;
    danaus_status (*const call[])(danaus_device *) = { measure_plan, calibrate };
    int is_host = !strcmp(name, "cpu");
    for (int c = 0; c < (is_host ? 2 : 1); c++)
        for (long n = 1; n < 25; n += is_host ? 1 : 4) {
            danaus_device *device = NULL;
            assert_ok(danaus_device_open(name, &device));
            dn_alloc_fail_at(n);
            danaus_status status = call[c](device);
            long made = dn_alloc_fail_at(0);
            danaus_device_close(device);
            /* A table that cannot grow, and a pool of threads, are done without. */
            if (status != DANAUS_ERR_MEMORY)
                assert_int_equal(status, c ? DANAUS_ERR_CANCELLED : DANAUS_OK);
            if (made < n)
                break;
        }
}

int main(int argc, char **argv)
{
    danaus_device *device = NULL;
    name = argc > 1 ? argv[1] : name;
    if (danaus_device_open(name, &device) == DANAUS_ERR_UNSUPPORTED) {
        print_message("%s: %s\n", name, danaus_error_detail());
        return 77;
    }
    danaus_device_close(device);
    const struct CMUnitTest tests[] = { cmocka_unit_test(convolutions_survive),
                                        cmocka_unit_test(measurements_survive) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
