/* Two GPUs at the same time, each with a thread, a device object, plans and weights of its
   own: products and gradients have the same bits on both. Skipped where there is one, or
   where the two are of different kinds. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "support/device.h"
#include "support/life.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const char *const names[2] = { "cuda:0", "cuda:1" };

/* What one of the threads does. */
typedef struct resident {
    const char *name;
    const story *s;
    const random_chain *c;
    const array *x;
    array results, again;
    danaus_status status;
    int differ; /* rounds that gave other bits than the first */
} resident;

static danaus_status run_again(resident *r, const life *l)
{
    danaus_status status = execute(r->s, l);
    status = status ? status : go_back(r->s, l);
    status = status ? status
                    : danaus_download(
                          l->device, r->again.data, l->memory + vector_of(r->s),
                          (size_t)results_of(r->s) * 4);
    r->differ += !array_same(&r->again, &r->results);
    return status;
}

static void *reside(void *arg)
{
    resident *r = arg;
    for (int lives = 0; lives < 3 && r->status == DANAUS_OK; lives++) {
        life l = { 0 };
        r->status = try_life(r->s, r->name, &l, r->c, r->x->data, r->results.data);
        for (int i = 0; i < rounds_of(50) && r->status == DANAUS_OK; i++)
            r->status = run_again(r, &l);
        end_life(&l);
    }
    return NULL;
}

static void live_on_both(const story *s)
{
    rng random = { 1 };
    random_chain c = chain_random(&random, s->patterns, 2, DANAUS_F32, 1);
    array x = array_random(&random, DANAUS_F32, vector_of(s));
    resident r[2];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        r[i] = (resident){ .name = names[i], .s = s, .c = &c, .x = &x };
        r[i].results = array_make(DANAUS_F32, results_of(s));
        r[i].again = array_make(DANAUS_F32, results_of(s));
        assert_int_equal(pthread_create(&threads[i], NULL, reside, &r[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 2; i++) {
        assert_ok(r[i].status);
        assert_int_equal(r[i].differ, 0);
        assert_true(array_same(&r[i].results, &r[0].results));
    }
    for (int i = 0; i < 2; i++) {
        array_free(&r[i].results);
        array_free(&r[i].again);
    }
    array_free(&x);
    chain_free(&c);
}

static void two_threads_use_two_gpus(void **state)
{
    (void)state;
    live_on_both(&plain);
    live_on_both(&by_library);
    live_on_both(&turned);
    live_on_both(&hopper);
}

/* One thread that goes from one to the other. */
static void one_thread_takes_turns(void **state)
{
    (void)state;
    const story *s = &turned;
    rng random = { 2 };
    random_chain c = chain_random(&random, s->patterns, 2, DANAUS_F32, 1);
    array x = array_random(&random, DANAUS_F32, vector_of(s)), results[2], again;
    life l[2] = { { 0 } };
    again = array_make(DANAUS_F32, results_of(s));
    for (int i = 0; i < 2; i++) {
        results[i] = array_make(DANAUS_F32, results_of(s));
        assert_ok(try_life(s, names[i], &l[i], &c, x.data, results[i].data));
    }
    assert_true(array_same(&results[0], &results[1]));
    for (int i = 0; i < rounds_of(40); i++) {
        assert_ok(execute(s, &l[i % 2]));
        assert_ok(go_back(s, &l[i % 2]));
    }
    for (int i = 0; i < 2; i++) {
        assert_ok(danaus_download(
            l[i].device, again.data, l[i].memory + vector_of(s),
            (size_t)results_of(s) * 4));
        assert_true(array_same(&again, &results[0]));
        end_life(&l[i]);
    }
    array_free(&results[0]);
    array_free(&results[1]);
    array_free(&again);
    array_free(&x);
    chain_free(&c);
}

/* 0: there are not two of a kind. */
static int find_two(void)
{
    danaus_device_info info[2];
    for (int i = 0; i < 2; i++) {
        danaus_device *device = NULL;
        danaus_status status = danaus_device_open(names[i], &device);
        status = status ? status : danaus_device_describe(device, &info[i]);
        danaus_device_close(device);
        if (status != DANAUS_OK) {
            fprintf(stderr, "%s: %s\n", names[i], danaus_error_detail());
            return 0;
        }
    }
    return !strcmp(info[0].instructions, info[1].instructions);
}

int main(void)
{
    emulator_control *control = find_emulator();
    if (control)
        control->devices = 2;
    if (!find_two())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_threads_use_two_gpus),
        cmocka_unit_test(one_thread_takes_turns),
    };
    return cmocka_run_group_tests_name("devices", tests, NULL, NULL);
}
