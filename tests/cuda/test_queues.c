/* Devices as queues on one GPU, on the emulated driver, which knows the order of all work
   and who touches which memory: streams, scratch, graphs of the caller's, memory that is
   freed while something runs or is captured, allocators, threads. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "device/backend.h"
#include "device/tuning.h"
#include "support/device.h"
#include "support/life.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define COLUMNS 12
#define MOST    (2 * COLUMNS) /* that there is room for */
#define STREAMS 7             /* more than a device keeps scratch for */

static emulator_control *control;
static int streams[STREAMS]; /* their addresses are handles */

/* The driver as the caller uses it. */
static struct {
    int (*begin)(void *stream, int mode);
    int (*end)(void *stream, void **graph);
    int (*make)(void **made, void *graph, unsigned long long flags);
    int (*launch)(void *made, void *stream);
    int (*free_made)(void *made);
    int (*free_graph)(void *graph);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*retain)(void **context, int device);
    int (*release)(int device);
} own;

static void open_own(void)
{
    static const char *const names[] = {
        "cuStreamBeginCapture_v2",     "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags", "cuGraphLaunch",
        "cuGraphExecDestroy",          "cuGraphDestroy",
        "cuCtxPushCurrent_v2",         "cuCtxPopCurrent_v2",
        "cuDevicePrimaryCtxRetain",    "cuDevicePrimaryCtxRelease_v2"
    };
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found[10];
    _Static_assert(sizeof found == sizeof own, "a pointer a row");
    for (int i = 0; i < 10; i++)
        assert_non_null(found[i] = dlsym(driver, names[i]));
    memcpy(&own, found, sizeof own);
}

/* A chain of two factors, x, and a y for each stream, in blocks of memory of their own. */
typedef struct scene {
    danaus_device *device;
    random_chain c;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    array x, expected, found;
    void *on_x, *on_y[STREAMS];
} scene;

/* In a block of its own, from its beginning on. */
static void *put(danaus_device *device, const array *a)
{
    void *to = NULL;
    assert_ok(danaus_alloc(device, (size_t)a->count * 4, &to));
    assert_ok(danaus_upload(device, to, a->data, (size_t)a->count * 4));
    return to;
}

static danaus_status run(const scene *s, danaus_device *device, int64_t batch, void *y)
{
    return danaus_ks_execute(s->plan, device, s->weights, batch, s->on_x, y);
}

/* row: of the second factor; its products are cuBLAS', whose workspace is scratch too. */
static scene open_scene(emulator_control start, const char *row)
{
    rng r = { 1 };
    danaus_pattern p[] = { { 1, 6, 3, 2 }, { 2, 3, 6, 1 } };
    danaus_ks_desc desc = { .keep_factors = 1 };
    problem q = { .pattern = p[1], .dtype = DANAUS_F32, .batch = 4096 };
    scene s = { 0 };
    *control = start;
    assert_ok(danaus_device_open("cuda:0", &s.device));
    for (const kernel *k = s.device->kernels; k->name; k++)
        if (row && !strcmp(k->name, row))
            dn_tuning_add(s.device->tuning, &q, k, 1e-6);
    s.c = chain_random(&r, p, 2, DANAUS_F32, 1);
    s.x = array_random(&r, DANAUS_F32, s.c.cols * MOST);
    s.expected = array_make(DANAUS_F32, s.c.rows * COLUMNS);
    s.found = array_make(DANAUS_F32, s.c.rows * COLUMNS);
    assert_ok(danaus_ks_plan_create(s.device, p, 2, &desc, &s.plan));
    assert_ok(danaus_ks_weights_create(s.plan, s.device, s.c.chain, &s.weights));
    s.on_x = put(s.device, &s.x);
    array y = array_make(DANAUS_F32, s.c.rows * MOST);
    for (int i = 0; i < STREAMS; i++)
        s.on_y[i] = put(s.device, &y);
    array_free(&y);
    assert_ok(run(&s, s.device, COLUMNS, s.on_y[0]));
    assert_ok(danaus_download(
        s.device, s.expected.data, s.on_y[0], (size_t)s.expected.count * 4));
    control->watching = 1;
    return s;
}

static void expect_result(const scene *s, void *y)
{
    assert_ok(danaus_download(s->device, s->found.data, y, (size_t)s->found.count * 4));
    assert_true(array_same(&s->found, &s->expected));
}

static void close_scene(scene *s)
{
    for (int i = 0; i < STREAMS; i++)
        danaus_free(s->device, s->on_y[i]);
    danaus_free(s->device, s->on_x);
    danaus_ks_weights_destroy(s->weights);
    danaus_ks_plan_destroy(s->plan);
    danaus_device_close(s->device);
    assert_int_equal(control->races, 0);
    assert_int_equal(control->strays, 0);
    expect_nothing_lost(control, "nothing", 0);
    array_free(&s->x);
    array_free(&s->expected);
    array_free(&s->found);
    chain_free(&s->c);
}

/* With pools and without, by rows of ours and by cuBLAS. */
static void for_all(void (*test)(emulator_control start, const char *row))
{
    for (int i = 0; i < 4; i++)
        test((emulator_control){ .no_pools = i % 2 }, i / 2 ? "ks.blas.f32" : NULL);
}

/* ---- streams ---- */

static void work_on_streams(emulator_control start, const char *row)
{
    scene s = open_scene(start, row);
    for (int i = 0; i < 5 * STREAMS; i++) {
        int now = i * i % STREAMS;
        assert_ok(danaus_device_set_stream(s.device, &streams[now]));
        assert_ok(run(&s, s.device, COLUMNS - i / STREAMS, s.on_y[now]));
        assert_ptr_equal(control->stream, &streams[now]);
        assert_int_equal(control->races, 0);
    }
    assert_ok(danaus_device_sync(s.device));
    for (int i = 0; i < 40; i++) /* from graphs */
        assert_ok(run(&s, s.device, COLUMNS, s.on_y[0]));
    expect_result(&s, s.on_y[0]);
    close_scene(&s);
}

static void streams_do_not_share_scratch(void **state)
{
    (void)state;
    for_all(work_on_streams);
}

static void lend_to_streams(emulator_control start, const char *row)
{
    scene s = open_scene(start, row);
    size_t bytes;
    void *lent;
    assert_ok(danaus_ks_scratch_bytes(s.plan, s.device, COLUMNS, &bytes, NULL));
    assert_ok(danaus_alloc(s.device, bytes, &lent));
    assert_ok(danaus_device_set_scratch(s.device, lent, bytes));
    for (int i = 0; i < 20; i++) {
        assert_ok(danaus_device_set_stream(s.device, &streams[i % 2]));
        assert_ok(run(&s, s.device, COLUMNS, s.on_y[i % 2]));
        assert_int_equal(control->races, 0);
    }
    danaus_free(s.device, lent);
    close_scene(&s);
}

static void streams_take_turns_with_lent_scratch(void **state)
{
    (void)state;
    for_all(lend_to_streams);
}

/* Larger batches, more streams, and what was freed: nothing waits for the device. */
static void scratch_grows_without_stalls(void **state)
{
    (void)state;
    scene s = open_scene((emulator_control){ 0 }, NULL);
    control->stalls = 0;
    for (int i = 0; i < 3 * COLUMNS; i++) {
        assert_ok(danaus_device_set_stream(s.device, &streams[i % 3]));
        assert_ok(run(&s, s.device, 1 + i / 3, s.on_y[i % 3]));
        danaus_free(s.device, s.on_y[6]);
        s.on_y[6] = put(s.device, &s.expected);
    }
    assert_int_equal(control->stalls, 0);
    close_scene(&s);
}

/* ---- graphs of the caller's ---- */

static void *capture(const scene *s, void *stream, int64_t batch, void *y)
{
    void *graph, *made;
    assert_ok(danaus_device_set_stream(s->device, stream));
    assert_int_equal(own.begin(stream, 0), 0);
    assert_ok(run(s, s->device, batch, y));
    assert_int_equal(own.end(stream, &graph), 0);
    assert_int_equal(own.make(&made, graph, 0), 0);
    assert_int_equal(own.free_graph(graph), 0);
    return made;
}

static void launch(void *made, void *stream)
{
    void *context;
    assert_int_equal(own.retain(&context, 0), 0);
    assert_int_equal(own.push(context), 0);
    assert_int_equal(own.launch(made, stream), 0);
    assert_int_equal(own.pop(&context), 0);
    assert_int_equal(own.release(0), 0);
}

/* first: columns of a product before the capture, 0: the graph's scratch is had while
   it is captured. */
static void keep_scratch(emulator_control start, const char *row, int64_t first)
{
    rng r = { 2 };
    scene s = open_scene(start, row);
    array other = array_random(&r, DANAUS_F32, 4096),
          now = array_make(DANAUS_F32, 4096);
    assert_ok(danaus_device_set_stream(s.device, &streams[0]));
    if (first)
        assert_ok(run(&s, s.device, first, s.on_y[1]));
    void *made = capture(&s, &streams[0], 4, s.on_y[1]);
    assert_ok(run(&s, s.device, MOST, s.on_y[0])); /* more scratch */
    void *others[4];
    for (int i = 0; i < 4; i++) /* which finds the old one's place, if that is free */
        others[i] = put(s.device, &other);
    launch(made, &streams[0]);
    assert_int_equal(control->strays, 0);
    for (int i = 0; i < 4; i++) {
        assert_ok(danaus_download(s.device, now.data, others[i], 4096 * 4));
        assert_true(array_same(&now, &other));
        danaus_free(s.device, others[i]);
    }
    assert_int_equal(own.free_made(made), 0);
    close_scene(&s);
    array_free(&other);
    array_free(&now);
}

static void keep_scratch_of_before(emulator_control start, const char *row)
{
    keep_scratch(start, row, 4);
}

static void keep_scratch_of_captures(emulator_control start, const char *row)
{
    keep_scratch(start, row, 0);
}

static void a_captured_graph_keeps_its_scratch(void **state)
{
    (void)state;
    for_all(keep_scratch_of_before);
    for_all(keep_scratch_of_captures);
}

/* A graph of the device's own is launched only while there is as much scratch as it has. */
static void lent_scratch_that_shrinks_is_seen(void **state)
{
    (void)state;
    scene s = open_scene((emulator_control){ 0 }, NULL);
    size_t bytes;
    void *lent;
    assert_ok(danaus_ks_scratch_bytes(s.plan, s.device, COLUMNS, &bytes, NULL));
    assert_ok(danaus_alloc(s.device, bytes, &lent));
    for (int i = 0; i < 4; i++) {
        assert_ok(danaus_device_set_scratch(s.device, lent, bytes));
        for (int j = 0; j < 5; j++)
            assert_ok(run(&s, s.device, COLUMNS, s.on_y[0]));
        assert_ok(danaus_device_set_scratch(s.device, lent, bytes - 1));
        control->launches = 0;
        assert_status(run(&s, s.device, COLUMNS, s.on_y[0]), DANAUS_ERR_MEMORY);
        assert_int_equal(control->launches, 0);
    }
    danaus_free(s.device, lent);
    close_scene(&s);
}

/* ---- freeing ---- */

/* Weights go while another device's work still needs them. */
static void free_what_others_use(emulator_control start, const char *row)
{
    scene s = open_scene(start, row);
    danaus_device *other;
    assert_ok(danaus_device_open("cuda:0", &other));
    assert_ok(danaus_device_set_stream(s.device, &streams[0]));
    assert_ok(danaus_device_set_stream(other, &streams[1]));
    assert_ok(run(&s, other, COLUMNS, s.on_y[1]));
    assert_ok(danaus_device_set_stream(other, &streams[2]));
    assert_ok(run(&s, other, COLUMNS, s.on_y[2]));
    danaus_ks_weights_destroy(s.weights);
    s.weights = NULL;
    danaus_free(s.device, s.on_y[1]);
    s.on_y[1] = NULL;
    assert_int_equal(control->races, 0);
    danaus_device_close(other);
    close_scene(&s);
}

static void freed_memory_is_there_until_its_work_is_done(void **state)
{
    (void)state;
    for_all(free_what_others_use);
}

/* A thread that frees and allocates while this one captures, in the strictest mode. */
static void *free_meanwhile(void *arg)
{
    scene *s = arg;
    danaus_device *device = NULL;
    void *memory = NULL;
    assert_ok(danaus_device_open("cuda:0", &device));
    for (int i = 0; i < 3; i++) {
        assert_ok(danaus_alloc(device, 1000, &memory));
        assert_ok(run(s, device, MOST * (1 + i) / 3, s->on_y[3]));
        danaus_free(device, memory);
    }
    danaus_ks_plan *plan = NULL; /* whose kernel nobody has loaded */
    danaus_pattern p = { 1, 6, 5, 7 };
    danaus_ks_desc desc = { .dtype = DANAUS_F64 };
    assert_ok(danaus_ks_plan_create(device, &p, 1, &desc, &plan));
    danaus_ks_plan_destroy(plan);
    danaus_device_close(device);
    return NULL;
}

static void capture_meanwhile(emulator_control start, const char *row)
{
    scene s = open_scene(start, row);
    pthread_t thread;
    void *graph, *made;
    assert_ok(danaus_device_set_stream(s.device, &streams[0]));
    assert_int_equal(own.begin(&streams[0], 0), 0);
    int before = control->allocations;
    assert_ok(run(&s, s.device, COLUMNS, s.on_y[0]));
    danaus_free(s.device, s.on_y[6]); /* which waits for the end of the capture */
    assert_int_equal(pthread_create(&thread, NULL, free_meanwhile, &s), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(control->allocations > before);
    assert_int_equal(own.end(&streams[0], &graph), 0);
    assert_int_equal(own.make(&made, graph, 0), 0);
    launch(made, &streams[0]);
    expect_result(&s, s.on_y[0]);
    s.on_y[6] = put(s.device, &s.expected);
    assert_int_equal(control->allocations, before + 1); /* the graph's scratch */
    assert_int_equal(own.free_made(made), 0);
    assert_int_equal(own.free_graph(graph), 0);
    close_scene(&s);
}

static void memory_comes_and_goes_while_others_capture(void **state)
{
    (void)state;
    for_all(capture_meanwhile);
}

/* ---- allocators ---- */

typedef struct arena {
    danaus_device *device;
    void *memory;
    size_t most;
    int calls, taken, shift, fails;
    void *stream;
} arena;

static danaus_status arena_alloc(void *user, size_t bytes, void *stream, void **memory)
{
    arena *a = user;
    if (a->fails)
        return DANAUS_ERR_UNSUPPORTED;
    assert_int_equal(a->taken, 0);
    assert_true(bytes > 0 && bytes <= a->most);
    a->calls++;
    a->taken = 1;
    a->stream = stream;
    *memory = (char *)a->memory + a->shift;
    return DANAUS_OK;
}

static void arena_free(void *user, void *memory, void *stream)
{
    arena *a = user;
    assert_int_equal(a->taken, 1);
    assert_ptr_equal(memory, (char *)a->memory + a->shift);
    assert_ptr_equal(stream, a->stream);
    a->taken = 0;
}

static void use_allocator(emulator_control start, const char *row)
{
    scene s = open_scene(start, row);
    size_t bytes;
    assert_ok(danaus_ks_scratch_bytes(s.plan, s.device, COLUMNS, &bytes, NULL));
    arena a = { .most = bytes };
    danaus_allocator allocator = { &a, arena_alloc, arena_free, { NULL } };
    assert_ok(danaus_alloc(s.device, bytes + 256, &a.memory));
    int before = control->allocations;
    assert_ok(danaus_device_set_allocator(s.device, &allocator));
    assert_int_equal(control->allocations, before - 1); /* nothing stays */
    assert_ok(danaus_device_set_stream(s.device, &streams[3]));
    for (int i = 0; i < 20; i++) {
        a.shift = i / 5 % 2 * 256;
        assert_ok(run(&s, s.device, COLUMNS, s.on_y[0]));
        assert_int_equal(a.calls, i + 1);
        assert_int_equal(a.taken, 0);
        assert_ptr_equal(a.stream, &streams[3]);
        expect_result(&s, s.on_y[0]);
    }
    assert_int_equal(control->allocations, before - 1);
    control->launches = 0;
    a.fails = 1;
    assert_status(run(&s, s.device, COLUMNS, s.on_y[0]), DANAUS_ERR_UNSUPPORTED);
    a.fails = 0;
    a.shift = 64;
    assert_status(run(&s, s.device, COLUMNS, s.on_y[0]), DANAUS_ERR_ARGUMENT);
    assert_int_equal(a.taken, 0);
    assert_int_equal(control->launches, 0);
    assert_ok(danaus_device_set_allocator(s.device, NULL));
    a.calls = 0;
    assert_ok(run(&s, s.device, COLUMNS, s.on_y[0]));
    assert_int_equal(a.calls, 0);
    danaus_free(s.device, a.memory);
    close_scene(&s);
}

static void an_allocator_gets_its_scratch_back(void **state)
{
    (void)state;
    for_all(use_allocator);
}

/* ---- threads ---- */

typedef struct visitor {
    const scene *s;
    void *y;
    danaus_status status;
} visitor;

static void *visit(void *arg)
{
    visitor *v = arg;
    for (int i = 0; i < 10 && v->status == DANAUS_OK; i++) {
        danaus_device *device = NULL;
        void *memory = NULL;
        v->status = danaus_device_open("cuda:0", &device);
        v->status = v->status ? v->status : danaus_alloc(device, 100, &memory);
        v->status = v->status ? v->status : run(v->s, device, COLUMNS, v->y);
        danaus_free(device, memory);
        danaus_device_close(device);
    }
    return NULL;
}

/* Devices come and go in threads, and at last the GPU with them. */
static void threads_open_and_close_at_once(void **state)
{
    (void)state;
    scene s = open_scene((emulator_control){ 0 }, "ks.blas.f32");
    pthread_t threads[4];
    visitor v[4];
    control->watching = 0; /* all threads are one stream */
    for (int i = 0; i < 4; i++) {
        v[i] = (visitor){ &s, s.on_y[i], DANAUS_OK };
        assert_int_equal(pthread_create(&threads[i], NULL, visit, &v[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_ok(v[i].status);
        expect_result(&s, s.on_y[i]);
    }
    close_scene(&s);
}

static void *come_and_go(void *arg)
{
    danaus_status *status = arg;
    for (int i = 0; i < 50 && *status == DANAUS_OK; i++) {
        danaus_device *device = NULL;
        *status = danaus_device_open("cuda:0", &device);
        danaus_device_close(device);
    }
    return NULL;
}

static void the_last_device_may_close_while_another_opens(void **state)
{
    (void)state;
    pthread_t threads[3];
    danaus_status status[3] = { DANAUS_OK };
    *control = (emulator_control){ 0 };
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &status[i]), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_ok(status[i]);
    }
    expect_nothing_lost(control, "nothing", 0);
}

int main(void)
{
    control = need_emulator();
    open_own();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_do_not_share_scratch),
        cmocka_unit_test(streams_take_turns_with_lent_scratch),
        cmocka_unit_test(scratch_grows_without_stalls),
        cmocka_unit_test(a_captured_graph_keeps_its_scratch),
        cmocka_unit_test(lent_scratch_that_shrinks_is_seen),
        cmocka_unit_test(freed_memory_is_there_until_its_work_is_done),
        cmocka_unit_test(memory_comes_and_goes_while_others_capture),
        cmocka_unit_test(an_allocator_gets_its_scratch_back),
        cmocka_unit_test(threads_open_and_close_at_once),
        cmocka_unit_test(the_last_device_may_close_while_another_opens),
    };
    return cmocka_run_group_tests_name("queues", tests, NULL, NULL);
}
