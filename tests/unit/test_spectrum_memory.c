/* Spectra in memory of the caller's. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "danaus/conv.h"
#include "support/device.h"

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

/* Filters are transformed into memory of the caller's, from where a copy works for
   another plan of the same description. */
static void spectra_live_in_memory_of_the_callers(void **state)
{
    fixture *f = *state;
    danaus_conv_plan *plan = NULL;
    danaus_spectrum *first = NULL, *second = NULL;
    size_t bytes = 0;
    assert_ok(danaus_conv_plan_create(f->device, &good, &plan));
    assert_ok(danaus_spectrum_bytes(f->plan, &bytes));
    assert_true(bytes >= sizeof f->k);
    char *memory = dn_alloc(2 * bytes + DN_ALIGN);
    assert_non_null(memory);
    memset(memory, 0x55, 2 * bytes + DN_ALIGN);
    assert_ok(danaus_spectrum_create_in(f->plan, f->device, memory, bytes, &first));
    assert_int_equal(memory[0], 0x55);
    assert_ok(
        danaus_spectrum_update_from(first, f->device, DANAUS_F32, f->k, NULL, NULL));
    danaus_spectrum_destroy(first);
    assert_int_equal(memory[bytes], 0x55);
    memcpy(memory + bytes, memory, bytes);
    assert_ok(
        danaus_spectrum_create_in(plan, f->device, memory + bytes, bytes, &second));
    memset(memory, 0, bytes);
    assert_ok(danaus_conv_execute(
        f->plan, f->device, f->spectrum, 1, f->u, NULL, NULL, f->other));
    assert_ok(danaus_conv_execute(plan, f->device, second, 1, f->u, NULL, NULL, f->y));
    assert_memory_equal(f->y, f->other, sizeof f->y);
    danaus_spectrum_destroy(second);
    danaus_conv_plan_destroy(plan);
    dn_free(memory);
}

static void memory_for_spectra_is_checked(void **state)
{
    fixture *f = *state;
    const danaus_status bad = DANAUS_ERR_ARGUMENT;
    danaus_spectrum *s = NULL;
    size_t bytes = 0;
    assert_status(danaus_spectrum_bytes(NULL, &bytes), bad);
    assert_status(danaus_spectrum_bytes(f->plan, NULL), bad);
    assert_ok(danaus_spectrum_bytes(f->plan, &bytes));
    char *memory = dn_alloc(bytes + DN_ALIGN);
    assert_non_null(memory);
#define CREATE(plan, device, memory, bytes)                                            \
    danaus_spectrum_create_in(plan, device, memory, bytes, &s)
    assert_status(CREATE(NULL, f->device, memory, bytes), bad);
    assert_status(CREATE(f->plan, NULL, memory, bytes), bad);
    assert_status(CREATE(f->plan, f->device, NULL, bytes), bad);
    assert_status(CREATE(f->plan, f->device, memory + 4, bytes), bad);
    assert_status(CREATE(f->plan, f->device, memory, bytes - 1), bad);
#undef CREATE
    assert_status(
        danaus_spectrum_create_in(f->plan, f->device, memory, bytes, NULL), bad);
    assert_null(s);
    dn_free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spectra_live_in_memory_of_the_callers),
        cmocka_unit_test(memory_for_spectra_is_checked),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
