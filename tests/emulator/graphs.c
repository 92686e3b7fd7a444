/* Graphs of the emulated driver: work that is done later, in its order. */
// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct work {
    struct work *next;
    void (*run)(const void *data);
    _Alignas(16) char data[];
} work;

typedef struct graph {
    work *first, **end;
    size_t count;
} graph;

/* What is captured now. A graph that is instantiated gives its work away. */
#define MOST_CAPTURES 8
#define GLOBAL        0
#define RELAXED       2

static struct {
    const void *stream; /* NULL: an empty place */
    pthread_t thread;
    int mode, is_spoilt;
    graph *to;
} captures[MOST_CAPTURES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int mode; /* of this thread */

/* The place of a stream, or -1. The lock is held. */
static int place_of(const void *stream)
{
    for (int i = 0; i < MOST_CAPTURES; i++)
        if (stream && captures[i].stream == stream)
            return i;
    return -1;
}

int emulated_is_captured(const void *stream)
{
    pthread_mutex_lock(&lock);
    int place = place_of(stream);
    pthread_mutex_unlock(&lock);
    return place >= 0;
}

int emulated_captures(void)
{
    int count = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_CAPTURES; i++)
        count += captures[i].stream != NULL;
    pthread_mutex_unlock(&lock);
    return count;
}

int emulated_is_forbidden(void)
{
    int forbidden = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_CAPTURES && mode != RELAXED; i++) {
        int is_own = pthread_equal(captures[i].thread, pthread_self());
        if (captures[i].stream && captures[i].mode != RELAXED &&
            (is_own || (mode == GLOBAL && captures[i].mode == GLOBAL)))
            forbidden = captures[i].is_spoilt = 1;
    }
    pthread_mutex_unlock(&lock);
    return forbidden;
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *other);
int cuThreadExchangeStreamCaptureMode(int *other)
{
    BEGIN;
    int before = mode;
    mode = *other;
    *other = before;
    return 0;
}

static graph *make_graph(void)
{
    graph *g = calloc(1, sizeof *g);
    g->end = &g->first;
    __atomic_add_fetch(&control->graphs, 1, __ATOMIC_SEQ_CST);
    return g;
}

static void free_graph(graph *g)
{
    for (work *w = g->first, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    free(g);
    __atomic_sub_fetch(&control->graphs, 1, __ATOMIC_SEQ_CST);
}

static void record(
    graph *to, void (*run)(const void *data), const void *data, size_t bytes)
{
    work *w = calloc(1, sizeof *w + bytes);
    w->run = run;
    memcpy(w->data, data, bytes);
    *to->end = w;
    to->end = &w->next;
    to->count++;
}

void emulator_enqueue(
    void *stream, void (*run)(const void *data), const void *data, size_t bytes)
{
    pthread_mutex_lock(&lock);
    int place = place_of(stream);
    if (place >= 0)
        record(captures[place].to, run, data, bytes);
    pthread_mutex_unlock(&lock);
    if (place >= 0)
        return;
    emulated_work_on(stream);
    run(data);
    control->stream = stream;
}

EXPORT int cuStreamIsCapturing(void *stream, int *capturing);
int cuStreamIsCapturing(void *stream, int *capturing)
{
    BEGIN;
    if (!stream && !emulated_context())
        return 201; /* whose default stream? */
    *capturing = control->capturing || emulated_is_captured(stream);
    return 0;
}

EXPORT int cuStreamCreate(void **stream, unsigned flags);
int cuStreamCreate(void **stream, unsigned flags)
{
    BEGIN;
    *stream = malloc(1 + flags);
    __atomic_add_fetch(&control->graphs, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT int cuStreamDestroy_v2(void *stream);
int cuStreamDestroy_v2(void *stream)
{
    free(stream);
    BEGIN;
    __atomic_sub_fetch(&control->graphs, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT int cuStreamBeginCapture_v2(void *stream, int how);
int cuStreamBeginCapture_v2(void *stream, int how)
{
    BEGIN;
    pthread_mutex_lock(&lock);
    int place = 0, ok = stream && how >= 0 && how <= 2 && place_of(stream) < 0;
    while (place < MOST_CAPTURES && captures[place].stream)
        place++;
    ok &= place < MOST_CAPTURES;
    if (ok) {
        captures[place].stream = stream;
        captures[place].thread = pthread_self();
        captures[place].mode = how;
        captures[place].is_spoilt = 0;
        captures[place].to = make_graph();
    }
    pthread_mutex_unlock(&lock);
    return !ok;
}

EXPORT int cuStreamEndCapture(void *stream, graph **made);
int cuStreamEndCapture(void *stream, graph **made)
{
    int error = emulator_fails(__func__);
    *made = NULL;
    pthread_mutex_lock(&lock);
    int place = place_of(stream);
    graph *g = place >= 0 ? captures[place].to : NULL;
    if (place >= 0) {
        error = error ? error : captures[place].is_spoilt ? 901 : 0;
        captures[place].stream = NULL;
    }
    pthread_mutex_unlock(&lock);
    if (error && g)
        free_graph(g);
    else
        *made = g;
    return error ? error : g == NULL;
}

EXPORT int cuGraphInstantiateWithFlags(
    graph **made, graph *from, unsigned long long flags);
int cuGraphInstantiateWithFlags(graph **made, graph *from, unsigned long long flags)
{
    BEGIN;
    if (flags)
        return 1;
    *made = make_graph();
    (*made)->first = from->first;
    from->first = NULL;
    return 0;
}

/* The latest of what is captured is what the next would wait for. */
EXPORT int cuStreamGetCaptureInfo_v2(
    void *stream, int *capturing, uint64_t *id, graph **to, work ***latest,
    size_t *count);
int cuStreamGetCaptureInfo_v2(
    void *stream, int *capturing, uint64_t *id, graph **to, work ***latest,
    size_t *count)
{
    static __thread work *last;
    BEGIN;
    pthread_mutex_lock(&lock);
    int place = place_of(stream);
    graph *g = place >= 0 ? captures[place].to : NULL;
    pthread_mutex_unlock(&lock);
    *capturing = g != NULL;
    if (!g)
        return 0;
    last = NULL;
    for (work *w = g->first; w; w = w->next)
        last = w;
    *id = 1;
    *to = g;
    *latest = &last;
    *count = last != NULL;
    return 0;
}

EXPORT int cuGraphGetNodes(const graph *g, work **nodes, size_t *count);
int cuGraphGetNodes(const graph *g, work **nodes, size_t *count)
{
    BEGIN;
    *count = g->count;
    return nodes != NULL; /* which nobody asks for */
}

void *emulated_node(void *made, const void *node, void (*run)(const void *data))
{
    for (work *w = ((graph *)made)->first; w; w = w->next)
        if (w == node)
            return w->run == run ? w->data : NULL;
    return NULL;
}

EXPORT int cuGraphLaunch(graph *made, void *stream);
int cuGraphLaunch(graph *made, void *stream)
{
    BEGIN;
    emulated_work_on(stream);
    for (const work *w = made->first; w; w = w->next)
        w->run(w->data);
    control->stream = stream;
    return emulated_context() ? 0 : 201;
}

EXPORT int cuGraphDestroy(graph *g);
int cuGraphDestroy(graph *g)
{
    int error = emulator_fails(__func__);
    free_graph(g);
    return error;
}

EXPORT int cuGraphExecDestroy(graph *made);
int cuGraphExecDestroy(graph *made)
{
    int error = emulator_fails(__func__);
    free_graph(made);
    return error;
}
