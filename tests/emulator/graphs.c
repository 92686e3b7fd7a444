/* Graphs and events of the emulated driver: work that is done later, in its order. */
// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct work {
    struct work *next;
    void (*run)(const void *data);
    _Alignas(16) char data[];
} work;

typedef struct graph {
    work *first, **end;
    size_t count;
} graph;

/* What this thread captures. A graph that is instantiated gives its work away. */
static __thread void *captured;
static __thread graph *capture;

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

int emulator_record(
    void *stream, void (*run)(const void *data), const void *data, size_t bytes)
{
    if (!stream || stream != captured)
        return 0;
    work *w = calloc(1, sizeof *w + bytes);
    w->run = run;
    memcpy(w->data, data, bytes);
    *capture->end = w;
    capture->end = &w->next;
    capture->count++;
    return 1;
}

EXPORT int cuStreamIsCapturing(void *stream, int *capturing);
int cuStreamIsCapturing(void *stream, int *capturing)
{
    BEGIN;
    *capturing = control->capturing || (stream && stream == captured);
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

EXPORT int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamBeginCapture_v2(void *stream, int mode)
{
    BEGIN;
    if (captured || !stream || mode < 0 || mode > 2)
        return 1;
    captured = stream;
    capture = make_graph();
    return 0;
}

EXPORT int cuStreamEndCapture(void *stream, graph **made);
int cuStreamEndCapture(void *stream, graph **made)
{
    graph *g = stream == captured ? capture : NULL;
    int error = emulator_fails(__func__);
    captured = NULL;
    *made = NULL;
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
    *capturing = stream && stream == captured;
    if (!*capturing)
        return 0;
    last = NULL;
    for (work *w = capture->first; w; w = w->next)
        last = w;
    *id = 1;
    *to = capture;
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

/* ---- events ---- */

EXPORT int cuEventCreate(struct timespec **event, unsigned flags);
int cuEventCreate(struct timespec **event, unsigned flags)
{
    BEGIN;
    *event = flags ? NULL : calloc(1, sizeof **event);
    if (!*event)
        return 1;
    __atomic_add_fetch(&control->events, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT int cuEventDestroy_v2(struct timespec *event);
int cuEventDestroy_v2(struct timespec *event)
{
    free(event); /* when this is to fail, too: what is lost is counted */
    BEGIN;
    __atomic_sub_fetch(&control->events, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT int cuEventRecord(struct timespec *event, void *stream);
int cuEventRecord(struct timespec *event, void *stream)
{
    BEGIN;
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, event);
    return emulated_context() ? 0 : 201;
}

EXPORT int cuEventElapsedTime(
    float *milliseconds, const struct timespec *first, const struct timespec *last);
int cuEventElapsedTime(
    float *milliseconds, const struct timespec *first, const struct timespec *last)
{
    BEGIN;
    *milliseconds = (float)(last->tv_sec - first->tv_sec) * 1e3f +
                    (float)(last->tv_nsec - first->tv_nsec) * 1e-6f;
    return 0;
}
