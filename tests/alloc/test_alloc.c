/* The n-th allocation fails, for every n: the call says MEMORY or does without, its
   outputs keep their values or are right, and nothing is lost (the address
   sanitizer looks). */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/mem.h"
#include "support/chains.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_ALLOCATIONS 10000

/* What the attempts work on, and the allocation that is to fail. */
typedef struct scene {
    danaus_device *device;
    random_chain c;
    danaus_ks_desc desc;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    int64_t batch;
    array x, dy, y, expected;
    gradients g, expected_g;
    char path[64];
    long n, made;
} scene;

/* Tries one call between begin() and end(); leaves nothing behind. */
typedef danaus_status (*attempt)(scene *s);

static void begin(scene *s) { dn_alloc_fail_at(s->n); }

static danaus_status end(scene *s, danaus_status status)
{
    s->made = dn_alloc_fail_at(0);
    return status;
}

/* Until an attempt gets through without reaching the n-th allocation. */
static void fail_each_allocation(scene *s, attempt try)
{
    int failures = 0;
    for (s->n = 1; s->n < MOST_ALLOCATIONS; s->n++) {
        danaus_status status = try(s);
        if (status != DANAUS_OK) {
            assert_int_equal(status, DANAUS_ERR_MEMORY);
            assert_non_null(strstr(danaus_error_detail(), "memory"));
            failures++;
        }
        if (s->made < s->n) {
            assert_int_equal(status, DANAUS_OK);
            assert_in_range(failures, 1, MOST_ALLOCATIONS);
            return;
        }
    }
    fail_msg("more than %d allocations", MOST_ALLOCATIONS);
}

static void make_untouched(array *a)
{
    memset(a->data, 0xff, (size_t)a->count * danaus_dtype_size(a->dtype));
}

/* Not written when the call failed, right when it did not. */
static void expect_output(const array *a, const array *expected, danaus_status status)
{
    assert_true(status == DANAUS_OK ? array_same(a, expected) : array_untouched(a));
}

static danaus_status open_device(scene *s)
{
    danaus_device *device = NULL;
    begin(s);
    danaus_status status = end(s, danaus_device_open("cpu", &device));
    assert_int_equal(device == NULL, status != DANAUS_OK);
    danaus_device_close(device);
    return status;
}

static danaus_status list_devices(scene *s)
{
    danaus_device_info info;
    begin(s);
    return end(s, danaus_device_list(0, &info));
}

static danaus_status create_chain(scene *s)
{
    danaus_chain *chain = NULL;
    begin(s);
    danaus_status status =
        end(s, danaus_chain_create(s->c.p, s->c.count, s->c.dtype, &chain));
    assert_int_equal(chain == NULL, status != DANAUS_OK);
    danaus_chain_destroy(chain);
    return status;
}

static danaus_status set_bias(scene *s)
{
    danaus_chain *chain = NULL;
    assert_ok(danaus_chain_create(s->c.p, s->c.count, s->c.dtype, &chain));
    begin(s);
    danaus_status status = end(s, danaus_chain_set_bias(chain, s->c.bias.data));
    assert_int_equal(danaus_chain_bias(chain) == NULL, status != DANAUS_OK);
    danaus_chain_destroy(chain);
    return status;
}

static danaus_status make_dense(scene *s)
{
    array dense = array_make(s->c.dtype, s->c.rows * s->c.cols);
    begin(s);
    danaus_status status = end(s, danaus_chain_to_dense(s->c.chain, dense.data));
    assert_int_equal(array_untouched(&dense), status != DANAUS_OK);
    array_free(&dense);
    return status;
}

static danaus_status save_chain(scene *s)
{
    begin(s);
    danaus_status status = end(s, danaus_chain_save(s->c.chain, s->path));
    assert_int_equal(access(s->path, F_OK) != 0, status != DANAUS_OK);
    unlink(s->path);
    return status;
}

static danaus_status load_chain(scene *s)
{
    danaus_chain *chain = NULL;
    begin(s);
    danaus_status status = end(s, danaus_chain_load(s->path, &chain));
    assert_int_equal(chain == NULL, status != DANAUS_OK);
    danaus_chain_destroy(chain);
    return status;
}

static danaus_status create_plan(scene *s)
{
    danaus_ks_plan *plan = NULL;
    begin(s);
    danaus_status status =
        end(s, danaus_ks_plan_create(s->device, s->c.p, s->c.count, &s->desc, &plan));
    assert_int_equal(plan == NULL, status != DANAUS_OK);
    danaus_ks_plan_destroy(plan);
    return status;
}

static danaus_status create_unbound(scene *s)
{
    danaus_ks_weights *weights = NULL;
    begin(s);
    danaus_status status =
        end(s, danaus_ks_weights_create_unbound(s->plan, s->device, &weights));
    assert_int_equal(weights == NULL, status != DANAUS_OK);
    danaus_ks_weights_destroy(weights);
    return status;
}

static danaus_status create_weights(scene *s)
{
    danaus_ks_weights *weights = NULL;
    begin(s);
    danaus_status status =
        end(s, danaus_ks_weights_create(s->plan, s->device, s->c.chain, &weights));
    assert_int_equal(weights == NULL, status != DANAUS_OK);
    danaus_ks_weights_destroy(weights);
    return status;
}

/* On a device of its own, whose scratch and threads do not exist yet. */
static danaus_status execute(scene *s)
{
    danaus_device *device = NULL;
    assert_ok(danaus_device_open("cpu", &device));
    assert_ok(danaus_device_set_threads(device, 3));
    make_untouched(&s->y);
    begin(s);
    danaus_status status = end(
        s,
        danaus_ks_execute(s->plan, device, s->weights, s->batch, s->x.data, s->y.data));
    expect_output(&s->y, &s->expected, status);
    danaus_device_close(device);
    return status;
}

static danaus_status gradient(scene *s)
{
    danaus_device *device = NULL;
    void *dw[DANAUS_MAX_FACTORS];
    assert_ok(danaus_device_open("cpu", &device));
    assert_ok(danaus_device_set_threads(device, 3));
    make_untouched(&s->g.dx);
    make_untouched(&s->g.dbias);
    for (int l = 0; l < s->c.count; l++) {
        make_untouched(&s->g.dw[l]);
        dw[l] = s->g.dw[l].data;
    }
    danaus_ks_gradients wanted = { s->g.dx.data, dw, s->g.dbias.data, 0, { 0 } };
    begin(s);
    danaus_status status = end(
        s, danaus_ks_gradient(
               s->plan, device, s->weights, s->batch, s->x.data, s->dy.data, &wanted));
    expect_output(&s->g.dx, &s->expected_g.dx, status);
    expect_output(&s->g.dbias, &s->expected_g.dbias, status);
    for (int l = 0; l < s->c.count; l++)
        expect_output(&s->g.dw[l], &s->expected_g.dw[l], status);
    danaus_device_close(device);
    return status;
}

static danaus_status apply(scene *s)
{
    danaus_device *device = NULL;
    assert_ok(danaus_device_open("cpu", &device));
    make_untouched(&s->y);
    begin(s);
    danaus_status status =
        end(s, danaus_ks_apply(
                   device, s->c.chain, s->desc.layout, s->batch, s->x.data, s->y.data));
    if (status != DANAUS_OK)
        assert_true(array_untouched(&s->y));
    danaus_device_close(device);
    return status;
}

static danaus_status save_tuning(scene *s)
{
    begin(s);
    danaus_status status = end(s, danaus_device_save_tuning(s->device, s->path));
    assert_int_equal(access(s->path, F_OK) != 0, status != DANAUS_OK);
    unlink(s->path);
    return status;
}

static danaus_status load_tuning(scene *s)
{
    danaus_device *device = NULL;
    assert_ok(danaus_device_open("cpu", &device));
    begin(s);
    danaus_status status = end(s, danaus_device_load_tuning(device, s->path));
    danaus_device_close(device);
    return status;
}

static int scene_open(void **state)
{
    static scene s;
    rng r = { 11 };
    danaus_pattern p[3] = { { 1, 24, 12, 4 }, { 4, 12, 8, 1 }, { 1, 8, 16, 4 } };
    s = (scene){ .batch = 700, .desc = { .gradients = 1, .keep_factors = 1 } };
    assert_ok(danaus_device_open("cpu", &s.device));
    s.c = chain_random(&r, p, 3, DANAUS_F32, 1);
    assert_ok(danaus_ks_plan_create(s.device, p, 3, &s.desc, &s.plan));
    assert_ok(danaus_ks_weights_create(s.plan, s.device, s.c.chain, &s.weights));
    s.x = array_random(&r, DANAUS_F32, s.c.cols * s.batch);
    s.dy = array_random(&r, DANAUS_F32, s.c.rows * s.batch);
    s.y = array_make(DANAUS_F32, s.c.rows * s.batch);
    s.expected = multiply(s.device, &s.c, &s.desc, s.batch, &s.x);
    s.g = gradients_make(&s.c, &s.desc, s.batch);
    s.expected_g = gradients_make(&s.c, &s.desc, s.batch);
    gradients_run(s.device, &s.c, &s.desc, s.batch, &s.x, &s.dy, &s.expected_g);
    snprintf(s.path, sizeof s.path, "/tmp/danaus-alloc-%ld", (long)getpid());
    *state = &s;
    return 0;
}

static int scene_close(void **state)
{
    scene *s = *state;
    danaus_ks_weights_destroy(s->weights);
    danaus_ks_plan_destroy(s->plan);
    gradients_free(&s->g);
    gradients_free(&s->expected_g);
    array *all[] = { &s->x, &s->dy, &s->y, &s->expected };
    for (int i = 0; i < 4; i++)
        array_free(all[i]);
    chain_free(&s->c);
    danaus_device_close(s->device);
    return 0;
}

static void devices_and_chains_survive(void **state)
{
    fail_each_allocation(*state, open_device);
    fail_each_allocation(*state, list_devices);
    fail_each_allocation(*state, create_chain);
    fail_each_allocation(*state, set_bias);
    fail_each_allocation(*state, make_dense);
}

static void plans_and_weights_survive(void **state)
{
    scene *s = *state;
    danaus_ks_desc kept = s->desc;
    fail_each_allocation(s, create_plan);
    s->desc = (danaus_ks_desc){ .adjoint = 1 };
    fail_each_allocation(s, create_plan);
    s->desc = (danaus_ks_desc){ .effort = DANAUS_MEASURE, .batch = 4 };
    fail_each_allocation(s, create_plan);
    s->desc = kept;
    fail_each_allocation(s, create_weights);
    fail_each_allocation(s, create_unbound);
}

static void products_survive(void **state)
{
    fail_each_allocation(*state, execute);
    fail_each_allocation(*state, gradient);
    fail_each_allocation(*state, apply);
}

static void chain_files_survive(void **state)
{
    scene *s = *state;
    fail_each_allocation(s, save_chain);
    assert_ok(danaus_chain_save(s->c.chain, s->path));
    fail_each_allocation(s, load_chain);
    unlink(s->path);
}

static void tuning_files_survive(void **state)
{
    scene *s = *state;
    danaus_ks_desc desc = { .effort = DANAUS_MEASURE, .batch = 4 };
    danaus_ks_plan *plan = NULL;
    assert_ok(danaus_ks_plan_create(s->device, s->c.p, s->c.count, &desc, &plan));
    danaus_ks_plan_destroy(plan);
    fail_each_allocation(s, save_tuning);
    assert_ok(danaus_device_save_tuning(s->device, s->path));
    fail_each_allocation(s, load_tuning);
    unlink(s->path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_and_chains_survive),
        cmocka_unit_test(plans_and_weights_survive),
        cmocka_unit_test(products_survive),
        cmocka_unit_test(chain_files_survive),
        cmocka_unit_test(tuning_files_survive),
    };
    return cmocka_run_group_tests_name("alloc", tests, scene_open, scene_close);
}
