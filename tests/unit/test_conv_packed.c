/* What packed sequences refuse, and what their plans say of themselves. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/conv.h"
#include "support/device.h"
#include "support/packed.h"

#include <stdlib.h>
#include <string.h>

/* Two channels of at most 200 numbers; arrays for 300 of each. */
static const danaus_conv_desc good = { .channels = 2, .length = 200, .packed = 1 };
static const int64_t offsets[] = { 0, 100, 100, 300 };

#define COLUMNS 300

typedef struct fixture {
    danaus_device *device;
    danaus_conv_plan *plan;
    danaus_spectrum *spectrum;
    float k[400], u[2 * COLUMNS], y[2 * COLUMNS], other[2 * COLUMNS];
} fixture;

static int fixture_open(void **state)
{
    static fixture f;
    f = (fixture){ .k = { 1 }, .u = { 1, 2, 3 } };
    memset(f.y, 0x55, sizeof f.y);
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

/* y is as it was made, and the sentence of the last error has these words. */
static void expect_refused(const fixture *f, const char *words)
{
    for (size_t i = 0; i < sizeof f->y; i++)
        assert_int_equal(((const unsigned char *)f->y)[i], 0x55);
    assert_non_null(strstr(danaus_error_detail(), words));
}

/* Forward, back and their scratch, with offsets that are wrong. */
static void refuse(
    fixture *f, int64_t sequences, const int64_t *wrong, danaus_status status,
    const char *words)
{
    danaus_conv_gradients g = { .du = f->y };
    size_t forward, gradient;
    assert_status(
        danaus_conv_execute_packed(
            f->plan, f->device, f->spectrum, sequences, wrong, f->u, NULL, NULL, f->y),
        status);
    expect_refused(f, words);
    assert_status(
        danaus_conv_gradient_packed(
            f->plan, f->device, f->spectrum, sequences, wrong, f->u, NULL, NULL,
            f->other, &g),
        status);
    expect_refused(f, words);
    assert_status(
        danaus_conv_scratch_bytes_packed(
            f->plan, f->device, sequences, wrong, &forward, &gradient),
        status);
    expect_refused(f, words);
}

static void offsets_are_checked(void **state)
{
    fixture *f = *state;
    const int64_t late[] = { 1, 100 }, down[] = { 0, 100, 99 };
    const int64_t negative[] = { 0, -1 }, longer[] = { 0, 201 };
    const int64_t far[] = { 0, INT64_MAX }, wraps[] = { 0, 100, INT64_MIN };
    refuse(f, 3, NULL, DANAUS_ERR_ARGUMENT, "offsets are needed");
    refuse(f, -1, offsets, DANAUS_ERR_ARGUMENT, "-1");
    refuse(f, 1, late, DANAUS_ERR_ARGUMENT, "begin with 1, not with 0");
    refuse(
        f, 2, down, DANAUS_ERR_ARGUMENT, "number 2 is 99, less than the 100 before it");
    refuse(f, 1, negative, DANAUS_ERR_ARGUMENT, "number 1 is -1");
    refuse(f, 2, wraps, DANAUS_ERR_ARGUMENT, "less than the 100 before it");
    refuse(f, 1, longer, DANAUS_ERR_SHAPE, "sequence 0 has 201 numbers");
    refuse(f, 1, far, DANAUS_ERR_SHAPE, "the plan is for 200 at most");
}

/* Channels times columns times 64 is more than there are numbers. */
static void sizes_do_not_overflow(void **state)
{
    fixture *f = *state;
    danaus_conv_desc d = { .channels = (int64_t)1 << 28,
                           .filters = 1,
                           .length = DANAUS_CONV_MOST_LENGTH,
                           .filter_length = 1,
                           .packed = 1 };
    danaus_conv_plan *plan = NULL;
    danaus_spectrum *spectrum = NULL;
    int64_t *many = calloc(9, sizeof *many);
    assert_non_null(many);
    for (int i = 0; i < 8; i++)
        many[i + 1] = many[i] + d.length;
    assert_ok(danaus_conv_plan_create(f->device, &d, &plan));
    assert_ok(danaus_spectrum_create(plan, f->device, f->k, NULL, NULL, &spectrum));
    assert_status(
        danaus_conv_execute_packed(
            plan, f->device, spectrum, 8, many, f->u, NULL, NULL, f->y),
        DANAUS_ERR_SHAPE);
    expect_refused(f, "too large");
    danaus_spectrum_destroy(spectrum);
    danaus_conv_plan_destroy(plan);
    free(many);
}

static void operands_are_checked(void **state)
{
    fixture *f = *state;
    const danaus_status bad = DANAUS_ERR_ARGUMENT;
#define RUN(plan, spectrum, u, in, out, y)                                             \
    danaus_conv_execute_packed(plan, f->device, spectrum, 3, offsets, u, in, out, y)
    assert_status(RUN(NULL, f->spectrum, f->u, NULL, NULL, f->y), bad);
    assert_status(RUN(f->plan, NULL, f->u, NULL, NULL, f->y), bad);
    assert_status(RUN(f->plan, f->spectrum, NULL, NULL, NULL, f->y), bad);
    assert_status(RUN(f->plan, f->spectrum, f->u, NULL, NULL, NULL), bad);
    assert_status(RUN(f->plan, f->spectrum, f->y, NULL, NULL, f->y), bad);
    assert_status(RUN(f->plan, f->spectrum, f->u, f->y + 599, NULL, f->y), bad);
    expect_refused(f, "y overlaps gate_in");
    assert_status(RUN(f->plan, f->spectrum, f->u, NULL, f->y, f->y), bad);
#undef RUN
    danaus_conv_gradients g[] = { { .du = f->u },
                                  { .dgate_in = f->y },
                                  { .dk = f->u } };
    for (int i = 0; i < 3; i++)
        assert_status(
            danaus_conv_gradient_packed(
                f->plan, f->device, f->spectrum, 3, offsets, f->u, NULL, NULL, f->other,
                &g[i]),
            bad);
    const int64_t none[] = { 0, 0, 0 };
    g[0].du = f->y;
    assert_status(
        danaus_conv_gradient_packed(
            f->plan, f->device, f->spectrum, 2, none, f->u, NULL, NULL, f->other,
            &g[0]),
        bad);
    expect_refused(f, "at least 1");
    assert_ok(danaus_conv_execute_packed(
        f->plan, f->device, f->spectrum, 2, none, NULL, NULL, NULL, NULL));
    assert_ok(danaus_conv_execute_packed(
        f->plan, f->device, f->spectrum, 0, none, NULL, NULL, NULL, NULL));
}

/* Plans take the calls that they are made for. */
static void plans_and_calls_go_together(void **state)
{
    fixture *f = *state;
    danaus_conv_desc rows = good;
    danaus_conv_plan *plan = NULL;
    danaus_spectrum *spectrum = NULL;
    danaus_conv_gradients g = { .du = f->y };
    size_t bytes;
    const danaus_status bad = DANAUS_ERR_ARGUMENT;
    rows.packed = 0;
    assert_ok(danaus_conv_plan_create(f->device, &rows, &plan));
    assert_ok(danaus_spectrum_create(plan, f->device, f->k, NULL, NULL, &spectrum));
    assert_status(
        danaus_conv_execute(f->plan, f->device, f->spectrum, 1, f->u, NULL, NULL, f->y),
        bad);
    expect_refused(f, "packed");
    assert_status(
        danaus_conv_gradient(
            f->plan, f->device, f->spectrum, 1, f->u, NULL, NULL, f->other, &g),
        bad);
    assert_status(danaus_conv_scratch_bytes(f->plan, f->device, 1, &bytes, NULL), bad);
    assert_status(
        danaus_conv_execute_packed(
            plan, f->device, spectrum, 3, offsets, f->u, NULL, NULL, f->y),
        bad);
    expect_refused(f, "packed");
    danaus_spectrum_destroy(spectrum);
    danaus_conv_plan_destroy(plan);
    rows.packed = 1, rows.kind = DANAUS_CIRCULAR, plan = NULL;
    assert_status(
        danaus_conv_plan_create(f->device, &rows, &plan), DANAUS_ERR_UNSUPPORTED);
    expect_refused(f, "circular");
    assert_null(plan);
}

static void a_plan_describes_its_classes(void **state)
{
    fixture *f = *state;
    char text[4096];
    size_t length = danaus_conv_plan_describe(f->plan, text, sizeof text);
    assert_int_equal(length, strlen(text));
    assert_non_null(strstr(text, "sequences of at most 192 numbers: 1 window of 192"));
    assert_non_null(strstr(text, "sequences of at most 128 numbers: 1 window of 128"));
}

/* Spectra of all classes: 200, 192 and 128 numbers make windows of that or, as the costs of
   this machine have it, up to twice that. */
static void a_spectrum_has_all_classes(void **state)
{
    fixture *f = *state;
    danaus_spectrum *spectrum = NULL;
    size_t bytes;
    void *memory = NULL;
    assert_ok(danaus_spectrum_bytes(f->plan, &bytes));
    assert_in_range(
        bytes, 2 * 8 * (200 + 192 + 128), 2 * 2 * 8 * (200 + 192 + 128) + 512);
    assert_ok(danaus_alloc(f->device, bytes, &memory));
    assert_status(
        danaus_spectrum_create_in(f->plan, f->device, memory, bytes - 1, &spectrum),
        DANAUS_ERR_ARGUMENT);
    assert_ok(danaus_spectrum_create_in(f->plan, f->device, memory, bytes, &spectrum));
    assert_ok(danaus_spectrum_update(spectrum, f->device, f->k, NULL, NULL));
    assert_ok(danaus_conv_execute_packed(
        f->plan, f->device, spectrum, 3, offsets, f->u, NULL, NULL, f->other));
    assert_ok(danaus_conv_execute_packed(
        f->plan, f->device, f->spectrum, 3, offsets, f->u, NULL, NULL, f->y));
    assert_memory_equal(f->y, f->other, sizeof f->y);
    danaus_spectrum_destroy(spectrum);
    danaus_free(f->device, memory);
    memset(f->y, 0x55, sizeof f->y);
}

/* So much scratch is enough; with one byte less nothing is written. */
static void scratch_is_what_a_plan_says(void **state)
{
    fixture *f = *state;
    float dk[400];
    danaus_conv_gradients g = { .du = f->other, .dk = dk };
    size_t forward, gradient;
    void *memory = NULL;
    assert_ok(danaus_conv_scratch_bytes_packed(
        f->plan, f->device, 3, offsets, &forward, &gradient));
    assert_ok(danaus_alloc(f->device, forward + gradient, &memory));
    assert_ok(danaus_device_set_scratch(f->device, memory, gradient - 1));
    g.du = f->y;
    assert_status(
        danaus_conv_gradient_packed(
            f->plan, f->device, f->spectrum, 3, offsets, f->u, NULL, NULL, f->u, &g),
        DANAUS_ERR_MEMORY);
    expect_refused(f, "scratch");
    assert_ok(danaus_device_set_scratch(f->device, memory, gradient));
    g.du = f->other;
    assert_ok(danaus_conv_gradient_packed(
        f->plan, f->device, f->spectrum, 3, offsets, f->u, NULL, NULL, f->u, &g));
    assert_ok(danaus_device_set_scratch(f->device, memory, forward));
    assert_ok(danaus_spectrum_update(f->spectrum, f->device, f->k, NULL, NULL));
    assert_ok(danaus_conv_execute_packed(
        f->plan, f->device, f->spectrum, 3, offsets, f->u, NULL, NULL, f->other));
    assert_ok(danaus_device_set_scratch(f->device, NULL, 0));
    danaus_free(f->device, memory);
}

/* Rows that threads share, and rows of their own. */
static void threads_do_not_change_a_bit(void **state)
{
    fixture *f = *state;
    const int64_t lengths[] = { 1, 70000, 0, 300, 40000 };
    danaus_conv_desc d = { .channels = 2, .length = 70000, .filter_length = 20 };
    for (int round = 0; round < 2; round++) {
        rng r = { (uint64_t)round };
        packed_case p = packed_random(&r, &d, 5, lengths, 7);
        packed_plan plan = packed_open(f->device, &p);
        assert_ok(danaus_device_set_threads(f->device, 1));
        packed_outcome one = packed_run(f->device, &plan, &p);
        for (int threads = 2; threads < 8; threads += 5) {
            assert_ok(danaus_device_set_threads(f->device, threads));
            packed_outcome more = packed_run(f->device, &plan, &p);
            assert_true(packed_same(&one, &more));
            packed_outcome_free(&more);
        }
        assert_ok(danaus_device_set_threads(f->device, 0));
        packed_outcome_free(&one);
        packed_close(&plan);
        packed_free(&p);
        d.filter_length = 70000;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets_are_checked),
        cmocka_unit_test(sizes_do_not_overflow),
        cmocka_unit_test(operands_are_checked),
        cmocka_unit_test(plans_and_calls_go_together),
        cmocka_unit_test(a_plan_describes_its_classes),
        cmocka_unit_test(a_spectrum_has_all_classes),
        cmocka_unit_test(scratch_is_what_a_plan_says),
        cmocka_unit_test(threads_do_not_change_a_bit),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
