/* Implicit filters of random shapes: their values are those of plain loops, in any length and
   with any number of threads. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/files.h"
#include "support/filter.h"

#include "model/hyena/hyena_filter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Errors against what the noise of four runs moves; angles of up to some tens amplify it. */
#define BOUND 8

static danaus_device *device;

/* A filter in a file, and what has to be there while it is used. */
typedef struct opened {
    danaus_file *file;
    device_memory memory;
    hyena_filter filter;
} opened;

static small_filter random_filter(rng *r)
{
    small_filter f = { .length = rng_int(r, 1, 1200), .channels = rng_int(r, 1, 60) };
    f.features = 1 + 2 * rng_int(r, 1, 4);
    f.order = rng_int(r, 1, 40);
    f.layers = (int)rng_int(r, 2, 4);
    f.factor = rng_int(r, 0, 1) ? 1 : 0.75;
    f.shift = rng_int(r, 0, 1) ? 0 : 0.05f;
    return f;
}

static opened open_filter(
    const named_arrays *arrays, const small_filter *f, int reverse, int learned)
{
    opened o = { .memory.device = device };
    binder b;
    hyena_shape shape = { .length = f->length,
                          .channels = f->channels,
                          .features = f->features,
                          .order = f->order,
                          .layers = f->layers,
                          .learned = learned,
                          .reverse = reverse,
                          .factor = (float)f->factor,
                          .shift = (float)f->shift };
    named_write(arrays, scratch_path("filter.safetensors"));
    assert_ok(danaus_file_open(scratch_path("filter.safetensors"), &o.file));
    assert_ok(dn_binder_open(&b, o.file, &o.memory, DANAUS_F32));
    assert_ok(dn_hyena_filter_open(&o.filter, &b, "f", &shape));
    assert_ok(dn_binder_settle(&b, (const char *const[]){ NULL }));
    dn_binder_close(&b);
    return o;
}

static void close_filter(opened *o)
{
    dn_hyena_filter_close(&o->filter);
    dn_memory_free(&o->memory);
    danaus_file_close(o->file);
}

static void expect_values(
    const named_arrays *arrays, const small_filter *f, int reverse, int64_t length,
    int64_t stride, const float *found)
{
    int64_t size = f->channels * f->length;
    double *wanted = calloc((size_t)size, sizeof *wanted), moved = 0;
    double *other = calloc((size_t)size, sizeof *other);
    filter_values(arrays, "f", f, reverse, wanted, NULL);
    for (uint64_t run = 0; run < 4; run++) {
        rng noise = { run };
        filter_values(arrays, "f", f, reverse, other, &noise);
        for (int64_t i = 0; i < size; i++)
            moved = fmax(moved, fabs(other[i] - wanted[i]));
    }
    for (int64_t h = 0; h < f->channels; h++)
        for (int64_t s = 0; s < length; s++) {
            double is = found[h * stride + s], was = wanted[h * f->length + s];
            if (!(fabs(is - was) <= BOUND * moved))
                fail_msg(
                    "channel %d of %d, position %d of %d: %.9g, not %.9g within %g",
                    (int)h, (int)f->channels, (int)s, (int)f->length, is, was,
                    BOUND * moved);
        }
    free(wanted);
    free(other);
}

static void values_are_those_of_plain_loops(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(40); round++) {
        rng r = { (uint64_t)round };
        small_filter f = random_filter(&r);
        int reverse = (int)rng_int(&r, 0, 1), bare = (int)rng_int(&r, 0, 1);
        named_arrays arrays = { 0 }, whole = { 0 };
        rng same = r;
        filter_add_random(&r, &arrays, "f", &f, reverse, bare);
        filter_add_random(&same, &whole, "f", &f, reverse, 0);
        opened o = open_filter(&arrays, &f, reverse, !bare);
        int64_t length = rng_int(&r, 1, f.length), stride = length + rng_int(&r, 0, 5);
        size_t count = (size_t)(f.channels * stride);
        float *k = malloc(count * sizeof *k);
        for (int way = 0; way <= reverse; way++) {
            for (size_t i = 0; i < count; i++)
                k[i] = NAN;
            assert_ok(dn_hyena_filter_run(&o.filter, device, way, length, k, stride));
            expect_values(&whole, &f, way, length, stride, k);
            for (size_t i = 0; i < count; i++)
                assert_int_equal(isnan(k[i]) != 0, (int64_t)i % stride >= length);
        }
        free(k);
        close_filter(&o);
        named_free(&arrays);
        named_free(&whole);
    }
}

static void lengths_and_threads_do_not_change_values(void **state)
{
    (void)state;
    rng r = { 1 };
    small_filter f = random_filter(&r);
    named_arrays arrays = { 0 };
    f.length = 1500;
    filter_add_random(&r, &arrays, "f", &f, 0, 0);
    opened o = open_filter(&arrays, &f, 0, 1);
    float *all = calloc((size_t)(f.channels * 1500), sizeof *all);
    float *k = calloc((size_t)(f.channels * 1500), sizeof *k);
    assert_ok(dn_hyena_filter_run(&o.filter, device, 0, 1500, all, 1500));
    for (int threads = 1; threads <= 3; threads++) {
        assert_ok(danaus_device_set_threads(device, threads));
        int64_t length = rng_int(&r, 1, 1500);
        assert_ok(dn_hyena_filter_run(&o.filter, device, 0, length, k, 1500));
        for (int64_t h = 0; h < f.channels; h++)
            for (int64_t s = 0; s < length; s++)
                if (!(fabs(k[h * 1500 + s] - all[h * 1500 + s]) <= 1e-4))
                    fail_msg(
                        "%d of %d positions, channel %d: %.9g, not %.9g", (int)s,
                        (int)length, (int)h, k[h * 1500 + s], all[h * 1500 + s]);
    }
    assert_ok(danaus_device_set_threads(device, 0));
    free(all);
    free(k);
    close_filter(&o);
    named_free(&arrays);
}

/* Sines far out, and of what is no number. */
static void sines_stay_sines(void **state)
{
    (void)state;
    enum { COUNT = 4096 };
    float *x = calloc(COUNT, sizeof *x), *y = calloc(COUNT, sizeof *y), one[64];
    for (int i = 0; i < 64; i++)
        one[i] = 1;
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)((i - COUNT / 2) * 1.37);
    nn_sine o = { .rows = COUNT / 64, 64, x, one, 1, y };
    assert_ok(device->backend->nn->sine(device, &o));
    for (int i = 0; i < COUNT; i++)
        if (!(fabs(y[i] - sin(x[i])) <= 3 * 0x1p-24 + fabs(x[i]) * 0x1p-32))
            fail_msg("sin(%.9g) is %.9g, not %.9g", x[i], y[i], sin(x[i]));
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)((i % 2 ? 1 : -1) * pow(2, 20 + (double)i / 48));
    assert_ok(device->backend->nn->sine(device, &o));
    for (int i = 0; i < COUNT; i++)
        assert_true(fabsf(y[i]) <= 1.0001f);
    x[5] = NAN;
    assert_ok(device->backend->nn->sine(device, &o));
    assert_true(isnan(y[5]));
    free(x);
    free(y);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_plain_loops),
        cmocka_unit_test(lengths_and_threads_do_not_change_values),
        cmocka_unit_test(sines_stay_sines),
    };
    device = device_from_arguments(argc, argv);
    int failed = cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
    danaus_device_close(device);
    return failed;
}
