/* The CUDA backend on the emulated driver: every function of the driver fails once, at
   its first call, its second, ...; nothing is lost; what calls may not do; streams. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "backend/backend.h"
#include "backend/tuning.h"
#include "emulator/emulator.h"
#include "gpu/gpu.h"
#include "plan/planner.h"
#include "support/chains.h"
#include "support/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define MOST_CALLS 200
#define FAILURE    719 /* what a kernel that goes wrong gives */

static emulator_control *control;

static const char *const functions[] = {
#define X(name, symbol, arguments) symbol,
#include "cuda/driver.def"
#include "cuda/blas.def"
#undef X
};

#define FUNCTIONS (sizeof functions / sizeof *functions)

/* Those whose failure the caller cannot mend: what they should give back stays. */
static int gives_back(const char *function)
{
    static const char *const names[] = {
        "cuCtxGetCurrent",  "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
        "cuMemFree_v2",     "cuModuleUnload",      "cuDevicePrimaryCtxRelease_v2",
        "cublasDestroy_v2", "cuEventDestroy_v2",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(function, names[i]))
            return 1;
    return 0;
}

/* Those whose failure is mended: an image from the cache that cannot be used is compiled
   again. */
static int is_mended(const char *function)
{
    return !strncmp(function, "cuModule", 8) || !strncmp(function, "cuFunc", 6);
}

/* ---- a whole life of a device ---- */

typedef struct life {
    danaus_device *device;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    void *x, *y;
} life;

static const danaus_pattern patterns[2] = { { 1, 6, 3, 2 }, { 2, 3, 6, 1 } };

#define BATCH 5
#define BYTES ((size_t)12 * BATCH * sizeof(float))

/* Rows that launch more than one kernel of ours. They are named to plans by the tuning
   table. */
static int by_other_rows;

static void name_row(danaus_device *device, danaus_pattern p, const char *name)
{
    problem q = { .pattern = p, .dtype = DANAUS_F32, .batch = 4096 };
    for (const kernel *k = device->kernels; k->name; k++)
        if (!strcmp(k->name, name) && k->fits(k, &q))
            dn_tuning_add(device->tuning, &q, k, 1e-6);
}

static danaus_status open_device(danaus_device **device)
{
    danaus_status status = danaus_device_open("cuda:0", device);
    if (status || !by_other_rows)
        return status;
    name_row(*device, (danaus_pattern){ 1, 6, 3, 2 }, "ks.dense.f32");
    name_row(*device, (danaus_pattern){ 1, 3, 6, 2 }, "ks.turned.f32.128x128");
    name_row(*device, (danaus_pattern){ 2, 3, 6, 1 }, "ks.blas.f32");
    name_row(*device, (danaus_pattern){ 2, 6, 3, 1 }, "ks.blas.f32");
    return DANAUS_OK;
}

static danaus_status try_life(life *l, const random_chain *c, const float *x, float *y)
{
    danaus_ks_desc desc = { .gradients = 1, .keep_factors = 1 };
    danaus_device_info info;
    danaus_status status = open_device(&l->device);
    status = status ? status : danaus_device_describe(l->device, &info);
    status = status ? status
                    : danaus_ks_plan_create(l->device, patterns, 2, &desc, &l->plan);
    status = status
                 ? status
                 : danaus_ks_weights_create(l->plan, l->device, c->chain, &l->weights);
    status = status ? status : danaus_alloc(l->device, BYTES, &l->x);
    status = status ? status : danaus_alloc(l->device, BYTES, &l->y);
    status = status ? status : danaus_upload(l->device, l->x, x, BYTES);
    status = status
                 ? status
                 : danaus_ks_execute(l->plan, l->device, l->weights, BATCH, l->x, l->y);
    danaus_ks_gradients g = { .dx = l->x };
    status =
        status ? status
               : danaus_ks_gradient(l->plan, l->device, l->weights, 0, l->x, l->y, &g);
    status = status ? status : danaus_device_sync(l->device);
    return status ? status : danaus_download(l->device, y, l->y, BYTES);
}

static danaus_status live(const random_chain *c, const float *x, float *y)
{
    life l = { 0 };
    danaus_status status = try_life(&l, c, x, y);
    danaus_free(l.device, l.x);
    danaus_free(l.device, l.y);
    danaus_ks_weights_destroy(l.weights);
    danaus_ks_plan_destroy(l.plan);
    danaus_device_close(l.device);
    return status;
}

static void expect_nothing_lost(const char *function, int number)
{
    if (control->contexts || control->modules || control->allocations ||
        control->pushed || control->handles || control->events)
        fail_msg(
            "call %d of %s fails and %d contexts, %d modules, %d blocks of memory, %d "
            "places on the stack, %d handles, %d events are lost",
            number, function, control->contexts, control->modules, control->allocations,
            control->pushed, control->handles, control->events);
}

static void fail_each_call(const char *function, const random_chain *c, const float *x)
{
    float y[12 * BATCH], expected[12 * BATCH];
    assert_ok(live(c, x, expected));
    for (int n = 1; n < MOST_CALLS; n++) {
        *control = (emulator_control){ .function = function, .error = FAILURE };
        control->number = n;
        danaus_status status = live(c, x, y);
        int reached = control->calls >= n;
        control->function = NULL;
        if (status == DANAUS_OK)
            assert_memory_equal(y, expected, sizeof y);
        else
            assert_true(reached && danaus_error_detail()[0]);
        if (!gives_back(function))
            expect_nothing_lost(function, n);
        if (!reached)
            return;
        assert_true(status != DANAUS_OK || gives_back(function) || is_mended(function));
    }
    fail_msg("%s is called more than %d times", function, MOST_CALLS);
}

static void fail_all_calls(void)
{
    rng r = { 1 };
    random_chain c = chain_random(&r, patterns, 2, DANAUS_F32, 1);
    array x = array_random(&r, DANAUS_F32, 12 * BATCH);
    for (size_t i = 0; i < FUNCTIONS; i++) {
        /* The one is not called again once it worked; the other is called to wait for
           what no longer matters, too. */
        if (!strcmp(functions[i], "cuInit") ||
            !strcmp(functions[i], "cuStreamSynchronize"))
            continue;
        fail_each_call(functions[i], &c, x.data);
    }
    array_free(&x);
    chain_free(&c);
}

static void any_call_of_the_driver_may_fail(void **state)
{
    (void)state;
    fail_all_calls();
}

static void any_call_of_a_library_may_fail(void **state)
{
    (void)state;
    by_other_rows = 1;
    fail_all_calls();
    by_other_rows = 0;
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

/* ---- measuring ---- */

static danaus_status measure(danaus_device **device, double *seconds)
{
    problem p = { .pattern = { 1, 3, 2, 1 }, .dtype = DANAUS_F32, .batch = BATCH };
    danaus_status status = danaus_device_open("cuda:0", device);
    const kernel *k = status ? NULL : (*device)->kernels;
    while (k && !k->fits(k, &p))
        k++;
    return status ? status : dn_measure(*device, k, &p, seconds);
}

static void any_call_of_a_measurement_may_fail(void **state)
{
    (void)state;
    for (size_t i = 0; i < FUNCTIONS; i++)
        for (int n = 1, reached = strcmp(functions[i], "cuInit") != 0; reached; n++) {
            danaus_device *device = NULL;
            double seconds = -1;
            *control = (emulator_control){ .function = functions[i], .error = FAILURE };
            control->number = n;
            danaus_status status = measure(&device, &seconds);
            reached = control->calls >= n;
            control->function = NULL;
            danaus_device_close(device);
            if (!gives_back(functions[i]))
                expect_nothing_lost(functions[i], n);
            assert_true((seconds >= 0) == (status == DANAUS_OK));
            assert_true(
                !reached || status != DANAUS_OK || gives_back(functions[i]) ||
                is_mended(functions[i]));
        }
}

/* ---- what execute may not do ---- */

static int calls_of(const char *function, life *l)
{
    control->function = function;
    control->number = control->calls = 0;
    assert_ok(danaus_ks_execute(l->plan, l->device, l->weights, BATCH, l->x, l->y));
    control->function = NULL;
    return control->calls;
}

/* Executes once more; so many launches and products of a library are made. */
static void expect_only(int launches, int products)
{
    rng r = { 1 };
    random_chain c = chain_random(&r, patterns, 2, DANAUS_F32, 1);
    float x[12 * BATCH] = { 1 }, y[12 * BATCH];
    life l = { 0 };
    *control = (emulator_control){ 0 };
    assert_ok(try_life(&l, &c, x, y));
    static const char *const never[] = {
        "cuMemAlloc_v2",    "cuMemFree_v2",          "cuStreamSynchronize",
        "cuModuleLoadData", "cuMemcpyAsync",         "cuFuncSetAttribute",
        "cuMemsetD8Async",  "cuStreamIsCapturing",   "cublasCreate_v2",
        "cublasDestroy_v2", "cublasSetWorkspace_v2",
    };
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        assert_int_equal(calls_of(never[i], &l), 0);
    assert_int_equal(calls_of("cuLaunchKernel", &l), launches);
    assert_int_equal(calls_of("cublasGemmStridedBatchedEx_64", &l), products);
    danaus_free(l.device, l.x);
    danaus_free(l.device, l.y);
    danaus_ks_weights_destroy(l.weights);
    danaus_ks_plan_destroy(l.plan);
    danaus_device_close(l.device);
    expect_nothing_lost("nothing", 0);
    chain_free(&c);
}

static void executing_again_neither_allocates_nor_waits(void **state)
{
    (void)state;
    expect_only(2, 0);
    by_other_rows = 1;
    expect_only(1, 2); /* the bias; one product is of many, the other of one */
    by_other_rows = 0;
}

static void without_a_library_its_rows_are_not_there(void **state)
{
    (void)state;
    const kernel *with = dn_gpu_kernels_for(75, 1),
                 *without = dn_gpu_kernels_for(75, 0);
    for (; without->name; with++, without++)
        assert_string_equal(with->name, without->name);
    int rows = 0;
    for (; with->name; with++, rows++) {
        const gpu_code *code = with->code;
        assert_non_null(code->products);
    }
    assert_in_range(rows, 1, 100);
}

/* Scratch cannot grow while a graph is captured; lent scratch serves. */
static void a_captured_product_has_its_scratch_before(void **state)
{
    (void)state;
    rng r = { 1 };
    random_chain c = chain_random(&r, patterns, 2, DANAUS_F32, 0);
    danaus_ks_desc desc = { .keep_factors = 1 };
    life l = { 0 };
    void *lent = NULL;
    *control = (emulator_control){ .capturing = 1 };
    assert_ok(danaus_device_open("cuda:0", &l.device));
    assert_ok(danaus_ks_plan_create(l.device, patterns, 2, &desc, &l.plan));
    assert_ok(danaus_ks_weights_create(l.plan, l.device, c.chain, &l.weights));
    assert_ok(danaus_alloc(l.device, BYTES, &l.x));
    assert_ok(danaus_alloc(l.device, BYTES, &l.y));
    assert_ok(danaus_alloc(l.device, 4096, &lent));
#define EXECUTE danaus_ks_execute(l.plan, l.device, l.weights, BATCH, l.x, l.y)
    assert_status(EXECUTE, DANAUS_ERR_MEMORY);
    assert_status(
        danaus_device_set_scratch(l.device, (char *)lent + 64, 512),
        DANAUS_ERR_ARGUMENT);
    assert_ok(danaus_device_set_scratch(l.device, lent, 16));
    assert_status(EXECUTE, DANAUS_ERR_MEMORY);
    assert_ok(danaus_device_set_scratch(l.device, lent, 4096));
    assert_ok(EXECUTE);
    assert_ok(danaus_device_set_scratch(l.device, NULL, 0));
    assert_status(EXECUTE, DANAUS_ERR_MEMORY);
    control->capturing = 0;
    assert_ok(EXECUTE);
    control->capturing = 1;
    assert_ok(EXECUTE);
    int stream;
    assert_ok(danaus_device_set_stream(l.device, &stream));
    assert_ok(EXECUTE);
    assert_ptr_equal(control->stream, &stream);
#undef EXECUTE
    danaus_free(l.device, lent);
    danaus_free(l.device, l.x);
    danaus_free(l.device, l.y);
    danaus_ks_weights_destroy(l.weights);
    danaus_ks_plan_destroy(l.plan);
    danaus_device_close(l.device);
    expect_nothing_lost("nothing", 0);
    chain_free(&c);
}

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    control = driver ? dlsym(driver, "emulator_control_block") : NULL;
    if (!control) {
        fprintf(stderr, "this test needs the emulated driver\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_that_does_not_start_is_tried_again),
        cmocka_unit_test(any_call_of_the_driver_may_fail),
        cmocka_unit_test(any_call_of_a_library_may_fail),
        cmocka_unit_test(any_call_of_a_measurement_may_fail),
        cmocka_unit_test(errors_of_the_past_surface_when_waiting),
        cmocka_unit_test(executing_again_neither_allocates_nor_waits),
        cmocka_unit_test(without_a_library_its_rows_are_not_there),
        cmocka_unit_test(a_captured_product_has_its_scratch_before),
    };
    return cmocka_run_group_tests_name("driver", tests, NULL, NULL);
}
