/* The caller's CUDA: streams, graphs, contexts and threads of others. Parts that the
   emulated driver lacks are skipped there. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "device/backend.h"
#include "device/tuning.h"
#include "support/chains.h"
#include "support/caller.h"
#include "support/device.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define SHARERS 4
#define BATCH   77

/* A chain, and rows for its factors and their adjoints that the tuning table names; NULL:
   whichever the planner chooses. Those of later compute capabilities and of libraries are
   named where the device has them. */
typedef struct setting {
    const char *chain;
    danaus_dtype dtype;
    const char *row[3];
} setting;

static const setting settings[] = {
    { "1,48,12,4 4,12,48,1 1,48,16,4", DANAUS_F32, { 0 } },
    { "1,16,16,8 8,16,16,1", DANAUS_F32, { "ks.turned.f32.128x128", "ks.blas.f32" } },
    { "1,64,64,4 4,64,64,1", DANAUS_F16, { "ks.turned.f16", "ks.wgmma.f16" } },
    { "1,64,64,8 1,64,64,8",
      DANAUS_BF16,
      { "ks.mma_lanes.bf16", "ks.wgmma_lanes.bf16" } },
    { "2,24,32,2", DANAUS_F64, { "ks.dense.f64" } },
    { "1,32,32,32 32,32,32,1", DANAUS_F16, { 0 } }, /* at once, where a row does that */
};

/* An emulated device, which compiles slowly, takes two. */
static size_t some(void)
{
    return share_of_cases() < 100 ? sizeof settings / sizeof *settings : 2;
}

/* A chain with everything that a product and its gradients need on the device. */
typedef struct scene {
    danaus_device *device;
    const setting *how;
    random_chain c;
    danaus_ks_desc desc;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    int64_t batch;
    array x, y, back; /* back: dx, dw of all factors and dbias, as bytes of f64 */
    void *on_x, *on_y, *on_back;
    signal expected;
} scene;

static void name_rows(danaus_device *device, const setting *s, const random_chain *c)
{
    for (int i = 0; i < 2 * c->count; i++) {
        danaus_pattern p = c->p[i / 2];
        problem q = { .pattern = p, .dtype = s->dtype, .batch = BATCH };
        const char *name = s->row[i / 2];
        if (i % 2)
            q.pattern = (danaus_pattern){ p.a, p.c, p.b, p.d };
        for (const kernel *k = device->kernels; name && k->name; k++)
            if (!strncmp(k->name, name, strlen(name)) && dn_fits(k, &q)) {
                dn_tuning_add(device->tuning, &q, k, 1e-6);
                break;
            }
    }
}

static scene scene_make(danaus_device *device, const setting *how)
{
    rng r = { 11 };
    danaus_pattern p[3];
    int count = 0;
    assert_ok(danaus_patterns_parse(how->chain, p, 3, &count));
    danaus_ks_desc desc = {
        .dtype = how->dtype, .keep_factors = 1, .batch = BATCH, .gradients = 1
    };
    scene s = { .device = device, .how = how, .desc = desc, .batch = BATCH };
    s.c = chain_random(&r, p, count, desc.dtype, 1);
    s.x = array_random(&r, desc.dtype, s.c.cols * s.batch);
    s.y = array_make(desc.dtype, s.c.rows * s.batch);
    int64_t numbers = s.c.cols * s.batch + s.c.rows;
    for (int l = 0; l < count; l++)
        numbers += weights_of(p[l]);
    s.back = array_make(DANAUS_F64, numbers);
    s.expected = multiply_exactly(&s.c, &s.desc, s.batch, &s.x);
    name_rows(device, how, &s.c);
    assert_ok(danaus_ks_plan_create(device, p, count, &desc, &s.plan));
    assert_ok(danaus_ks_weights_create(s.plan, device, s.c.chain, &s.weights));
    s.on_x = to_device(device, &s.x);
    s.on_y = to_device(device, &s.y);
    s.on_back = to_device(device, &s.back);
    return s;
}

static danaus_status scene_run(const scene *s, danaus_device *device)
{
    return danaus_ks_execute(s->plan, device, s->weights, s->batch, s->on_x, s->on_y);
}

/* With y as dy; every piece has room for f64. */
static danaus_status scene_go_back(const scene *s, danaus_device *device)
{
    double *to = s->on_back;
    void *dw[3];
    danaus_ks_gradients g = { .dx = to, .dw = dw };
    to += s->c.cols * s->batch;
    g.dbias = to;
    to += s->c.rows;
    for (int l = 0; l < s->c.count; l++) {
        dw[l] = to;
        to += weights_of(s->c.p[l]);
    }
    return danaus_ks_gradient(
        s->plan, device, s->weights, s->batch, s->on_x, s->on_y, &g);
}

/* NaN again. */
static void scene_forget(const scene *s)
{
    array y = array_make(s->y.dtype, s->y.count);
    array back = array_make(DANAUS_F64, s->back.count);
    assert_ok(danaus_upload(
        s->device, s->on_y, y.data, (size_t)y.count * danaus_dtype_size(y.dtype)));
    assert_ok(danaus_upload(s->device, s->on_back, back.data, (size_t)back.count * 8));
    array_free(&y);
    array_free(&back);
}

/* What lies in the device's memory of the gradients now, as bits. */
static array scene_back(const scene *s)
{
    array a = array_make(DANAUS_F64, s->back.count);
    assert_ok(danaus_download(s->device, a.data, s->on_back, (size_t)a.count * 8));
    return a;
}

static void scene_end(scene *s, const char *what)
{
    char text[160];
    snprintf(text, sizeof text, "%s %s", what, s->how->chain);
    from_device(s->device, &s->y, s->on_y);
    from_device(s->device, &s->x, s->on_x);
    from_device(s->device, &s->back, s->on_back);
    expect_signal(&s->y, DANAUS_BATCH_FIRST, &s->expected, text);
    array_expect_guards(&s->back);
    danaus_ks_weights_destroy(s->weights);
    danaus_ks_plan_destroy(s->plan);
    signal_free(&s->expected);
    array_free(&s->x);
    array_free(&s->y);
    array_free(&s->back);
    chain_free(&s->c);
}

/* Runs both on a stream, or captures both in a graph, which runs three times: the same
   bits as on the default stream. */
static void on_a_stream(danaus_device *device, const setting *how, int captured)
{
    void *stream, *graph, *made;
    scene s = scene_make(device, how);
    assert_ok(scene_run(&s, device)); /* scratch is there now */
    assert_ok(scene_go_back(&s, device));
    assert_ok(danaus_device_sync(device));
    array expected = scene_back(&s);
    assert_int_equal(d.stream_create(&stream, 1), 0); /* does not wait for others */
    assert_ok(danaus_device_set_stream(device, stream));
    scene_forget(&s);
    if (captured)
        assert_int_equal(d.begin_capture(stream, 0), 0);
    assert_ok(scene_run(&s, device));
    assert_ok(scene_go_back(&s, device));
    if (captured) {
        assert_int_equal(d.end_capture(stream, &graph), 0);
        assert_int_equal(d.instantiate(&made, graph, 0), 0);
        for (int i = 0; i < 3; i++)
            assert_int_equal(d.graph_launch(made, stream), 0);
    }
    assert_int_equal(d.stream_synchronize(stream), 0);
    array found = scene_back(&s);
    assert_true(array_same(&found, &expected));
    scene_end(&s, captured ? "from a graph:" : "on a stream:");
    if (captured) {
        assert_int_equal(d.made_destroy(made), 0);
        assert_int_equal(d.graph_destroy(graph), 0);
    }
    assert_ok(danaus_device_set_stream(device, NULL));
    assert_int_equal(d.stream_destroy(stream), 0);
    array_free(&expected);
    array_free(&found);
}

static void on_streams(danaus_device *device, int captured)
{
    void *context;
    if (!d.context_set)
        skip();
    assert_int_equal(d.primary_retain(&context, 0), 0);
    assert_int_equal(d.context_set(context), 0);
    for (size_t i = 0; i < some(); i++)
        on_a_stream(device, &settings[i], captured);
    assert_int_equal(d.context_set(NULL), 0);
    assert_int_equal(d.primary_release(0), 0);
}

static void products_and_gradients_run_on_the_callers_stream(void **state)
{
    on_streams(*state, 0);
}

static void products_and_gradients_are_captured_in_graphs(void **state)
{
    on_streams(*state, 1);
}

static void the_callers_context_stays_current(void **state)
{
    danaus_device *device = *state;
    void *context, *current = NULL;
    if (!d.context_create)
        skip();
    assert_int_equal(d.context_create(&context, 0, 0), 0);
    for (size_t i = 0; i < some(); i++) {
        scene s = scene_make(device, &settings[i]);
        assert_ok(scene_run(&s, device));
        assert_ok(scene_go_back(&s, device));
        assert_ok(danaus_device_sync(device));
        scene_end(&s, "in another context:");
    }
    assert_int_equal(d.context_current(&current), 0);
    assert_ptr_equal(current, context);
    assert_int_equal(d.context_destroy(context), 0);
}

typedef struct sharer {
    const scene *s;
    int plans; /* for itself */
    danaus_status status;
    void *y;
} sharer;

static danaus_status plan_again(const scene *s, danaus_device *device, scene *own)
{
    danaus_status status =
        danaus_ks_plan_create(device, s->c.p, s->c.count, &s->desc, &own->plan);
    return status
               ? status
               : danaus_ks_weights_create(own->plan, device, s->c.chain, &own->weights);
}

static void *run_sharer(void *arg)
{
    sharer *h = arg;
    scene s = *h->s;
    danaus_device *device = NULL;
    h->status = danaus_device_open("cuda:0", &device);
    s.on_y = h->y;
    if (h->plans)
        s.plan = NULL, s.weights = NULL;
    if (h->plans && h->status == DANAUS_OK)
        h->status = plan_again(h->s, device, &s);
    for (int i = 0; i < rounds_of(20) && h->status == DANAUS_OK; i++)
        h->status = scene_run(&s, device);
    if (h->status == DANAUS_OK)
        h->status = danaus_device_sync(device);
    if (h->plans) {
        danaus_ks_weights_destroy(s.weights);
        danaus_ks_plan_destroy(s.plan);
    }
    danaus_device_close(device);
    return NULL;
}

/* Each with a device of its own. */
static void share(danaus_device *device, const setting *how, int plans)
{
    scene s = scene_make(device, how);
    array y[SHARERS];
    sharer h[SHARERS];
    pthread_t threads[SHARERS];
    assert_ok(danaus_device_sync(device));
    for (int i = 0; i < SHARERS; i++) {
        y[i] = array_make(how->dtype, s.y.count);
        h[i] = (sharer){ &s, plans, DANAUS_OK, to_device(device, &y[i]) };
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
    scene_end(&s, "after the threads:");
}

static void threads_share_plans_and_weights(void **state)
{
    for (size_t i = 0; i < some(); i++)
        share(*state, &settings[i], 0);
}

static void threads_plan_at_the_same_time(void **state)
{
    for (size_t i = 0; i < some(); i++)
        share(*state, &settings[i], 1);
}

/* Twelve products of the same x, each y elsewhere: from the eighth on a graph whose launches
   are given their operands. */
static void move_results(danaus_device *device, danaus_pattern p, danaus_ks_desc desc)
{
    enum { CALLS = 12, APART = 512 };
    rng r = { 3 };
    random_chain c = chain_random(&r, &p, 1, desc.dtype, 1);
    array x = array_random(&r, desc.dtype, c.cols * desc.batch);
    array first = array_make(desc.dtype, c.rows * desc.batch), y = first;
    size_t bytes = (size_t)y.count * danaus_dtype_size(desc.dtype);
    danaus_ks_plan *plan = NULL;
    danaus_ks_weights *weights = NULL;
    void *on_x = NULL, *on_y = NULL;
    y = array_make(desc.dtype, c.rows * desc.batch);
    assert_ok(danaus_ks_plan_create(device, &p, 1, &desc, &plan));
    assert_ok(danaus_ks_weights_create(plan, device, c.chain, &weights));
    assert_ok(danaus_alloc(device, bytes + CALLS * APART, &on_y));
    assert_ok(
        danaus_alloc(device, (size_t)x.count * danaus_dtype_size(desc.dtype), &on_x));
    assert_ok(danaus_upload(
        device, on_x, x.data, (size_t)x.count * danaus_dtype_size(desc.dtype)));
    for (int i = 0; i < CALLS; i++) {
        void *to = (char *)on_y + i * APART;
        assert_ok(danaus_ks_execute(plan, device, weights, desc.batch, on_x, to));
        assert_ok(danaus_download(device, (i ? y : first).data, to, bytes));
        assert_true(!i || array_same(&y, &first));
    }
    danaus_free(device, on_x);
    danaus_free(device, on_y);
    danaus_ks_weights_destroy(weights);
    danaus_ks_plan_destroy(plan);
    array_free(&x);
    array_free(&first);
    array_free(&y);
    chain_free(&c);
}

/* This holds for rows with tensor maps and clusters too, where the device has them. */
static void results_may_be_elsewhere_each_time(void **state)
{
    static const danaus_pattern patterns[] = {
        { 4, 128, 128, 1 }, { 1, 64, 64, 2 }, { 1, 128, 128, 16 }, { 2, 96, 48, 4 }
    };
    for (int i = 0; i < 4 * 6; i += share_of_cases()) {
        danaus_ks_desc desc = { .dtype = i / 4 % 3 == 0 ? DANAUS_F16 : DANAUS_F32,
                                .math = (danaus_math)(i / 4 % 3 == 1),
                                .layout = (danaus_layout)(i / 12),
                                .batch = 256 };
        move_results(*state, patterns[i % 4], desc);
    }
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(
            products_and_gradients_run_on_the_callers_stream, device),
        cmocka_unit_test_prestate(
            products_and_gradients_are_captured_in_graphs, device),
        cmocka_unit_test_prestate(the_callers_context_stays_current, device),
        cmocka_unit_test_prestate(threads_share_plans_and_weights, device),
        cmocka_unit_test_prestate(threads_plan_at_the_same_time, device),
        cmocka_unit_test_prestate(results_may_be_elsewhere_each_time, device),
    };
    int failed = cmocka_run_group_tests_name("stream", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
