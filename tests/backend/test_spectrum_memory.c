/* Spectra in memory of the caller's. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "danaus/conv.h"
#include "support/conv.h"
#include "support/device.h"

#include <stdlib.h>
#include <string.h>

static const danaus_conv_desc good = { .channels = 2, .length = 10 };

#define ALIGN 256 /* bytes: on a CPU 64 do */

typedef struct fixture {
    danaus_device *device;
    danaus_conv_plan *plan;
} fixture;

static fixture f;

static int fixture_open(void **state)
{
    assert_ok(danaus_conv_plan_create(f.device, &good, &f.plan));
    *state = &f;
    return 0;
}

static int fixture_close(void **state)
{
    (void)state;
    danaus_conv_plan_destroy(f.plan);
    return 0;
}

/* So many bytes of the device's memory, all of them 0x55. */
static char *marked(size_t bytes)
{
    void *memory = NULL;
    char *marks = malloc(bytes);
    assert_non_null(marks);
    memset(marks, 0x55, bytes);
    assert_ok(danaus_alloc(f.device, bytes, &memory));
    assert_ok(danaus_upload(f.device, memory, marks, bytes));
    free(marks);
    return memory;
}

static void expect_mark(const char *memory)
{
    char found = 0;
    assert_ok(danaus_download(f.device, &found, memory, 1));
    assert_int_equal(found, 0x55);
}

/* Filters are transformed into memory of the caller's, from where a copy works for
   another plan of the same description. */
static void spectra_live_in_memory_of_the_callers(void **state)
{
    (void)state;
    rng r = { 1 };
    conv_case c = conv_random(&r, &good, 1, 0);
    conv_scene s = conv_scene_make(f.device, &c, NULL);
    danaus_spectrum *first = NULL, *kept = s.spectrum;
    size_t bytes = 0, room;
    assert_ok(danaus_spectrum_bytes(f.plan, &bytes));
    assert_true(bytes >= (size_t)c.k.count * sizeof(float));
    room = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    char *memory = marked(2 * room + ALIGN), *second = memory + room;
    void *k = to_device(f.device, &c.k);
    assert_ok(danaus_spectrum_create_in(f.plan, f.device, memory, bytes, &first));
    expect_mark(memory);
    assert_ok(danaus_spectrum_update_from(first, f.device, DANAUS_F32, k, NULL, NULL));
    danaus_spectrum_destroy(first);
    expect_mark(second);
    assert_ok(danaus_upload(f.device, second, memory, bytes));
    expect_mark(second + room);
    assert_ok(conv_scene_run(&s, f.device));
    conv_outcome expected = conv_scene_results(&s);
    conv_scene_forget(&s);
    assert_ok(danaus_spectrum_create_in(s.plan, f.device, second, bytes, &s.spectrum));
    assert_ok(conv_scene_run(&s, f.device));
    conv_outcome found = conv_scene_results(&s);
    assert_true(conv_outcome_same(&found, &expected));
    danaus_spectrum_destroy(kept);
    from_device(f.device, &c.k, k);
    conv_scene_end(&s);
    danaus_free(f.device, memory);
    conv_outcome_free(&expected);
    conv_outcome_free(&found);
    conv_free(&c);
}

static void memory_for_spectra_is_checked(void **state)
{
    fixture *g = *state;
    const danaus_status bad = DANAUS_ERR_ARGUMENT;
    danaus_spectrum *s = NULL;
    size_t bytes = 0;
    assert_status(danaus_spectrum_bytes(NULL, &bytes), bad);
    assert_status(danaus_spectrum_bytes(g->plan, NULL), bad);
    assert_ok(danaus_spectrum_bytes(g->plan, &bytes));
    char *memory = marked(bytes + ALIGN);
#define CREATE(plan, device, memory, bytes)                                            \
    danaus_spectrum_create_in(plan, device, memory, bytes, &s)
    assert_status(CREATE(NULL, g->device, memory, bytes), bad);
    assert_status(CREATE(g->plan, NULL, memory, bytes), bad);
    assert_status(CREATE(g->plan, g->device, NULL, bytes), bad);
    assert_status(CREATE(g->plan, g->device, memory + 4, bytes), bad);
    assert_status(CREATE(g->plan, g->device, memory, bytes - 1), bad);
#undef CREATE
    assert_status(
        danaus_spectrum_create_in(g->plan, g->device, memory, bytes, NULL), bad);
    assert_null(s);
    danaus_free(g->device, memory);
}

int main(int argc, char **argv)
{
    f.device = device_from_arguments(argc, argv);
    conv_need(f.device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spectra_live_in_memory_of_the_callers),
        cmocka_unit_test(memory_for_spectra_is_checked),
    };
    int failed = cmocka_run_group_tests(tests, fixture_open, fixture_close);
    danaus_device_close(f.device);
    return failed;
}
