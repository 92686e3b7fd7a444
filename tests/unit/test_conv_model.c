/* The model of what convolutions cost: its terms, its constants, their calibration. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "conv/conv_plan.h"
#include "cpu/conv/loop.h"
#include "device/tuning.h"
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
    double cost = dn_conv_longest(plan)->choice.cost;
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

/* The device's first kernel of this type, and its model. */
static const conv_kernel *kernel_of(const danaus_device *device, danaus_dtype dtype)
{
    int first = 0;
    const conv_kernel *k = dn_conv_next_kernel(device, dtype, &first);
    assert_non_null(k);
    return k;
}

static conv_model model_of(const danaus_device *device, danaus_dtype dtype)
{
    return dn_conv_model(device, kernel_of(device, dtype));
}

/* What causal rows of this length and as many taps ask for. */
static conv_work work_of(const danaus_device *device, int64_t length, conv_cut cut)
{
    conv_problem p = { .channels = 1,
                       .filters = 1,
                       .length = length,
                       .filter_length = length,
                       .dtype = cut.kernel->dtype };
    conv_frame f = dn_conv_reach(&p);
    conv_work work;
    f = dn_conv_cut_rows(&f, cut);
    assert_true(device->backend->conv->work(device, &f, 0, &work));
    assert_true(work.idle == 1);
    return work;
}

/* The operations of a transform are those of the published formula: 16 n N_i for each
   factor, the first one by the share that is read and written; two windows have twice of
   everything; a longer window of the same radices has more. */
static void amounts_are_those_of_the_formula(void **state)
{
    (void)state;
    danaus_device *device = open_device("cpu");
    const cpu_device *d = (const cpu_device *)device;
    const conv_code *code = dn_conv_code(d, DANAUS_F32);
    conv_model model = model_of(device, DANAUS_F32);
    conv_cut cut = { &code->kernel, 4096, 8 };
    conv_work one = work_of(device, 4096, cut), two;
    double sum = 0, expected = 16.0 * 4096 * code->vector;
    conv_tables t;
    assert_true(dn_conv_shape(&t, cut, code, d->l2, 0));
    for (int l = 0; l < t.passes; l++)
        expected += 16.0 * 4096 * t.pass[l].radix * (l ? 1 : 0.5);
    for (int i = 0; i < model.count; i++)
        if (model.term[i].constant == TUNING_GAMMA ||
            model.term[i].constant == TUNING_TAIL)
            sum += one.amount[i];
    assert_true(sum == expected);
    conv_problem p = { .length = 8000, .filter_length = 100, .kind = DANAUS_CIRCULAR };
    conv_frame f = dn_conv_reach(&p);
    f = dn_conv_cut_rows(&f, cut);
    assert_true(device->backend->conv->work(device, &f, 0, &one));
    f.windows *= 2;
    assert_true(device->backend->conv->work(device, &f, 0, &two));
    for (int i = 0; i < model.count; i++)
        assert_true(two.amount[i] == 2 * one.amount[i] && one.amount[i] >= 0);
    double last = 0;
    for (cut.n = 64; cut.n < (int64_t)1 << 26; cut.n *= 64) {
        conv_work work = work_of(device, cut.n, cut);
        double cost = dn_conv_cost(&model, &work);
        assert_true(cost > last);
        last = cost;
    }
    danaus_device_close(device);
}

/* Puts all constants of the model into the table, as what is built in times `times`. */
static void add_constants(danaus_device *device, danaus_dtype dtype, double times)
{
    conv_model m = model_of(device, dtype);
    for (int i = 0; i < m.count; i++) {
        const conv_term *t = &m.term[i];
        double second = t->second * times;
        dn_tuning_add_constant(
            device->tuning, dtype, t->constant, t->of,
            dn_conv_is_rate(t) ? 1 / second : second);
    }
}

static void constants_come_from_the_table(void **state)
{
    (void)state;
    danaus_device *device = open_device("cpu");
    danaus_conv_desc desc = { .channels = 1, .length = 3000 };
    double before = expected_seconds(device, desc);
    dn_tuning_add_constant(device->tuning, DANAUS_F32, TUNING_GAMMA, 8, 1);
    assert_false(model_of(device, DANAUS_F32).measured); /* the others lack */
    assert_true(expected_seconds(device, desc) == before);
    add_constants(device, DANAUS_F32, 2);
    assert_true(model_of(device, DANAUS_F32).measured);
    assert_false(model_of(device, DANAUS_F64).measured);
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
        conv_model m = model_of(device, DANAUS_F32);
        for (int i = 0; i < m.count; i++)
            dn_tuning_add_constant(
                device->tuning, DANAUS_F32, m.term[i].constant, m.term[i].of,
                pow(10, (double)rng_int(&r, -18, 18)));
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
        danaus_device_calibrate(device, watch_progress, &w), DANAUS_ERR_CANCELLED);
    assert_int_equal(w.calls, 4);
    assert_false(model_of(device, DANAUS_F32).measured);
    assert_status(danaus_device_calibrate(NULL, NULL, NULL), DANAUS_ERR_ARGUMENT);
    danaus_device_close(device);
}

static void expect_same_constants(const danaus_device *x, const danaus_device *y)
{
    static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64 };
    for (int t = 0; t < 2; t++) {
        conv_model a = model_of(x, types[t]), b = model_of(y, types[t]);
        assert_true(a.measured && b.measured);
        for (int i = 0; i < a.count; i++) {
            double s = a.term[i].second;
            assert_true(s > 0 && isfinite(s));
            assert_true(fabs(s - b.term[i].second) <= 1e-8 * s);
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
    assert_false(model_of(other, DANAUS_F32).measured);
    danaus_device_close(other);
    danaus_device_close(device);
}

/* Where a device has no fast kernel of a type, as a CPU or as GPUs in f64, one measurement
   serves all, and they run the same. */
static void accuracy_is_no_choice_without_fast_kernels(void **state)
{
    (void)state;
    danaus_device *device = open_device("cpu");
    static const danaus_dtype types[] = { DANAUS_F32, DANAUS_F64, DANAUS_F16,
                                          DANAUS_BF16 };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int a = DANAUS_CONV_BY_TYPE; a <= DANAUS_CONV_FAST; a++) {
            danaus_conv_desc d = { .channels = 2, .length = 300, .dtype = types[i] };
            conv_problem p = d;
            char text[1000];
            p.accuracy = (danaus_conv_accuracy)a;
            assert_int_equal(
                dn_conv_accuracy(device, &p), dn_conv_usual_accuracy(types[i]));
            d.effort = a ? DANAUS_TABLE_ONLY : DANAUS_MEASURE;
            d.accuracy = (danaus_conv_accuracy)a;
            danaus_conv_plan *plan = NULL;
            assert_ok(danaus_conv_plan_create(device, &d, &plan));
            danaus_conv_plan_describe(plan, text, sizeof text);
            assert_null(strstr(text, "mma"));
            danaus_conv_plan_destroy(plan);
        }
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
        cmocka_unit_test(accuracy_is_no_choice_without_fast_kernels),
    };
    return cmocka_run_group_tests_name(
        "model of convolutions", tests, scratch_setup, scratch_teardown);
}
