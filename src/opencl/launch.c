/* OpenCL as a driver of GPUs (gpu/run/run.h): tasks on the device's queue, which runs them in
   order. */
// SPDX-License-Identifier: Apache-2.0
#include "opencl/opencl.h"

#include "base/clock.h"
#include "base/status.h"

#define MOST_RUNS      9
#define ENOUGH_SECONDS 0.02

static opencl_device *opencl(gpu_device *dev) { return (opencl_device *)dev; }

/* ---- launches ---- */

/* A table goes to memory of the device, which the launch keeps as long as it needs it. It points
   to other memory, of which the kernel is told. */
static danaus_status set_table(
    opencl_device *d, const opencl_kernel *k, cl_uint n, const gpu_argument *a,
    cl_mem *table)
{
    opencl_gpu *g = d->shared;
    cl_int error = 0;
    *table = d->cl->CreateBuffer(
        g->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, a->bytes,
        (void *)(uintptr_t)a->at, &error);
    if (!*table)
        return dn_opencl_status(error, "CreateBuffer");
    OPENCL_TRY(d->cl, SetKernelArg(k->kernel, n, sizeof *table, table));
    dn_lock(g->memory_lock);
    error = d->cl->SetKernelExecInfo(
        k->kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS, g->block_count * sizeof *g->allocated,
        g->allocated);
    dn_unlock(g->memory_lock);
    return error ? dn_opencl_status(error, "SetKernelExecInfo") : DANAUS_OK;
}

static void *pointer_of(const gpu_argument *a)
{
    return a->kind == GPU_POINTER ? *(void *const *)a->at : NULL;
}

/* NVIDIA's driver launches no kernel with an argument that pointed to memory and now does
   not: it has to be another kernel. */
static danaus_status set_pointed(
    const opencl_device *d, opencl_kernel *k, const gpu_argument *a)
{
    uint64_t pointed = 0;
    for (cl_uint n = 0; n < k->arguments; n++)
        pointed |= (uint64_t)(pointer_of(&a[n]) != NULL) << n;
    if (k->pointed & ~pointed)
        TRY(dn_opencl_create_kernel(d->cl, k));
    k->pointed |= pointed;
    return DANAUS_OK;
}

static danaus_status set_argument(
    opencl_device *d, const opencl_kernel *k, cl_uint n, const gpu_argument *a,
    cl_mem *table)
{
    void *pointer = pointer_of(a);
    if (pointer)
        OPENCL_TRY(d->cl, SetKernelArgSVMPointer(k->kernel, n, pointer));
    else if (a->kind == GPU_POINTER) /* NULL is no shared memory for NVIDIA's driver */
        OPENCL_TRY(d->cl, SetKernelArg(k->kernel, n, sizeof(cl_mem), NULL));
    else if (a->kind == GPU_TABLE)
        TRY(set_table(d, k, n, a, table));
    else
        OPENCL_TRY(d->cl, SetKernelArg(k->kernel, n, a->bytes, a->at));
    return DANAUS_OK;
}

static danaus_status enqueue(opencl_device *d, const gpu_task *t, cl_mem *table)
{
    opencl_kernel *k = t->function;
    const gpu_launch *l = &t->launch;
    size_t threads[3] = { (size_t)l->threads, 1, 1 }, all[3];
    for (int i = 0; i < 3; i++)
        all[i] = (size_t)l->blocks[i] * threads[i];
    TRY(set_pointed(d, k, t->arguments));
    for (cl_uint n = 0; n < k->arguments; n++)
        TRY(set_argument(d, k, n, &t->arguments[n], table));
    OPENCL_TRY(
        d->cl, EnqueueNDRangeKernel(
                   d->queue, k->kernel, 3, NULL, all, threads, 0, NULL, NULL));
    return DANAUS_OK;
}

static danaus_status launch(gpu_device *dev, const gpu_task *t)
{
    const opencl_kernel *k = t->function;
    cl_mem table = NULL;
    dn_lock(k->lock);
    danaus_status status = enqueue(opencl(dev), t, &table);
    dn_unlock(k->lock);
    if (table)
        opencl(dev)->cl->ReleaseMemObject(table);
    return status;
}

static danaus_status copy(gpu_device *dev, void *to, const void *from, size_t bytes)
{
    opencl_device *d = opencl(dev);
    if (bytes)
        OPENCL_TRY(
            d->cl,
            EnqueueSVMMemcpy(d->queue, CL_FALSE, to, from, bytes, 0, NULL, NULL));
    return DANAUS_OK;
}

/* ---- calls ---- */

static danaus_status call(gpu_device *dev, gpu_key *key, const gpu_job *job)
{
    (void)key;
    TRY(dn_opencl_take_scratch(opencl(dev), job->need(dev, job->arg).scratch));
    danaus_status status = job->run(dev, job->arg);
    dn_opencl_give_scratch(opencl(dev));
    return status;
}

static size_t scratch_bytes(const gpu_device *dev, gpu_need need)
{
    (void)dev;
    return need.scratch;
}

static danaus_status enter(gpu_device *dev, int *entered)
{
    const opencl_functions *cl;
    (void)dev;
    *entered = 0;
    return dn_opencl_functions(&cl); /* not after fork() */
}

static void leave(gpu_device *dev, int entered)
{
    (void)dev;
    (void)entered;
}

static danaus_status capturing(gpu_device *dev, int *is_capturing)
{
    (void)dev;
    *is_capturing = 0;
    return DANAUS_OK;
}

/* A queue in order has no second branch. */
static danaus_status part(gpu_device *dev, int is_long, int *parted)
{
    (void)dev;
    (void)is_long;
    *parted = 0;
    return DANAUS_OK;
}

static void free_memory(gpu_shared *shared, void *memory)
{
    dn_opencl_free((opencl_gpu *)shared, memory);
}

/* Neither branches nor a library: nothing calls turn, meet and products. */
const gpu_driver dn_opencl_driver = {
    .compile = dn_opencl_compile,
    .hash = dn_opencl_hash,
    .load = dn_opencl_load,
    .unload = dn_opencl_unload,
    .enter = enter,
    .leave = leave,
    .launch = launch,
    .copy = copy,
    .call = call,
    .scratch_bytes = scratch_bytes,
    .capturing = capturing,
    .part = part,
    .free = free_memory,
};

/* ---- time ---- */

typedef struct finished_run {
    opencl_device *d;
    device_run *run;
    void *arg;
} finished_run;

static danaus_status time_run(void *arg, double *seconds)
{
    const finished_run *r = arg;
    OPENCL_TRY(r->d->cl, Finish(r->d->queue));
    double begin = dn_seconds();
    TRY(r->run(&r->d->gpu.base, r->arg));
    OPENCL_TRY(r->d->cl, Finish(r->d->queue));
    *seconds = dn_seconds() - begin;
    return DANAUS_OK;
}

danaus_status dn_opencl_time(
    danaus_device *dev, device_run *run, void *arg, double *seconds)
{
    finished_run r = { (opencl_device *)dev, run, arg };
    return dn_median_seconds(time_run, &r, MOST_RUNS, ENOUGH_SECONDS, seconds);
}
