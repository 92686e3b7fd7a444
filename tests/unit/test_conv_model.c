/* The model of what convolutions cost: its terms, its constants, their calibration. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "backend/tuning.h"
#include "conv/conv_plan.h"
#include "cpu/conv/model.h"
#include "support/device.h"
#include "support/files.h"

#include <math.h>
#include <string.h>

static const danaus_conv_kind kinds[] = { DANAUS_CAUSAL, DANAUS_CIRCULAR,
                                          DANAUS_BIDIRECTIONAL };

static danaus_device *open_device(const char *name)
{
    danaus_device *device = NULL;
    assert_ok(danaus_device_open(name, &device));
    return device;
}

/* The seconds of a row that a plan expects. */
static double expected_seconds(danaus_device *device, danaus_conv_desc desc)
{
    danaus_conv_plan *plan = NULL;
    assert_ok(danaus_conv_plan_create(device, &desc, &plan));
    double cost = plan->engine->cost;
    danaus_conv_plan_destroy(plan);
    return cost;
}

/* A longer row or a longer filter needs as many windows of any length, or more. */
static void costs_grow_with_rows_and_filters(void **state)
{
    (void)state;
    static const char *const names[] = { "cpu:scalar", "cpu" };
    for (int i = 0; i < 2; i++) {
        danaus_device *device = open_device(names[i]);
        for (int round = 0; round < rounds_of(60); round++) {
            rng r = { (uint64_t)round };
            danaus_conv_desc d = { .channels = 1,
                                   .length = rng_int(&r, 1, 20000),
                                   .kind = kinds[round % 3],
                                   .dtype = round % 2 ? DANAUS_F32 : DANAUS_F64 };
            d.filter_length = rng_int(&r, 1, d.length);
            double cost = expected_seconds(device, d);
            assert_true(cost > 0 && isfinite(cost));
            danaus_conv_desc longer = d;
            longer.length += rng_int(&r, 1, 3000);
            if (d.kind != DANAUS_CIRCULAR)
                assert_true(expected_seconds(device, longer) >= cost);
            longer = d;
            longer.filter_length = rng_int(&r, d.filter_length, d.length);
            assert_true(expected_seconds(device, longer) >= cost);
        }
        danaus_device_close(device);
    }
}

static conv_engine engine_of(const cpu_device *d, danaus_dtype dtype, int64_t length)
{
    conv_engine e = { .before = length - 1, .machine = dn_conv_machine(d) };
    e.code = e.sums = d->conv;
    while (e.code->dtype != dtype)
        e.code = ++e.sums;
    e.p.length = e.p.filter_length = length;
    e.p.channels = e.p.filters = 1;
    e.p.dtype = dtype;
    e.model = dn_conv_model(d, e.sums);
    return e;
}

/* The operations of a transform are those of the published formula: 16 n N_i for each
   factor, the first one by the share that is read and written; twice the windows have
   twice of everything; a longer window of the same radices has more. */
static void amounts_are_those_of_the_formula(void **state)
{
    (void)state;
    danaus_device *device = open_device("cpu");
    conv_engine e = engine_of((cpu_device *)device, DANAUS_F32, 4096);
    conv_cut cut = { e.code->name, 4096, 8 };
    double one[CONV_TERMS], two[CONV_TERMS], sum = 0, expected = 0;
    conv_tables t;
    assert_true(dn_conv_shape(&t, cut, e.sums, e.machine.l2, 0));
    dn_conv_amounts(&e, &t, 1, one);
    for (int l = 0; l < t.passes; l++)
        expected += 16.0 * 4096 * t.pass[l].radix * (l ? 1 : 0.5);
    expected += 16.0 * 4096 * e.sums->vector;
    for (int i = CONV_TAIL; i <= CONV_RADIX_8; i++)
        sum += one[i];
    assert_true(sum == expected);
    e.p.length = 5000; /* fills more than a half */
    dn_conv_amounts(&e, &t, 1, one);
    dn_conv_amounts(&e, &t, 2, two);
    for (int i = 0; i < CONV_TERMS; i++)
        assert_true(two[i] == 2 * one[i] && one[i] >= 0);
    double last = 0;
    for (cut.n = 64; cut.n < (int64_t)1 << 26; cut.n *= 64) {
        assert_true(dn_conv_shape(&t, cut, e.sums, e.machine.l2, 0));
        double cost = dn_conv_cost(&e, &t, 1);
        assert_true(cost > last);
        last = cost;
    }
    danaus_device_close(device);
}

/* Puts all constants of the model into the table, as what is built in times `times`. */
static void add_constants(danaus_device *device, danaus_dtype dtype, double times)
{
    cpu_device *d = (cpu_device *)device;
    conv_engine e = engine_of(d, dtype, 1);
    for (int i = 0; i < CONV_TERMS; i++) {
        conv_constant c = dn_conv_constant((conv_term)i, e.sums->vector);
        int rate = c.name != TUNING_WINDOW && c.name != TUNING_BLOCK;
        double second = e.model.second[i] * times;
        dn_tuning_add_constant(
            device->tuning, dtype, c.name, c.of, rate ? 1 / second : second);
    }
}

static void constants_come_from_the_table(void **state)
{
    (void)state;
    danaus_device *device = open_device("cpu");
    cpu_device *d = (cpu_device *)device;
    danaus_conv_desc desc = { .channels = 1, .length = 3000 };
    double before = expected_seconds(device, desc);
    conv_constant first = dn_conv_constant(CONV_RADIX_8, 0);
    dn_tuning_add_constant(device->tuning, DANAUS_F32, first.name, first.of, 1);
    assert_false(engine_of(d, DANAUS_F32, 1).model.measured); /* the others lack */
    assert_true(expected_seconds(device, desc) == before);
    add_constants(device, DANAUS_F32, 2);
    assert_true(engine_of(d, DANAUS_F32, 1).model.measured);
    assert_false(engine_of(d, DANAUS_F64, 1).model.measured);
    double after = expected_seconds(device, desc);
    assert_true(after > 1.999 * before && after < 2.001 * before);
    danaus_device_close(device);
}

/* Any constants make a plan. */
static void absurd_constants_do_no_harm(void **state)
{
    (void)state;
    for (int round = 0; round < rounds_of(100); round++) {
        rng r = { (uint64_t)round };
        danaus_device *device = open_device("cpu");
        cpu_device *d = (cpu_device *)device;
        for (int i = 0; i < CONV_TERMS; i++) {
            conv_constant c = dn_conv_constant((conv_term)i, d->conv->vector);
            dn_tuning_add_constant(
                device->tuning, DANAUS_F32, c.name, c.of,
                pow(10, (double)rng_int(&r, -18, 18)));
        }
        danaus_conv_desc desc = { .channels = 1,
                                  .length = rng_int(&r, 1, 5000),
                                  .filter_length = rng_int(&r, 1, 5000) };
        double cost = expected_seconds(device, desc);
        assert_true(cost > 0 && isfinite(cost));
        danaus_device_close(device);
    }
}

/* Few rows may leave threads idle, of which up to eight are assumed: one row costs at
   least its share of all threads, and less than it would on eight. */
static void few_rows_never_cost_less(void **state)
{
    (void)state;
    danaus_device *device = open_device("cpu");
    for (int64_t length = 100; length < 1000000; length = 7 * length / 2) {
        danaus_conv_desc few = { .channels = 1, .length = length, .batch = 1 };
        danaus_conv_desc many = { .channels = 1, .length = length };
        double one = expected_seconds(device, few);
        double all = expected_seconds(device, many);
        assert_true(one >= 0.999 * all && one <= 3 * all);
    }
    danaus_device_close(device);
}

/* ---- calibration ---- */

typedef struct watch {
    double last;
    int calls, most; /* gives up at the call number `most`, 0: never */
} watch;

static int watch_progress(void *user, double done)
{
    watch *w = user;
    assert_true(done >= w->last && done <= 1);
    w->last = done;
    return ++w->calls == w->most;
}

static void a_caller_may_give_up(void **state)
{
    (void)state;
    danaus_device *device = open_device("cpu");
    watch w = { .most = 4 };
    assert_status(
        danaus_device_calibrate(device, watch_progress, &w), DANAUS_ERR_ARGUMENT);
    assert_int_equal(w.calls, 4);
    assert_false(engine_of((cpu_device *)device, DANAUS_F32, 1).model.measured);
    assert_status(danaus_device_calibrate(NULL, NULL, NULL), DANAUS_ERR_ARGUMENT);
    danaus_device_close(device);
}

static void expect_same_constants(const danaus_device *x, const danaus_device *y)
{
    static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64 };
    for (int t = 0; t < 2; t++) {
        conv_engine a = engine_of((const cpu_device *)x, types[t], 1);
        conv_engine b = engine_of((const cpu_device *)y, types[t], 1);
        assert_true(a.model.measured && b.model.measured);
        for (int i = 0; i < CONV_TERMS; i++) {
            double s = a.model.second[i];
            assert_true(s > 0 && isfinite(s));
            assert_true(fabs(s - b.model.second[i]) <= 1e-8 * s);
        }
    }
}

/* Calibration fills the table; a file keeps it; other threads do not take it. A last
   cache of 64 KiB has it end at short lengths; "danaus calibrate" is run in cli. */
static void a_calibration_is_kept(void **state)
{
    (void)state;
    danaus_device *device = open_device("cpu"), *other = open_device("cpu");
    ((cpu_device *)device)->l3 = 1 << 16;
    const char *path = scratch_path("calibration.csv");
    watch w = { 0 };
    assert_ok(danaus_device_calibrate(device, watch_progress, &w));
    assert_true(w.calls > 100);
    assert_ok(danaus_device_save_tuning(device, path));
    assert_ok(danaus_device_load_tuning(other, path));
    expect_same_constants(device, other);
    danaus_device_close(other);
    other = open_device("cpu");
    assert_ok(danaus_device_set_threads(other, 7));
    assert_ok(danaus_device_load_tuning(other, path));
    assert_false(engine_of((cpu_device *)other, DANAUS_F32, 1).model.measured);
    danaus_device_close(other);
    danaus_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_grow_with_rows_and_filters),
        cmocka_unit_test(amounts_are_those_of_the_formula),
        cmocka_unit_test(constants_come_from_the_table),
        cmocka_unit_test(absurd_constants_do_no_harm),
        cmocka_unit_test(few_rows_never_cost_less),
        cmocka_unit_test(a_caller_may_give_up),
        cmocka_unit_test(a_calibration_is_kept),
    };
    return cmocka_run_group_tests_name(
        "model of convolutions", tests, scratch_setup, scratch_teardown);
}
