/* What plans, spectra and convolutions refuse, and what plans say of themselves. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "conv/choose.h"
#include "cpu/cpu.h"
#include "device/tuning.h"
#include "support/conv.h"
#include "support/device.h"
#include "support/files.h"
#include "support/tuning.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const danaus_conv_desc good = { .channels = 2, .length = 10 };

typedef struct fixture {
    danaus_device *device;
    danaus_conv_plan *plan;
    danaus_spectrum *spectrum;
    float k[20], u[20], y[20], other[20];
} fixture;

static int fixture_open(void **state)
{
    static fixture f;
    scratch_setup(state);
    f = (fixture){ .k = { 1 }, .u = { 1, 2, 3 } };
    assert_ok(danaus_device_open("cpu", &f.device));
    assert_ok(danaus_conv_plan_create(f.device, &good, &f.plan));
    assert_ok(danaus_spectrum_create(f.plan, f.device, f.k, NULL, NULL, &f.spectrum));
    *state = &f;
    return 0;
}

static int fixture_close(void **state)
{
    fixture *f = *state;
    danaus_spectrum_destroy(f->spectrum);
    danaus_conv_plan_destroy(f->plan);
    danaus_device_close(f->device);
    return scratch_teardown(state);
}

static void refuse(danaus_device *device, danaus_conv_desc desc, danaus_status status)
{
    danaus_conv_plan *plan = NULL;
    assert_status(danaus_conv_plan_create(device, &desc, &plan), status);
    assert_null(plan);
}

static void descriptions_are_checked(void **state)
{
    danaus_device *device = ((fixture *)*state)->device;
    danaus_conv_desc d;
    d = good, d.channels = 0, refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.length = -1, refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.accuracy = (danaus_conv_accuracy)3;
    refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.length = DANAUS_CONV_MOST_LENGTH + 1,
    refuse(device, d, DANAUS_ERR_SHAPE);
    d = good, d.filter_length = INT64_MAX, refuse(device, d, DANAUS_ERR_SHAPE);
    d = good, d.filter_length = -1, refuse(device, d, DANAUS_ERR_SHAPE);
    d = good, d.filters = 3, refuse(device, d, DANAUS_ERR_SHAPE);
    d = good, d.channels = INT64_MAX, refuse(device, d, DANAUS_ERR_SHAPE);
    d = good, d.kind = (danaus_conv_kind)9, refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.dtype = DANAUS_C64, d.keep[0] = 4;
    refuse(device, d, DANAUS_ERR_UNSUPPORTED);
    d = good, d.dtype = (danaus_dtype)99, refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.effort = (danaus_effort)9, refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.effort = DANAUS_TABLE_ONLY, refuse(device, d, DANAUS_ERR_UNSUPPORTED);
    d = good, d.keep[0] = 9, refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.keep[1] = -1, refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.keep[1] = 4, d.kind = DANAUS_CIRCULAR;
    refuse(device, d, DANAUS_ERR_UNSUPPORTED);
    d = good, d.keep[3] = 1, d.axes[2] = 12, refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.keep[3] = 1, d.axes[0] = INT32_MIN;
    refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.keep[3] = 17, d.axes[3] = 16, refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.keep[0] = 1, d.axes[0] = d.axes[3] = 1 << 30;
    refuse(device, d, DANAUS_ERR_SHAPE);
    d = good, d.batch = -1, refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.reserved[1] = 1, refuse(device, d, DANAUS_ERR_ARGUMENT);
    danaus_conv_plan *plan = NULL;
    assert_status(danaus_conv_plan_create(NULL, &good, &plan), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_conv_plan_create(device, NULL, &plan), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_conv_plan_create(device, &good, NULL), DANAUS_ERR_ARGUMENT);
}

/* The machine may know no other instruction set. */
static int differ(danaus_device *one, danaus_device *other)
{
    danaus_device_info a, b;
    assert_ok(danaus_device_describe(one, &a));
    assert_ok(danaus_device_describe(other, &b));
    return strcmp(a.name, b.name) != 0;
}

/* ---- tables ---- */

static void expect_in_plan(
    danaus_device *device, const danaus_conv_desc *desc, const char *words)
{
    char text[4096];
    danaus_conv_plan *plan = NULL;
    assert_ok(danaus_conv_plan_create(device, desc, &plan));
    danaus_conv_plan_describe(plan, text, sizeof text);
    if (!strstr(text, words))
        fail_msg("\"%s\" is not in: %s", words, text);
    danaus_conv_plan_destroy(plan);
}

/* What is measured is in the table, in its file, and in the table of another device. */
static void measurements_are_kept(void **state)
{
    danaus_device *device = ((fixture *)*state)->device, *other = NULL;
    const char *path = scratch_path("conv.csv");
    danaus_conv_desc d = { .channels = 3, .length = 700, .filter_length = 90 };
    danaus_conv_desc table = d;
    table.effort = DANAUS_TABLE_ONLY;
    refuse(device, table, DANAUS_ERR_UNSUPPORTED);
    expect_in_plan(device, &d, "by the model");
    d.effort = DANAUS_MEASURE;
    expect_in_plan(device, &d, "as measured");
    expect_in_plan(device, &d, "by the tuning table");
    expect_in_plan(device, &table, "by the tuning table");
    d.effort = DANAUS_ESTIMATE;
    expect_in_plan(device, &d, "by the tuning table");
    assert_ok(danaus_device_save_tuning(device, path));
    assert_ok(danaus_device_open("cpu", &other));
    refuse(other, table, DANAUS_ERR_UNSUPPORTED);
    assert_ok(danaus_device_load_tuning(other, path));
    expect_in_plan(other, &table, "by the tuning table");
    table.kind = DANAUS_CIRCULAR;
    refuse(other, table, DANAUS_ERR_UNSUPPORTED);
    table.kind = DANAUS_CAUSAL, table.keep[0] = 4;
    refuse(other, table, DANAUS_ERR_UNSUPPORTED);
    danaus_device_close(other);
}

/* Cuts that no row can be cut by are passed over. */
static void tables_that_lie_do_no_harm(void **state)
{
    danaus_device *device = ((fixture *)*state)->device;
    int f32 = 0, f64 = 0;
    const conv_kernel *k = dn_conv_next_kernel(device, DANAUS_F32, &f32);
    const conv_cut cuts[] = {
        { k, 64, 8 }, /* too short: 2 n is below before + after */
        { k, 65, 8 },
        { k, 64 * 11, 8 },
        { k, INT64_MAX, 8 },
        { k, (int64_t)1 << 40, 8 },
        { dn_conv_next_kernel(device, DANAUS_F64, &f64), 4096, 8 },
    };
    danaus_conv_desc d = { .channels = 1, .length = 5000, .dtype = DANAUS_F32 };
    d.filter_length = 4500;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        dn_tuning_add_conv(device->tuning, &d, 0, cuts[i], 1e-6);
        expect_in_plan(device, &d, "by the model");
        d.effort = DANAUS_TABLE_ONLY;
        refuse(device, d, DANAUS_ERR_UNSUPPORTED);
        d.effort = DANAUS_ESTIMATE;
    }
    dn_tuning_add_conv(device->tuning, &d, 0, (conv_cut){ k, 8192, 4 }, 1);
    expect_in_plan(device, &d, "4 x 4");
}

static void filters_are_checked(void **state)
{
    fixture *f = *state;
    danaus_spectrum *s = NULL;
    assert_status(
        danaus_spectrum_create(f->plan, f->device, NULL, NULL, f->k, &s),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_spectrum_update(f->spectrum, f->device, NULL, NULL, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_spectrum_update_from(
            f->spectrum, f->device, DANAUS_F32, NULL, NULL, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_spectrum_update_from(
            f->spectrum, f->device, DANAUS_C64, f->k, NULL, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_spectrum_update_from(
            f->spectrum, f->device, (danaus_dtype)99, f->k, NULL, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_spectrum_update_from(NULL, f->device, DANAUS_F32, f->k, NULL, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_spectrum_create(f->plan, f->device, f->k, f->k, NULL, &s),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_spectrum_create(f->plan, f->device, f->k, NULL, NULL, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_spectrum_update(NULL, f->device, f->k, NULL, NULL), DANAUS_ERR_ARGUMENT);
    danaus_device *scalar = NULL;
    assert_ok(danaus_device_open("cpu:scalar", &scalar));
    if (differ(scalar, f->device)) {
        assert_status(
            danaus_spectrum_create(f->plan, scalar, f->k, NULL, NULL, &s),
            DANAUS_ERR_ARGUMENT);
        assert_status(
            danaus_spectrum_update(f->spectrum, scalar, f->k, NULL, NULL),
            DANAUS_ERR_ARGUMENT);
        assert_status(
            danaus_spectrum_update_from(
                f->spectrum, scalar, DANAUS_F32, f->k, NULL, NULL),
            DANAUS_ERR_ARGUMENT);
    }
    danaus_device_close(scalar);
    assert_null(s);
}

/* y is as memset() to 0x55 left it. */
static void expect_untouched(const fixture *f)
{
    for (size_t i = 0; i < sizeof f->y; i++)
        assert_int_equal(((const unsigned char *)f->y)[i], 0x55);
}

static void operands_are_checked(void **state)
{
    fixture *f = *state;
    danaus_conv_plan *plan = NULL;
    danaus_device *scalar = NULL;
    assert_ok(danaus_conv_plan_create(f->device, &good, &plan));
    assert_ok(danaus_device_open("cpu:scalar", &scalar));
    const danaus_status bad = DANAUS_ERR_ARGUMENT;
#define RUN(plan, device, spectrum, batch, u, in, out, y)                              \
    danaus_conv_execute(plan, device, spectrum, batch, u, in, out, y)
    memset(f->y, 0x55, sizeof f->y);
    assert_status(RUN(plan, f->device, f->spectrum, 1, f->u, NULL, NULL, f->y), bad);
    assert_status(RUN(NULL, f->device, f->spectrum, 1, f->u, NULL, NULL, f->y), bad);
    assert_status(
        RUN(f->plan, f->device, f->spectrum, -1, f->u, NULL, NULL, f->y), bad);
    assert_status(RUN(f->plan, f->device, f->spectrum, 1, NULL, NULL, NULL, f->y), bad);
    assert_status(RUN(f->plan, f->device, f->spectrum, 1, f->y, NULL, NULL, f->y), bad);
    assert_status(
        RUN(f->plan, f->device, f->spectrum, 1, f->u, f->y + 1, NULL, f->y), bad);
    assert_status(RUN(f->plan, f->device, f->spectrum, 1, f->u, NULL, f->y, f->y), bad);
    assert_status(
        RUN(f->plan, f->device, f->spectrum, INT64_MAX / 8, f->u, NULL, NULL, f->y),
        DANAUS_ERR_SHAPE);
    if (differ(scalar, f->device))
        assert_status(
            RUN(f->plan, scalar, f->spectrum, 1, f->u, NULL, NULL, f->y), bad);
    expect_untouched(f);
    assert_ok(RUN(f->plan, f->device, f->spectrum, 0, NULL, NULL, NULL, NULL));
#undef RUN
    danaus_conv_plan_destroy(plan);
    danaus_device_close(scalar);
}

static void gradients_are_checked(void **state)
{
    fixture *f = *state;
    const danaus_status bad = DANAUS_ERR_ARGUMENT;
    danaus_conv_gradients g[] = {
        { .du = f->y },
        { .dgate_in = f->y },
        { .dgate_out = f->y },
        { .dk_reverse = f->y },
        { .reserved = { f->y } },
        { .du = f->u },
        { .du = f->y, .dgate_in = f->y + 1 },
        { .dk = f->u + 19 },
        { .dskip = f->other + 19 },
        { .du = f->y, .dk = f->y + 19 },
        { .dk = f->y, .dskip = f->y + 19 },
    };
    assert_status(
        danaus_conv_gradient(
            f->plan, f->device, f->spectrum, 0, f->u, NULL, NULL, f->other, &g[0]),
        bad);
    assert_status(
        danaus_conv_gradient(
            f->plan, f->device, f->spectrum, 1, f->u, NULL, NULL, NULL, &g[0]),
        bad);
    assert_status(
        danaus_conv_gradient(
            f->plan, f->device, f->spectrum, 1, f->u, NULL, NULL, f->other, NULL),
        bad);
    memset(f->y, 0x55, sizeof f->y);
    for (int i = 1; i < 11; i++)
        assert_status(
            danaus_conv_gradient(
                f->plan, f->device, f->spectrum, 1, f->u, i == 6 ? f->k : NULL, NULL,
                f->other, &g[i]),
            bad);
    danaus_conv_plan *plan = NULL;
    danaus_device *scalar = NULL;
    assert_ok(danaus_conv_plan_create(f->device, &good, &plan));
    assert_ok(danaus_device_open("cpu:scalar", &scalar));
    assert_status(
        danaus_conv_gradient(
            plan, f->device, f->spectrum, 1, f->u, NULL, NULL, f->other, &g[0]),
        bad);
    if (differ(scalar, f->device))
        assert_status(
            danaus_conv_gradient(
                f->plan, scalar, f->spectrum, 1, f->u, NULL, NULL, f->other, &g[0]),
            bad);
    expect_untouched(f);
    danaus_conv_plan_destroy(plan);
    danaus_device_close(scalar);
    assert_ok(danaus_conv_gradient(
        f->plan, f->device, f->spectrum, 1, f->u, NULL, NULL, f->other, &g[0]));
}

/* A backend may have a part of what convolutions are: what lacks is named. */
static void what_a_backend_lacks_is_unsupported(void **state)
{
    fixture *f = *state;
    danaus_device device = tuning_device; /* has names of kernels alone */
    const danaus_status bad = DANAUS_ERR_UNSUPPORTED;
    danaus_short_desc few = { .channels = 1, .length = 1, .taps = 1 };
    danaus_short_gradients g = { .du = f->y };
    danaus_stream_desc s = { .channels = 1, .filter_length = 1 };
    danaus_stream *stream = NULL;
    assert_string_equal(danaus_device_kernel(&device, 4), "conv.plain");
    refuse(&device, good, bad);
    assert_non_null(strstr(danaus_error_detail(), "has no long convolutions"));
    assert_status(danaus_short_conv(&device, &few, 1, f->k, NULL, f->u, f->y), bad);
    assert_non_null(strstr(danaus_error_detail(), "few taps"));
    assert_status(
        danaus_short_conv_gradient(&device, &few, 1, f->k, f->u, f->other, &g), bad);
    assert_status(danaus_stream_create(&device, &s, f->k, &stream), bad);
    assert_non_null(strstr(danaus_error_detail(), "has no streams"));
    assert_null(stream);
    assert_status(danaus_device_calibrate(&device, NULL, NULL), bad);
}

static void a_plan_describes_itself(void **state)
{
    fixture *f = *state;
    char text[4096], cut[8];
    size_t length = danaus_conv_plan_describe(f->plan, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_non_null(strstr(text, "conv.fft.f32: 1 window of "));
    assert_int_equal(danaus_conv_plan_describe(f->plan, cut, sizeof cut), length);
    assert_int_equal(strlen(cut), 7);
    assert_int_equal(danaus_conv_plan_describe(f->plan, NULL, 0), length);
    assert_int_equal(danaus_conv_plan_describe(NULL, text, sizeof text), 0);
}

/* How a plan cuts rows, without its time and its memory. */
static void describe_cut(
    danaus_device *device, const danaus_conv_desc *d, char *text, size_t size)
{
    danaus_conv_plan *plan = NULL;
    assert_ok(danaus_conv_plan_create(device, d, &plan));
    danaus_conv_plan_describe(plan, text, size);
    char *end = strstr(text, " us a row");
    assert_non_null(end);
    *end = '\0';
    *strrchr(text, ',') = '\0';
    danaus_conv_plan_destroy(plan);
}

/* Whatever batch is planned for, devices that differ in their threads alone cut rows in
   the same way. */
static void threads_do_not_change_plans(void **state)
{
    (void)state;
    static const int threads[] = { 1, 2, 3, 8, 64 };
    static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_BF16 };
    danaus_device *device = NULL;
    assert_ok(danaus_device_open("cpu", &device));
    for (int round = 0; round < rounds_of(400); round++) {
        rng r = { (uint64_t)round };
        danaus_conv_desc d = { .channels = rng_int(&r, 1, 4),
                               .batch = rng_int(&r, 0, 9),
                               .kind = (danaus_conv_kind)(round % 3),
                               .dtype = types[round / 3 % 3] };
        d.length = rng_int(&r, 1, (int64_t)1 << rng_int(&r, 4, 18));
        d.filter_length = rng_int(&r, 1, d.length);
        char one[512], more[512];
        for (int i = 0; i < 5; i++) {
            assert_ok(danaus_device_set_threads(device, threads[i]));
            describe_cut(device, &d, i ? more : one, sizeof one);
            if (i)
                assert_string_equal(more, one);
        }
    }
    danaus_device_close(device);
}

/* 64 rows of 2^20 on two threads: beside rows and spectra at most 64 MiB. */
static void long_rows_take_little_memory(void **state)
{
    (void)state;
    danaus_device *device = NULL;
    danaus_conv_plan *plan = NULL;
    danaus_spectrum *spectrum = NULL;
    danaus_conv_desc d = { .channels = 1, .length = 1 << 20, .batch = 64 };
    size_t row = sizeof(float) << 20;
    char text[4096], line[80];
    float *u = calloc(4, row), *y = calloc(4, row);
    assert_ok(danaus_device_open("cpu", &device));
    assert_ok(danaus_device_set_threads(device, 2));
    assert_ok(danaus_conv_plan_create(device, &d, &plan));
    assert_ok(danaus_spectrum_create(plan, device, u, NULL, NULL, &spectrum));
    assert_ok(danaus_conv_execute(plan, device, spectrum, 4, u, NULL, NULL, y));
    size_t scratch = ((const cpu_device *)device)->scratch_bytes;
    assert_in_range(scratch, 1, 64 << 20);
    danaus_conv_plan_describe(plan, text, sizeof text);
    snprintf(line, sizeof line, "%.3g MiB of scratch", (double)scratch / (2 << 20));
    assert_non_null(strstr(text, line));
    danaus_spectrum_destroy(spectrum);
    danaus_conv_plan_destroy(plan);
    danaus_device_close(device);
    free(u);
    free(y);
}

/* Gradients of many filters: three spectra of 32 KiB or a little more, and a buffer, for
   each of two threads. */
static void filter_gradients_take_little_memory(void **state)
{
    (void)state;
    enum { FILTERS = 768, LENGTH = 1 << 12, NUMBERS = FILTERS * LENGTH };
    danaus_device *device = NULL;
    danaus_conv_plan *plan = NULL;
    danaus_spectrum *spectrum = NULL;
    danaus_conv_desc d = { .channels = FILTERS, .length = LENGTH };
    float *u = calloc(NUMBERS, sizeof *u), *dk = calloc(NUMBERS, sizeof *dk);
    danaus_conv_gradients g = { .dk = dk };
    assert_ok(danaus_device_open("cpu", &device));
    assert_ok(danaus_device_set_threads(device, 2));
    assert_ok(danaus_conv_plan_create(device, &d, &plan));
    assert_ok(danaus_spectrum_create(plan, device, u, NULL, NULL, &spectrum));
    assert_ok(danaus_conv_gradient(plan, device, spectrum, 1, u, NULL, NULL, u, &g));
    size_t scratch = ((const cpu_device *)device)->scratch_bytes;
    assert_in_range(scratch, 1, 1 << 19);
    danaus_spectrum_destroy(spectrum);
    danaus_conv_plan_destroy(plan);
    danaus_device_close(device);
    free(u);
    free(dk);
}

/* New filters in an old spectrum: the same as a new one. */
static void spectra_are_updated(void **state)
{
    fixture *f = *state;
    float k[20] = { 0 }, y[20];
    k[0] = 2, k[10] = 3;
    assert_ok(danaus_spectrum_update(f->spectrum, f->device, k, NULL, NULL));
    for (int i = 0; i < 20; i++)
        f->u[i] = (float)i;
    assert_ok(
        danaus_conv_execute(f->plan, f->device, f->spectrum, 1, f->u, NULL, NULL, y));
    for (int i = 0; i < 20; i++)
        assert_true(fabsf(y[i] - (float)(i < 10 ? 2 * i : 3 * i)) < 1e-4f);
}

static void nan_stays_in_its_row(void **state)
{
    fixture *f = *state;
    float u[20] = { 0 }, y[20];
    u[3] = NAN;
    assert_ok(
        danaus_conv_execute(f->plan, f->device, f->spectrum, 1, u, NULL, NULL, y));
    assert_true(isnan(y[3]) && isnan(y[9]));
    for (int i = 10; i < 20; i++)
        assert_true(y[i] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptions_are_checked),
        cmocka_unit_test(measurements_are_kept),
        cmocka_unit_test(tables_that_lie_do_no_harm),
        cmocka_unit_test(filters_are_checked),
        cmocka_unit_test(operands_are_checked),
        cmocka_unit_test(gradients_are_checked),
        cmocka_unit_test(what_a_backend_lacks_is_unsupported),
        cmocka_unit_test(a_plan_describes_itself),
        cmocka_unit_test(threads_do_not_change_plans),
        cmocka_unit_test(long_rows_take_little_memory),
        cmocka_unit_test(filter_gradients_take_little_memory),
        cmocka_unit_test(spectra_are_updated),
        cmocka_unit_test(nan_stays_in_its_row),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
