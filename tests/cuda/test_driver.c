/* The CUDA backend on the emulated driver: every function of the driver fails once, at
   its first call, its second, ...; nothing is lost; several devices. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "device/backend.h"
#include "gpu/gpu.h"
#include "product/planner.h"
#include "support/calls.h"
#include "support/life.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static emulator_control *control;

/* The life of a chain with an input. */
typedef struct chain_life {
    const story *s;
    random_chain c;
    array x;
} chain_life;

static chain_life begin_life(const story *s)
{
    rng r = { 1 };
    chain_life l = { .s = s, .c = chain_random(&r, s->patterns, 2, DANAUS_F32, 1) };
    l.x = array_random(&r, DANAUS_F32, vector_of(s));
    return l;
}

static void free_life(chain_life *l)
{
    array_free(&l->x);
    chain_free(&l->c);
}

static danaus_status live(const void *arg, void *results)
{
    const chain_life *c = arg;
    life l = { 0 };
    danaus_status status = try_life(c->s, "cuda:0", &l, &c->c, c->x.data, results);
    end_life(&l);
    return status;
}

static void fail_all_calls_of(const story *s)
{
    chain_life l = begin_life(s);
    fail_all_calls(control, live, &l, results_of(s));
    free_life(&l);
}

static void any_call_of_the_driver_may_fail(void **state)
{
    (void)state;
    fail_all_calls_of(&plain);
}

static void any_call_of_a_library_may_fail(void **state)
{
    (void)state;
    fail_all_calls_of(&by_library);
    fail_all_calls_of(&turned);
}

/* The emulated device pretends to have what those kernels need, which do nothing. */
static void any_call_for_new_devices_may_fail(void **state)
{
    (void)state;
    static const char *const new_ones[] = { "cuLaunchKernelEx",
                                            "cuTensorMapEncodeTiled" };
    chain_life l = begin_life(&hopper);
    array expected = array_make(DANAUS_F32, results_of(&hopper));
    assert_int_equal(setenv("EMULATED_ARCH", "90", 1), 0);
    for (int i = 0; i < 2; i++) {
        *control = (emulator_control){ .function = new_ones[i] };
        assert_ok(live(&l, expected.data));
        assert_in_range(control->calls, 1, MOST_CALLS);
        fail_each_call(control, new_ones[i], live, &l, &expected);
    }
    assert_int_equal(unsetenv("EMULATED_ARCH"), 0);
    array_free(&expected);
    free_life(&l);
}

/* Before anything else: the driver is there, but does not start. */
static void a_driver_that_does_not_start_is_tried_again(void **state)
{
    (void)state;
    danaus_device *device = NULL;
    danaus_device_info info;
    *control = (emulator_control){ .function = "cuInit", .number = 1, .error = 100 };
    assert_status(danaus_device_open("cuda:0", &device), DANAUS_ERR_UNSUPPORTED);
    assert_null(device);
    control->number = 2;
    for (int i = 0; danaus_device_list(i, &info) == DANAUS_OK; i++)
        assert_int_not_equal(strncmp(info.name, "cuda", 4), 0);
    control->function = NULL;
    assert_ok(danaus_device_open("cuda:0", &device));
    danaus_device_close(device);
    assert_ok(danaus_device_open("cuda", &device));
    assert_string_equal(device->name, "cuda:0");
    danaus_device_close(device);
    assert_status(danaus_device_open("cuda:1", &device), DANAUS_ERR_UNSUPPORTED);
    assert_status(danaus_device_open("cuda:0x", &device), DANAUS_ERR_ARGUMENT);
}

static void errors_of_the_past_surface_when_waiting(void **state)
{
    (void)state;
    danaus_device *device = NULL;
    assert_ok(danaus_device_open("cuda:0", &device));
    *control = (emulator_control){
        .function = "cuStreamSynchronize", .number = 1, .error = FAILURE, .contexts = 1
    };
    assert_status(danaus_device_sync(device), DANAUS_ERR_DEVICE);
    assert_non_null(strstr(danaus_error_detail(), "719"));
    control->function = NULL;
    danaus_device_close(device);
}

/* ---- large arrays ---- */

#define LARGE                                                                          \
    (((int64_t)8 << 20) / (int64_t)sizeof(float) + 3) /* more than two parts */

static danaus_status move(danaus_device *device, const float *from, float *to)
{
    void *memory = NULL;
    size_t bytes = (size_t)LARGE * sizeof *from;
    danaus_status status = danaus_alloc(device, bytes, &memory);
    if (status == DANAUS_OK)
        status = danaus_upload(device, memory, from, bytes);
    if (status == DANAUS_OK)
        status = danaus_download(device, to, memory, bytes);
    danaus_free(device, memory);
    return status;
}

static danaus_status go_and_come_back(const void *numbers, void *results)
{
    danaus_device *device = NULL;
    danaus_status status = danaus_device_open("cuda:0", &device);
    if (status == DANAUS_OK)
        status = move(device, numbers, results);
    danaus_device_close(device);
    return status;
}

static void large_arrays_come_in_parts(void **state)
{
    (void)state;
    rng r = { 1 };
    array x = array_random(&r, DANAUS_F32, LARGE), y = array_make(DANAUS_F32, LARGE);
    *control = (emulator_control){ 0 };
    assert_ok(go_and_come_back(x.data, y.data));
    assert_int_equal(control->copies, 3 + 1);
    assert_true(array_same(&x, &y));
    array_expect_guards(&y);
    fail_all_calls(control, go_and_come_back, x.data, LARGE);
    array_free(&x);
    array_free(&y);
}

/* ---- measuring ---- */

static danaus_status measure(danaus_device **device, double *seconds)
{
    problem p = { .pattern = { 1, 3, 2, 1 }, .dtype = DANAUS_F32, .batch = 5 };
    danaus_status status = danaus_device_open("cuda:0", device);
    const kernel *k = status ? NULL : (*device)->kernels;
    while (k && !dn_fits(k, &p))
        k++;
    return status ? status : dn_measure(*device, &(ks_step){ p, k, 0 }, 1, seconds);
}

static void any_call_of_a_measurement_may_fail(void **state)
{
    (void)state;
    for (size_t i = 0; i < driver_function_count; i++)
        for (int n = 1, reached = strcmp(driver_functions[i], "cuInit") != 0; reached;
             n += 1 + n / 4) {
            danaus_device *device = NULL;
            double seconds = -1;
            *control =
                (emulator_control){ .function = driver_functions[i], .error = FAILURE };
            control->number = n;
            danaus_status status = measure(&device, &seconds);
            reached = control->calls >= n;
            control->function = NULL;
            danaus_device_close(device);
            if (!gives_back(driver_functions[i]))
                expect_nothing_lost(control, driver_functions[i], n);
            assert_true((seconds >= 0) == (status == DANAUS_OK));
            assert_true(
                !reached || status != DANAUS_OK || gives_back(driver_functions[i]) ||
                is_mended(driver_functions[i]) || control->in_capture);
        }
}

/* The caller's own use of the driver. */
typedef struct caller {
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*get)(void **context);
} caller;

static caller open_caller(void)
{
    static const char *const names[] = { "cuDevicePrimaryCtxRetain",
                                         "cuDevicePrimaryCtxRelease_v2",
                                         "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
                                         "cuCtxGetCurrent" };
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found[5];
    caller c;
    _Static_assert(sizeof found == sizeof c, "a pointer a row");
    for (int i = 0; i < 5; i++)
        assert_non_null(found[i] = dlsym(driver, names[i]));
    memcpy(&c, found, sizeof c);
    return c;
}

static void expect_life(
    const story *s, const life *l, const caller *by, void *context,
    const array *expected)
{
    array found = array_make(DANAUS_F32, results_of(s));
    void *now = NULL;
    assert_int_equal(by->push(context), 0);
    assert_ok(execute(s, l));
    assert_ok(go_back(s, l));
    assert_ok(danaus_device_sync(l->device));
    assert_ok(danaus_download(
        l->device, found.data, l->memory + vector_of(s), (size_t)results_of(s) * 4));
    assert_int_equal(by->get(&now), 0);
    assert_ptr_equal(now, context);
    assert_int_equal(by->pop(&now), 0);
    assert_true(array_same(&found, expected));
    array_free(&found);
}

/* Plans, products and gradients on two GPUs in turn, while the caller works on either. */
static void gpus_take_turns_and_the_callers_context_stays(void **state)
{
    (void)state;
    rng r = { 1 };
    const story *s = &turned;
    random_chain c = chain_random(&r, s->patterns, 2, DANAUS_F32, 1);
    array x = array_random(&r, DANAUS_F32, vector_of(s)), results[2];
    danaus_device *third = NULL;
    caller by = open_caller();
    void *contexts[2];
    life l[2] = { { 0 } };
    *control = (emulator_control){ .devices = 2 };
    assert_status(danaus_device_open("cuda:2", &third), DANAUS_ERR_UNSUPPORTED);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "cuda:1" : "cuda:0";
        results[i] = array_make(DANAUS_F32, results_of(s));
        assert_int_equal(by.retain(&contexts[i], i), 0);
        assert_ok(try_life(s, name, &l[i], &c, x.data, results[i].data));
    }
    assert_ptr_not_equal(contexts[0], contexts[1]);
    assert_true(array_same(&results[0], &results[1]));
    for (int i = 0; i < 8; i++)
        expect_life(s, &l[i % 2], &by, contexts[i / 2 % 2], &results[0]);
    for (int i = 0; i < 2; i++) {
        end_life(&l[i]);
        assert_int_equal(by.release(i), 0);
        array_free(&results[i]);
    }
    expect_nothing_lost(control, "nothing", 0);
    array_free(&x);
    chain_free(&c);
}

static void devices_of_a_gpu_share_what_is_compiled_and_measured(void **state)
{
    (void)state;
    rng r = { 1 };
    const story *s = &by_library;
    random_chain c = chain_random(&r, s->patterns, 2, DANAUS_F32, 1);
    array x = array_random(&r, DANAUS_F32, vector_of(s));
    array results[2];
    life l[2] = { { 0 } };
    *control = (emulator_control){ 0 };
    for (int i = 0; i < 2; i++) {
        int modules = control->modules;
        results[i] = array_make(DANAUS_F32, results_of(s));
        assert_ok(try_life(s, "cuda:0", &l[i], &c, x.data, results[i].data));
        assert_int_equal(control->contexts, 1);
        assert_int_equal(control->handles, 1);
        assert_true(i == 0 || control->modules == modules);
    }
    assert_ptr_equal(l[0].device->tuning, l[1].device->tuning);
    assert_true(array_same(&results[0], &results[1]));
    end_life(&l[0]); /* the other goes on */
    assert_ok(execute(s, &l[1]));
    assert_ok(go_back(s, &l[1]));
    end_life(&l[1]);
    expect_nothing_lost(control, "nothing", 0);
    array_free(&results[0]);
    array_free(&results[1]);
    array_free(&x);
    chain_free(&c);
}

static void without_a_library_its_rows_are_not_there(void **state)
{
    (void)state;
    const kernel *with = dn_gpu_kernels_for(75, 1),
                 *without = dn_gpu_kernels_for(75, 0);
    for (; without->name; with++, without++)
        assert_string_equal(with->name, without->name);
    int rows = 0;
    for (; with->name; with++, rows++)
        assert_true(dn_gpu_family(with)->library);
    assert_in_range(rows, 1, 100);
}

int main(void)
{
    control = need_emulator();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_that_does_not_start_is_tried_again),
        cmocka_unit_test(any_call_of_the_driver_may_fail),
        cmocka_unit_test(any_call_of_a_library_may_fail),
        cmocka_unit_test(any_call_for_new_devices_may_fail),
        cmocka_unit_test(any_call_of_a_measurement_may_fail),
        cmocka_unit_test(large_arrays_come_in_parts),
        cmocka_unit_test(errors_of_the_past_surface_when_waiting),
        cmocka_unit_test(gpus_take_turns_and_the_callers_context_stays),
        cmocka_unit_test(devices_of_a_gpu_share_what_is_compiled_and_measured),
        cmocka_unit_test(without_a_library_its_rows_are_not_there),
    };
    return cmocka_run_group_tests_name("driver", tests, NULL, NULL);
}
