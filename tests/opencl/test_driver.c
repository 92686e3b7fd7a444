/* The OpenCL backend: every function of OpenCL fails once, at its first call, its second, ...;
   nothing is lost. Devices with little, callers' queues, and what is there without a device. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "opencl/calls.h"
#include "support/device.h"
#include "support/life.h"

#include <stdlib.h>
#include <string.h>

#define MOST_CALLS 400

/* The life of a chain with an input, and what comes out. */
typedef struct chain_life {
    random_chain c;
    array x, expected;
} chain_life;

static danaus_status live(const chain_life *c, const char *device, array *results)
{
    life l = { 0 };
    danaus_status status =
        try_life(&plain, device, &l, &c->c, c->x.data, results->data);
    end_life(&l);
    return status;
}

static chain_life begin_life(void)
{
    rng r = { 1 };
    chain_life l = { .c = chain_random(&r, plain.patterns, 2, DANAUS_F32, 1),
                     .expected = array_make(DANAUS_F32, results_of(&plain)) };
    l.x = array_random(&r, DANAUS_F32, vector_of(&plain));
    opencl_calls = (opencl_control){ 0 };
    assert_ok(live(&l, "opencl:0", &l.expected));
    assert_int_equal(opencl_calls.alive, 0);
    return l;
}

static void free_life(chain_life *l)
{
    array_free(&l->expected);
    array_free(&l->x);
    chain_free(&l->c);
}

static void fail_from(const char *function, int number, int lasting)
{
    opencl_calls = (opencl_control){ .function = function,
                                     .number = number,
                                     .lasting = lasting,
                                     .error = CL_DEVICE_NOT_AVAILABLE };
}

/* Those whose failure nobody hears of: they give something back. */
static int gives_back(const char *function)
{
    return !strncmp(function, "Release", 7) || !strcmp(function, "Finish");
}

/* Those whose failure is mended or does not matter: an image that cannot be used is compiled
   again, a sentence is shorter, and a platform may have no device of a kind. */
static int is_mended(const char *function)
{
    return strstr(function, "Program") || strstr(function, "CreateKernel") ||
           strstr(function, "GetKernelInfo") || strstr(function, "GetDevice");
}

/* The n-th call of a function fails. Returns whether there was one. */
static int fail_call(const chain_life *l, const char *function, int n, array *found)
{
    fail_from(function, n, 0);
    danaus_status status = live(l, "opencl:0", found);
    int reached = opencl_calls.calls >= n;
    if (status == DANAUS_OK)
        assert_true(array_same(found, &l->expected));
    else
        assert_true(reached && danaus_error_detail()[0]);
    if (opencl_calls.alive)
        fail_msg(
            "call %d of %s fails and %d objects are lost", n, function,
            opencl_calls.alive);
    if (reached && status == DANAUS_OK && !gives_back(function) && !is_mended(function))
        fail_msg("call %d of %s fails, and nobody hears of it", n, function);
    return reached;
}

static void any_call_may_fail(void **state)
{
    (void)state;
    chain_life l = begin_life();
    array found = array_make(DANAUS_F32, results_of(&plain));
    for (const char *const *name = opencl_function_names; *name; name++) {
        int n = 1;
        while (n < MOST_CALLS && fail_call(&l, *name, n, &found))
            n += 1 + n / 4;
        assert_true(n < MOST_CALLS);
    }
    array_free(&found);
    free_life(&l);
}

/* From some call on nothing works any more: a sentence, and the processor goes on. */
static void a_device_may_be_lost(void **state)
{
    (void)state;
    chain_life l = begin_life();
    array found = array_make(DANAUS_F32, results_of(&plain));
    for (int n = 1; n < MOST_CALLS; n += 1 + n / 2) {
        fail_from("", n, 1);
        danaus_status status = live(&l, "opencl:0", &found);
        assert_true(status == DANAUS_OK || danaus_error_detail()[0]);
        assert_ok(live(&l, "cpu", &found));
    }
    array_free(&found);
    free_life(&l);
}

static int counts_devices(void)
{
    danaus_device_info info;
    int count = 0;
    for (int i = 0; danaus_device_list(i, &info) == DANAUS_OK; i++)
        count += !strncmp(info.name, "opencl", 6);
    return count;
}

static void without_a_platform_or_device_there_is_none(void **state)
{
    static const char *const lists[] = { "GetPlatformIDs", "GetDeviceIDs" };
    danaus_device *device = NULL;
    (void)state;
    opencl_calls = (opencl_control){ 0 };
    assert_true(counts_devices() > 0);
    for (int i = 0; i < 2; i++) {
        fail_from(lists[i], 1, 1);
        assert_int_equal(counts_devices(), 0);
        assert_status(danaus_device_open("opencl:0", &device), DANAUS_ERR_UNSUPPORTED);
        assert_non_null(strstr(danaus_error_detail(), "OpenCL devices"));
    }
}

/* All kernels are refused, and then the plan is. */
static void a_compiler_may_refuse_everything(void **state)
{
    (void)state;
    chain_life l = begin_life();
    array found = array_make(DANAUS_F32, results_of(&plain));
    fail_from("BuildProgram", 1, 1);
    assert_status(live(&l, "opencl:0", &found), DANAUS_ERR_DEVICE);
    assert_non_null(strstr(danaus_error_detail(), "OpenCL"));
    assert_int_equal(opencl_calls.alive, 0);
    array_free(&found);
    free_life(&l);
}

/* Rows of large tiles are not for a device that has less than they need. */
static void little_local_memory_leaves_small_rows(void **state)
{
    (void)state;
    chain_life l = begin_life();
    array found = array_make(DANAUS_F32, results_of(&plain));
    opencl_calls = (opencl_control){ .local = 4 << 10 };
    assert_ok(live(&l, "opencl:0", &found));
    array_free(&found);
    free_life(&l);
}

/* A bias comes and goes: y = k u + bias of one row. */
static void operands_may_be_absent_after_they_were_there(void **state)
{
    static const float numbers[] = { 1, 2, 3, 4, 10, 5 }; /* u, bias, k */
    danaus_short_desc desc = { .channels = 1, .length = 4, .taps = 1 };
    danaus_device *device = NULL;
    float *at, y[4];
    (void)state;
    opencl_calls = (opencl_control){ 0 };
    assert_ok(danaus_device_open("opencl:0", &device));
    assert_ok(danaus_alloc(device, 2 * sizeof numbers, (void **)&at));
    assert_ok(danaus_upload(device, at, numbers, sizeof numbers));
    for (int round = 0; round < 6; round++) {
        int has_bias = round % 3 == 1;
        const float *bias = has_bias ? at + 4 : NULL;
        assert_ok(danaus_short_conv(device, &desc, 1, at + 5, bias, at, at + 6));
        assert_ok(danaus_download(device, y, at + 6, sizeof y));
        for (int t = 0; t < 4; t++)
            assert_true(y[t] == 5 * numbers[t] + (has_bias ? 10 : 0));
    }
    danaus_free(device, at);
    danaus_device_close(device);
    assert_int_equal(opencl_calls.alive, 0);
}

/* ---- the caller's context ---- */

/* y = W x of a plan that may multiply factors out, of weights in memory of the device. */
static danaus_status multiply_out(
    danaus_device *device, const chain_life *l, danaus_dtype from, float *y)
{
    danaus_ks_plan *plan = NULL;
    danaus_ks_weights *weights = NULL;
    void *x, *w[2];
    size_t bytes = (size_t)vector_of(&plain) * sizeof *y;
    assert_ok(danaus_alloc(device, 2 * bytes, &x));
    assert_ok(danaus_upload(device, x, l->x.data, bytes));
    assert_ok(danaus_ks_plan_create(device, plain.patterns, 2, NULL, &plan));
    assert_ok(danaus_ks_weights_create(plan, device, l->c.chain, &weights));
    for (int i = 0; i < 2; i++)
        w[i] = to_device(device, &l->c.w[i]);
    danaus_status status = danaus_ks_weights_update_from(
        weights, device, from, (const void *const *)w, NULL);
    if (status == DANAUS_OK) {
        char *to = (char *)x + bytes;
        assert_ok(danaus_ks_execute(plan, device, weights, plain.batch, x, to));
        assert_ok(danaus_download(device, y, to, bytes));
    }
    for (int i = 0; i < 2; i++)
        from_device(device, &l->c.w[i], w[i]);
    danaus_ks_weights_destroy(weights);
    danaus_ks_plan_destroy(plan);
    danaus_free(device, x);
    return status;
}

typedef struct caller {
    const opencl_functions *cl;
    cl_context context;
    cl_command_queue queue;
} caller;

/* With a queue in order, or not. */
static caller open_caller(cl_command_queue_properties how)
{
    const cl_queue_properties with[] = { CL_QUEUE_PROPERTIES, how, 0 };
    caller c = { NULL, NULL, NULL };
    cl_device_id id;
    cl_int error;
    assert_ok(dn_opencl_functions(&c.cl));
    assert_ok(dn_opencl_find(c.cl, 0, &id));
    c.context = c.cl->CreateContext(NULL, 1, &id, NULL, NULL, &error);
    assert_non_null(c.context);
    c.queue = c.cl->CreateCommandQueueWithProperties(c.context, id, with, &error);
    assert_non_null(c.queue);
    return c;
}

static void close_caller(const caller *c)
{
    assert_int_equal(c->cl->ReleaseCommandQueue(c->queue), 0);
    assert_int_equal(c->cl->ReleaseContext(c->context), 0);
}

/* Copies to and fro by a device in the caller's queue. The caller fills its memory between. */
static void callers_and_danaus_share_a_context(void **state)
{
    (void)state;
    const float seven = 7;
    float x[64] = { 0 };
    danaus_device *own = NULL, *device = NULL;
    void *memory = NULL;
    opencl_calls = (opencl_control){ 0 };
    caller c = open_caller(0);
    assert_ok(danaus_device_open("opencl:0", &own));
    assert_ok(danaus_device_open_queue(c.queue, &device));
    assert_string_equal(device->name, "opencl:0");
    assert_status(danaus_device_set_stream(own, c.queue), DANAUS_ERR_ARGUMENT);
    assert_ok(danaus_alloc(device, sizeof x, &memory));
    assert_ok(danaus_upload(device, memory, x, sizeof x));
    assert_int_equal(
        c.cl->EnqueueSVMMemFill(
            c.queue, memory, &seven, sizeof seven, sizeof x, 0, NULL, NULL),
        0);
    assert_ok(danaus_download(device, x, memory, sizeof x));
    assert_true(x[0] == 7 && x[63] == 7);
    danaus_device_close(own);
    close_caller(&c); /* the device keeps both */
    assert_ok(danaus_upload(device, memory, x, sizeof x));
    danaus_free(device, memory);
    danaus_device_close(device);
    assert_int_equal(opencl_calls.alive, 0);
}

static void plans_run_in_the_callers_context(void **state)
{
    (void)state;
    chain_life l = begin_life();
    array y = array_make(DANAUS_F32, vector_of(&plain));
    danaus_device *device = NULL;
    caller c = open_caller(0);
    assert_ok(danaus_device_open_queue(c.queue, &device));
    assert_ok(multiply_out(device, &l, DANAUS_F32, y.data));
    for (int64_t i = 0; i < y.count; i++)
        assert_float_equal(((float *)y.data)[i], ((float *)l.expected.data)[i], 1e-5);
    danaus_device_close(device);
    close_caller(&c);
    assert_int_equal(opencl_calls.alive, 0);
    array_free(&y);
    free_life(&l);
}

static void queues_run_in_order(void **state)
{
    (void)state;
    danaus_device *device = NULL;
    opencl_calls = (opencl_control){ 0 };
    caller c = open_caller(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    assert_status(danaus_device_open_queue(c.queue, &device), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_device_open_queue(NULL, &device), DANAUS_ERR_ARGUMENT);
    assert_null(device);
    close_caller(&c);
    assert_int_equal(opencl_calls.alive, 0);
}

/* ---- a device without f64 ---- */

/* Kernels that the cache has were compiled before. */
static void take_f64_away(void)
{
    assert_int_equal(setenv("DANAUS_CACHE", "", 1), 0);
    opencl_calls = (opencl_control){ .no_f64 = 1 };
}

static void f32_needs_no_f64(void **state)
{
    (void)state;
    chain_life l = begin_life();
    array found = array_make(DANAUS_F32, results_of(&plain));
    array y = array_make(DANAUS_F32, vector_of(&plain));
    danaus_device *device = NULL;
    take_f64_away();
    assert_ok(live(&l, "opencl:0", &found));
    assert_true(array_same(&found, &l.expected));
    assert_ok(danaus_device_open("opencl:0", &device));
    assert_ok(multiply_out(device, &l, DANAUS_F32, y.data));
    for (int64_t i = 0; i < y.count; i++)
        assert_float_equal(((float *)y.data)[i], ((float *)l.expected.data)[i], 1e-5);
    assert_status(multiply_out(device, &l, DANAUS_F64, y.data), DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "f64"));
    danaus_device_close(device);
    array_free(&y);
    array_free(&found);
    free_life(&l);
}

static void f64_is_refused_without_it(void **state)
{
    danaus_ks_plan *plan = NULL;
    danaus_conv_plan *conv = NULL;
    danaus_device *device = NULL;
    danaus_ks_desc desc = { .dtype = DANAUS_F64 };
    danaus_conv_desc rows = { .channels = 1, .length = 40, .dtype = DANAUS_F64 };
    (void)state;
    take_f64_away();
    assert_ok(danaus_device_open("opencl:0", &device));
    assert_status(
        danaus_ks_plan_create(device, plain.patterns, 2, &desc, &plan),
        DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "f64"));
    assert_status(
        danaus_conv_plan_create(device, &rows, &conv), DANAUS_ERR_UNSUPPORTED);
    assert_non_null(strstr(danaus_error_detail(), "f64"));
    danaus_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_platform_or_device_there_is_none),
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(a_device_may_be_lost),
        cmocka_unit_test(a_compiler_may_refuse_everything),
        cmocka_unit_test(little_local_memory_leaves_small_rows),
        cmocka_unit_test(operands_may_be_absent_after_they_were_there),
        cmocka_unit_test(callers_and_danaus_share_a_context),
        cmocka_unit_test(plans_run_in_the_callers_context),
        cmocka_unit_test(queues_run_in_order),
        cmocka_unit_test(f32_needs_no_f64),
        cmocka_unit_test(f64_is_refused_without_it),
    };
    watch_opencl_calls();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
