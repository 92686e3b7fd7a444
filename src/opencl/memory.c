/* Shared virtual memory, queues and scratch. A pointer to it is one for kernels and for copies,
   and may point into the middle of a block. Host code reads and writes it by copies alone. */
// SPDX-License-Identifier: Apache-2.0
#include "opencl/opencl.h"

#include "base/mem.h"
#include "base/status.h"

/* ---- blocks; the lock is held ---- */

static danaus_status reserve_block(opencl_gpu *g)
{
    TRY(dn_reserve(
        &g->blocks, g->block_count, &g->block_capacity, sizeof *g->blocks,
        "a list of memory"));
    return dn_reserve(
        &g->allocated, g->block_count, &g->allocated_capacity, sizeof *g->allocated,
        "a list of memory");
}

/* OpenCL aligns to 128 bytes at most. */
static danaus_status add_block(opencl_gpu *g, size_t bytes, void **memory)
{
    TRY(reserve_block(g));
    if (bytes > SIZE_MAX - DN_GPU_ALIGN)
        return dn_fail_memory(bytes, "the device's memory");
    char *allocated =
        g->cl->SVMAlloc(g->context, CL_MEM_READ_WRITE, bytes + DN_GPU_ALIGN, 0);
    if (!allocated)
        return dn_fail(
            DANAUS_ERR_MEMORY, "the OpenCL device does not give %zu bytes", bytes);
    *memory = allocated + (-(uintptr_t)allocated & (DN_GPU_ALIGN - 1));
    g->blocks[g->block_count] = (opencl_block){ allocated, *memory };
    g->allocated[g->block_count++] = allocated;
    return DANAUS_OK;
}

static void remove_block(opencl_gpu *g, const void *memory)
{
    size_t i = 0;
    while (i < g->block_count && g->blocks[i].memory != memory)
        i++;
    if (i == g->block_count)
        return;
    for (const opencl_device *d = g->queues; d; d = d->next)
        g->cl->Finish(d->queue);
    g->cl->SVMFree(g->context, g->blocks[i].allocated);
    g->blocks[i] = g->blocks[--g->block_count];
    g->allocated[i] = g->allocated[g->block_count];
}

/* ---- memory ---- */

danaus_status dn_opencl_alloc(opencl_gpu *g, size_t bytes, void **memory)
{
    dn_lock(g->memory_lock);
    danaus_status status = add_block(g, bytes ? bytes : 1, memory);
    dn_unlock(g->memory_lock);
    return status;
}

void dn_opencl_free(opencl_gpu *g, void *memory)
{
    dn_lock(g->memory_lock);
    remove_block(g, memory);
    dn_unlock(g->memory_lock);
}

/* ---- queues ---- */

danaus_status dn_opencl_open_queue(opencl_device *d)
{
    opencl_gpu *g = d->shared;
    cl_int error = 0;
    d->own = d->cl->CreateCommandQueueWithProperties(g->context, g->id, NULL, &error);
    if (!d->own)
        return dn_opencl_status(error, "CreateCommandQueueWithProperties");
    d->queue = d->own;
    dn_lock(g->memory_lock);
    d->next = g->queues;
    g->queues = d;
    dn_unlock(g->memory_lock);
    return DANAUS_OK;
}

void dn_opencl_close_queue(opencl_device *d)
{
    opencl_gpu *g = d->shared;
    dn_lock(g->memory_lock);
    opencl_device **at = &g->queues;
    d->cl->Finish(d->queue);
    remove_block(g, d->scratch);
    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
    dn_unlock(g->memory_lock);
    if (d->queue != d->own)
        d->cl->ReleaseCommandQueue(d->queue);
    d->cl->ReleaseCommandQueue(d->own);
}

/* The caller's queue, which work follows from now on; NULL: the device's own. */
danaus_status dn_opencl_set_queue(opencl_device *d, cl_command_queue queue)
{
    cl_context context = d->shared->context;
    cl_command_queue_properties how = 0;
    if (!queue)
        queue = d->own;
    if (queue == d->queue)
        return DANAUS_OK;
    OPENCL_TRY(
        d->cl,
        GetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL));
    if (context != d->shared->context)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "the queue belongs to another context than the device");
    OPENCL_TRY(
        d->cl, GetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof how, &how, NULL));
    if (how & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
        return dn_fail(DANAUS_ERR_ARGUMENT, "the queue must run in order");
    OPENCL_TRY(d->cl, Finish(d->queue));
    if (queue != d->own)
        OPENCL_TRY(d->cl, RetainCommandQueue(queue));
    if (d->queue != d->own)
        d->cl->ReleaseCommandQueue(d->queue);
    d->queue = queue;
    return DANAUS_OK;
}

/* ---- scratch ---- */

/* What the caller called its queue. */
static void *stream_of(const opencl_device *d)
{
    return d->queue == d->own ? NULL : d->queue;
}

static danaus_status grow(opencl_device *d, size_t bytes)
{
    dn_opencl_free(d->shared, d->scratch);
    d->scratch = NULL;
    d->scratch_bytes = 0;
    TRY(dn_opencl_alloc(d->shared, bytes, &d->scratch));
    d->scratch_bytes = bytes;
    return DANAUS_OK;
}

danaus_status dn_opencl_take_scratch(opencl_device *d, size_t bytes)
{
    d->gpu.scratch = NULL;
    if (!bytes)
        return DANAUS_OK;
    TRY(dn_gpu_ask_scratch(&d->gpu, bytes, stream_of(d), &d->gpu.scratch));
    if (d->gpu.scratch)
        return DANAUS_OK;
    if (bytes > d->scratch_bytes)
        TRY(grow(d, bytes));
    d->gpu.scratch = d->scratch;
    return DANAUS_OK;
}

void dn_opencl_give_scratch(opencl_device *d)
{
    dn_gpu_give_scratch(&d->gpu, stream_of(d));
}
