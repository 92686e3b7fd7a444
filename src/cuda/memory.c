/* Memory of a GPU, streams, and their scratch.

   Memory is allocated from the GPU's pool and freed to it in the order of a stream, so neither
   waits for other work; drivers without pools wait. Memory is freed on a stream of the GPU's
   own, which waits for an event of each stream of each device. A stream that is being captured
   has no events: freed memory then waits in a list.

   Scratch belongs to a stream: a device keeps scratch for each of its latest few streams. Two
   streams share only lent scratch, and then the later stream waits for the earlier one. Scratch
   that was handed out while the caller captured a graph is kept until the device closes. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"

#include "base/mem.h"
#include "base/status.h"

int dn_cuda_set_capture_mode(const cuda_driver *driver, int mode)
{
    if (driver->ExchangeCaptureMode)
        driver->ExchangeCaptureMode(&mode);
    return mode;
}

/* The legacy stream answers with an error while a stream that it waits for is captured. */
static int is_captured(const cuda_driver *driver, cu_stream stream)
{
    int captured = 0;
    return driver->StreamIsCapturing(stream, &captured) || captured;
}

static danaus_status reserve(cuda_memory_list *list, size_t count)
{
    return dn_reserve(
        &list->memory, count, &list->capacity, sizeof *list->memory,
        "a list of memory");
}

/* ---- memory of a GPU; its lock is held ---- */

/* `frees` waits for what the stream was asked until now. 0: nobody knows. */
static int wait_for(cuda_gpu *g, cuda_stream *s, int is_now)
{
    const cuda_driver *driver = g->driver;
    if (is_now || (!s->is_left && !s->stream)) {
        if ((!s->left && driver->EventCreate(&s->left, CU_WITHOUT_TIMING)) ||
            driver->EventRecord(s->left, s->stream))
            return 0;
    } else if (!s->is_left)
        return 1;
    return !driver->StreamWaitEvent(g->frees, s->left, 0);
}

/* 0: what waits cannot be freed yet. */
static int wait_for_all(cuda_gpu *g)
{
    int done = 1;
    for (const cuda_device *d = g->queues; d; d = d->next)
        if (is_captured(g->driver, d->now->stream))
            return 0;
    for (cuda_device *d = g->queues; g->frees && d; d = d->next)
        for (cuda_stream *s = d->streams; s < d->streams + STREAMS; s++)
            done &= !s->used || wait_for(g, s, s == d->now);
    return done;
}

static void free_now(cuda_gpu *g, void *memory)
{
    if (g->frees)
        g->driver->MemFreeAsync((cu_pointer)memory, g->frees);
    else
        g->driver->MemFree((cu_pointer)memory);
    g->allocations--;
}

static void free_list(cuda_gpu *g, cuda_memory_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free_now(g, list->memory[i]);
    list->count = 0;
}

static void free_waiting(cuda_gpu *g)
{
    if (g->waiting.count && wait_for_all(g))
        free_list(g, &g->waiting);
}

/* There is room for all that was allocated. */
static void free_later(cuda_gpu *g, void *memory)
{
    g->waiting.memory[g->waiting.count++] = memory;
    free_waiting(g);
}

/* Memory in the order of a stream, or, on `asks`, for all. */
static danaus_status get(cuda_gpu *g, size_t bytes, cu_stream stream, void **memory)
{
    cu_pointer m;
    cu_result result = 0;
    TRY(reserve(&g->waiting, g->allocations));
    if (!g->asks)
        CUDA_TRY(g->driver, MemAlloc(&m, bytes));
    else {
        CUDA_TRY(g->driver, MemAllocAsync(&m, bytes, stream));
        if (stream == g->asks)
            result = g->driver->StreamSynchronize(stream);
    }
    g->allocations++;
    if (result) {
        free_now(g, (void *)m);
        return dn_cuda_status(g->driver, result, "StreamSynchronize");
    }
    *memory = (void *)m;
    return DANAUS_OK;
}

danaus_status dn_cuda_alloc(cuda_gpu *g, size_t bytes, void **memory)
{
    int mode = dn_cuda_set_capture_mode(g->driver, CAPTURE_RELAXED);
    dn_lock(g->memory_lock);
    free_waiting(g);
    danaus_status status = get(g, bytes ? bytes : 1, g->asks, memory);
    dn_unlock(g->memory_lock);
    dn_cuda_set_capture_mode(g->driver, mode);
    return status;
}

void dn_cuda_free(cuda_gpu *g, void *memory)
{
    int mode = dn_cuda_set_capture_mode(g->driver, CAPTURE_RELAXED);
    dn_lock(g->memory_lock);
    free_later(g, memory);
    dn_unlock(g->memory_lock);
    dn_cuda_set_capture_mode(g->driver, mode);
}

danaus_status dn_cuda_open_memory(cuda_gpu *g)
{
    int pools = 0;
    TRY(dn_lock_create(&g->memory_lock));
    if (!g->driver->MemAllocAsync || !g->driver->MemFreeAsync)
        return DANAUS_OK;
    CUDA_TRY(g->driver, DeviceGetAttribute(&pools, CU_MEMORY_POOLS, g->handle));
    if (!pools)
        return DANAUS_OK;
    CUDA_TRY(g->driver, StreamCreate(&g->asks, CU_NON_BLOCKING));
    CUDA_TRY(g->driver, StreamCreate(&g->frees, CU_NON_BLOCKING));
    return DANAUS_OK;
}

/* No device is left: its work was waited for. */
void dn_cuda_close_memory(cuda_gpu *g)
{
    free_list(g, &g->waiting);
    if (g->frees) {
        g->driver->StreamSynchronize(g->frees);
        g->driver->StreamDestroy(g->frees);
    }
    if (g->asks)
        g->driver->StreamDestroy(g->asks);
}

/* ---- streams of a device ---- */

void dn_cuda_open_queue(cuda_device *d)
{
    cuda_gpu *g = d->shared;
    d->now = d->streams;
    d->now->used = ++d->switches;
    dn_lock(g->memory_lock);
    d->next = g->queues;
    g->queues = d;
    dn_unlock(g->memory_lock);
}

danaus_status dn_cuda_wait(cuda_device *d)
{
    CUDA_TRY(d->driver, StreamSynchronize(d->stream));
    for (const cuda_stream *s = d->streams; s < d->streams + STREAMS; s++)
        if (s != d->now && s->is_left)
            CUDA_TRY(d->driver, EventSynchronize(s->left));
    return DANAUS_OK;
}

void dn_cuda_close_queue(cuda_device *d)
{
    cuda_gpu *g = d->shared;
    int mode = dn_cuda_set_capture_mode(g->driver, CAPTURE_RELAXED);
    if (!is_captured(g->driver, d->stream))
        dn_cuda_wait(d);
    dn_lock(g->memory_lock);
    cuda_device **at = &g->queues;
    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
    for (cuda_stream *s = d->streams; s < d->streams + STREAMS; s++) {
        if (s->scratch)
            free_now(g, s->scratch);
        if (s->left)
            g->driver->EventDestroy(s->left);
    }
    free_list(g, &d->kept);
    free_waiting(g);
    dn_unlock(g->memory_lock);
    dn_cuda_set_capture_mode(g->driver, mode);
    dn_free(d->kept.memory);
}

/* Takes the scratch of a stream away, which may be another one's afterwards. */
static danaus_status end_scratch(cuda_device *d, cuda_stream *s)
{
    int is_known = s == d->now || s->is_left;
    if (s->scratch && (s->is_captured || !is_known)) {
        TRY(reserve(&d->kept, d->kept.count));
        d->kept.memory[d->kept.count++] = s->scratch;
    } else if (s->scratch)
        free_later(d->shared, s->scratch);
    s->scratch = NULL;
    s->bytes = 0;
    s->is_captured = 0;
    return DANAUS_OK;
}

/* A stream that is captured has no event for work of before. */
static danaus_status leave(cuda_device *d, cuda_stream *s)
{
    s->is_left = 0;
    if (is_captured(d->driver, s->stream))
        return DANAUS_OK;
    if (!s->left)
        CUDA_TRY(d->driver, EventCreate(&s->left, CU_WITHOUT_TIMING));
    CUDA_TRY(d->driver, EventRecord(s->left, s->stream));
    s->is_left = 1;
    return DANAUS_OK;
}

/* Its place, or that of the stream that was used longest ago. */
static cuda_stream *find_stream(cuda_device *d, cu_stream stream)
{
    cuda_stream *oldest = NULL;
    for (cuda_stream *s = d->streams; s < d->streams + STREAMS; s++) {
        if (s->used && s->stream == stream)
            return s;
        if (s != d->now && (!oldest || s->used < oldest->used))
            oldest = s;
    }
    return oldest;
}

/* A handle that comes again may be that of another stream: it waits for what the former
   one did with its scratch. */
static danaus_status go_to(cuda_device *d, cu_stream stream)
{
    cuda_stream *from = d->now, *to = find_stream(d, stream);
    int waits = !is_captured(d->driver, stream);
    TRY(leave(d, from));
    if (!to->used || to->stream != stream) {
        TRY(end_scratch(d, to));
        to->is_left = 0;
    } else if (to->is_left && waits)
        CUDA_TRY(d->driver, StreamWaitEvent(stream, to->left, 0));
    if (d->gpu.callers.lent && from->is_left && waits)
        CUDA_TRY(d->driver, StreamWaitEvent(stream, from->left, 0));
    to->stream = d->stream = stream;
    to->used = ++d->switches;
    d->now = to;
    return DANAUS_OK;
}

danaus_status dn_cuda_set_stream(cuda_device *d, cu_stream stream)
{
    if (stream == d->stream)
        return DANAUS_OK;
    int mode = dn_cuda_set_capture_mode(d->driver, CAPTURE_RELAXED);
    dn_lock(d->shared->memory_lock);
    danaus_status status = go_to(d, stream);
    dn_unlock(d->shared->memory_lock);
    dn_cuda_set_capture_mode(d->driver, mode);
    return status;
}

/* ---- scratch ---- */

static danaus_status end_all_scratch(cuda_device *d)
{
    danaus_status status = DANAUS_OK;
    dn_lock(d->shared->memory_lock);
    for (cuda_stream *s = d->streams; s < d->streams + STREAMS; s++)
        status = status ? status : end_scratch(d, s);
    dn_unlock(d->shared->memory_lock);
    return status;
}

danaus_status dn_cuda_set_scratch(
    cuda_device *d, void *lent, size_t bytes, const danaus_allocator *allocator)
{
    int mode = dn_cuda_set_capture_mode(d->driver, CAPTURE_RELAXED);
    danaus_status status = lent || allocator ? end_all_scratch(d) : DANAUS_OK;
    dn_cuda_set_capture_mode(d->driver, mode);
    TRY(status);
    dn_gpu_set_scratch(&d->gpu, lent, bytes, allocator);
    return DANAUS_OK;
}

/* Grows scratch in the order of the stream: earlier work still uses the old memory. */
static danaus_status grow_locked(cuda_device *d, size_t bytes, int capturing)
{
    cuda_gpu *g = d->shared;
    cuda_stream *s = d->now;
    if (g->frees && s->scratch && !s->is_captured && !capturing) {
        CUDA_TRY(g->driver, MemFreeAsync((cu_pointer)s->scratch, s->stream));
        g->allocations--;
        s->scratch = NULL;
    }
    TRY(end_scratch(d, s));
    TRY(get(g, bytes, capturing ? g->asks : s->stream, &s->scratch));
    s->bytes = bytes;
    return DANAUS_OK;
}

static danaus_status grow(cuda_device *d, size_t bytes, int capturing)
{
    if (capturing && !d->driver->ExchangeCaptureMode)
        return dn_fail(
            DANAUS_ERR_MEMORY,
            "this product needs %zu bytes of scratch, which this driver cannot give "
            "while a graph is captured: run it once before, or lend scratch",
            bytes);
    int mode = dn_cuda_set_capture_mode(d->driver, CAPTURE_RELAXED);
    dn_lock(d->shared->memory_lock);
    danaus_status status = grow_locked(d, bytes, capturing);
    dn_unlock(d->shared->memory_lock);
    dn_cuda_set_capture_mode(d->driver, mode);
    return status;
}

static danaus_status find_scratch(
    cuda_device *d, size_t bytes, int capturing, void **memory)
{
    TRY(dn_gpu_ask_scratch(&d->gpu, bytes, d->stream, memory));
    if (!*memory && bytes > d->now->bytes)
        TRY(grow(d, bytes, capturing));
    d->now->is_captured |= capturing;
    if (!*memory)
        *memory = d->now->scratch;
    return DANAUS_OK;
}

size_t dn_cuda_scratch_bytes(const cuda_device *d, gpu_need need)
{
    return need.library ? ROUND_UP(need.scratch, DANAUS_SCRATCH_ALIGN) +
                              dn_cuda_workspace_bytes(d)
                        : need.scratch;
}

danaus_status dn_cuda_take_scratch(cuda_device *d, gpu_need need, int capturing)
{
    size_t bytes = dn_cuda_scratch_bytes(d, need);
    void *memory = NULL;
    if (bytes)
        TRY(find_scratch(d, bytes, capturing, &memory));
    d->gpu.scratch = memory;
    d->workspace = need.library
                       ? (char *)memory + ROUND_UP(need.scratch, DANAUS_SCRATCH_ALIGN)
                       : NULL;
    return DANAUS_OK;
}

void dn_cuda_give_scratch(cuda_device *d)
{
    dn_gpu_give_scratch(&d->gpu, d->stream);
    d->workspace = NULL;
}
