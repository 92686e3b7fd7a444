/* What a process that fork() made finds: pools, locks and devices of its parent, whose
   threads are not there. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "danaus/danaus.h"
#include "base/thread.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs body(arg) in a forked child; its result is 0 if it ended well in time. */
static int in_child(int (*body)(void *arg), void *arg)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        _exit(body(arg));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void count(void *arg, int i)
{
    (void)i;
    __atomic_fetch_add((int *)arg, 1, __ATOMIC_RELAXED);
}

static int run_pool(void *arg)
{
    int sum = 0;
    for (int loop = 0; loop < 20; loop++) {
        dn_pool_run(arg, 50, count, &sum);
        dn_pool_run_short(arg, 50, count, &sum);
    }
    dn_pool_destroy(arg);
    return sum != 2000;
}

static int destroy_pool(void *arg)
{
    dn_pool_destroy(arg);
    return 0;
}

static void a_pool_works_and_ends_in_a_child(void **state)
{
    (void)state;
    thread_pool *pool;
    int sum = 0;
    assert_ok(dn_pool_create(4, &pool));
    assert_int_equal(in_child(run_pool, pool), 0);
    dn_pool_run(pool, 10, count, &sum);
    usleep(2000); /* its workers sleep */
    assert_int_equal(in_child(run_pool, pool), 0);
    assert_int_equal(in_child(destroy_pool, pool), 0);
    dn_pool_run(pool, 10, count, &sum);
    assert_int_equal(sum, 20);
    dn_pool_destroy(pool);
}

static int take_locks(void *arg)
{
    dn_lock(arg);
    dn_unlock(arg);
    dn_lock_process();
    dn_unlock_process();
    dn_lock_destroy(arg);
    return 0;
}

static pthread_barrier_t held;

static void *hold_locks(void *arg)
{
    dn_lock(arg);
    dn_lock_process();
    pthread_barrier_wait(&held);
    pthread_barrier_wait(&held);
    dn_unlock_process();
    dn_unlock(arg);
    return NULL;
}

static void locks_of_threads_that_are_gone_are_open(void **state)
{
    (void)state;
    thread_lock *lock;
    pthread_t holder;
    assert_ok(dn_lock_create(&lock));
    pthread_barrier_init(&held, NULL, 2);
    assert_int_equal(pthread_create(&holder, NULL, hold_locks, lock), 0);
    pthread_barrier_wait(&held);
    assert_int_equal(in_child(take_locks, lock), 0);
    pthread_barrier_wait(&held);
    pthread_join(holder, NULL);
    pthread_barrier_destroy(&held);
    dn_lock_destroy(lock);
}

enum { N = 512, BATCH = 300 };

typedef struct product {
    danaus_device *device;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    float x[BATCH * N], y[BATCH * N];
} product;

static int multiply_and_close(void *arg)
{
    static float y[BATCH * N];
    product *p = arg;
    if (danaus_ks_execute(p->plan, p->device, p->weights, BATCH, p->x, y))
        return 1;
    danaus_device_close(p->device);
    return memcmp(y, p->y, sizeof y) != 0;
}

static int close_device(void *arg)
{
    danaus_device_close(arg);
    return 0;
}

static void a_device_of_the_parent_works_in_a_child(void **state)
{
    (void)state;
    static product p;
    danaus_pattern patterns[] = { { 1, 64, 64, 8 }, { 8, 64, 64, 1 } };
    danaus_chain *chain;
    for (int i = 0; i < BATCH * N; i++)
        p.x[i] = (float)(i * 31 % 97);
    assert_ok(danaus_chain_create(patterns, 2, DANAUS_F32, &chain));
    for (int i = 0; i < 8 * 64 * 64; i++)
        ((float *)danaus_chain_weights(chain, 0))[i] =
            ((float *)danaus_chain_weights(chain, 1))[i] = (float)(i % 5);
    assert_ok(danaus_device_open("cpu", &p.device));
    assert_ok(danaus_device_set_threads(p.device, 4));
    assert_ok(danaus_ks_plan_create(p.device, patterns, 2, NULL, &p.plan));
    assert_ok(danaus_ks_weights_create(p.plan, p.device, chain, &p.weights));
    assert_ok(danaus_ks_execute(p.plan, p.device, p.weights, BATCH, p.x, p.y));
    assert_int_equal(in_child(multiply_and_close, &p), 0);
    assert_int_equal(in_child(close_device, p.device), 0);
    assert_int_equal(in_child(multiply_and_close, &p), 0);
    danaus_ks_weights_destroy(p.weights);
    danaus_ks_plan_destroy(p.plan);
    danaus_chain_destroy(chain);
    danaus_device_close(p.device);
}

static int factorize(void *arg)
{
    danaus_pattern patterns[] = { { 1, 8, 8, 8 }, { 8, 8, 8, 1 } };
    danaus_chain *chain = NULL;
    danaus_factorize_desc desc = { .threads = 3 };
    if (danaus_factorize(arg, DANAUS_F32, patterns, 2, &desc, &chain, NULL))
        return 1;
    danaus_chain_destroy(chain);
    return 0;
}

static void factorizing_works_before_and_after(void **state)
{
    (void)state;
    static float dense[64 * 64];
    for (int i = 0; i < 64 * 64; i++)
        dense[i] = (float)(i * 37 % 101);
    assert_int_equal(in_child(factorize, dense), 0);
    assert_int_equal(factorize(dense), 0);
    assert_int_equal(in_child(factorize, dense), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_works_and_ends_in_a_child),
        cmocka_unit_test(locks_of_threads_that_are_gone_are_open),
        cmocka_unit_test(a_device_of_the_parent_works_in_a_child),
        cmocka_unit_test(factorizing_works_before_and_after),
    };
    return cmocka_run_group_tests_name("fork", tests, NULL, NULL);
}
