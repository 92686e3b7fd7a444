/* Graphs of the emulated driver: work that is done later. What a branch of a capture does
   comes before all that the stream did since they parted, so that a branch which should have
   waited is found out. */
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
    work *first, **end, *latest;
    size_t count;
} graph;

/* What is captured now. A graph that is instantiated gives its work away. */
#define MOST_CAPTURES 8
#define GLOBAL        0
#define RELAXED       2

#define MOST_BRANCHES 4

static struct {
    const void *stream; /* NULL: an empty place */
    const void *branch[MOST_BRANCHES];
    int is_open[MOST_BRANCHES]; /* not waited for since it did something */
    work **end[MOST_BRANCHES];  /* where it goes on */
    pthread_t thread;
    int mode, is_spoilt;
    graph *to;
} captures[MOST_CAPTURES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int mode; /* of this thread */

/* The branch of a capture that a stream is, or -1. The lock is held. */
static int branch_of(int place, const void *stream)
{
    for (int i = 0; i < MOST_BRANCHES; i++)
        if (stream && captures[place].stream && captures[place].branch[i] == stream)
            return i;
    return -1;
}

/* The place of a stream, or -1. The lock is held. */
static int place_of(const void *stream)
{
    for (int i = 0; i < MOST_CAPTURES; i++)
        if (stream && (captures[i].stream == stream || branch_of(i, stream) >= 0))
            return i;
    return -1;
}

void emulated_join(const void *stream, const void *other)
{
    pthread_mutex_lock(&lock);
    int place = place_of(other), branch = place < 0 ? -1 : branch_of(place, other);
    if (place >= 0 && stream == captures[place].stream && branch >= 0)
        captures[place].is_open[branch] = 0;
    for (int i = 0; place >= 0 && place_of(stream) < 0 && i < MOST_BRANCHES; i++)
        if (!captures[place].branch[i])
            captures[place].branch[i] = stream;
    branch = place < 0 ? -1 : branch_of(place, stream);
    if (branch >= 0) {
        captures[place].is_open[branch] = 1;
        captures[place].end[branch] = captures[place].to->end;
    }
    pthread_mutex_unlock(&lock);
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
    graph *to, work ***end, void (*run)(const void *data), const void *data,
    size_t bytes)
{
    work *w = calloc(1, sizeof *w + bytes);
    w->run = run;
    memcpy(w->data, data, bytes);
    w->next = **end;
    **end = w;
    if (to->end == *end)
        to->end = &w->next;
    *end = &w->next;
    to->latest = w;
    to->count++;
}

void emulator_enqueue(
    void *stream, void (*run)(const void *data), const void *data, size_t bytes)
{
    pthread_mutex_lock(&lock);
    int place = place_of(stream);
    if (place >= 0) {
        int branch = branch_of(place, stream);
        graph *to = captures[place].to;
        record(
            to, branch < 0 ? &to->end : &captures[place].end[branch], run, data, bytes);
        if (branch >= 0)
            captures[place].is_open[branch] = 1;
    }
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
        return 201; /* no context has a default stream */
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
        memset(captures[place].branch, 0, sizeof captures[place].branch);
        memset(captures[place].is_open, 0, sizeof captures[place].is_open);
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
    for (int i = 0; place >= 0 && i < MOST_BRANCHES; i++)
        if (captures[place].is_open[i] || captures[place].branch[i] == stream)
            captures[place].is_spoilt = 1;
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
    BEGIN;
    pthread_mutex_lock(&lock);
    int place = place_of(stream);
    graph *g = place >= 0 ? captures[place].to : NULL;
    pthread_mutex_unlock(&lock);
    *capturing = g != NULL;
    if (!g)
        return 0;
    *id = 1;
    *to = g;
    *latest = &g->latest;
    *count = g->latest != NULL;
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
