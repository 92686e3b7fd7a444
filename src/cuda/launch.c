/* CUDA as a driver of GPUs (gpu/run/run.h): launches of tasks on the device's stream. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"

#include "base/dtype.h"
#include "base/status.h"
#include "cuda/nvrtc.h"

static cuda_device *cuda(gpu_device *dev) { return (cuda_device *)dev; }

/* ---- launches ---- */

/* A view as the bulk copy engine takes it. */
static danaus_status encode(cuda_device *d, const gpu_view *v, cu_tensor_map *map)
{
    static const unsigned step[5] = { 1, 1, 1, 1, 1 };
    const gpu_map *m = &v->map;
    int type = v->dtype == DANAUS_F16    ? CU_MAP_F16
               : v->dtype == DANAUS_BF16 ? CU_MAP_BF16
               : v->dtype == DANAUS_F32  ? CU_MAP_F32
                                         : CU_MAP_F64;
    int swizzle = m->swizzle == 128 ? 3 : m->swizzle == 64 ? 2 : m->swizzle == 32;
    uint64_t size[5], stride[4];
    unsigned box[5];
    for (int i = 0; i < m->rank; i++) {
        size[i] = (uint64_t)m->size[i];
        box[i] = (unsigned)m->box[i];
        if (i)
            stride[i - 1] = (uint64_t)m->stride[i] * danaus_dtype_size(v->dtype);
    }
    if (!d->driver->TensorMapEncodeTiled)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "this driver is too old for compute capability 9.0");
    CUDA_TRY(
        d->driver, TensorMapEncodeTiled(
                       map, type, (unsigned)m->rank, (void *)(uintptr_t)v->memory, size,
                       stride, box, step, 0, swizzle, CU_MAP_PROMOTE_256, 0));
    return DANAUS_OK;
}

/* The values of a task's arguments as a launch takes them. */
typedef struct launch_values {
    void *at[GPU_MOST_ARGUMENTS];
    cu_tensor_map map[GPU_MAPS];
} launch_values;

static danaus_status gather(cuda_device *d, const gpu_argument *a, launch_values *v)
{
    for (int n = 0, maps = 0; a[n].kind != GPU_END; n++) {
        v->at[n] = (void *)(uintptr_t)a[n].at;
        if (a[n].kind != GPU_VIEW)
            continue;
        const gpu_view *view = a[n].at;
        if (view->map.rank)
            TRY(encode(d, view, &v->map[maps]));
        v->at[n] = &v->map[maps++];
    }
    return DANAUS_OK;
}

static danaus_status launch_cluster(cuda_device *d, const gpu_task *t, void **values)
{
    const gpu_launch *l = &t->launch;
    cu_launch_attribute cluster = { .id = CU_LAUNCH_CLUSTER };
    cluster.value.cluster.x = (unsigned)l->cluster;
    cluster.value.cluster.y = cluster.value.cluster.z = 1;
    cu_launch launch = {
        .grid = { (unsigned)l->blocks[0], (unsigned)l->blocks[1],
                  (unsigned)l->blocks[2] },
        .block = { (unsigned)l->threads, 1, 1 },
        .shared = (unsigned)l->shared,
        .stream = d->stream,
        .attributes = &cluster,
        .count = 1,
    };
    if (!d->driver->LaunchKernelEx)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "this driver is too old for compute capability 9.0");
    CUDA_TRY(d->driver, LaunchKernelEx(&launch, t->function, values, NULL));
    return DANAUS_OK;
}

static danaus_status launch_blocks(cuda_device *d, const gpu_task *t, void **values)
{
    const gpu_launch *l = &t->launch;
    CUDA_TRY(
        d->driver, LaunchKernel(
                       t->function, (unsigned)l->blocks[0], (unsigned)l->blocks[1],
                       (unsigned)l->blocks[2], (unsigned)l->threads, 1, 1,
                       (unsigned)l->shared, d->stream, values, NULL));
    return DANAUS_OK;
}

static danaus_status launch(gpu_device *dev, const gpu_task *t)
{
    cuda_device *d = cuda(dev);
    launch_values v;
    TRY(gather(d, t->arguments, &v));
    if (d->patched) {
        dn_cuda_patch(d, t->function, &t->launch, v.at);
        return DANAUS_OK;
    }
    TRY((t->launch.cluster ? launch_cluster : launch_blocks)(d, t, v.at));
    if (d->recorded)
        dn_cuda_record(d, t->function, &t->launch);
    return DANAUS_OK;
}

/* ---- the rest ---- */

static danaus_status enter(gpu_device *dev, int *entered)
{
    return dn_cuda_enter(cuda(dev), entered);
}

static void leave(gpu_device *dev, int entered) { dn_cuda_leave(cuda(dev), entered); }

/* Graphs are given other arguments of launches, not of copies. */
static danaus_status copy(gpu_device *dev, void *to, const void *from, size_t bytes)
{
    cuda_device *d = cuda(dev);
    d->launches = -1;
    CUDA_TRY(
        d->driver,
        MemcpyAsync((cu_pointer)to, (cu_pointer)(uintptr_t)from, bytes, d->stream));
    return DANAUS_OK;
}

static danaus_status capturing(gpu_device *dev, int *is_capturing)
{
    cuda_device *d = cuda(dev);
    CUDA_TRY(d->driver, StreamIsCapturing(d->stream, is_capturing));
    return DANAUS_OK;
}

static size_t scratch_bytes(const gpu_device *dev, gpu_need need)
{
    return dn_cuda_scratch_bytes((const cuda_device *)dev, need);
}

static void free_memory(gpu_shared *shared, void *memory)
{
    cuda_gpu *g = (cuda_gpu *)shared;
    int pushed;
    if (dn_cuda_enter_gpu(g, &pushed))
        return;
    dn_cuda_free(g, memory);
    dn_cuda_leave_gpu(g, pushed);
}

const gpu_driver dn_cuda_gpu_driver = {
    .compile = dn_nvrtc_compile,
    .hash = dn_nvrtc_hash,
    .load = dn_cuda_load,
    .unload = dn_cuda_unload,
    .enter = enter,
    .leave = leave,
    .launch = launch,
    .copy = copy,
    .call = dn_cuda_call,
    .scratch_bytes = scratch_bytes,
    .capturing = capturing,
    .part = dn_cuda_part,
    .turn = dn_cuda_turn,
    .meet = dn_cuda_meet,
    .open_library = dn_cuda_open_products,
    .products = dn_cuda_products,
    .weight_products = dn_cuda_weight_products,
    .free = free_memory,
};
