/* Scratch, device by device: as many bytes as danaus_ks_scratch_bytes() says are enough, one
   less is too little for what needs most, and then nothing is written; an allocator is asked
   for no more, and gets everything back. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/dtype.h"
#include "device/backend.h"
#include "support/chains.h"
#include "support/device.h"

/* A chain with operands on the device; back: dx, dw of all factors and dbias. */
typedef struct scene {
    danaus_device *device;
    random_chain c;
    danaus_ks_desc desc;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    int64_t batch;
    array x, y, back;
    void *on_x, *on_y, *on_back;
} scene;

static scene scene_make(danaus_device *device, uint64_t round)
{
    rng r = { round };
    danaus_pattern p[4];
    int count = (int)rng_int(&r, 1, 4);
    scene s = { .device = device, .batch = rng_int(&r, 1, 150) };
    s.desc = (danaus_ks_desc){ .dtype = test_dtypes[rng_int(&r, 0, TEST_DTYPES - 1)],
                               .layout = (danaus_layout)rng_int(&r, 0, 1),
                               .adjoint = (int)rng_int(&r, 0, 1),
                               .keep_factors = (int)rng_int(&r, 0, 1),
                               .gradients = 1,
                               .batch = s.batch };
    random_patterns(&r, count, 60, p);
    if (round % 3 == 2) /* then without gradients */
        s.desc.activation = random_activation(&r, s.desc.dtype);
    s.desc.gradients = !s.desc.activation;
    s.c = chain_random(&r, p, count, s.desc.dtype, 1);
    int64_t numbers = s.c.cols + s.c.rows; /* of any vector, and of dbias */
    s.x = array_random(&r, s.desc.dtype, numbers * s.batch);
    s.y = array_make(s.desc.dtype, numbers * s.batch);
    numbers += numbers * s.batch;
    for (int l = 0; l < count; l++)
        numbers += weights_of(p[l]);
    s.back = array_make(DANAUS_C128, numbers); /* room for any type */
    assert_ok(danaus_ks_plan_create(device, p, count, &s.desc, &s.plan));
    assert_ok(danaus_ks_weights_create(s.plan, device, s.c.chain, &s.weights));
    s.on_x = to_device(device, &s.x);
    s.on_y = to_device(device, &s.y);
    s.on_back = to_device(device, &s.back);
    return s;
}

static void scene_free(scene *s)
{
    from_device(s->device, &s->x, s->on_x);
    from_device(s->device, &s->y, s->on_y);
    from_device(s->device, &s->back, s->on_back);
    danaus_ks_weights_destroy(s->weights);
    danaus_ks_plan_destroy(s->plan);
    array_expect_guards(&s->y);
    array_expect_guards(&s->back);
    array_free(&s->x);
    array_free(&s->y);
    array_free(&s->back);
    chain_free(&s->c);
}

static danaus_status run_forward(const scene *s)
{
    return danaus_ks_execute(
        s->plan, s->device, s->weights, s->batch, s->on_x, s->on_y);
}

static danaus_status run_back(const scene *s)
{
    char *to = s->on_back;
    size_t size = danaus_dtype_size(DANAUS_C128);
    void *dw[4];
    danaus_ks_gradients g = { .dx = to, .dw = dw, .rounded = 1 };
    to += (size_t)((s->c.cols + s->c.rows) * s->batch) * size;
    for (int l = 0; l < s->c.count; l++) {
        dw[l] = to;
        to += (size_t)weights_of(s->c.p[l]) * size;
    }
    g.dbias = s->desc.adjoint ? NULL : to;
    return danaus_ks_gradient(
        s->plan, s->device, s->weights, s->batch, s->on_x, s->on_x, &g);
}

/* What the call wrote, as bits. */
static void read_results(const scene *s, array *y, array *back)
{
    assert_ok(danaus_download(
        s->device, y->data, s->on_y, (size_t)y->count * danaus_dtype_size(y->dtype)));
    assert_ok(danaus_download(
        s->device, back->data, s->on_back,
        (size_t)back->count * danaus_dtype_size(back->dtype)));
}

static void forget_results(const scene *s)
{
    array y = array_make(s->y.dtype, s->y.count);
    array back = array_make(s->back.dtype, s->back.count);
    assert_ok(danaus_upload(
        s->device, s->on_y, y.data, (size_t)y.count * danaus_dtype_size(y.dtype)));
    assert_ok(danaus_upload(
        s->device, s->on_back, back.data,
        (size_t)back.count * danaus_dtype_size(back.dtype)));
    array_free(&y);
    array_free(&back);
}

typedef danaus_status call(const scene *s);

static void use_block(
    const scene *s, call *run, void *memory, size_t bytes, int is_exact)
{
    one_block b = { .memory = memory, .most = bytes };
    scratch_from(s->device, &b);
    assert_ok(run(s));
    assert_int_equal(b.taken, 0);
    assert_in_range(b.calls, 0, 1);
    assert_true(!is_exact || b.asked == bytes);
    scratch_from(s->device, NULL);
}

/* is_exact: nothing is left out of what may be asked for. */
static void check_call(const scene *s, call *run, size_t bytes, int is_exact)
{
    void *lent;
    array y[2], back[2];
    for (int i = 0; i < 2; i++) {
        y[i] = array_make(s->y.dtype, s->y.count);
        back[i] = array_make(s->back.dtype, s->back.count);
    }
    forget_results(s);
    assert_ok(run(s));
    read_results(s, &y[0], &back[0]);
    forget_results(s);
    assert_ok(danaus_alloc(s->device, bytes + 1, &lent));
    if (bytes > 1 && is_exact) {
        assert_ok(danaus_device_set_scratch(s->device, lent, bytes - 1));
        assert_status(run(s), DANAUS_ERR_MEMORY);
        read_results(s, &y[1], &back[1]);
        assert_true(array_untouched(&y[1]) && array_untouched(&back[1]));
    }
    assert_ok(danaus_device_set_scratch(s->device, lent, bytes));
    assert_ok(run(s));
    read_results(s, &y[1], &back[1]);
    assert_true(array_same(&y[0], &y[1]) && array_same(&back[0], &back[1]));
    use_block(s, run, lent, bytes, is_exact);
    danaus_free(s->device, lent);
    for (int i = 0; i < 2; i++) {
        array_free(&y[i]);
        array_free(&back[i]);
    }
}

static void as_much_as_it_says_is_enough(void **state)
{
    danaus_device *device = *state;
    int threads = device->backend->on_host;
    for (uint64_t round = 0; round < (uint64_t)rounds_of(threads ? 150 : 30); round++) {
        size_t forward = 1, back = 1, alone = 1;
        assert_ok(danaus_device_set_threads(device, threads * (int)(round % 4)));
        scene s = scene_make(device, round);
        assert_ok(danaus_ks_scratch_bytes(s.plan, device, s.batch, &forward, &back));
        assert_ok(danaus_ks_scratch_bytes(s.plan, device, s.batch, NULL, &alone));
        assert_int_equal(alone, back);
        check_call(&s, run_forward, forward, 1);
        /* Adjoints have no dbias, and a GPU copies unaligned operands. */
        if (s.desc.gradients)
            check_call(&s, run_back, back, threads && !s.desc.adjoint);
        assert_ok(danaus_ks_scratch_bytes(s.plan, device, 0, &forward, &back));
        assert_true(forward == 0 && back == 0);
        scene_free(&s);
    }
    assert_ok(danaus_device_set_threads(device, 0));
}

static void never_called(void *user, void *memory, void *stream)
{
    fail_msg("%p %p %p", user, memory, stream);
}

static danaus_status never_asked(void *user, size_t bytes, void *stream, void **memory)
{
    fail_msg("%p %zu %p %p", user, bytes, stream, (void *)memory);
    return DANAUS_OK;
}

static void what_is_asked_wrongly_is_refused(void **state)
{
    danaus_device *device = *state;
    size_t forward = 7, back = 7;
    danaus_pattern p = { 1, 4, 4, 1 };
    danaus_ks_plan *plan;
    danaus_allocator half = { .free = never_called };
    danaus_allocator strange = { NULL, never_asked, never_called, { &plan } };
    assert_ok(danaus_ks_plan_create(device, &p, 1, NULL, &plan));
    assert_status(
        danaus_ks_scratch_bytes(NULL, device, 1, &forward, &back), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_scratch_bytes(plan, NULL, 1, &forward, &back), DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_scratch_bytes(plan, device, -1, &forward, &back),
        DANAUS_ERR_ARGUMENT);
    assert_status(
        danaus_ks_scratch_bytes(plan, device, INT64_MAX, &forward, &back),
        DANAUS_ERR_SHAPE);
    assert_true(forward == 7 && back == 7);
    assert_ok(danaus_ks_scratch_bytes(plan, device, 1, &forward, &back));
    assert_int_equal(back, 0); /* it was planned without */
    assert_status(danaus_device_set_allocator(device, &half), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_device_set_allocator(device, &strange), DANAUS_ERR_ARGUMENT);
    assert_status(danaus_device_set_allocator(NULL, NULL), DANAUS_ERR_ARGUMENT);
    danaus_ks_plan_destroy(plan);
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(as_much_as_it_says_is_enough, device),
        cmocka_unit_test_prestate(what_is_asked_wrongly_is_refused, device),
    };
    int failed = cmocka_run_group_tests_name("scratch", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
