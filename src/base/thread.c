/* A pool of threads that take the tasks of a loop from a counter.

   Workers wait for a new loop by spinning for some microseconds, so that the
   loops of one product follow each other quickly, and then sleep. */
// SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define SPIN_SECONDS 50e-6

struct thread_pool {
    int threads;        /* the caller's included */
    int started;        /* workers that exist */
    pthread_t *workers; /* threads - 1 of them */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_uint loop;  /* number of the current loop; grows under the lock */
    atomic_int next;   /* first task that nobody took */
    atomic_int active; /* workers that have not finished the current loop */
    atomic_int stop;
    int count;
    parallel_task task;
    void *arg;
};

int dn_thread_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

static void pause_briefly(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static void take_tasks(thread_pool *pool)
{
    for (;;) {
        int i = atomic_fetch_add(&pool->next, 1);
        if (i >= pool->count)
            return;
        pool->task(pool->arg, i);
    }
}

/* Returns once the pool's loop number differs from `seen` or it stops. */
static void wait_for_loop(thread_pool *pool, unsigned seen)
{
    double until = dn_seconds() + SPIN_SECONDS;
    do {
        for (int i = 0; i < 64; i++) {
            if (atomic_load_explicit(&pool->loop, memory_order_acquire) != seen)
                return;
            pause_briefly();
        }
    } while (dn_seconds() < until);
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->loop) == seen)
        pthread_cond_wait(&pool->wake, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

static void *work(void *arg)
{
    thread_pool *pool = arg;
    unsigned seen = 0;
    for (;;) {
        wait_for_loop(pool, seen);
        seen++;
        if (atomic_load(&pool->stop))
            return NULL;
        take_tasks(pool);
        atomic_fetch_sub_explicit(&pool->active, 1, memory_order_release);
    }
}

static void announce(thread_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add_explicit(&pool->loop, 1, memory_order_release);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

danaus_status dn_pool_create(int threads, thread_pool **pool)
{
    thread_pool *p = dn_calloc(1, sizeof *p);
    if (p)
        p->workers = dn_calloc((size_t)threads, sizeof *p->workers);
    if (!p || !p->workers) {
        dn_free(p);
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for %d threads", threads);
    }
    p->threads = threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    for (; p->started < threads - 1; p->started++) {
        if (pthread_create(&p->workers[p->started], NULL, work, p)) {
            int made = p->started;
            dn_pool_destroy(p);
            return dn_fail(
                DANAUS_ERR_MEMORY, "the system gave %d of %d threads", made + 1,
                threads);
        }
    }
    *pool = p;
    return DANAUS_OK;
}

void dn_pool_destroy(thread_pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->stop, 1);
    announce(pool);
    for (int i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    dn_free(pool->workers);
    dn_free(pool);
}

int dn_pool_threads(const thread_pool *pool) { return pool ? pool->threads : 1; }

void dn_pool_run(thread_pool *pool, int count, parallel_task task, void *arg)
{
    if (!pool || pool->threads == 1 || count <= 1) {
        for (int i = 0; i < count; i++)
            task(arg, i);
        return;
    }
    pool->task = task;
    pool->arg = arg;
    pool->count = count;
    atomic_store(&pool->next, 0);
    atomic_store(&pool->active, pool->started);
    announce(pool);
    take_tasks(pool);
    for (int spins = 0; atomic_load_explicit(&pool->active, memory_order_acquire);
         spins++)
        spins < 1000 ? pause_briefly() : (void)sched_yield();
}

static pthread_mutex_t process_lock = PTHREAD_MUTEX_INITIALIZER;

void dn_lock_process(void) { pthread_mutex_lock(&process_lock); }
void dn_unlock_process(void) { pthread_mutex_unlock(&process_lock); }
