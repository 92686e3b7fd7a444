/* What plans, spectra and convolutions refuse, and what plans say of themselves. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/conv.h"

#include <math.h>
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
    return 0;
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
    d = good, d.length = DANAUS_CONV_MOST_LENGTH + 1,
    refuse(device, d, DANAUS_ERR_SHAPE);
    d = good, d.filter_length = INT64_MAX, refuse(device, d, DANAUS_ERR_SHAPE);
    d = good, d.filter_length = -1, refuse(device, d, DANAUS_ERR_SHAPE);
    d = good, d.filters = 3, refuse(device, d, DANAUS_ERR_SHAPE);
    d = good, d.channels = INT64_MAX, refuse(device, d, DANAUS_ERR_SHAPE);
    d = good, d.kind = (danaus_conv_kind)9, refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.dtype = DANAUS_C64, refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.dtype = (danaus_dtype)99, refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.effort = (danaus_effort)9, refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.effort = DANAUS_TABLE_ONLY, refuse(device, d, DANAUS_ERR_UNSUPPORTED);
    d = good, d.keep[0] = 9, refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.keep[1] = -1, refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.keep[1] = 4, d.kind = DANAUS_CIRCULAR;
    refuse(device, d, DANAUS_ERR_UNSUPPORTED);
    d = good, d.batch = -1, refuse(device, d, DANAUS_ERR_ARGUMENT);
    d = good, d.reserved[3] = 1, refuse(device, d, DANAUS_ERR_ARGUMENT);
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

static void filters_are_checked(void **state)
{
    fixture *f = *state;
    danaus_spectrum *s = NULL;
    assert_status(
        danaus_spectrum_create(f->plan, f->device, NULL, NULL, NULL, &s),
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

static void a_plan_describes_itself(void **state)
{
    fixture *f = *state;
    char text[200], cut[8];
    size_t length = danaus_conv_plan_describe(f->plan, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_non_null(strstr(text, "conv.fft.f32: 1 window of "));
    assert_int_equal(danaus_conv_plan_describe(f->plan, cut, sizeof cut), length);
    assert_int_equal(strlen(cut), 7);
    assert_int_equal(danaus_conv_plan_describe(f->plan, NULL, 0), length);
    assert_int_equal(danaus_conv_plan_describe(NULL, text, sizeof text), 0);
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
        cmocka_unit_test(filters_are_checked),
        cmocka_unit_test(operands_are_checked),
        cmocka_unit_test(gradients_are_checked),
        cmocka_unit_test(a_plan_describes_itself),
        cmocka_unit_test(spectra_are_updated),
        cmocka_unit_test(nan_stays_in_its_row),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
