/* Devices of OpenCL as "opencl:0", "opencl:1", ...: opening, copies. */
// SPDX-License-Identifier: Apache-2.0
#include "opencl/opencl.h"

#include "base/mem.h"
#include "base/status.h"

#include <stdio.h>

static opencl_device *opencl(danaus_device *dev) { return (opencl_device *)dev; }

/* ---- opening ---- */

/* Without a loader or a device there is nothing to list, which is no failure. */
static danaus_status opencl_list(int index, danaus_device_info *info)
{
    const opencl_functions *cl;
    cl_device_id id;
    if (dn_opencl_functions(&cl) || dn_opencl_find(cl, index, &id))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "there are at most %d OpenCL devices", index);
    return dn_opencl_describe(cl, id, index, info);
}

static danaus_status open_in(int ordinal, cl_context context, opencl_device **device)
{
    opencl_device *d = dn_calloc(1, sizeof *d);
    if (!d)
        return dn_fail_memory(sizeof *d, "a device");
    d->gpu.base.backend = &dn_backend_opencl;
    snprintf(d->gpu.base.name, sizeof d->gpu.base.name, "opencl:%d", ordinal);
    danaus_status status = dn_opencl_share(d, ordinal, context);
    if (status == DANAUS_OK)
        *device = d;
    else
        dn_free(d);
    return status;
}

static danaus_status opencl_open(const char *name, danaus_device **device)
{
    opencl_device *d = NULL;
    int ordinal = 0;
    TRY(dn_gpu_ordinal(name, &dn_backend_opencl, &ordinal));
    TRY(open_in(ordinal, NULL, &d));
    *device = &d->gpu.base;
    return DANAUS_OK;
}

/* After fork() all but our memory is the parent's. */
static void opencl_close(danaus_device *dev)
{
    const opencl_functions *cl;
    opencl_device *d = opencl(dev);
    if (dn_opencl_functions(&cl) == DANAUS_OK) {
        dn_opencl_close_queue(d);
        dn_opencl_drop(d->shared);
    }
    dn_free(d);
}

static danaus_status opencl_describe(const danaus_device *dev, danaus_device_info *info)
{
    const opencl_device *d = (const opencl_device *)dev;
    return dn_opencl_describe(d->cl, d->shared->id, d->shared->ordinal, info);
}

static int64_t opencl_room(const danaus_device *dev)
{
    return ((const opencl_device *)dev)->gpu.facts.memory;
}

/* ---- queues ---- */

static danaus_status opencl_open_queue(void *queue, danaus_device **device)
{
    const opencl_functions *cl;
    opencl_device *d = NULL;
    cl_context context;
    cl_device_id id;
    int ordinal;
    TRY(dn_opencl_functions(&cl));
    OPENCL_TRY(
        cl,
        GetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL));
    OPENCL_TRY(cl, GetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof id, &id, NULL));
    TRY(dn_opencl_number(cl, id, &ordinal));
    TRY(open_in(ordinal, context, &d));
    danaus_status status = dn_opencl_set_queue(d, queue);
    if (status == DANAUS_OK)
        *device = &d->gpu.base;
    else
        opencl_close(&d->gpu.base);
    return status;
}

static danaus_status opencl_sync(danaus_device *dev)
{
    const opencl_device *d = opencl(dev);
    OPENCL_TRY(d->cl, Finish(d->queue));
    return DANAUS_OK;
}

static danaus_status opencl_set_stream(danaus_device *dev, void *queue)
{
    return dn_opencl_set_queue(opencl(dev), queue);
}

/* ---- memory ---- */

static danaus_status opencl_alloc(danaus_device *dev, size_t bytes, void **memory)
{
    return dn_opencl_alloc(opencl(dev)->shared, bytes, memory);
}

static void opencl_free(danaus_device *dev, void *memory)
{
    if (memory)
        dn_opencl_free(opencl(dev)->shared, memory);
}

static danaus_status opencl_copy(
    danaus_device *dev, void *to, const void *from, size_t bytes)
{
    const opencl_device *d = opencl(dev);
    if (bytes)
        OPENCL_TRY(
            d->cl, EnqueueSVMMemcpy(d->queue, CL_TRUE, to, from, bytes, 0, NULL, NULL));
    return DANAUS_OK;
}

static danaus_status opencl_clear(danaus_device *dev, void *memory, size_t bytes)
{
    static const unsigned char zero;
    const opencl_device *d = opencl(dev);
    if (bytes)
        OPENCL_TRY(
            d->cl, EnqueueSVMMemFill(d->queue, memory, &zero, 1, bytes, 0, NULL, NULL));
    return DANAUS_OK;
}

static danaus_status set_scratch(
    opencl_device *d, void *lent, size_t bytes, const danaus_allocator *allocator)
{
    OPENCL_TRY(d->cl, Finish(d->queue));
    dn_gpu_set_scratch(&d->gpu, lent, bytes, allocator);
    return DANAUS_OK;
}

static danaus_status opencl_set_scratch(danaus_device *dev, void *memory, size_t bytes)
{
    return set_scratch(opencl(dev), memory, bytes, NULL);
}

static danaus_status opencl_set_allocator(
    danaus_device *dev, const danaus_allocator *allocator)
{
    return set_scratch(opencl(dev), NULL, 0, allocator);
}

const backend dn_backend_opencl = {
    .name = "opencl",
    .shares_tuning = 1,
    .list = opencl_list,
    .open = opencl_open,
    .open_queue = opencl_open_queue,
    .close = opencl_close,
    .describe = opencl_describe,
    .room = opencl_room,
    .sync = opencl_sync,
    .set_stream = opencl_set_stream,
    .set_threads = dn_gpu_set_threads,
    .set_parallel = dn_gpu_set_parallel,
    .set_scratch = opencl_set_scratch,
    .set_allocator = opencl_set_allocator,
    .alloc = opencl_alloc,
    .free = opencl_free,
    .copy = opencl_copy,
    .clear = opencl_clear,
    .prepare = dn_gpu_prepare,
    .refuses = dn_gpu_refuses,
    .ks_run = dn_gpu_ks_run,
    .time = dn_opencl_time,
    .ks_gradient = dn_gpu_ks_gradient,
    .ks_scratch = dn_gpu_ks_scratch,
    .gradient_scratch = dn_gpu_gradient_scratch,
    .pick = dn_gpu_pick,
    .picking = dn_gpu_picking,
    .packing = dn_gpu_packing,
    .pack = &dn_gpu_pack_backend,
    .conv = &dn_gpu_conv_backend,
    .nn = &dn_gpu_nn_backend,
};
