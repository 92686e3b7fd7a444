/* Packing on a device is packing on the host, bit for bit: every row of the table, of every
   architecture, follows its map; numbers of all types; what a graph may capture. On the
   emulated driver. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "device/backend.h"
#include "gpu/product/pack_map.h"
#include "support/chains.h"
#include "support/device.h"
#include "support/failing.h"
#include "support/life.h"

#include <dlfcn.h>
#include <math.h>
#include <string.h>

#define MOST_WEIGHTS 40000
#define MOST_TRIES   200000

static emulator_control *control;

/* ---- every row ---- */

static int64_t size_of_block(rng *r)
{
    int64_t unit = rng_next(r) % 3 ? 8 * rng_int(r, 1, 4) : 1;
    return unit * rng_int(r, 1, unit > 1 ? 6 : 40);
}

/* Whatever the row fits: blocks of 8, 16 ... or of any size, inner factors whose blocks
   divide what is between. */
static problem problem_for(rng *r, const kernel *k)
{
    for (int try = 0; try < MOST_TRIES; try++) {
        problem p = { .dtype = k->dtype, .batch = rng_int(r, 1, 300) };
        p.math = k->dtype == DANAUS_F32 && rng_next(r) % 2 ? DANAUS_MATH_TF32
                                                           : DANAUS_MATH_F32;
        p.layout = (danaus_layout)(rng_next(r) % 2);
        int64_t lanes[] = { 1, rng_int(r, 1, 20), 16 * rng_int(r, 1, 4) };
        p.pattern = (danaus_pattern){ rng_int(r, 1, 3), size_of_block(r),
                                      size_of_block(r), lanes[rng_next(r) % 3] };
        if (rng_next(r) % 2) {
            int64_t between = cols_of(p.pattern), rows = 16 * rng_int(r, 1, 8);
            p.inner = (danaus_pattern){ between / rows, rows, 8 * rng_int(r, 1, 8), 1 };
            if (between % rows || weights_of(p.inner) > MOST_WEIGHTS)
                continue;
        }
        if (weights_of(p.pattern) <= MOST_WEIGHTS && dn_fits(k, &p))
            return p;
    }
    print_error("no problem for %s\n", k->name);
    fail();
    return (problem){ 0 };
}

/* Weights of a problem's factors, or of those whose adjoints they are. */
typedef struct numbers {
    danaus_dtype dtype;
    int adjoint, count;
    array w[2];
    void *on[2];
} numbers;

static weights_view view_of(const numbers *n, int i, danaus_pattern p)
{
    danaus_pattern own = n->adjoint ? (danaus_pattern){ p.a, p.c, p.b, p.d } : p;
    weights_view v = dn_weights_view(n->w[i].data, n->dtype, own);
    return n->adjoint ? dn_weights_adjoint(v) : v;
}

static void *pack_on_host(const kernel *k, const problem *p, const numbers *n)
{
    void *packed = dn_calloc(dn_packed_bytes(k, p), 1);
    weights_view w = view_of(n, 0, p->pattern), inner;
    assert_non_null(packed);
    if (p->inner.a) {
        inner = view_of(n, 1, p->inner);
        w.inner = &inner;
    }
    k->family->pack(k, p, w, packed);
    return packed;
}

/* Both factors at once, or one and then the other. */
static void *pack_on_device(
    danaus_device *dev, const ks_step *step, const numbers *n, int apart)
{
    pack_map *map = NULL;
    size_t bytes = dn_packed_bytes(step->kernel, &step->p);
    void *packed = NULL, *found = dn_alloc(bytes);
    const pack_backend *pack = dev->backend->pack;
    assert_non_null(found);
    assert_ok(danaus_alloc(dev, bytes, &packed));
    assert_ok(pack->open(dev, step, n->adjoint, &map));
    pack_job jobs[] = { { map, n->dtype, 0, 0, { n->on[0], NULL }, 1, packed },
                        { map, n->dtype, 0, 0, { NULL, n->on[1] }, 1, packed } };
    if (!apart)
        jobs[0].w[1] = n->on[1];
    assert_ok(pack->pack(dev, step->p.dtype, jobs, 1 + apart));
    assert_ok(danaus_download(dev, found, packed, bytes));
    pack->close(dev, map);
    danaus_free(dev, packed);
    return found;
}

static danaus_dtype random_type(rng *r, int complex)
{
    danaus_dtype type;
    do
        type = test_dtypes[rng_int(r, 0, TEST_DTYPES - 1)];
    while (precision_of(type).complex != complex);
    return type;
}

static void check_row(danaus_device *dev, const kernel *k, uint64_t round)
{
    rng r = { round };
    ks_step step = { problem_for(&r, k), k, 0 };
    const problem *p = &step.p;
    numbers n = { .dtype = random_type(&r, precision_of(k->dtype).complex),
                  .adjoint = (int)(rng_next(&r) % 2),
                  .count = p->inner.a ? 2 : 1 };
    for (int i = 0; i < n.count; i++) {
        n.w[i] = array_random(&r, n.dtype, weights_of(i ? p->inner : p->pattern));
        n.on[i] = to_device(dev, &n.w[i]);
    }
    void *expected = pack_on_host(k, p, &n);
    void *found = pack_on_device(dev, &step, &n, n.count == 2 && rng_next(&r) % 2);
    if (memcmp(found, expected, dn_packed_bytes(k, p))) {
        print_error(
            "%s from %s, round %d\n", k->name, danaus_dtype_name(n.dtype), (int)round);
        fail();
    }
    for (int i = 0; i < n.count; i++) {
        from_device(dev, &n.w[i], n.on[i]);
        array_free(&n.w[i]);
    }
    dn_free(expected);
    dn_free(found);
}

static void every_row_is_packed_as_on_the_host(void **state)
{
    int rows = 0;
    for (const kernel *k = dn_gpu_kernels; k->name; k++)
        for (uint64_t round = 0; k->family->operation == DN_PRODUCT && round < 4;
             round++) {
            check_row(*state, k, round);
            rows += round == 0;
        }
    assert_in_range(rows, 50, 1000);
}

/* Neighbours that come from neighbours have one entry: where blocks are whole, that of a row
   for tensor cores is an eighth of its numbers in f16. */
static void maps_are_short_where_blocks_are_whole(void **state)
{
    (void)state;
    int seen = 0;
    problem p = { .pattern = { 4, 64, 64, 1 }, .dtype = DANAUS_F16, .batch = 64 };
    for (const kernel *k = dn_gpu_kernels; k->name; k++) {
        gpu_pack_map map;
        if (strncmp(k->name, "ks.wgmma.f16", 12) || !dn_fits(k, &p))
            continue;
        assert_ok(dn_gpu_map_packing(k, &p, 0, &map));
        assert_int_equal(map.group_log2, 3);
        assert_int_equal(map.step, 2);
        dn_free(map.entry);
        seen++;
    }
    assert_true(seen > 0);
}

static void more_weights_than_maps_count_are_refused(void **state)
{
    (void)state;
    problem p = { .pattern = { INT64_C(1) << 28, 3, 4, 5 },
                  .dtype = DANAUS_F32,
                  .batch = 1 };
    gpu_pack_map map = { .count = 7 };
    assert_status(
        dn_gpu_map_packing(&dn_gpu_kernels[0], &p, 0, &map), DANAUS_ERR_UNSUPPORTED);
    assert_int_equal(map.count, 7);
}

/* ---- numbers ---- */

/* Every pattern of 16 bits, or as many of those of wider numbers, but for NaN; f64 among
   them that lie next to ties of 16 bits. */
static array numbers_of(danaus_dtype type, int64_t count)
{
    rng r = { (uint64_t)type };
    array a = array_make(type, count);
    size_t size = danaus_dtype_size(type);
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = size == 2 ? (uint64_t)i : rng_next(&r);
        char *at = (char *)a.data + (size_t)i * size;
        memcpy(at, &bits, size);
        if (type == DANAUS_F64 && i % 2) {
            double tie =
                ldexp(1 + (double)(bits % 4096) / 4096, (int)(bits >> 32) % 40);
            double near[] = { tie, nextafter(tie, 0), nextafter(-tie, -INFINITY) };
            memcpy(at, &near[i / 2 % 3], size);
        }
        value v = element_get(type, a.data, i);
        if (isnan(v.re))
            element_put(type, a.data, i, (value){ 1, 0 });
    }
    return a;
}

static void numbers_are_rounded_as_on_the_host(void **state)
{
    danaus_device *dev = *state;
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++) {
            array a = numbers_of(test_dtypes[from], 1 << 16);
            array b = array_make(test_dtypes[to], a.count);
            array c = array_make(test_dtypes[to], a.count);
            assert_false(precision_of(test_dtypes[from]).complex);
            dn_convert(a.dtype, a.data, b.dtype, b.data, a.count);
            void *on_a = to_device(dev, &a), *on_c = to_device(dev, &c);
            pack_job job = { NULL, a.dtype, c.dtype, a.count, { on_a }, 1, on_c };
            assert_ok(dev->backend->pack->pack(dev, c.dtype, &job, 1));
            from_device(dev, &c, on_c);
            from_device(dev, &a, on_a);
            assert_true(array_same(&b, &c));
            array_free(&a);
            array_free(&b);
            array_free(&c);
        }
}

/* ---- capturing ---- */

/* A chain's numbers on the device, a plan, and what it gives. */
typedef struct scene {
    danaus_device *dev;
    random_chain c;
    danaus_ks_desc desc;
    danaus_ks_plan *plan;
    array x;
    void *w[4], *bias, *on_x;
    int64_t batch;
} scene;

static scene scene_make(danaus_device *dev, const char *chain)
{
    rng r = { 3 };
    danaus_pattern p[4];
    int count = 0;
    scene s = { .dev = dev, .batch = 3 };
    assert_ok(danaus_patterns_parse(chain, p, 4, &count));
    s.desc = (danaus_ks_desc){ .dtype = DANAUS_F16, .batch = s.batch };
    s.c = chain_random(&r, p, count, DANAUS_F32, 1);
    s.x = array_random(&r, DANAUS_F16, s.c.cols * s.batch);
    for (int l = 0; l < count; l++)
        s.w[l] = to_device(dev, &s.c.w[l]);
    s.bias = to_device(dev, &s.c.bias);
    s.on_x = to_device(dev, &s.x);
    assert_ok(danaus_ks_plan_create(dev, p, count, &s.desc, &s.plan));
    return s;
}

static void scene_free(scene *s)
{
    for (int l = 0; l < s->c.count; l++)
        from_device(s->dev, &s->c.w[l], s->w[l]);
    from_device(s->dev, &s->c.bias, s->bias);
    from_device(s->dev, &s->x, s->on_x);
    danaus_ks_plan_destroy(s->plan);
    array_free(&s->x);
    chain_free(&s->c);
}

static danaus_status update(const scene *s, danaus_ks_weights *weights)
{
    return danaus_ks_weights_update_from(
        weights, s->dev, DANAUS_F32, (const void *const *)s->w, s->bias);
}

static void expect_product(const scene *s, const danaus_ks_weights *weights)
{
    array y = array_make(DANAUS_F16, s->c.rows * s->batch);
    void *on_y = to_device(s->dev, &y);
    assert_ok(danaus_ks_execute(s->plan, s->dev, weights, s->batch, s->on_x, on_y));
    from_device(s->dev, &y, on_y);
    signal expected = multiply_exactly(&s->c, &s->desc, s->batch, &s->x);
    expect_signal(&y, DANAUS_BATCH_FIRST, &expected, "after an update");
    signal_free(&expected);
    array_free(&y);
}

static const char *const chains[] = {
    "1,8,8,8 8,8,8,1", "1,2,2,8 2,2,2,4 4,2,2,2 8,2,2,1", /* merged */
};

/* Fails at once if it is called: none of those may be captured. */
static const char *const forbidden[] = {
    "cuMemAlloc_v2",       "cuMemFree_v2",     "cuMemcpyAsync",
    "cuStreamSynchronize", "cuModuleLoadData", "cuModuleGetFunction",
};

static void updates_launch_kernels_and_do_nothing_else(void **state)
{
    for (int n = 0; n < 2; n++) {
        danaus_ks_weights *weights = NULL;
        scene s = scene_make(*state, chains[n]);
        assert_ok(danaus_ks_weights_create(s.plan, *state, NULL, &weights));
        for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
            *control = (emulator_control){ .function = forbidden[i], .number = 1 };
            control->error = 719;
            assert_ok(update(&s, weights));
            assert_int_equal(control->calls, 0);
            assert_true(control->launches > 0);
            control->function = NULL;
        }
        expect_product(&s, weights);
        danaus_ks_weights_destroy(weights);
        scene_free(&s);
    }
}

#define LAYERS        72
#define JOBS_A_LAUNCH 23 /* of ks_pack.cu */

/* Two factors and their adjoints, and the bias in f32 and f16. */
#define JOBS_A_LAYER 6

/* All layers of a network in training. */
static void layers_share_launches(void **state)
{
    danaus_ks_weights *weights[LAYERS] = { NULL };
    danaus_ks_update updates[LAYERS];
    scene s = scene_make(*state, "1,64,16,2 2,16,64,1");
    s.desc.keep_factors = s.desc.gradients = s.desc.fresh_weights = 1;
    danaus_ks_plan_destroy(s.plan);
    assert_ok(danaus_ks_plan_create(*state, s.c.p, s.c.count, &s.desc, &s.plan));
    for (int i = 0; i < LAYERS; i++) {
        assert_ok(danaus_ks_weights_create(s.plan, *state, NULL, &weights[i]));
        updates[i] = (danaus_ks_update){ .weights = weights[i],
                                         .w = (const void *const *)s.w,
                                         .bias = s.bias,
                                         .dtype = DANAUS_F32 };
    }
    *control = (emulator_control){ 0 };
    assert_ok(danaus_ks_weights_update_many(*state, 1, updates));
    assert_int_equal(control->launches, 1);
    control->launches = 0;
    assert_ok(danaus_ks_weights_update_many(*state, LAYERS, updates));
    long most = (LAYERS * JOBS_A_LAYER + JOBS_A_LAUNCH - 1) / JOBS_A_LAUNCH;
    assert_in_range(control->launches, 1, most);
    for (int i = 0; i < LAYERS; i++) {
        expect_product(&s, weights[i]);
        danaus_ks_weights_destroy(weights[i]);
    }
    scene_free(&s);
}

/* The driver as a caller uses it. */
typedef struct driver {
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*create)(void **stream, unsigned flags);
    int (*destroy)(void *stream);
    int (*begin)(void *stream, int mode);
    int (*end)(void *stream, void **graph);
    int (*instantiate)(void **made, void *graph, unsigned long long flags);
    int (*launch)(void *made, void *stream);
    int (*destroy_made)(void *made);
    int (*destroy_graph)(void *graph);
} driver;

static driver open_driver(void)
{
    static const char *const names[] = {
        "cuDevicePrimaryCtxRetain",
        "cuDevicePrimaryCtxRelease_v2",
        "cuCtxPushCurrent_v2",
        "cuCtxPopCurrent_v2",
        "cuStreamCreate",
        "cuStreamDestroy_v2",
        "cuStreamBeginCapture_v2",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags",
        "cuGraphLaunch",
        "cuGraphExecDestroy",
        "cuGraphDestroy",
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *found[sizeof names / sizeof *names];
    driver d;
    _Static_assert(sizeof found == sizeof d, "a pointer a name");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_non_null(found[i] = dlsym(library, names[i]));
    memcpy(&d, found, sizeof d);
    return d;
}

static void replace_numbers(const scene *s)
{
    rng r = { 8 };
    for (int l = 0; l < s->c.count; l++) {
        array other = array_random(&r, DANAUS_F32, s->c.w[l].count);
        size_t bytes = (size_t)other.count * sizeof(float);
        memcpy(s->c.w[l].data, other.data, bytes);
        assert_ok(danaus_upload(s->dev, s->w[l], other.data, bytes));
        array_free(&other);
    }
}

static void capture_an_update(danaus_device *dev, const driver *d, const char *chain)
{
    void *stream, *graph, *made;
    danaus_ks_weights *weights = NULL;
    scene s = scene_make(dev, chain);
    assert_ok(danaus_ks_weights_create(s.plan, dev, NULL, &weights));
    assert_int_equal(d->create(&stream, 1), 0);
    assert_ok(danaus_device_set_stream(dev, stream));
    assert_int_equal(d->begin(stream, 0), 0);
    assert_ok(update(&s, weights));
    assert_int_equal(d->end(stream, &graph), 0);
    assert_int_equal(d->instantiate(&made, graph, 0), 0);
    replace_numbers(&s);
    assert_int_equal(d->launch(made, stream), 0);
    expect_product(&s, weights);
    assert_ok(danaus_device_set_stream(dev, NULL));
    assert_int_equal(d->destroy_made(made), 0);
    assert_int_equal(d->destroy_graph(graph), 0);
    assert_int_equal(d->destroy(stream), 0);
    danaus_ks_weights_destroy(weights);
    scene_free(&s);
}

/* A graph that was captured with other numbers packs those that are there when it runs. */
static void graphs_pack_the_numbers_that_are_there(void **state)
{
    driver d = open_driver();
    void *context;
    assert_int_equal(d.retain(&context, 0), 0);
    assert_int_equal(d.push(context), 0);
    for (int n = 0; n < 2; n++)
        capture_an_update(*state, &d, chains[n]);
    assert_int_equal(d.pop(&context), 0);
    assert_int_equal(d.release(0), 0);
}

/* Weights of a chain have no maps yet, which need memory. */
static void the_first_update_is_not_captured(void **state)
{
    danaus_ks_weights *weights = NULL;
    scene s = scene_make(*state, chains[0]);
    assert_ok(danaus_ks_weights_create(s.plan, *state, s.c.chain, &weights));
    *control = (emulator_control){ .capturing = 1 };
    assert_status(update(&s, weights), DANAUS_ERR_ARGUMENT);
    assert_non_null(strstr(danaus_error_detail(), "captured"));
    control->capturing = 0;
    assert_ok(update(&s, weights));
    *control = (emulator_control){ .capturing = 1 };
    assert_ok(update(&s, weights));
    control->capturing = 0;
    expect_product(&s, weights);
    danaus_ks_weights_destroy(weights);
    scene_free(&s);
}

/* Equal layers have one map: the second takes no memory but its weights. */
static void equal_layers_share_their_maps(void **state)
{
    danaus_ks_weights *weights[3] = { NULL };
    int allocations[3];
    scene s = scene_make(*state, chains[0]);
    for (int i = 0; i < 3; i++) {
        int before = control->allocations;
        assert_ok(danaus_ks_weights_create(s.plan, *state, NULL, &weights[i]));
        allocations[i] = control->allocations - before;
    }
    assert_true(allocations[0] > allocations[1]);
    assert_int_equal(allocations[1], allocations[2]);
    danaus_ks_weights_destroy(weights[0]);
    assert_ok(update(&s, weights[1]));
    expect_product(&s, weights[1]);
    danaus_ks_weights_destroy(weights[1]);
    danaus_ks_weights_destroy(weights[2]);
    scene_free(&s);
}

static danaus_status make_ready(void *arg)
{
    const scene *s = arg;
    danaus_ks_weights *weights = NULL;
    danaus_status status = danaus_ks_weights_create(s->plan, s->dev, NULL, &weights);
    danaus_ks_weights_destroy(weights);
    return status;
}

/* Once kernels are loaded: what is left are weights, maps, and what finds those out. */
static void weights_without_memory_are_not_made(void **state)
{
    for (int n = 0; n < 2; n++) {
        scene s = scene_make(*state, chains[n]);
        assert_ok(make_ready(&s));
        int before = control->allocations;
        assert_in_range(expect_memory_errors(make_ready, &s), 4, 100);
        assert_int_equal(control->allocations, before);
        scene_free(&s);
    }
}

int main(void)
{
    danaus_device *device = NULL;
    control = need_emulator();
    assert_ok(danaus_device_open("cuda:0", &device));
    expect_device(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(every_row_is_packed_as_on_the_host, device),
        cmocka_unit_test_prestate(maps_are_short_where_blocks_are_whole, device),
        cmocka_unit_test(more_weights_than_maps_count_are_refused),
        cmocka_unit_test_prestate(numbers_are_rounded_as_on_the_host, device),
        cmocka_unit_test_prestate(updates_launch_kernels_and_do_nothing_else, device),
        cmocka_unit_test_prestate(layers_share_launches, device),
        cmocka_unit_test_prestate(graphs_pack_the_numbers_that_are_there, device),
        cmocka_unit_test_prestate(the_first_update_is_not_captured, device),
        cmocka_unit_test_prestate(equal_layers_share_their_maps, device),
        cmocka_unit_test_prestate(weights_without_memory_are_not_made, device),
    };
    int failed = cmocka_run_group_tests_name("pack", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
