/* Weights whose numbers come from the device's memory are those that come from a chain:
   packed again at once, a factor at a time, or in part. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "device/backend.h"
#include "support/chains.h"
#include "support/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A chain of numbers of one type, a plan for another, and x. */
typedef struct scene {
    danaus_device *device;
    random_chain c;
    danaus_ks_desc desc;
    danaus_ks_plan *plan;
    int64_t batch;
    array x;
    void *w[DANAUS_MAX_FACTORS],
        *bias; /* the chain's numbers, in the device's memory */
} scene;

static int merges(const scene *s)
{
    char text[4096];
    danaus_ks_plan_describe(s->plan, text, sizeof text);
    return strstr(text, "merged") != NULL;
}

static scene scene_make(
    danaus_device *device, rng *r, const danaus_pattern *p, int count,
    danaus_dtype given, danaus_dtype wanted)
{
    scene s = { .device = device, .batch = rng_int(r, 1, 20) };
    s.desc = (danaus_ks_desc){ .dtype = wanted,
                               .layout = (danaus_layout)(rng_next(r) % 2),
                               .adjoint = (int)(rng_next(r) % 2),
                               .gradients = (int)(rng_next(r) % 2),
                               .fresh_weights = rng_next(r) % 4 == 0,
                               .keep_factors = (int)(rng_next(r) % 2),
                               .batch = s.batch };
    s.c = chain_random(r, p, count, given, (int)(rng_next(r) % 2));
    s.x = array_random(r, wanted, inputs_of(&s.c, s.desc.adjoint) * s.batch);
    for (int l = 0; l < count; l++)
        s.w[l] = to_device(device, &s.c.w[l]);
    s.bias = to_device(device, &s.c.bias);
    assert_ok(danaus_ks_plan_create(device, p, count, &s.desc, &s.plan));
    return s;
}

static scene scene_random(
    danaus_device *device, rng *r, danaus_dtype given, danaus_dtype wanted)
{
    danaus_pattern p[4];
    int count = (int)rng_int(r, 1, 4);
    random_patterns(r, count, 40, p);
    return scene_make(device, r, p, count, given, wanted);
}

static void scene_free(scene *s)
{
    for (int l = 0; l < s->c.count; l++)
        from_device(s->device, &s->c.w[l], s->w[l]);
    from_device(s->device, &s->c.bias, s->bias);
    danaus_ks_plan_destroy(s->plan);
    array_free(&s->x);
    chain_free(&s->c);
}

static array run(const scene *s, const danaus_ks_weights *weights)
{
    array y = array_make(s->desc.dtype, outputs_of(&s->c, s->desc.adjoint) * s->batch);
    void *x = to_device(s->device, &s->x), *to = to_device(s->device, &y);
    assert_ok(danaus_ks_execute(s->plan, s->device, weights, s->batch, x, to));
    from_device(s->device, &s->x, x);
    from_device(s->device, &y, to);
    return y;
}

/* dx and dw of the first factor, with x as dy where it has the size of y; else of zeros. */
static gradients run_back(const scene *s, const danaus_ks_weights *weights)
{
    gradients g = gradients_make(&s->c, &s->desc, s->batch);
    array dy = array_make(s->desc.dtype, outputs_of(&s->c, s->desc.adjoint) * s->batch);
    for (int64_t i = 0; i < dy.count; i++)
        element_put(
            dy.dtype, dy.data, i, element_get(s->x.dtype, s->x.data, i % s->x.count));
    void *x = to_device(s->device, &s->x), *on_dy = to_device(s->device, &dy);
    void *dw[DANAUS_MAX_FACTORS];
    for (int l = 0; l < g.count; l++)
        dw[l] = to_device(s->device, &g.dw[l]);
    danaus_ks_gradients wanted = { .dx = to_device(s->device, &g.dx), .dw = dw };
    assert_ok(
        danaus_ks_gradient(s->plan, s->device, weights, s->batch, x, on_dy, &wanted));
    from_device(s->device, &s->x, x);
    from_device(s->device, &dy, on_dy);
    from_device(s->device, &g.dx, wanted.dx);
    for (int l = 0; l < g.count; l++)
        from_device(s->device, &g.dw[l], dw[l]);
    array_free(&dy);
    return g;
}

/* Expects the same bits of both, forward and backward. A device multiplies merged factors in its
   own order; then the product is compared with the oracle's. */
static void expect_same(
    const scene *s, const danaus_ks_weights *found, const danaus_ks_weights *expected,
    const char *what)
{
    char text[1200];
    array y = run(s, found), z = run(s, expected);
    snprintf(text, sizeof text, "%s %s", what, name_of_case(&s->c, &s->desc, s->batch));
    signal exact = multiply_exactly(&s->c, &s->desc, s->batch, &s->x);
    expect_signal(&y, s->desc.layout, &exact, text);
    if (!merges(s) && !array_same(&y, &z)) {
        print_error("%s\n", text);
        fail();
    }
    signal_free(&exact);
    array_free(&y);
    array_free(&z);
    if (!s->desc.gradients)
        return;
    gradients g = run_back(s, found), h = run_back(s, expected);
    assert_true(array_same(&g.dx, &h.dx));
    for (int l = 0; l < g.count; l++)
        assert_true(array_same(&g.dw[l], &h.dw[l]));
    gradients_free(&g);
    gradients_free(&h);
}

static void check_scene(const scene *s)
{
    danaus_ks_weights *expected = NULL, *weights = NULL;
    danaus_chain *zeros = NULL;
    const void *const *w = (const void *const *)s->w;
    const void *one[DANAUS_MAX_FACTORS] = { 0 };
    danaus_dtype type = s->c.dtype;
    assert_ok(danaus_chain_create(s->c.p, s->c.count, s->desc.dtype, &zeros));
    assert_ok(danaus_ks_weights_create(s->plan, s->device, s->c.chain, &expected));
    for (int made_of_zeros = 0; made_of_zeros < 2; made_of_zeros++) {
        assert_ok(danaus_ks_weights_create(
            s->plan, s->device, made_of_zeros ? zeros : NULL, &weights));
        assert_ok(danaus_ks_weights_update_from(
            weights, s->device, type, w, made_of_zeros ? NULL : s->bias));
        assert_ok(
            danaus_ks_weights_update_from(weights, s->device, type, NULL, s->bias));
        expect_same(s, weights, expected, "all at once:");
        danaus_ks_weights_destroy(weights);
    }
    assert_ok(danaus_ks_weights_create(s->plan, s->device, NULL, &weights));
    assert_ok(danaus_ks_weights_update_from(weights, s->device, type, one, s->bias));
    for (int l = s->c.count - 1; l >= 0 && !merges(s); l--) {
        one[l] = s->w[l];
        assert_ok(danaus_ks_weights_update_from(weights, s->device, type, one, NULL));
        one[l] = NULL;
    }
    if (!merges(s))
        expect_same(s, weights, expected, "one by one:");
    danaus_ks_weights_destroy(weights);
    danaus_ks_weights_destroy(expected);
    danaus_chain_destroy(zeros);
}

static void numbers_of_every_type_are_those_of_a_chain(void **state)
{
    for (int from = 0; from < TEST_DTYPES; from++)
        for (int to = 0; to < TEST_DTYPES; to++)
            for (int round = 0; round < rounds_of(30); round++) {
                danaus_dtype given = test_dtypes[from], wanted = test_dtypes[to];
                rng r = { (uint64_t)(round * 36 + from * 6 + to) };
                if (precision_of(given).complex != precision_of(wanted).complex)
                    continue;
                scene s = scene_random(*state, &r, given, wanted);
                check_scene(&s);
                scene_free(&s);
            }
}

/* Chains that planners like to merge; some are given in part. */
static void merged_factors_are_given_together(void **state)
{
    static const char *const chains[] = {
        "1,2,2,8 2,2,2,4 4,2,2,2 8,2,2,1",
        "1,4,1,1 1,1,4,1",
        "1,3,3,9 3,3,3,3 9,3,3,1",
        "1,1,1,64 64,1,1,1 1,1,1,64",
    };
    int merged = 0;
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++)
        for (int t = 0; t < TEST_DTYPES; t++) {
            rng r = { i };
            danaus_pattern p[4];
            int count = 0;
            const void *part[4] = { 0 };
            assert_ok(danaus_patterns_parse(chains[i], p, 4, &count));
            scene s = scene_make(*state, &r, p, count, test_dtypes[t], test_dtypes[t]);
            check_scene(&s);
            danaus_ks_weights *weights = NULL;
            assert_ok(danaus_ks_weights_create(s.plan, *state, s.c.chain, &weights));
            array before = run(&s, weights);
            part[0] = s.w[count - 1];
            danaus_status status = danaus_ks_weights_update_from(
                weights, *state, test_dtypes[t], part, NULL);
            if (merges(&s) && count == 2) {
                assert_status(status, DANAUS_ERR_ARGUMENT);
                array after = run(&s, weights);
                assert_true(array_same(&before, &after));
                array_free(&after);
                merged++;
            }
            array_free(&before);
            danaus_ks_weights_destroy(weights);
            scene_free(&s);
        }
    assert_true(merged > 0);
}

static void without_a_chain_weights_are_zero(void **state)
{
    rng r = { 5 };
    danaus_pattern p[2] = { { 2, 30, 40, 5 }, { 10, 40, 20, 1 } };
    for (int t = 0; t < TEST_DTYPES; t++) {
        danaus_ks_weights *weights = NULL;
        scene s = scene_make(*state, &r, p, 2, test_dtypes[t], test_dtypes[t]);
        assert_ok(danaus_ks_weights_create(s.plan, *state, NULL, &weights));
        array y = run(&s, weights);
        for (int64_t i = 0; i < y.count; i++) {
            value v = element_get(y.dtype, y.data, i);
            assert_true(v.re == 0 && v.im == 0);
        }
        array_free(&y);
        danaus_ks_weights_destroy(weights);
        scene_free(&s);
    }
}

/* ---- memory of the caller's ---- */

#define GUARD      512 /* bytes before and behind, at least */
#define HOST_ALIGN 64

/* Memory for a scene's packed weights, between guard bytes; everything is 0xa5. */
typedef struct lent {
    size_t bytes; /* of all */
    unsigned char *filling;
    char *memory;
    void *packed;
} lent;

static lent lend(const scene *s)
{
    lent l = { 0 };
    assert_ok(danaus_ks_weights_bytes(s->plan, &l.bytes));
    l.bytes += 2 * GUARD + HOST_ALIGN;
    assert_non_null(l.filling = malloc(l.bytes));
    memset(l.filling, 0xa5, l.bytes);
    void *memory = NULL;
    assert_ok(danaus_alloc(s->device, l.bytes, &memory));
    assert_ok(danaus_upload(s->device, memory, l.filling, l.bytes));
    l.memory = memory;
    l.packed = l.memory + GUARD + (s->device->backend->on_host ? HOST_ALIGN : 0);
    return l;
}

static void return_lent(const scene *s, lent *l)
{
    assert_ok(danaus_device_sync(s->device));
    assert_ok(danaus_download(s->device, l->filling, l->memory, l->bytes));
    for (size_t i = 0; i < GUARD; i++)
        assert_true(l->filling[i] == 0xa5 && l->filling[l->bytes - 1 - i] == 0xa5);
    danaus_free(s->device, l->memory);
    free(l->filling);
}

/* A second chain for the plan of the first. */
static scene scene_beside(const scene *s, rng *r)
{
    scene t = *s;
    t.c = chain_random(r, s->c.p, s->c.count, s->c.dtype, s->c.bias.count > 0);
    for (int l = 0; l < t.c.count; l++)
        t.w[l] = to_device(t.device, &t.c.w[l]);
    t.bias = to_device(t.device, &t.c.bias);
    return t;
}

static void check_two_memories(const scene *s, const scene *t)
{
    const scene *scenes[2] = { s, t };
    danaus_ks_weights *light = NULL, *second = NULL, *expected[2] = { NULL };
    lent memory[2] = { lend(s), lend(t) };
    assert_ok(danaus_ks_weights_create_unbound(s->plan, s->device, &light));
    assert_ok(danaus_ks_weights_create_unbound(s->plan, s->device, &second));
    for (int i = 0; i < 2; i++) {
        const void *const *w = (const void *const *)scenes[i]->w;
        assert_ok(danaus_ks_weights_create(
            s->plan, s->device, scenes[i]->c.chain, &expected[i]));
        assert_ok(danaus_ks_weights_bind(light, memory[i].packed, 0));
        assert_ok(danaus_ks_weights_update_from(
            light, s->device, s->c.dtype, w, scenes[i]->bias));
    }
    for (int i = 0; i < 2; i++) {
        int has_bias = scenes[i]->bias != NULL;
        assert_ok(danaus_ks_weights_bind(light, memory[i].packed, has_bias));
        expect_same(scenes[i], light, expected[i], "bound again:");
        assert_ok(danaus_ks_weights_bind(second, memory[i].packed, has_bias));
        expect_same(scenes[i], second, expected[i], "by another object:");
        assert_ok(danaus_ks_weights_update(light, s->device, scenes[!i]->c.chain));
    }
    assert_ok(danaus_ks_weights_bind(light, memory[0].packed, t->bias != NULL));
    expect_same(t, light, expected[1], "packed again from the host:");
    for (int i = 0; i < 2; i++)
        danaus_ks_weights_destroy(expected[i]);
    danaus_ks_weights_destroy(light);
    danaus_ks_weights_destroy(second);
    return_lent(s, &memory[0]);
    return_lent(t, &memory[1]);
}

static void one_object_serves_any_number_of_memories(void **state)
{
    for (int round = 0; round < rounds_of(60); round++) {
        rng r = { (uint64_t)round };
        danaus_dtype given = test_dtypes[round % 4],
                     wanted = test_dtypes[round / 4 % 4];
        if (round % 5 == 4)
            given = wanted = test_dtypes[4 + round % 2];
        scene s = scene_random(*state, &r, given, wanted), t = scene_beside(&s, &r);
        check_two_memories(&s, &t);
        for (int l = 0; l < t.c.count; l++)
            from_device(t.device, &t.c.w[l], t.w[l]);
        from_device(t.device, &t.c.bias, t.bias);
        chain_free(&t.c);
        scene_free(&s);
    }
}

/* Packs a scene's numbers for a plan of another batch. */
static lent pack_for(scene *s, int64_t batch, char *text, size_t size)
{
    danaus_ks_plan *own = s->plan;
    danaus_ks_weights *light = NULL;
    danaus_ks_desc desc = s->desc;
    desc.batch = batch;
    assert_ok(danaus_ks_plan_create(s->device, s->c.p, s->c.count, &desc, &s->plan));
    danaus_ks_plan_describe(s->plan, text, size);
    lent l = lend(s);
    assert_ok(danaus_ks_weights_create_unbound(s->plan, s->device, &light));
    assert_ok(danaus_ks_weights_bind(light, l.packed, 0));
    assert_ok(danaus_ks_weights_update_from(
        light, s->device, s->c.dtype, (const void *const *)s->w, s->bias));
    danaus_ks_weights_destroy(light);
    assert_ok(danaus_download(s->device, l.filling, l.memory, l.bytes));
    danaus_ks_plan_destroy(s->plan);
    s->plan = own;
    return l;
}

static void plans_that_are_described_alike_pack_alike(void **state)
{
    int alike = 0;
    for (int round = 0; round < rounds_of(60); round++) {
        rng r = { (uint64_t)round };
        char text[2][4096];
        danaus_dtype type = test_dtypes[round % TEST_DTYPES];
        scene s = scene_random(*state, &r, type, type);
        s.desc.gradients = 0;
        int64_t few = rng_int(&r, 1, 30),
                many = round % 2 ? rng_int(&r, 31, 5000) : few + 1;
        lent a = pack_for(&s, few, text[0], sizeof text[0]);
        lent b = pack_for(&s, many, text[1], sizeof text[1]);
        if (!strcmp(text[0], text[1])) {
            assert_int_equal(a.bytes, b.bytes);
            assert_memory_equal(a.filling, b.filling, a.bytes);
            alike++;
        }
        return_lent(&s, &a);
        return_lent(&s, &b);
        scene_free(&s);
    }
    assert_true(alike > 0);
}

/* ---- many updates in one call ---- */

#define MOST_SCENES 5
#define MOST_BLOCKS                                                                    \
    3 /* of a scene's weights: all in memory of the caller's, or in their own */

/* A scene, and chains beside it for the same plan. */
typedef struct crowd {
    scene of[MOST_BLOCKS];
    int count;
    danaus_ks_weights *weights, *expected[MOST_BLOCKS];
    lent memory[MOST_BLOCKS];
} crowd;

static crowd crowd_make(danaus_device *device, rng *r)
{
    danaus_dtype given, wanted;
    do {
        given = test_dtypes[rng_int(r, 0, TEST_DTYPES - 1)];
        wanted = test_dtypes[rng_int(r, 0, TEST_DTYPES - 1)];
    } while (precision_of(given).complex != precision_of(wanted).complex);
    crowd c = { .count = (int)rng_int(r, 1, MOST_BLOCKS) };
    c.of[0] = scene_random(device, r, given, wanted);
    int own = c.count == 1 && rng_next(r) % 2;
    if (own)
        assert_ok(danaus_ks_weights_create(c.of[0].plan, device, NULL, &c.weights));
    else
        assert_ok(danaus_ks_weights_create_unbound(c.of[0].plan, device, &c.weights));
    for (int i = 0; i < c.count; i++) {
        if (i)
            c.of[i] = scene_beside(&c.of[0], r);
        if (!own)
            c.memory[i] = lend(&c.of[0]);
        assert_ok(danaus_ks_weights_create(
            c.of[0].plan, device, c.of[i].c.chain, &c.expected[i]));
    }
    return c;
}

static danaus_ks_update update_of(const crowd *c, int block)
{
    const scene *s = &c->of[block];
    return (danaus_ks_update){ .weights = c->weights,
                               .memory = c->memory[block].packed,
                               .w = (const void *const *)s->w,
                               .bias = s->bias,
                               .dtype = s->c.dtype };
}

static void crowd_check(const crowd *c)
{
    for (int i = 0; i < c->count; i++) {
        if (c->memory[i].packed)
            assert_ok(danaus_ks_weights_bind(
                c->weights, c->memory[i].packed, c->of[i].bias != NULL));
        expect_same(&c->of[i], c->weights, c->expected[i], "of many:");
    }
}

static void crowd_free(crowd *c)
{
    danaus_ks_weights_destroy(c->weights);
    for (int i = c->count - 1; i >= 0; i--) {
        danaus_ks_weights_destroy(c->expected[i]);
        if (c->memory[i].packed)
            return_lent(&c->of[0], &c->memory[i]);
        for (int l = 0; i && l < c->of[i].c.count; l++)
            from_device(c->of[i].device, &c->of[i].c.w[l], c->of[i].w[l]);
        if (i) {
            from_device(c->of[i].device, &c->of[i].c.bias, c->of[i].bias);
            chain_free(&c->of[i].c);
        }
    }
    scene_free(&c->of[0]);
}

/* Blocks of the caller's memory are as they were: 0xa5. */
static void expect_untouched(const crowd *c)
{
    for (int i = 0; i < c->count; i++) {
        const lent *l = &c->memory[i];
        if (!l->packed)
            continue;
        assert_ok(danaus_device_sync(c->of[0].device));
        assert_ok(danaus_download(c->of[0].device, l->filling, l->memory, l->bytes));
        for (size_t n = 0; n < l->bytes; n++)
            assert_int_equal(l->filling[n], 0xa5);
    }
}

static void many_updates_are_what_each_is(void **state)
{
    for (int round = 0; round < rounds_of(60); round++) {
        rng r = { (uint64_t)round };
        danaus_ks_update updates[MOST_SCENES * MOST_BLOCKS];
        crowd crowds[MOST_SCENES];
        int scenes = (int)rng_int(&r, 0, MOST_SCENES), count = 0;
        for (int n = 0; n < scenes; n++) {
            crowds[n] = crowd_make(*state, &r);
            for (int i = 0; i < crowds[n].count; i++)
                updates[count++] = update_of(&crowds[n], i);
        }
        if (count) { /* the last is wrong */
            danaus_dtype dtype = updates[count - 1].dtype;
            updates[count - 1].dtype = (danaus_dtype)77;
            assert_status(
                danaus_ks_weights_update_many(*state, count, updates),
                DANAUS_ERR_ARGUMENT);
            updates[count - 1].dtype = dtype;
        }
        for (int n = 0; n < scenes; n++)
            expect_untouched(&crowds[n]);
        assert_ok(danaus_ks_weights_update_many(*state, count, updates));
        for (int n = 0; n < scenes; n++) {
            crowd_check(&crowds[n]);
            crowd_free(&crowds[n]);
        }
    }
}

static void wrong_updates_are_refused(void **state)
{
    rng r = { 11 };
    danaus_pattern p = { 2, 3, 4, 5 };
    scene s = scene_make(*state, &r, &p, 1, DANAUS_F32, DANAUS_F32);
    danaus_ks_weights *light = NULL, *own = NULL;
    lent memory = lend(&s);
    assert_ok(danaus_ks_weights_create_unbound(s.plan, *state, &light));
    assert_ok(danaus_ks_weights_create(s.plan, *state, NULL, &own));
    danaus_ks_update good = { .weights = light,
                              .memory = memory.packed,
                              .w = (const void *const *)s.w,
                              .dtype = DANAUS_F32 };
    danaus_ks_update wrong[4] = { good, good, good, good };
    wrong[0].weights = NULL;
    wrong[1].weights = own; /* which has memory */
    wrong[2].memory = NULL;
    wrong[3].memory = (char *)memory.packed + 32;
    for (int i = 0; i < 4; i++)
        assert_status(
            danaus_ks_weights_update_many(*state, 1, &wrong[i]), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_ks_weights_update_many(NULL, 1, &good), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_weights_update_many(*state, -1, &good), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_ks_weights_update_many(*state, 1, NULL), DANAUS_ERR_ARGUMENT);
    assert_ok(danaus_ks_weights_update_many(*state, 0, NULL));
    danaus_ks_weights_destroy(light);
    danaus_ks_weights_destroy(own);
    return_lent(&s, &memory);
    scene_free(&s);
}

static void weights_without_memory_are_refused(void **state)
{
    rng r = { 9 };
    danaus_pattern p = { 2, 3, 4, 5 };
    scene s = scene_make(*state, &r, &p, 1, DANAUS_F32, DANAUS_F32);
    danaus_ks_weights *light = NULL, *own = NULL;
    const void *const *w = (const void *const *)s.w;
    lent memory = lend(&s);
    size_t bytes;
    assert_status(danaus_ks_weights_bytes(NULL, &bytes), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_ks_weights_bytes(s.plan, NULL), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_weights_create_unbound(s.plan, *state, NULL), DANAUS_ERR_ARGUMENT);
    assert_ok(danaus_ks_weights_create_unbound(s.plan, *state, &light));
    assert_ok(danaus_ks_weights_create(s.plan, *state, NULL, &own));
    assert_status(
        danaus_ks_execute(s.plan, *state, light, 1, s.w[0], memory.packed),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_weights_update(light, *state, s.c.chain), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_weights_update_from(light, *state, DANAUS_F32, w, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_status(danaus_ks_weights_bind(light, NULL, 0), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_ks_weights_bind(NULL, memory.packed, 0), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_ks_weights_bind(own, memory.packed, 0), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_weights_bind(light, (char *)memory.packed + 32, 0),
        DANAUS_ERR_ARGUMENT);
    danaus_ks_weights_destroy(light);
    danaus_ks_weights_destroy(own);
    return_lent(&s, &memory);
    scene_free(&s);
}

static void wrong_numbers_are_refused(void **state)
{
    rng r = { 4 };
    danaus_pattern p = { 2, 3, 4, 5 };
    danaus_ks_weights *weights = NULL;
    danaus_device *other = NULL;
    scene s = scene_make(*state, &r, &p, 1, DANAUS_F32, DANAUS_F32);
    const void *const *w = (const void *const *)s.w;
    assert_ok(danaus_ks_weights_create(s.plan, *state, s.c.chain, &weights));
    assert_status(
        danaus_ks_weights_update_from(NULL, *state, DANAUS_F32, w, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_weights_update_from(weights, NULL, DANAUS_F32, w, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_weights_update_from(weights, *state, DANAUS_C64, w, NULL),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_weights_update_from(weights, *state, (danaus_dtype)77, w, NULL),
        DANAUS_ERR_ARGUMENT);
    const char *name = ((danaus_device *)*state)->name;
    assert_ok(
        danaus_device_open(strcmp(name, "cpu:scalar") ? "cpu:scalar" : "cpu", &other));
    assert_status(
        danaus_ks_weights_update_from(weights, other, DANAUS_F32, w, NULL),
        DANAUS_ERR_ARGUMENT);
    danaus_device_close(other);
    danaus_ks_weights_destroy(weights);
    scene_free(&s);
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(numbers_of_every_type_are_those_of_a_chain, device),
        cmocka_unit_test_prestate(merged_factors_are_given_together, device),
        cmocka_unit_test_prestate(without_a_chain_weights_are_zero, device),
        cmocka_unit_test_prestate(one_object_serves_any_number_of_memories, device),
        cmocka_unit_test_prestate(plans_that_are_described_alike_pack_alike, device),
        cmocka_unit_test_prestate(many_updates_are_what_each_is, device),
        cmocka_unit_test_prestate(wrong_updates_are_refused, device),
        cmocka_unit_test_prestate(weights_without_memory_are_refused, device),
        cmocka_unit_test_prestate(wrong_numbers_are_refused, device),
    };
    int failed = cmocka_run_group_tests_name("weights", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
