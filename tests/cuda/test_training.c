/* A training step of a layer with a bias, on the emulated driver: numbers of the device's
   memory are packed, the product is made, then all gradients, with what was packed once. How
   many launches of ours, and calls of cuBLAS, that takes is counted: each costs some 3 us,
   which is what a small product takes. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "emulator/emulator.h"
#include "support/chains.h"
#include "support/device.h"
#include "support/life.h"

#include <stdlib.h>
#include <string.h>

static emulator_control *control;

/* Launches and calls that a step may make: packing, the product, gradients. */
typedef struct most {
    const char *patterns;
    int64_t batch;
    long pack, product, gradient;
} most;

/* What a step works on; numbers do not matter. */
typedef struct step {
    danaus_device *device;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    danaus_pattern p[2];
    int64_t batch;
    void *w[2], *bias, *x, *y, *dx, *dw[2], *dbias, *packed;
} step;

static void *room(const step *s, int64_t bytes)
{
    void *memory = NULL;
    assert_ok(danaus_alloc(s->device, (size_t)bytes, &memory));
    return memory;
}

static step begin(const most *m, danaus_dtype dtype)
{
    int count = 0;
    size_t bytes = 0;
    step s = { .batch = m->batch };
    danaus_ks_desc desc = {
        .dtype = dtype, .batch = m->batch, .gradients = 1, .fresh_weights = 1, .bias = 1
    };
    assert_ok(danaus_patterns_parse(m->patterns, s.p, 2, &count));
    assert_ok(danaus_device_open("cuda:0", &s.device));
    assert_ok(danaus_ks_plan_create(s.device, s.p, 2, &desc, &s.plan));
    assert_ok(danaus_ks_weights_create_unbound(s.plan, s.device, &s.weights));
    assert_ok(danaus_ks_weights_bytes(s.plan, &bytes));
    int64_t rows = rows_of(s.p[0]), cols = cols_of(s.p[1]);
    s.packed = room(&s, (int64_t)bytes);
    s.bias = room(&s, 4 * rows);
    s.dbias = room(&s, 4 * rows);
    s.x = room(&s, 4 * cols * s.batch);
    s.dx = room(&s, 4 * cols * s.batch);
    s.y = room(&s, 4 * rows * s.batch);
    for (int l = 0; l < 2; l++) {
        s.w[l] = room(&s, 4 * weights_of(s.p[l]));
        s.dw[l] = room(&s, 4 * weights_of(s.p[l]));
    }
    return s;
}

static void end(step *s)
{
    void *all[] = { s->w[0], s->w[1],  s->bias,  s->x,     s->y,
                    s->dx,   s->dw[0], s->dw[1], s->dbias, s->packed };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        danaus_free(s->device, all[i]);
    danaus_ks_weights_destroy(s->weights);
    danaus_ks_plan_destroy(s->plan);
    danaus_device_close(s->device);
}

static long work(void)
{
    long done = control->launches + control->products;
    control->launches = control->products = 0;
    return done;
}

static void expect_most(const most *m, const char *what, long found, long limit)
{
    if (found > limit) {
        print_error(
            "%s, %d rows: %s takes %ld launches, not %ld\n", m->patterns, (int)m->batch,
            what, found, limit);
        fail();
    }
}

static void expect_few(const most *m, danaus_dtype dtype)
{
    step s = begin(m, dtype);
    danaus_ks_gradients all = { .dx = s.dx, .dw = s.dw, .dbias = s.dbias };
    work();
    assert_ok(danaus_ks_weights_bind(s.weights, s.packed, 1));
    assert_ok(danaus_ks_weights_update_from(
        s.weights, s.device, DANAUS_F32, (const void *const *)s.w, s.bias));
    expect_most(m, "packing", work(), m->pack);
    assert_ok(danaus_ks_execute(s.plan, s.device, s.weights, s.batch, s.x, s.y));
    expect_most(m, "the product", work(), m->product);
    assert_ok(danaus_ks_gradient(s.plan, s.device, s.weights, s.batch, s.x, s.y, &all));
    expect_most(m, "going back", work(), m->gradient);
    end(&s);
}

/* The layers of ViT-S/16. Going back: x of the left factor again, dx of both and parts of both
   dw; what adds up parts, and makes dbias of few rows, in one launch; parts of dbias. */
static const most layers[] = {
    { "1,192,48,2 2,48,192,1", 8, 1, 2, 6 },
    { "1,768,192,2 6,64,64,1", 196, 1, 2, 6 },
    { "1,128,128,3 6,64,256,1", 1024, 1, 2, 7 },
};

static void a_step_makes_few_launches(void **state)
{
    (void)state;
    static const danaus_dtype types[] = { DANAUS_F16, DANAUS_BF16, DANAUS_F32 };
    setenv("EMULATED_ARCH", "90", 1);
    for (int i = 0; i < 3; i++)
        for (int t = 0; t < (layers[i].batch < 1000 ? 3 : 1); t++)
            expect_few(&layers[i], types[t]);
    unsetenv("EMULATED_ARCH");
}

/* Eight factors, whose parts are 4 MiB each or more. */
static void parts_that_wait_take_little_memory(void **state)
{
    (void)state;
    danaus_ks_desc desc = { .dtype = DANAUS_F16, .batch = 4096, .gradients = 1 };
    danaus_device *device = NULL;
    danaus_ks_plan *plan = NULL;
    danaus_pattern p[8];
    size_t bytes = 0, vector = (size_t)2048 * 4096;
    for (int l = 0; l < 8; l++)
        p[l] = (danaus_pattern){ 1, 1024, 1024, 1 };
    setenv("EMULATED_ARCH", "90", 1);
    assert_ok(danaus_device_open("cuda:0", &device));
    assert_ok(danaus_ks_plan_create(device, p, 8, &desc, &plan));
    assert_ok(danaus_ks_scratch_bytes(plan, device, 4096, NULL, &bytes));
    /* x of seven factors, dy of two, copies of x and dy, and a workspace */
    assert_in_range(bytes, 9 * vector, 11 * vector + ((16 + 32) << 20));
    danaus_ks_plan_destroy(plan);
    danaus_device_close(device);
    unsetenv("EMULATED_ARCH");
}

/* ---- branches ---- */

/* A chain whose gradients are made again and again, where they were. */
typedef struct scene {
    danaus_device *device;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    random_chain c;
    array x, dy, other, results; /* other x and dy; dx, dw of all, dbias */
    int64_t batch;
    void *on_x, *on_dy, *on_results;
} scene;

static scene scene_make(rng *r, int count, danaus_dtype dtype, danaus_layout layout)
{
    danaus_pattern p[4];
    danaus_ks_desc desc = { .dtype = dtype, .layout = layout, .gradients = 1 };
    scene s = { .batch = rng_int(r, 1, 700) };
    random_patterns(r, count, 30, p);
    s.c = chain_random(r, p, count, dtype, 1);
    int64_t numbers = s.c.cols * s.batch + s.c.rows + 64;
    for (int l = 0; l < count; l++)
        numbers += weights_of(p[l]) + 64;
    s.x = array_random(r, dtype, s.c.cols * s.batch);
    s.dy = array_random(r, dtype, s.c.rows * s.batch);
    s.other = array_random(r, dtype, (s.c.cols + s.c.rows) * s.batch);
    s.results = array_make(DANAUS_F32, numbers);
    assert_ok(danaus_device_open("cuda:0", &s.device));
    assert_ok(danaus_ks_plan_create(s.device, p, count, &desc, &s.plan));
    assert_ok(danaus_ks_weights_create(s.plan, s.device, s.c.chain, &s.weights));
    s.on_x = to_device(s.device, &s.x);
    s.on_dy = to_device(s.device, &s.dy);
    s.on_results = to_device(s.device, &s.results);
    return s;
}

static void scene_free(scene *s)
{
    from_device(s->device, &s->x, s->on_x);
    from_device(s->device, &s->dy, s->on_dy);
    from_device(s->device, &s->results, s->on_results);
    danaus_ks_weights_destroy(s->weights);
    danaus_ks_plan_destroy(s->plan);
    danaus_device_close(s->device);
    array_free(&s->x);
    array_free(&s->dy);
    array_free(&s->other);
    array_free(&s->results);
    chain_free(&s->c);
}

/* x and dy, or the others. */
static void put_operands(const scene *s, int others)
{
    size_t size = danaus_dtype_size(s->x.dtype), bytes = (size_t)s->x.count * size;
    const char *other = s->other.data;
    assert_ok(danaus_upload(s->device, s->on_x, others ? other : s->x.data, bytes));
    assert_ok(danaus_upload(
        s->device, s->on_dy, others ? other + bytes : s->dy.data,
        (size_t)s->dy.count * size));
}

/* The results of a call, as bits, and how often a stream waited for another. */
static int go_back_again(const scene *s, array *results)
{
    float *to = s->on_results;
    void *dw[4];
    danaus_ks_gradients all = { .dx = to, .dw = dw };
    size_t bytes = (size_t)results->count * sizeof(float);
    memset(results->data, 0, bytes);
    assert_ok(danaus_upload(s->device, s->on_results, results->data, bytes));
    to += s->c.cols * s->batch;
    for (int l = 0; l < s->c.count; l++) {
        dw[l] = to;
        to += weights_of(s->c.p[l]);
    }
    all.dbias = to;
    control->function = "cuStreamWaitEvent";
    control->number = control->calls = 0;
    assert_ok(danaus_ks_gradient(
        s->plan, s->device, s->weights, s->batch, s->on_x, s->on_dy, &all));
    control->function = NULL;
    assert_ok(danaus_download(s->device, results->data, s->on_results, bytes));
    return control->calls;
}

/* The first call launches, the second captures and is a graph, as is the third, which finds
   in scratch what the second one left of other operands. */
static void branches_of_a_graph_give_the_same(void **state)
{
    (void)state;
    int branched = 0;
    for (int round = 0; round < rounds_of(40) + 8; round++) {
        rng r = { (uint64_t)round };
        scene s = scene_make(
            &r, 1 + round % 4, round % 2 ? DANAUS_F16 : DANAUS_F32,
            (danaus_layout)(round / 4 % 2));
        array results[3];
        for (int i = 0; i < 3; i++) {
            results[i] = array_make(DANAUS_F32, s.results.count);
            put_operands(&s, i == 1);
            int waits = go_back_again(&s, &results[i]);
            assert_true(i == 1 || waits == 0);
            branched += waits == 2;
        }
        assert_true(array_same(&results[0], &results[2]));
        assert_false(array_same(&results[0], &results[1]));
        for (int i = 0; i < 3; i++)
            array_free(&results[i]);
        scene_free(&s);
    }
    assert_in_range(branched, 6, 48);
}

int main(void)
{
    control = need_emulator();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_makes_few_launches),
        cmocka_unit_test(parts_that_wait_take_little_memory),
        cmocka_unit_test(branches_of_a_graph_give_the_same),
    };
    return cmocka_run_group_tests_name("training", tests, NULL, NULL);
}
