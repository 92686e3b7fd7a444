/* The order of work on the emulated driver, which does everything at once: streams have
   vector clocks, events copy them, and memory knows who wrote and read it last. Work that
   touches memory which another stream's work of unknown order wrote, or that writes what it
   read, is a race; work that touches memory which is not there strays. Streams do not
   wait for the legacy one. */
// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *handles[EMULATED_STREAMS] = { (void *)1 }; /* place 0 is the host's */
static int handle_count = 2;                            /* and 1 the legacy stream's */
static clocks now[EMULATED_STREAMS];
static __thread int running; /* whose work is done */

static void join(clocks *to, const clocks *from)
{
    for (int i = 0; i < EMULATED_STREAMS; i++)
        to->at[i] = from->at[i] > to->at[i] ? from->at[i] : to->at[i];
}

/* More streams than there are places share the last one. */
static int place_of(const void *stream)
{
    for (int i = 1; i < handle_count; i++)
        if (handles[i] == stream)
            return i;
    if (handle_count < EMULATED_STREAMS)
        handles[handle_count++] = (void *)stream;
    return handle_count - 1;
}

void emulated_work_on(const void *stream)
{
    pthread_mutex_lock(&lock);
    running = place_of(stream);
    join(&now[running], &now[0]);
    now[running].at[running]++;
    pthread_mutex_unlock(&lock);
}

void emulated_wait_for(const void *stream)
{
    pthread_mutex_lock(&lock);
    join(&now[0], &now[place_of(stream)]);
    pthread_mutex_unlock(&lock);
}

void emulated_wait_for_all(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 1; i < EMULATED_STREAMS; i++)
        join(&now[0], &now[i]);
    control->stalls++;
    pthread_mutex_unlock(&lock);
}

void emulated_begin_life(history *h)
{
    *h = (history){ .writer = running, .written = now[running].at[running] };
}

void emulated_touch(history *h, int writes)
{
    const clocks *mine = &now[running];
    int races = h->writer != running && mine->at[h->writer] < h->written;
    for (int i = 0; writes && i < EMULATED_STREAMS; i++)
        races |= i != running && mine->at[i] < h->read.at[i];
    h->read.at[running] = mine->at[running];
    if (writes) {
        h->writer = running;
        h->written = mine->at[running];
    }
    control->races += races;
}

/* ---- events ---- */

typedef struct event {
    struct timespec time;
    clocks at;
    int is_captured; /* part of a graph: nobody outside may wait for it, but joins it */
    const void *stream;
} event;

EXPORT int cuEventCreate(event **made, unsigned flags);
int cuEventCreate(event **made, unsigned flags)
{
    BEGIN;
    *made = flags & ~2u ? NULL : calloc(1, sizeof **made);
    if (!*made)
        return 1;
    __atomic_add_fetch(&control->events, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT int cuEventDestroy_v2(event *e);
int cuEventDestroy_v2(event *e)
{
    free(e); /* when this is to fail, too: what is lost is counted */
    BEGIN;
    __atomic_sub_fetch(&control->events, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT int cuEventRecord(event *e, void *stream);
int cuEventRecord(event *e, void *stream)
{
    BEGIN;
    clock_gettime(CLOCK_MONOTONIC, &e->time);
    e->is_captured = emulated_is_captured(stream);
    e->stream = stream;
    emulated_work_on(stream);
    pthread_mutex_lock(&lock);
    e->at = now[running];
    pthread_mutex_unlock(&lock);
    return emulated_context() ? 0 : 201;
}

EXPORT int cuEventSynchronize(event *e);
int cuEventSynchronize(event *e)
{
    BEGIN;
    pthread_mutex_lock(&lock);
    join(&now[0], &e->at);
    pthread_mutex_unlock(&lock);
    return e->is_captured ? 900 : emulated_context() ? 0 : 201;
}

EXPORT int cuStreamWaitEvent(void *stream, event *e, unsigned flags);
int cuStreamWaitEvent(void *stream, event *e, unsigned flags)
{
    BEGIN;
    if (e->is_captured)
        emulated_join(stream, e->stream);
    if (flags || e->is_captured != emulated_is_captured(stream))
        return 905; /* a graph would wait for what is outside, or be waited for */
    emulated_work_on(stream);
    pthread_mutex_lock(&lock);
    join(&now[running], &e->at);
    pthread_mutex_unlock(&lock);
    return emulated_context() ? 0 : 201;
}

EXPORT int cuEventElapsedTime(
    float *milliseconds, const event *first, const event *last);
int cuEventElapsedTime(float *milliseconds, const event *first, const event *last)
{
    BEGIN;
    *milliseconds = (float)(last->time.tv_sec - first->time.tv_sec) * 1e3f +
                    (float)(last->time.tv_nsec - first->time.tv_nsec) * 1e-6f;
    return 0;
}
