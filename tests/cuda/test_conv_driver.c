/* Convolutions on the emulated driver, long ones and those of few taps: every function
   fails once, at its first call, its second, ...; nothing is lost. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "danaus/conv.h"
#include "support/calls.h"
#include "support/life.h"

static emulator_control *control;

typedef struct conv_life conv_life;

/* Operands and results, one after the other in memory of the device. */
typedef struct places {
    const float *u, *dy, *k, *more; /* more: skip or bias */
    float *y, *du, *dk, *dmore;
} places;

typedef danaus_status work_function(
    const conv_life *l, danaus_device *device, const places *at);

/* One of the descriptions; all operands as one array of f32 in the order of `places`. */
struct conv_life {
    work_function *work;
    danaus_conv_desc desc;
    danaus_short_desc few;
    int64_t channels, rows, taps; /* numbers of u; of all filters */
    array given;
};

static int64_t results_of_life(const conv_life *l)
{
    return 2 * l->rows + l->taps + l->channels;
}

static places places_in(const conv_life *l, float *memory)
{
    float *results = memory + l->given.count;
    return (places){
        .u = memory,
        .dy = memory + l->rows,
        .k = memory + 2 * l->rows,
        .more = memory + 2 * l->rows + l->taps,
        .y = results,
        .du = results + l->rows,
        .dk = results + 2 * l->rows,
        .dmore = results + 2 * l->rows + l->taps,
    };
}

/* Filters of the host, then of the device; forward and back, twice. */
static danaus_status run_long(
    const conv_life *l, danaus_device *device, danaus_conv_plan *plan,
    danaus_spectrum **spectrum, const places *at)
{
    danaus_conv_gradients g = { .du = at->du, .dk = at->dk, .dskip = at->dmore };
    const float *k = (const float *)l->given.data + 2 * l->rows;
    danaus_status status =
        danaus_spectrum_create(plan, device, k, NULL, NULL, spectrum);
    status = status ? status
                    : danaus_spectrum_update_from(
                          *spectrum, device, DANAUS_F32, at->k, NULL, at->more);
    for (int i = 0; i < 2; i++) {
        status = status ? status
                        : danaus_conv_execute(
                              plan, device, *spectrum, 1, at->u, NULL, at->dy, at->y);
        status = status
                     ? status
                     : danaus_conv_gradient(
                           plan, device, *spectrum, 1, at->u, NULL, NULL, at->dy, &g);
    }
    return status;
}

static danaus_status work_long(
    const conv_life *l, danaus_device *device, const places *at)
{
    danaus_conv_plan *plan = NULL;
    danaus_spectrum *spectrum = NULL;
    danaus_status status = danaus_conv_plan_create(device, &l->desc, &plan);
    status = status ? status : run_long(l, device, plan, &spectrum, at);
    status = status ? status : danaus_device_sync(device);
    danaus_spectrum_destroy(spectrum);
    danaus_conv_plan_destroy(plan);
    return status;
}

/* Forward and back, three times: calls that come again are graphs. */
static danaus_status work_short(
    const conv_life *l, danaus_device *device, const places *at)
{
    danaus_short_gradients g = { .du = at->du, .dk = at->dk, .dbias = at->dmore };
    danaus_status status = DANAUS_OK;
    for (int i = 0; i < 3 && status == DANAUS_OK; i++) {
        status = danaus_short_conv(device, &l->few, 1, at->k, at->more, at->u, at->y);
        status = status ? status
                        : danaus_short_conv_gradient(
                              device, &l->few, 1, at->k, at->u, at->dy, &g);
    }
    return status ? status : danaus_device_sync(device);
}

static danaus_status live(const void *arg, void *results)
{
    const conv_life *l = arg;
    danaus_device *device = NULL;
    void *memory = NULL;
    size_t given = (size_t)l->given.count * sizeof(float);
    size_t made = (size_t)results_of_life(l) * sizeof(float);
    danaus_status status = danaus_device_open("cuda:0", &device);
    status = status ? status : danaus_alloc(device, given + made, &memory);
    status = status ? status : danaus_upload(device, memory, l->given.data, given);
    places at = places_in(l, memory ? memory : l->given.data);
    status = status ? status : l->work(l, device, &at);
    status = status ? status : danaus_download(device, results, at.y, made);
    danaus_free(device, memory);
    danaus_device_close(device);
    return status;
}

static void fail_all_calls_of(conv_life l, int64_t length, int64_t taps)
{
    rng r = { 1 };
    l.rows = l.channels * length;
    l.taps = l.channels * taps;
    l.given = array_random(&r, DANAUS_F32, 2 * l.rows + l.taps + l.channels);
    fail_all_calls(control, live, &l, results_of_life(&l));
    array_free(&l.given);
}

static void fail_all_of_long(int64_t channels, int64_t length, int64_t taps)
{
    conv_life l = { .work = work_long, .channels = channels };
    l.desc = (danaus_conv_desc){ .channels = channels,
                                 .length = length,
                                 .filter_length = taps };
    fail_all_calls_of(l, length, taps);
}

static void fail_all_of_short(danaus_short_desc few)
{
    conv_life l = { .work = work_short, .few = few, .channels = few.channels };
    fail_all_calls_of(l, few.length, few.taps);
}

static void any_call_may_fail(void **state)
{
    (void)state;
    fail_all_of_long(2, 100, 60);
}

/* Windows that a block of threads has no room for. */
static void any_call_for_long_windows_may_fail(void **state)
{
    (void)state;
    fail_all_of_long(1, 8000, 8000);
}

static void any_call_for_few_taps_may_fail(void **state)
{
    (void)state;
    fail_all_of_short((danaus_short_desc){ .channels = 3, .length = 50, .taps = 4 });
}

/* So many taps that du has a launch of its own. */
static void any_call_for_more_taps_may_fail(void **state)
{
    (void)state;
    fail_all_of_short((danaus_short_desc){
        .channels = 4, .length = 30, .taps = 10, .layout = DANAUS_CHANNELS_LAST });
}

int main(void)
{
    control = need_emulator();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(any_call_for_long_windows_may_fail),
        cmocka_unit_test(any_call_for_few_taps_may_fail),
        cmocka_unit_test(any_call_for_more_taps_may_fail),
    };
    return cmocka_run_group_tests_name("driver of convolutions", tests, NULL, NULL);
}
