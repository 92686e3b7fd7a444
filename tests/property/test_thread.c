/* Threads: the same bits for any number of them and in every run, through our pool
   or the host's; sixteen threads that share one plan. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/chains.h"
#include "support/device.h"

#include <pthread.h>
#include <string.h>

static random_chain random_case(rng *r, danaus_dtype dtype, danaus_ks_desc *desc)
{
    danaus_pattern p[6];
    int count = (int)rng_int(r, 1, 6);
    random_patterns(r, count, 100, p);
    *desc = (danaus_ks_desc){ .dtype = dtype, .gradients = 1 };
    desc->layout = rng_next(r) % 2 ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST;
    desc->adjoint = (int)(rng_next(r) % 2);
    return chain_random(r, p, count, dtype, (int)(rng_next(r) % 2));
}

/* Everything that a plan can compute from x and dy. */
typedef struct outcome {
    array y;
    gradients g;
} outcome;

static outcome compute(
    danaus_device *device, const random_chain *c, const danaus_ks_desc *desc,
    int64_t batch, const array *x, const array *dy)
{
    outcome o = { .y = multiply(device, c, desc, batch, x),
                  .g = gradients_make(c, desc, batch) };
    gradients_run(device, c, desc, batch, x, dy, &o.g);
    return o;
}

static void outcome_free(outcome *o)
{
    array_free(&o->y);
    gradients_free(&o->g);
}

static void expect_same(const outcome *o, const outcome *p)
{
    assert_true(array_same(&o->y, &p->y));
    assert_true(array_same(&o->g.dx, &p->g.dx));
    for (int l = 0; l < o->g.count; l++)
        assert_true(array_same(&o->g.dw[l], &p->g.dw[l]));
    assert_true(array_same(&o->g.dbias, &p->g.dbias));
}

/* A host that runs the tasks backwards. */
static void backwards(void *user, int count, void (*task)(void *arg, int i), void *arg)
{
    *(int *)user += 1;
    for (int i = count - 1; i >= 0; i--)
        task(arg, i);
}

static void check_bits(rng *r, danaus_device *device, danaus_dtype dtype)
{
    danaus_ks_desc desc;
    random_chain c = random_case(r, dtype, &desc);
    int64_t n = rng_next(r) % 3 ? rng_int(r, 1, 100) : rng_int(r, 500, 2000);
    array x = array_random(r, dtype, inputs_of(&c, desc.adjoint) * n);
    array dy = array_random(r, dtype, outputs_of(&c, desc.adjoint) * n);
    assert_ok(danaus_device_set_threads(device, 1));
    outcome one = compute(device, &c, &desc, n, &x, &dy);
    static const int threads[] = { 1, 2, 7, 7 };
    for (int i = 0; i < 4; i++) {
        assert_ok(danaus_device_set_threads(device, threads[i]));
        outcome other = compute(device, &c, &desc, n, &x, &dy);
        expect_same(&one, &other);
        outcome_free(&other);
    }
    int calls = 0;
    assert_ok(danaus_device_set_parallel(device, backwards, &calls));
    outcome hosted = compute(device, &c, &desc, n, &x, &dy);
    expect_same(&one, &hosted);
    assert_ok(danaus_device_set_parallel(device, NULL, NULL));
    assert_ok(danaus_device_set_threads(device, 0));
    outcome_free(&hosted);
    outcome_free(&one);
    array_free(&x);
    array_free(&dy);
    chain_free(&c);
}

static void threads_do_not_change_a_bit(void **state)
{
    for (int t = 0; t < TEST_DTYPES; t++)
        for (int round = 0; round < rounds_of(20); round++) {
            rng r = { (uint64_t)round };
            check_bits(&r, *state, test_dtypes[t]);
        }
}

static void the_host_runs_the_parts(void **state)
{
    danaus_device *device = *state;
    rng r = { 1 };
    danaus_pattern p = { 1, 128, 128, 1 };
    random_chain c = chain_random(&r, &p, 1, DANAUS_F32, 0);
    danaus_ks_desc desc = { .layout = DANAUS_BATCH_LAST };
    int calls = 0;
    assert_ok(danaus_device_set_threads(device, 3));
    assert_ok(danaus_device_set_parallel(device, backwards, &calls));
    check_product(&r, device, &c, &desc, 512);
    assert_in_range(calls, 1, 1000);
    assert_ok(danaus_device_set_parallel(device, NULL, NULL));
    assert_ok(danaus_device_set_threads(device, 0));
    chain_free(&c);
}

#define SHARERS 16

/* What the sixteen share, and what one of them does. */
typedef struct shared {
    const char *name;
    const danaus_ks_plan *plan;
    const danaus_ks_weights *weights;
    const array *x, *expected;
    int64_t batch;
    int rounds;
} shared;

static void *run_shared(void *arg)
{
    const shared *s = arg;
    danaus_device *device = NULL;
    if (danaus_device_open(s->name, &device) != DANAUS_OK)
        return NULL;
    danaus_device_set_threads(device, 2);
    int wrong = 0;
    array y = *s->expected;
    size_t bytes = (size_t)y.count * danaus_dtype_size(y.dtype);
    void *mine = NULL;
    if (danaus_alloc(device, bytes, &mine) != DANAUS_OK)
        wrong = 1;
    for (int i = 0; i < s->rounds && !wrong; i++) {
        memset(mine, 0xff, bytes);
        wrong |=
            danaus_ks_execute(
                s->plan, device, s->weights, s->batch, s->x->data, mine) != DANAUS_OK;
        wrong |= memcmp(mine, y.data, bytes) != 0;
    }
    danaus_free(device, mine);
    danaus_device_close(device);
    return wrong ? NULL : arg;
}

static void sixteen_threads_share_a_plan(void **state)
{
    danaus_device *device = *state;
    danaus_device_info info;
    assert_ok(danaus_device_describe(device, &info));
    rng r = { 7 };
    danaus_pattern p[2] = { { 1, 96, 24, 4 }, { 4, 24, 96, 1 } };
    random_chain c = chain_random(&r, p, 2, DANAUS_F32, 1);
    danaus_ks_plan *plan = NULL;
    danaus_ks_weights *weights = NULL;
    assert_ok(danaus_ks_plan_create(device, p, 2, NULL, &plan));
    assert_ok(danaus_ks_weights_create(plan, device, c.chain, &weights));
    int64_t batch = 150;
    array x = array_random(&r, DANAUS_F32, c.cols * batch);
    array y = array_make(DANAUS_F32, c.rows * batch);
    assert_ok(danaus_ks_execute(plan, device, weights, batch, x.data, y.data));
    shared s = { info.name, plan, weights, &x, &y, batch, rounds_of(20) };
    pthread_t threads[SHARERS];
    for (int i = 0; i < SHARERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_shared, &s), 0);
    for (int i = 0; i < SHARERS; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, &s);
    }
    danaus_ks_weights_destroy(weights);
    danaus_ks_plan_destroy(plan);
    array_free(&x);
    array_free(&y);
    chain_free(&c);
}

int main(int argc, char **argv)
{
    danaus_device *device = device_from_arguments(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(threads_do_not_change_a_bit, device),
        cmocka_unit_test_prestate(the_host_runs_the_parts, device),
        cmocka_unit_test_prestate(sixteen_threads_share_a_plan, device),
    };
    int failed = cmocka_run_group_tests_name("thread", tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
