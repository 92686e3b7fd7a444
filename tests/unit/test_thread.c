/* The pool: every task runs once, from pools of all sizes. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#define TASKS 1000

typedef struct tally {
    atomic_int runs[TASKS];
    int plain[TASKS]; /* written by the task alone: a race would be seen */
} tally;

static void count_task(void *arg, int i)
{
    tally *t = arg;
    atomic_fetch_add(&t->runs[i], 1);
    t->plain[i] += i;
}

static void check_loop(thread_pool *pool, int count, int loops)
{
    tally t = { 0 };
    for (int l = 0; l < loops; l++)
        dn_pool_run(pool, count, count_task, &t);
    for (int i = 0; i < TASKS; i++) {
        assert_int_equal(atomic_load(&t.runs[i]), i < count ? loops : 0);
        assert_int_equal(t.plain[i], i < count ? loops * i : 0);
    }
}

static void every_task_runs_once(void **state)
{
    (void)state;
    static const int sizes[] = { 1, 2, 3, 7, 16 };
    for (int s = 0; s < 5; s++) {
        thread_pool *pool = NULL;
        assert_ok(dn_pool_create(sizes[s], &pool));
        assert_int_equal(dn_pool_threads(pool), sizes[s]);
        for (int count = 0; count < 20; count++)
            check_loop(pool, count, 20);
        check_loop(pool, TASKS, 5);
        dn_pool_destroy(pool);
    }
}

static void no_pool_runs_on_the_caller(void **state)
{
    (void)state;
    assert_int_equal(dn_pool_threads(NULL), 1);
    check_loop(NULL, TASKS, 1);
    dn_pool_destroy(NULL);
}

static void sleeping_workers_wake(void **state)
{
    (void)state;
    thread_pool *pool = NULL;
    assert_ok(dn_pool_create(3, &pool));
    for (int i = 0; i < 5; i++) {
        usleep(3000);
        check_loop(pool, 50, 1);
    }
    usleep(3000);
    dn_pool_destroy(pool);
}

/* Two tasks that wait for each other: a worker that misses its loop would let the caller
   wait until the time is over. */
typedef struct meeting {
    pthread_t caller;
    atomic_int there, worker_came;
} meeting;

static void meet(void *arg, int i)
{
    (void)i;
    meeting *m = arg;
    atomic_fetch_add(&m->there, 1);
    if (!pthread_equal(pthread_self(), m->caller))
        atomic_store(&m->worker_came, 1);
    for (double until = dn_seconds() + 10;
         atomic_load(&m->there) < 2 && dn_seconds() < until;)
        sched_yield();
}

/* Pauses about as long as workers spin, so that loops begin while some go to sleep. */
static void workers_miss_no_loop(void **state)
{
    (void)state;
    thread_pool *pool = NULL;
    assert_ok(dn_pool_create(2, &pool));
    for (int l = 0; l < 400; l++) {
        double until = dn_seconds() + 1e-6 * (l % 100);
        while (dn_seconds() < until)
            ;
        meeting m = { .caller = pthread_self() };
        dn_pool_run(pool, 2, meet, &m);
        assert_true(atomic_load(&m.worker_came));
    }
    dn_pool_destroy(pool);
}

static void spin(void *arg, int i)
{
    (void)i;
    meeting *m = arg;
    if (!pthread_equal(pthread_self(), m->caller))
        atomic_store(&m->worker_came, 1);
    for (double until = dn_seconds() + 5e-6; dn_seconds() < until;)
        ;
}

static void short_loops_wake_workers_at_last(void **state)
{
    (void)state;
    thread_pool *pool = NULL;
    assert_ok(dn_pool_create(2, &pool));
    usleep(3000);
    meeting m = { .caller = pthread_self() };
    for (double until = dn_seconds() + 10;
         !atomic_load(&m.worker_came) && dn_seconds() < until;)
        dn_pool_run_short(pool, 8, spin, &m);
    assert_true(atomic_load(&m.worker_came));
    dn_pool_destroy(pool);
}

/* Alone at first, then with all threads; every task once in either way. */
static void short_loops_are_done(void **state)
{
    (void)state;
    thread_pool *pool = NULL;
    assert_ok(dn_pool_create(3, &pool));
    tally t = { 0 };
    for (int l = 0; l < 400; l++) {
        if (l % 100 == 0)
            usleep(3000);
        dn_pool_run_short(l % 2 ? pool : NULL, 40, count_task, &t);
        dn_pool_run_short(pool, l % 40, count_task, &t);
    }
    for (int i = 0; i < 40; i++)
        assert_int_equal(atomic_load(&t.runs[i]), 400 + 10 * (39 - i));
    dn_pool_destroy(pool);
}

static void missing_memory_is_a_status(void **state)
{
    (void)state;
    for (long n = 1; n <= 2; n++) {
        thread_pool *pool = NULL;
        dn_alloc_fail_at(n);
        assert_status(dn_pool_create(4, &pool), DANAUS_ERR_MEMORY);
        dn_alloc_fail_at(0);
        assert_null(pool);
    }
}

static void there_is_a_processor(void **state)
{
    (void)state;
    assert_in_range(dn_thread_count(), 1, 1 << 20);
}

static void *run_own_pool(void *arg)
{
    thread_pool *pool = NULL;
    if (dn_pool_create(3, &pool) != DANAUS_OK)
        return NULL;
    tally *t = arg;
    for (int l = 0; l < 50; l++)
        dn_pool_run(pool, 100, count_task, t);
    dn_pool_destroy(pool);
    return t;
}

static void pools_do_not_disturb_each_other(void **state)
{
    (void)state;
    pthread_t threads[4];
    static tally t[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_own_pool, &t[i]), 0);
    for (int i = 0; i < 4; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, &t[i]);
        for (int j = 0; j < 100; j++)
            assert_int_equal(atomic_load(&t[i].runs[j]), 50);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(no_pool_runs_on_the_caller),
        cmocka_unit_test(sleeping_workers_wake),
        cmocka_unit_test(workers_miss_no_loop),
        cmocka_unit_test(short_loops_wake_workers_at_last),
        cmocka_unit_test(short_loops_are_done),
        cmocka_unit_test(missing_memory_is_a_status),
        cmocka_unit_test(there_is_a_processor),
        cmocka_unit_test(pools_do_not_disturb_each_other),
    };
    return cmocka_run_group_tests_name("thread", tests, NULL, NULL);
}
