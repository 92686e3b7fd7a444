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
#include "cuda/driver_graph.def"
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
        "cublasDestroy_v2", "cuEventDestroy_v2",   "cuStreamDestroy_v2",
        "cuGraphDestroy",   "cuGraphExecDestroy",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(function, names[i]))
            return 1;
    return 0;
}

/* Those whose failure is mended: an image from the cache that cannot be used is compiled
   again, and what cannot be captured is launched. */
static int is_mended(const char *function)
{
    return !strncmp(function, "cuModule", 8) || !strncmp(function, "cuFunc", 6) ||
           strstr(function, "Capture_v2") || strstr(function, "EndCapture") ||
           !strcmp(function, "cuStreamCreate") || strstr(function, "Instantiate");
}

/* ---- a whole life of a device ---- */

/* What is lived through: a chain of two factors with as many columns as rows, and the rows
   that the tuning table names to plans, for it and for its adjoint. */
typedef struct story {
    danaus_pattern patterns[2];
    int64_t batch;
    struct {
        danaus_pattern pattern;
        const char *row;
    } named[4];
} story;

static const story plain = { { { 1, 6, 3, 2 }, { 2, 3, 6, 1 } },
                             5,
                             { { { 0 }, NULL } } };

/* Rows that launch more than one kernel of ours, or none. */
static const story by_library = { { { 1, 6, 3, 2 }, { 2, 3, 6, 1 } },
                                  5,
                                  { { { 1, 6, 3, 2 }, "ks.dense.f32" },
                                    { { 1, 3, 6, 2 }, "ks.turned.f32.128x128" },
                                    { { 2, 3, 6, 1 }, "ks.blas.f32" },
                                    { { 2, 6, 3, 1 }, "ks.blas.f32" } } };

/* Blocks of which cuBLAS makes weight gradients, also from x and dy that are turned. */
static const story turned = { { { 1, 16, 16, 2 }, { 2, 16, 16, 1 } },
                              64,
                              { { { 1, 16, 16, 2 }, "ks.turned.f32.128x128" },
                                { { 2, 16, 16, 1 }, "ks.blas.f32" } } };

typedef struct life {
    danaus_device *device;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    float *memory; /* x, then results: y, dx, dw of both, dbias */
} life;

static int64_t vector_of(const story *s) { return rows_of(s->patterns[0]) * s->batch; }

static int64_t results_of(const story *s)
{
    return 2 * vector_of(s) + weights_of(s->patterns[0]) + weights_of(s->patterns[1]) +
           rows_of(s->patterns[0]);
}

static void name_row(danaus_device *device, danaus_pattern p, const char *name)
{
    problem q = { .pattern = p, .dtype = DANAUS_F32, .batch = 4096 };
    for (const kernel *k = device->kernels; k->name; k++)
        if (!strcmp(k->name, name) && k->fits(k, &q))
            dn_tuning_add(device->tuning, &q, k, 1e-6);
}

static danaus_status open_device(
    const story *s, const char *name, danaus_device **device)
{
    danaus_status status = danaus_device_open(name, device);
    for (int i = 0; status == DANAUS_OK && i < 4 && s->named[i].row; i++)
        name_row(*device, s->named[i].pattern, s->named[i].row);
    return status;
}

static danaus_status execute(const story *s, const life *l)
{
    return danaus_ks_execute(
        l->plan, l->device, l->weights, s->batch, l->memory, l->memory + vector_of(s));
}

static danaus_status go_back(const story *s, const life *l)
{
    float *y = l->memory + vector_of(s), *dx = y + vector_of(s);
    float *dw = dx + vector_of(s);
    void *both[] = { dw, dw + weights_of(s->patterns[0]) };
    float *dbias = (float *)both[1] + weights_of(s->patterns[1]);
    danaus_ks_gradients g = { .dx = dx, .dw = both, .dbias = dbias };
    return danaus_ks_gradient(
        l->plan, l->device, l->weights, s->batch, l->memory, y, &g);
}

static danaus_status try_life(
    const story *s, const char *name, life *l, const random_chain *c, const float *x,
    float *results)
{
    danaus_ks_desc desc = { .gradients = 1, .keep_factors = 1 };
    danaus_device_info info;
    size_t bytes = (size_t)vector_of(s) * sizeof *x, all = (size_t)results_of(s) * 4;
    void *memory = NULL;
    danaus_status status = open_device(s, name, &l->device);
    status = status ? status : danaus_device_describe(l->device, &info);
    status = status ? status
                    : danaus_ks_plan_create(l->device, s->patterns, 2, &desc, &l->plan);
    status = status
                 ? status
                 : danaus_ks_weights_create(l->plan, l->device, c->chain, &l->weights);
    status = status ? status : danaus_alloc(l->device, bytes + all, &memory);
    l->memory = memory;
    status = status ? status : danaus_upload(l->device, l->memory, x, bytes);
    for (int i = 0; i < 2; i++) { /* the second time, calls are captured */
        status = status ? status : execute(s, l);
        status = status ? status : go_back(s, l);
    }
    status = status ? status : danaus_device_sync(l->device);
    return status ? status
                  : danaus_download(l->device, results, l->memory + vector_of(s), all);
}

static void end_life(life *l)
{
    danaus_free(l->device, l->memory);
    danaus_ks_weights_destroy(l->weights);
    danaus_ks_plan_destroy(l->plan);
    danaus_device_close(l->device);
}

static danaus_status live(
    const story *s, const random_chain *c, const float *x, float *results)
{
    life l = { 0 };
    danaus_status status = try_life(s, "cuda:0", &l, c, x, results);
    end_life(&l);
    return status;
}

static void expect_nothing_lost(const char *function, int number)
{
    if (control->contexts || control->modules || control->allocations ||
        control->pushed || control->handles || control->events || control->graphs)
        fail_msg(
            "call %d of %s fails and %d contexts, %d modules, %d blocks of memory, %d "
            "places on the stack, %d handles, %d events, %d graphs and streams are "
            "lost",
            number, function, control->contexts, control->modules, control->allocations,
            control->pushed, control->handles, control->events, control->graphs);
}

static void fail_each_call(
    const story *s, const char *function, const random_chain *c, const float *x,
    const array *expected)
{
    array found = array_make(DANAUS_F32, results_of(s));
    for (int n = 1; n < MOST_CALLS; n++) {
        *control = (emulator_control){ .function = function, .error = FAILURE };
        control->number = n;
        danaus_status status = live(s, c, x, found.data);
        int reached = control->calls >= n;
        control->function = NULL;
        if (status == DANAUS_OK)
            assert_true(array_same(&found, expected));
        else
            assert_true(reached && danaus_error_detail()[0]);
        if (!gives_back(function))
            expect_nothing_lost(function, n);
        if (!reached) {
            array_free(&found);
            return;
        }
        assert_true(status != DANAUS_OK || gives_back(function) || is_mended(function));
    }
    fail_msg("%s is called more than %d times", function, MOST_CALLS);
}

static void fail_all_calls(const story *s)
{
    rng r = { 1 };
    random_chain c = chain_random(&r, s->patterns, 2, DANAUS_F32, 1);
    array x = array_random(&r, DANAUS_F32, vector_of(s));
    array expected = array_make(DANAUS_F32, results_of(s));
    *control = (emulator_control){ 0 };
    assert_ok(live(s, &c, x.data, expected.data));
    for (size_t i = 0; i < FUNCTIONS; i++) {
        /* The one is not called again once it worked; the other is called to wait for
           what no longer matters, too. */
        if (!strcmp(functions[i], "cuInit") ||
            !strcmp(functions[i], "cuStreamSynchronize"))
            continue;
        fail_each_call(s, functions[i], &c, x.data, &expected);
    }
    array_free(&x);
    array_free(&expected);
    chain_free(&c);
}

static void any_call_of_the_driver_may_fail(void **state)
{
    (void)state;
    fail_all_calls(&plain);
}

static void any_call_of_a_library_may_fail(void **state)
{
    (void)state;
    fail_all_calls(&by_library);
    fail_all_calls(&turned);
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
    problem p = { .pattern = { 1, 3, 2, 1 }, .dtype = DANAUS_F32, .batch = 5 };
    danaus_status status = danaus_device_open("cuda:0", device);
    const kernel *k = status ? NULL : (*device)->kernels;
    while (k && !k->fits(k, &p))
        k++;
    return status ? status : dn_measure(*device, &(ks_step){ p, k }, 1, seconds);
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

typedef danaus_status (*again)(const story *s, const life *l);

static int calls_of(const char *function, again call, const story *s, const life *l)
{
    control->function = function;
    control->number = control->calls = 0;
    assert_ok(call(s, l));
    control->function = NULL;
    return control->calls;
}

/* Makes a call once more: a graph of so many launches and products of a library. */
static void expect_only(const story *s, again call, int launches, int products)
{
    rng r = { 1 };
    random_chain c = chain_random(&r, s->patterns, 2, DANAUS_F32, 1);
    array x = array_random(&r, DANAUS_F32, vector_of(s));
    array results = array_make(DANAUS_F32, results_of(s));
    life l = { 0 };
    *control = (emulator_control){ 0 };
    assert_ok(try_life(s, "cuda:0", &l, &c, x.data, results.data));
    static const char *const never[] = {
        "cuMemAlloc_v2",         "cuMemFree_v2",
        "cuStreamSynchronize",   "cuModuleLoadData",
        "cuMemcpyAsync",         "cuFuncSetAttribute",
        "cuMemsetD8Async",       "cuGraphInstantiateWithFlags",
        "cublasCreate_v2",       "cublasDestroy_v2",
        "cublasSetWorkspace_v2", "cuLaunchKernel",
    };
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        assert_int_equal(calls_of(never[i], call, s, &l), 0);
    control->launches = control->products = 0;
    assert_int_equal(calls_of("cuGraphLaunch", call, s, &l), 1);
    assert_int_equal(control->launches, launches);
    assert_int_equal(control->products, products);
    /* What is captured by the caller is launched. */
    control->capturing = 1;
    assert_int_equal(calls_of("cuLaunchKernel", call, s, &l), launches);
    assert_int_equal(calls_of("cublasGemmStridedBatchedEx_64", call, s, &l), products);
    control->capturing = 0;
    end_life(&l);
    expect_nothing_lost("nothing", 0);
    array_free(&x);
    array_free(&results);
    chain_free(&c);
}

static void executing_again_neither_allocates_nor_waits(void **state)
{
    (void)state;
    expect_only(&plain, execute, 2, 0);
    /* The bias; one product is of many, the other of one. */
    expect_only(&by_library, execute, 1, 2);
    expect_only(&turned, execute, 3, 1); /* with x and y turned */
}

static void gradients_neither_allocate_nor_wait_again(void **state)
{
    (void)state;
    /* dw and dbias in two launches each, three products */
    expect_only(&plain, go_back, 9, 0);
    /* a product forward, one back, two for dw, one of them of all lanes; dbias; three
       turns */
    expect_only(&turned, go_back, 7, 4);
}

/* More calls than the device remembers, each often enough to be captured and to come from
   the graph: the first column of all is the same. */
static void calls_that_come_again_give_the_same(void **state)
{
    (void)state;
    rng r = { 1 };
    story s = by_library;
    random_chain c = chain_random(&r, s.patterns, 2, DANAUS_F32, 1);
    size_t line = (size_t)rows_of(s.patterns[0]) * 4;
    s.batch = 20;
    array x = array_random(&r, DANAUS_F32, vector_of(&s));
    array results = array_make(DANAUS_F32, results_of(&s));
    array found = array_make(DANAUS_F32, rows_of(s.patterns[0]));
    life l = { 0 };
    *control = (emulator_control){ 0 };
    assert_ok(try_life(&s, "cuda:0", &l, &c, x.data, results.data));
    for (int i = 0; i < 3 * rounds_of(400); i++) {
        int64_t batch = 1 + i / 3 % 20;
        float *y = l.memory + vector_of(&s) + i / 60;
        assert_ok(danaus_ks_execute(l.plan, l.device, l.weights, batch, l.memory, y));
        assert_ok(danaus_download(l.device, found.data, y, line));
        assert_memory_equal(found.data, results.data, line);
    }
    assert_in_range(control->graphs, 1, 400);
    end_life(&l);
    expect_nothing_lost("nothing", 0);
    array_free(&x);
    array_free(&results);
    array_free(&found);
    chain_free(&c);
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
    expect_nothing_lost("nothing", 0);
    array_free(&x);
    chain_free(&c);
}

static void one_launch_becomes_a_graph_when_it_has_come_often(void **state)
{
    (void)state;
    rng r = { 1 };
    danaus_pattern p = { 2, 3, 4, 2 };
    random_chain c = chain_random(&r, &p, 1, DANAUS_F32, 1);
    array x = array_random(&r, DANAUS_F32, 16 * 5), y = array_make(DANAUS_F32, 12 * 5);
    danaus_ks_desc desc = { .batch = 5 };
    life l = { 0 };
    void *memory = NULL;
    array first = array_make(DANAUS_F32, 12 * 5);
    *control = (emulator_control){ .function = "cuGraphLaunch" };
    assert_ok(danaus_device_open("cuda:0", &l.device));
    assert_ok(danaus_ks_plan_create(l.device, &p, 1, &desc, &l.plan));
    assert_ok(danaus_ks_weights_create(l.plan, l.device, c.chain, &l.weights));
    assert_ok(danaus_alloc(l.device, 4096, &memory));
    l.memory = memory;
    float *on_y = l.memory + 256;
    assert_ok(danaus_upload(l.device, l.memory, x.data, 16 * 5 * 4));
    for (int i = 1; i <= 40; i++) {
        assert_ok(danaus_ks_execute(l.plan, l.device, l.weights, 5, l.memory, on_y));
        assert_ok(danaus_download(l.device, y.data, on_y, 12 * 5 * 4));
        if (i == 1)
            memcpy(first.data, y.data, 12 * 5 * 4);
        assert_true(array_same(&y, &first));
        assert_int_equal(control->calls, i < 32 ? 0 : i - 31);
        assert_int_equal(control->launches, i);
    }
    end_life(&l);
    expect_nothing_lost("nothing", 0);
    array_free(&x);
    array_free(&y);
    array_free(&first);
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
    const story *s = &plain;
    random_chain c = chain_random(&r, s->patterns, 2, DANAUS_F32, 0);
    danaus_ks_desc desc = { .keep_factors = 1 };
    life l = { 0 };
    void *lent = NULL, *memory = NULL;
    *control = (emulator_control){ .capturing = 1 };
    assert_ok(danaus_device_open("cuda:0", &l.device));
    assert_ok(danaus_ks_plan_create(l.device, s->patterns, 2, &desc, &l.plan));
    assert_ok(danaus_ks_weights_create(l.plan, l.device, c.chain, &l.weights));
    assert_ok(danaus_alloc(l.device, (size_t)vector_of(s) * 8, &memory));
    l.memory = memory;
    assert_ok(danaus_alloc(l.device, 4096, &lent));
    assert_status(execute(s, &l), DANAUS_ERR_MEMORY);
    assert_status(
        danaus_device_set_scratch(l.device, (char *)lent + 64, 512),
        DANAUS_ERR_ARGUMENT);
    assert_ok(danaus_device_set_scratch(l.device, lent, 16));
    assert_status(execute(s, &l), DANAUS_ERR_MEMORY);
    assert_ok(danaus_device_set_scratch(l.device, lent, 4096));
    assert_ok(execute(s, &l));
    assert_ok(danaus_device_set_scratch(l.device, NULL, 0));
    assert_status(execute(s, &l), DANAUS_ERR_MEMORY);
    control->capturing = 0;
    assert_ok(execute(s, &l));
    control->capturing = 1;
    assert_ok(execute(s, &l));
    int stream;
    assert_ok(danaus_device_set_stream(l.device, &stream));
    assert_ok(execute(s, &l));
    assert_ptr_equal(control->stream, &stream);
    danaus_free(l.device, lent);
    end_life(&l);
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
        cmocka_unit_test(gradients_neither_allocate_nor_wait_again),
        cmocka_unit_test(calls_that_come_again_give_the_same),
        cmocka_unit_test(one_launch_becomes_a_graph_when_it_has_come_often),
        cmocka_unit_test(gpus_take_turns_and_the_callers_context_stays),
        cmocka_unit_test(without_a_library_its_rows_are_not_there),
        cmocka_unit_test(a_captured_product_has_its_scratch_before),
    };
    return cmocka_run_group_tests_name("driver", tests, NULL, NULL);
}
