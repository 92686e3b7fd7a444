/* The caller's CUDA: streams, graphs, contexts and threads of others. Parts that the
   emulated driver lacks are skipped there. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/chains.h"
#include "support/device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define SHARERS 4

/* The driver as a caller of danaus uses it. */
typedef struct driver {
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_synchronize)(void *stream);
    int (*begin_capture)(void *stream, int mode);
    int (*end_capture)(void *stream, void **graph);
    int (*instantiate)(void **made, void *graph, unsigned long long flags);
    int (*graph_launch)(void *made, void *stream);
    int (*made_destroy)(void *made);
    int (*graph_destroy)(void *graph);
    int (*context_create)(void **context, unsigned flags, int device);
    int (*context_destroy)(void *context);
    int (*context_current)(void **context);
    int (*context_set)(void *context);
    int (*primary_retain)(void **context, int device);
    int (*primary_release)(int device);
} driver;

static const char *const symbols[] = {
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
    "cuCtxCreate_v2",
    "cuCtxDestroy_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
};

#define SYMBOLS (sizeof symbols / sizeof *symbols)

static driver d;

/* 0: this driver does not have all. */
static int open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *found[SYMBOLS];
    _Static_assert(sizeof found == sizeof d, "a pointer a row");
    for (size_t i = 0; library && i < SYMBOLS; i++)
        if (!(found[i] = dlsym(library, symbols[i])))
            return 0;
    memcpy(&d, found, sizeof d);
    return library != NULL;
}

/* A chain with everything that a product needs on the device. */
typedef struct scene {
    danaus_device *device;
    random_chain c;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    int64_t batch;
    array x, y;
    void *dx, *dy;
    signal expected;
} scene;

static scene scene_make(danaus_device *device)
{
    rng r = { 11 };
    danaus_pattern p[3];
    int count = 0;
    assert_ok(danaus_patterns_parse("1,48,12,4 4,12,48,1 1,48,16,4", p, 3, &count));
    danaus_ks_desc desc = { .keep_factors = 1, .batch = 77 };
    scene s = { .device = device, .batch = 77 };
    s.c = chain_random(&r, p, count, DANAUS_F32, 1);
    s.x = array_random(&r, DANAUS_F32, s.c.cols * s.batch);
    s.y = array_make(DANAUS_F32, s.c.rows * s.batch);
    s.expected = multiply_exactly(&s.c, &desc, s.batch, &s.x);
    assert_ok(danaus_ks_plan_create(device, p, count, &desc, &s.plan));
    assert_ok(danaus_ks_weights_create(s.plan, device, s.c.chain, &s.weights));
    s.dx = to_device(device, &s.x);
    s.dy = to_device(device, &s.y);
    return s;
}

static danaus_status scene_run(const scene *s, danaus_device *device)
{
    return danaus_ks_execute(s->plan, device, s->weights, s->batch, s->dx, s->dy);
}

static void scene_end(scene *s, const char *what)
{
    from_device(s->device, &s->y, s->dy);
    from_device(s->device, &s->x, s->dx);
    expect_signal(&s->y, DANAUS_BATCH_FIRST, &s->expected, what);
    danaus_ks_weights_destroy(s->weights);
    danaus_ks_plan_destroy(s->plan);
    signal_free(&s->expected);
    array_free(&s->x);
    array_free(&s->y);
    chain_free(&s->c);
}

static void products_run_on_the_callers_stream(void **state)
{
    danaus_device *device = *state;
    void *stream, *context;
    if (!d.stream_create)
        skip();
    scene s = scene_make(device);
    assert_int_equal(d.primary_retain(&context, 0), 0);
    assert_int_equal(d.context_set(context), 0);
    assert_int_equal(d.stream_create(&stream, 1), 0); /* does not wait for others */
    assert_ok(danaus_device_set_stream(device, stream));
    assert_ok(scene_run(&s, device));
    assert_int_equal(d.stream_synchronize(stream), 0);
    scene_end(&s, "on a stream");
    assert_ok(danaus_device_set_stream(device, NULL));
    assert_int_equal(d.stream_destroy(stream), 0);
    assert_int_equal(d.context_set(NULL), 0);
    assert_int_equal(d.primary_release(0), 0);
}

static void products_are_captured_in_graphs(void **state)
{
    danaus_device *device = *state;
    void *stream, *context, *graph, *made;
    if (!d.stream_create)
        skip();
    scene s = scene_make(device);
    assert_int_equal(d.primary_retain(&context, 0), 0);
    assert_int_equal(d.context_set(context), 0);
    assert_int_equal(d.stream_create(&stream, 1), 0);
    assert_ok(danaus_device_set_stream(device, stream));
    assert_ok(scene_run(&s, device)); /* scratch is there now */
    assert_ok(danaus_upload(
        device, s.dy, s.y.data, (size_t)s.y.count * sizeof(float))); /* NaN again */
    assert_int_equal(d.begin_capture(stream, 0), 0);
    assert_ok(scene_run(&s, device));
    assert_int_equal(d.end_capture(stream, &graph), 0);
    assert_int_equal(d.instantiate(&made, graph, 0), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(d.graph_launch(made, stream), 0);
    assert_int_equal(d.stream_synchronize(stream), 0);
    scene_end(&s, "from a graph");
    assert_int_equal(d.made_destroy(made), 0);
    assert_int_equal(d.graph_destroy(graph), 0);
    assert_ok(danaus_device_set_stream(device, NULL));
    assert_int_equal(d.stream_destroy(stream), 0);
    assert_int_equal(d.context_set(NULL), 0);
    assert_int_equal(d.primary_release(0), 0);
}

static void the_callers_context_stays_current(void **state)
{
    danaus_device *device = *state;
    void *context, *current = NULL;
    if (!d.context_create)
        skip();
    assert_int_equal(d.context_create(&context, 0, 0), 0);
    scene s = scene_make(device);
    assert_ok(scene_run(&s, device));
    assert_ok(danaus_device_sync(device));
    scene_end(&s, "in another context");
    assert_int_equal(d.context_current(&current), 0);
    assert_ptr_equal(current, context);
    assert_int_equal(d.context_destroy(context), 0);
}

typedef struct sharer {
    const scene *s;
    danaus_status status;
    void *y;
} sharer;

static void *run_sharer(void *arg)
{
    sharer *h = arg;
    scene s = *h->s;
    danaus_device *device = NULL;
    h->status = danaus_device_open("cuda:0", &device);
    s.dy = h->y;
    for (int i = 0; i < 20 && h->status == DANAUS_OK; i++)
        h->status = scene_run(&s, device);
    if (h->status == DANAUS_OK)
        h->status = danaus_device_sync(device);
    danaus_device_close(device);
    return NULL;
}

/* Each with a device of its own. */
static void threads_share_plans_and_weights(void **state)
{
    danaus_device *device = *state;
    scene s = scene_make(device);
    array y[SHARERS];
    sharer h[SHARERS];
    pthread_t threads[SHARERS];
    assert_ok(danaus_device_sync(device));
    for (int i = 0; i < SHARERS; i++) {
        y[i] = array_make(DANAUS_F32, s.y.count);
        h[i] = (sharer){ &s, DANAUS_OK, to_device(device, &y[i]) };
    }
    for (int i = 0; i < SHARERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_sharer, &h[i]), 0);
    for (int i = 0; i < SHARERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_ok(h[i].status);
        from_device(device, &y[i], h[i].y);
        expect_signal(&y[i], DANAUS_BATCH_FIRST, &s.expected, "of a thread");
        array_free(&y[i]);
    }
    assert_ok(scene_run(&s, device));
    scene_end(&s, "after the threads");
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(products_run_on_the_callers_stream, device),
        cmocka_unit_test_prestate(products_are_captured_in_graphs, device),
        cmocka_unit_test_prestate(the_callers_context_stays_current, device),
        cmocka_unit_test_prestate(threads_share_plans_and_weights, device),
    };
    int failed = cmocka_run_group_tests_name("stream", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
