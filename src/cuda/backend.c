/* NVIDIA GPUs as devices "cuda:0", "cuda:1", ...: opening, copies.

   A device uses the primary context of its GPU, like PyTorch and the CUDA runtime, so their
   memory and streams can be used here. Every call makes that context current and then restores
   the caller's. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"

#include "base/mem.h"
#include "base/status.h"
#include "gpu/run/images/bundle.h"

#include <stdio.h>
#include <string.h>

static cuda_device *cuda(danaus_device *dev) { return (cuda_device *)dev; }

/* ---- opening ---- */

/* Without a driver or a GPU there is nothing to list, which is no failure. */
static danaus_status cuda_list(int index, danaus_device_info *info)
{
    const cuda_driver *driver;
    cu_device handle;
    int count = 0;
    if (dn_cuda_driver(&driver) || driver->DeviceGetCount(&count) || index >= count)
        return dn_fail(DANAUS_ERR_ARGUMENT, "there are %d CUDA devices", count);
    CUDA_TRY(driver, DeviceGet(&handle, index));
    return dn_cuda_describe(driver, handle, index, info);
}

static danaus_status cuda_open(const char *name, danaus_device **device)
{
    int ordinal = 0;
    TRY(dn_gpu_ordinal(name, &dn_backend_cuda, &ordinal));
    cuda_device *d = dn_calloc(1, sizeof *d);
    if (!d)
        return dn_fail_memory(sizeof *d, "a device");
    d->gpu.base.backend = &dn_backend_cuda;
    snprintf(d->gpu.base.name, sizeof d->gpu.base.name, "cuda:%d", ordinal);
    danaus_status status = dn_cuda_share(d, ordinal);
    if (status == DANAUS_OK)
        *device = &d->gpu.base;
    else
        dn_free(d);
    return status;
}

static void cuda_close(danaus_device *dev)
{
    cuda_device *d = cuda(dev);
    int pushed = 0, inside = dn_cuda_enter(d, &pushed) == DANAUS_OK;
    if (!dn_cuda_is_forked()) { /* else all but our memory is the parent's */
        dn_cuda_close_queue(d);
        dn_cuda_forget_replays(d);
        dn_cuda_close_staging(d);
        if (inside)
            dn_cuda_leave(d, pushed);
        dn_cuda_unshare(d);
    }
    dn_free(d->replays);
    dn_free(d->forms);
    dn_free(d);
}

/* Products of a library end with one in the type of y. */
static int cuda_rounds_bias(const danaus_device *dev, const ks_step *last)
{
    return cuda((danaus_device *)(uintptr_t)dev)->gpu.facts.epilogues &&
           dn_gpu_family(last->kernel)->products &&
           dn_gpu_library_ends(&last->p, 2, 1, last->p.activation);
}

static danaus_status cuda_describe(const danaus_device *dev, danaus_device_info *info)
{
    const cuda_device *d = (const cuda_device *)dev;
    return dn_cuda_describe(d->driver, d->shared->handle, d->shared->ordinal, info);
}

static int64_t cuda_room(const danaus_device *dev)
{
    return ((const cuda_device *)dev)->gpu.facts.memory;
}

/* ---- streams ---- */

static danaus_status cuda_sync(danaus_device *dev)
{
    RETURN_INSIDE(cuda(dev), dn_cuda_wait(cuda(dev)));
}

static danaus_status cuda_set_stream(danaus_device *dev, void *stream)
{
    RETURN_INSIDE(cuda(dev), dn_cuda_set_stream(cuda(dev), stream));
}

/* ---- memory ---- */

static danaus_status cuda_alloc(danaus_device *dev, size_t bytes, void **memory)
{
    RETURN_INSIDE(cuda(dev), dn_cuda_alloc(cuda(dev)->shared, bytes, memory));
}

static void cuda_free(danaus_device *dev, void *memory)
{
    cuda_device *d = cuda(dev);
    int pushed;
    if (!memory || dn_cuda_enter(d, &pushed))
        return;
    dn_cuda_free(d->shared, memory);
    dn_cuda_leave(d, pushed);
}

static danaus_status enqueue_copy(
    cuda_device *d, void *to, const void *from, size_t bytes)
{
    CUDA_TRY(
        d->driver, MemcpyAsync((cu_pointer)to, (cu_pointer)from, bytes, d->stream));
    return DANAUS_OK;
}

/* In the order of the stream; done on return, even if it failed. */
static danaus_status copy(cuda_device *d, void *to, const void *from, size_t bytes)
{
    danaus_status status = dn_cuda_can_stage(d, from, bytes)
                               ? dn_cuda_stage(d, to, from, bytes)
                               : enqueue_copy(d, to, from, bytes);
    CUDA_TRY(d->driver, StreamSynchronize(d->stream));
    return status;
}

static danaus_status cuda_copy(
    danaus_device *dev, void *to, const void *from, size_t bytes)
{
    if (!bytes)
        return DANAUS_OK;
    RETURN_INSIDE(cuda(dev), copy(cuda(dev), to, from, bytes));
}

static danaus_status clear(cuda_device *d, void *memory, size_t bytes)
{
    CUDA_TRY(d->driver, MemsetAsync((cu_pointer)memory, 0, bytes, d->stream));
    return DANAUS_OK;
}

static danaus_status cuda_clear(danaus_device *dev, void *memory, size_t bytes)
{
    if (!bytes)
        return DANAUS_OK;
    RETURN_INSIDE(cuda(dev), clear(cuda(dev), memory, bytes));
}

static danaus_status cuda_set_scratch(danaus_device *dev, void *memory, size_t bytes)
{
    RETURN_INSIDE(cuda(dev), dn_cuda_set_scratch(cuda(dev), memory, bytes, NULL));
}

static danaus_status cuda_set_allocator(
    danaus_device *dev, const danaus_allocator *allocator)
{
    RETURN_INSIDE(cuda(dev), dn_cuda_set_scratch(cuda(dev), NULL, 0, allocator));
}

static danaus_status cuda_locate(const char *name, const char *place)
{
    late_library *const libraries[] = { &dn_cuda_nvrtc, &dn_cuda_cublas };
    for (int i = 0; i < 2; i++)
        if (!strcmp(libraries[i]->name, name))
            return dn_library_locate(libraries[i], place);
    return dn_fail(
        DANAUS_ERR_ARGUMENT, "\"%.40s\" is no library: nvrtc and cublas are", name);
}

const backend dn_backend_cuda = {
    .name = "cuda",
    .shares_tuning = 1,
    .list = cuda_list,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .room = cuda_room,
    .sync = cuda_sync,
    .set_stream = cuda_set_stream,
    .set_threads = dn_gpu_set_threads,
    .set_parallel = dn_gpu_set_parallel,
    .set_scratch = cuda_set_scratch,
    .set_allocator = cuda_set_allocator,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .copy = cuda_copy,
    .clear = cuda_clear,
    .prepare = dn_gpu_prepare,
    .refuses = dn_gpu_refuses,
    .ks_run = dn_gpu_ks_run,
    .rounds_bias = cuda_rounds_bias,
    .time = dn_cuda_time,
    .ks_gradient = dn_gpu_ks_gradient,
    .ks_scratch = dn_gpu_ks_scratch,
    .gradient_scratch = dn_gpu_gradient_scratch,
    .pick = dn_gpu_pick,
    .picking = dn_gpu_picking,
    .conv = &dn_gpu_conv_backend,
    .packing = dn_gpu_packing,
    .pack = &dn_gpu_pack_backend,
    .nn = &dn_gpu_nn_backend,
    .energy = dn_cuda_energy,
    .export_kernels = dn_bundle_export,
    .import_kernels = dn_bundle_import,
    .list_kernels = dn_bundle_list,
    .use_kernels = dn_shipped_use,
    .locate_library = cuda_locate,
};
