/* A pool of threads that take the tasks of a loop from a counter.

   Workers wait for a new loop by spinning for some microseconds, so that the
   loops of one product follow each other quickly, and then sleep. A loop ends when
   its tasks are done: it does not wait for workers that slept through it.

   A process after fork() has none of its parent's threads, and locks in the state that they
   had. Pools and locks remember the number of forks. Where it has grown, they are created
   anew when they are next used. */
// SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/quota.h"
#include "base/status.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define SPIN_SECONDS 50e-6
#define STACK_BYTES  ((size_t)4 << 20) /* of a worker, whatever limit the process has */
/* Short loops in a row before they wake who sleeps: to wake a processor may take as
   long as one of them (60 us on a virtual machine). */
#define WORTH_WAKING 8

static atomic_uint forks; /* that led from the first process to this one */

static void count_fork(void) { atomic_fetch_add(&forks, 1); }

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

unsigned dn_forks(void) { return atomic_load_explicit(&forks, memory_order_relaxed); }

/* A loop passes one line of memory to its workers, and they pass back another line. */
struct thread_pool {
    _Alignas(DN_ALIGN) atomic_ullong ticket; /* number of the loop << 32 | tasks that
                                                nobody took */
    parallel_task task;
    void *arg;
    int count;
    atomic_int stop;
    _Alignas(DN_ALIGN) atomic_int unfinished; /* tasks that workers may take */
    _Alignas(DN_ALIGN) atomic_int sleeping;   /* workers; set under the lock */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    unsigned wakes;     /* so often all were woken */
    int threads;        /* the caller's included */
    unsigned forks;     /* dn_forks() when the workers were made */
    int started;        /* workers that exist */
    pthread_t *workers; /* threads - 1 of them */
    double ended;       /* when the last loop without workers did */
    int followed;       /* such loops that came soon after another */
};

static int processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

int dn_thread_count_below(const char *root)
{
    return MIN(processors(), dn_processor_quota(root));
}

/* What the files say is read once; which processors are allowed is a call of the system. */
int dn_thread_count(void)
{
    static atomic_int quota;
    int most = atomic_load(&quota);
    if (!most)
        atomic_store(&quota, most = dn_processor_quota(""));
    return MIN(processors(), most);
}

static void pause_briefly(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static uint32_t untaken(const thread_pool *pool)
{
    return (uint32_t)atomic_load(&pool->ticket);
}

/* Whoever holds a task keeps its loop from ending: task, arg and count are its. */
static void take_tasks(thread_pool *pool)
{
    unsigned long long ticket = atomic_load(&pool->ticket);
    while ((uint32_t)ticket) {
        if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket - 1))
            continue;
        pool->task(pool->arg, pool->count - (int)(uint32_t)ticket);
        atomic_fetch_sub_explicit(&pool->unfinished, 1, memory_order_release);
        ticket = atomic_load(&pool->ticket);
    }
}

/* Returns once there are tasks to take, or the pool stops. */
static void wait_for_tasks(thread_pool *pool)
{
    double until = dn_seconds() + SPIN_SECONDS;
    do {
        for (int i = 0; i < 64; i++) {
            if (untaken(pool))
                return;
            pause_briefly();
        }
    } while (dn_seconds() < until);
    pthread_mutex_lock(&pool->lock);
    unsigned seen = pool->wakes;
    atomic_fetch_add(&pool->sleeping, 1);
    while (!untaken(pool) && !atomic_load(&pool->stop) && pool->wakes == seen)
        pthread_cond_wait(&pool->wake, &pool->lock);
    if (pool->wakes == seen)
        atomic_fetch_sub(&pool->sleeping, 1);
    pthread_mutex_unlock(&pool->lock);
}

static void *work(void *arg)
{
    thread_pool *pool = arg;
    while (!atomic_load(&pool->stop)) {
        wait_for_tasks(pool);
        take_tasks(pool);
    }
    return NULL;
}

/* A worker counts itself among those that sleep before it looks for tasks a last time, and
   here tasks are there before anybody looks who sleeps: one of both sees the other. */
static void announce(thread_pool *pool, int tasks)
{
    unsigned long long loop = (atomic_load(&pool->ticket) >> 32) + 1;
    atomic_store(&pool->ticket, loop << 32 | (unsigned)tasks);
    if (atomic_load(&pool->sleeping) == 0)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->wakes++;
    atomic_store(&pool->sleeping, 0); /* all are on their way */
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

/* Starts as many workers as the system allows; the caller does the rest of the work. */
static void start_workers(thread_pool *p)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    p->forks = dn_forks();
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    while (p->started < p->threads - 1 &&
           !pthread_create(&p->workers[p->started], &attributes, work, p))
        p->started++;
    pthread_attr_destroy(&attributes);
}

/* After fork(), the workers once more. */
static void revive(thread_pool *p)
{
    atomic_store(&p->ticket, 0);
    atomic_store(&p->unfinished, 0);
    atomic_store(&p->sleeping, 0);
    atomic_store(&p->stop, 0);
    p->started = 0;
    start_workers(p);
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
    start_workers(p);
    *pool = p;
    return DANAUS_OK;
}

void dn_pool_destroy(thread_pool *pool)
{
    if (!pool)
        return;
    if (pool->forks == dn_forks()) {
        atomic_store(&pool->stop, 1);
        announce(pool, 0);
        for (int i = 0; i < pool->started; i++)
            pthread_join(pool->workers[i], NULL);
        pthread_cond_destroy(&pool->wake);
        pthread_mutex_destroy(&pool->lock);
    }
    dn_free(pool->workers);
    dn_free(pool);
}

int dn_pool_threads(const thread_pool *pool) { return pool ? pool->threads : 1; }

static void run_alone(int count, parallel_task task, void *arg)
{
    for (int i = 0; i < count; i++)
        task(arg, i);
}

void dn_pool_run(thread_pool *pool, int count, parallel_task task, void *arg)
{
    if (!pool || pool->threads == 1 || count <= 1) {
        run_alone(count, task, arg);
        return;
    }
    if (pool->forks != dn_forks())
        revive(pool);
    pool->task = task;
    pool->arg = arg;
    pool->count = count;
    pool->followed = 0;
    atomic_store_explicit(&pool->unfinished, count - 1, memory_order_relaxed);
    announce(pool, count - 1);
    task(arg, 0);
    for (int spins = 0; atomic_load_explicit(&pool->unfinished, memory_order_acquire);
         spins++) {
        take_tasks(pool);
        spins < 1000 ? pause_briefly() : (void)sched_yield();
    }
}

void dn_pool_run_short(thread_pool *pool, int count, parallel_task task, void *arg)
{
    if (!pool || atomic_load(&pool->sleeping) == 0 || pool->followed >= WORTH_WAKING ||
        pool->forks != dn_forks()) {
        dn_pool_run(pool, count, task, arg);
        return;
    }
    run_alone(count, task, arg);
    double now = dn_seconds();
    pool->followed = now - pool->ended < SPIN_SECONDS ? pool->followed + 1 : 0;
    pool->ended = now;
}

struct thread_lock {
    pthread_mutex_t mutex;
    atomic_uint forks; /* dn_forks() when it was begun; BEGINNING: a thread begins it */
};

#define BEGINNING (~0u)

/* A lock that another thread held at fork() would never be opened: it begins anew. */
static void lock(thread_lock *l)
{
    unsigned now = dn_forks(), seen = atomic_load(&l->forks);
    while (seen != now) {
        if (seen != BEGINNING &&
            atomic_compare_exchange_weak(&l->forks, &seen, BEGINNING)) {
            pthread_mutex_init(&l->mutex, NULL);
            atomic_store(&l->forks, now);
        }
        seen = atomic_load(&l->forks);
    }
    pthread_mutex_lock(&l->mutex);
}

danaus_status dn_lock_create(thread_lock **to)
{
    thread_lock *made = dn_calloc(1, sizeof *made);
    if (!made)
        return dn_fail_memory(sizeof *made, "a lock");
    pthread_mutex_init(&made->mutex, NULL);
    atomic_store(&made->forks, dn_forks());
    *to = made;
    return DANAUS_OK;
}

void dn_lock_destroy(thread_lock *l)
{
    if (l && atomic_load(&l->forks) == dn_forks())
        pthread_mutex_destroy(&l->mutex);
    dn_free(l);
}

void dn_lock(thread_lock *l)
{
    if (l)
        lock(l);
}

void dn_unlock(thread_lock *l)
{
    if (l)
        pthread_mutex_unlock(&l->mutex);
}

static thread_lock process_lock = { .mutex = PTHREAD_MUTEX_INITIALIZER };

void dn_lock_process(void) { lock(&process_lock); }
void dn_unlock_process(void) { pthread_mutex_unlock(&process_lock.mutex); }
