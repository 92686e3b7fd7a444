/* A pool of threads and the loop over it. Only thread.c knows what a thread is. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_THREAD_H
#define DN_BASE_THREAD_H

#include "danaus/base.h"

typedef struct thread_pool thread_pool;

/* One task of a loop: do number i. */
typedef void (*parallel_task)(void *arg, int i);

/* Processors that this process may use, at least 1: those that it may run on, or fewer, if
   its control groups grant it less time. The second reads their files below a folder
   (quota.h). */
int dn_thread_count(void);
int dn_thread_count_below(const char *root);

/* The number of fork() calls that led to this process since the library was loaded. Objects from
   before the last fork() have no threads here, and cannot reach a GPU's memory. */
unsigned dn_forks(void);

/* A pool that runs loops on `threads` threads, the caller's included, or on fewer where the
   system gives fewer. After fork() it makes its threads anew. */
danaus_status dn_pool_create(int threads, thread_pool **pool);
void dn_pool_destroy(thread_pool *pool);
int dn_pool_threads(const thread_pool *pool); /* 1 for NULL */

/* task(arg, i) for every i in [0, count); returns when all are done. Tasks are
   taken in order by whichever thread is free, the first by the caller. Not reentrant.
   pool may be NULL: then the caller does all. */
void dn_pool_run(thread_pool *pool, int count, parallel_task task, void *arg);

/* The same for a loop of ten to a hundred microseconds: threads that sleep are woken
   only if several of them have followed each other. */
void dn_pool_run_short(thread_pool *pool, int count, parallel_task task, void *arg);

/* A lock, for who may not wait for the whole process. Not recursive. NULL is fine for the
   last three, and locks nothing. */
typedef struct thread_lock thread_lock;
danaus_status dn_lock_create(thread_lock **lock);
void dn_lock_destroy(thread_lock *lock);
void dn_lock(thread_lock *lock);
void dn_unlock(thread_lock *lock);

/* One lock of the whole process, for work that is done once. Not recursive. */
void dn_lock_process(void);
void dn_unlock_process(void);

#endif
