/* What all devices on one GPU share: its context, facts about it, compiled kernels, a handle
   of cuBLAS and the tuning table. It exists as long as one of them is open. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"

#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "device/tuning.h"
#include "gpu/run/program.h"

#include <stdio.h>

/* ---- contexts ---- */

danaus_status dn_cuda_enter_gpu(const cuda_gpu *g, int *pushed)
{
    cu_context current = NULL;
    TRY(dn_cuda_check_process());
    CUDA_TRY(g->driver, CtxGetCurrent(&current));
    *pushed = current != g->context;
    if (*pushed)
        CUDA_TRY(g->driver, CtxPushCurrent(g->context));
    return DANAUS_OK;
}

void dn_cuda_leave_gpu(const cuda_gpu *g, int pushed)
{
    cu_context popped;
    if (pushed)
        g->driver->CtxPopCurrent(&popped);
}

danaus_status dn_cuda_enter(cuda_device *d, int *pushed)
{
    return dn_cuda_enter_gpu(d->shared, pushed);
}

void dn_cuda_leave(cuda_device *d, int pushed) { dn_cuda_leave_gpu(d->shared, pushed); }

/* ---- facts ---- */

static danaus_status read_facts(
    const cuda_driver *driver, cu_device handle, gpu_facts *facts)
{
    enum { MAJOR, MINOR, UNITS, SHARED, L2, CLOCK, MEMORY_CLOCK, BUS, COUNT };
    static const int attributes[COUNT] = {
        CU_MAJOR,    CU_MINOR,     CU_MULTIPROCESSORS,  CU_SHARED_PER_BLOCK_AT_MOST,
        CU_L2_BYTES, CU_CLOCK_KHZ, CU_MEMORY_CLOCK_KHZ, CU_MEMORY_BUS_BITS,
    };
    int value[COUNT];
    for (int i = 0; i < COUNT; i++)
        CUDA_TRY(driver, DeviceGetAttribute(&value[i], attributes[i], handle));
    /* Two transfers a clock. */
    *facts = (gpu_facts){
        .arch = 10 * value[MAJOR] + value[MINOR],
        .units = value[UNITS],
        .shared = value[SHARED],
        .l2 = value[L2],
        .bandwidth = 2e3 * value[MEMORY_CLOCK] * value[BUS] / 8,
    };
    dn_gpu_fill_rates(facts, 1e3 * value[CLOCK]);
    if (facts->arch < GPU_LEAST_CUDA)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "this GPU has compute capability %d.%d, danaus needs 7.0 or later",
            value[MAJOR], value[MINOR]);
    return DANAUS_OK;
}

danaus_status dn_cuda_describe(
    const cuda_driver *driver, cu_device handle, int ordinal, danaus_device_info *info)
{
    danaus_device_info i = { 0 };
    size_t memory;
    gpu_facts facts;
    TRY(read_facts(driver, handle, &facts));
    CUDA_TRY(driver, DeviceGetName(i.description, (int)sizeof i.description, handle));
    CUDA_TRY(driver, DeviceTotalMem(&memory, handle));
    i.description[sizeof i.description - 1] = '\0';
    i.memory = (int64_t)memory;
    i.cache = facts.l2;
    snprintf(i.name, sizeof i.name, "cuda:%d", ordinal);
    snprintf(i.instructions, sizeof i.instructions, "sm_%d", facts.arch);
    *info = i;
    return DANAUS_OK;
}

/* ---- one of each GPU ---- */

static cuda_gpu *first_gpu; /* under the process's lock, as are counts of users */

/* Where the context cannot be entered, what can be closed from outside still is. */
static void close_context(cuda_gpu *g)
{
    int pushed = 0, inside = dn_cuda_enter_gpu(g, &pushed) == DANAUS_OK;
    dn_cuda_close_blas(g);
    dn_gpu_free_constants(&g->base);
    dn_cuda_close_memory(g);
    dn_gpu_unload_all(&g->base);
    if (inside)
        dn_cuda_leave_gpu(g, pushed);
    g->driver->PrimaryRelease(g->handle);
}

static void close_gpu(cuda_gpu *g)
{
    if (g->context)
        close_context(g);
    dn_tuning_destroy(g->tuning);
    dn_lock_destroy(g->base.lock);
    dn_lock_destroy(g->memory_lock);
    dn_free(g->waiting.memory);
    dn_free(g);
}

static danaus_status fill_gpu(cuda_gpu *g)
{
    size_t memory;
    TRY(dn_lock_create(&g->base.lock));
    CUDA_TRY(g->driver, DeviceGet(&g->handle, g->ordinal));
    TRY(read_facts(g->driver, g->handle, &g->base.facts));
    CUDA_TRY(g->driver, DeviceTotalMem(&memory, g->handle));
    g->base.facts.memory = (int64_t)memory;
    CUDA_TRY(g->driver, PrimaryRetain(&g->context, g->handle));
    int pushed;
    TRY(dn_cuda_enter_gpu(g, &pushed));
    danaus_status status = dn_cuda_open_memory(g);
    dn_cuda_leave_gpu(g, pushed);
    return status;
}

static danaus_status open_gpu(const cuda_driver *driver, int ordinal, cuda_gpu **gpu)
{
    cuda_gpu *g = dn_calloc(1, sizeof *g);
    if (!g)
        return dn_fail_memory(sizeof *g, "a GPU");
    g->base.driver = &dn_cuda_gpu_driver;
    g->driver = driver;
    g->ordinal = ordinal;
    danaus_status status = fill_gpu(g);
    if (status == DANAUS_OK)
        *gpu = g;
    else
        close_gpu(g);
    return status;
}

/* The GPU, with one more user. */
static danaus_status find_gpu(const cuda_driver *driver, int ordinal, cuda_gpu **gpu)
{
    danaus_status status = DANAUS_OK;
    dn_lock_process();
    cuda_gpu *g = first_gpu;
    while (g && g->ordinal != ordinal)
        g = g->next;
    if (!g) {
        status = open_gpu(driver, ordinal, &g);
        if (status == DANAUS_OK) {
            g->next = first_gpu;
            first_gpu = g;
        }
    }
    if (status == DANAUS_OK) {
        g->users++;
        *gpu = g;
    }
    dn_unlock_process();
    return status;
}

void dn_cuda_unshare(cuda_device *d)
{
    cuda_gpu *g = d->shared, **at = &first_gpu;
    dn_lock_process();
    int is_last = --g->users == 0;
    while (*at != g)
        at = &(*at)->next;
    if (is_last)
        *at = g->next;
    dn_unlock_process();
    if (is_last)
        close_gpu(g);
}

/* The table's rows depend on kernels and description, which all devices of the GPU have in
   common. */
static danaus_status share_tuning(cuda_device *d)
{
    cuda_gpu *g = d->shared;
    dn_lock(g->base.lock);
    danaus_status status =
        g->tuning ? DANAUS_OK : dn_tuning_open(&d->gpu.base, &g->tuning);
    d->gpu.base.tuning = g->tuning;
    dn_unlock(g->base.lock);
    return status;
}

danaus_status dn_cuda_share(cuda_device *d, int ordinal)
{
    const cuda_driver *driver;
    int count;
    TRY(dn_cuda_driver(&driver));
    CUDA_TRY(driver, DeviceGetCount(&count));
    if (ordinal >= count)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "this machine has %d CUDA devices, not %d", count,
            ordinal + 1);
    int epilogues = 0, has_blas = dn_cuda_find_blas(&epilogues) == DANAUS_OK;
    TRY(find_gpu(driver, ordinal, &d->shared));
    d->driver = driver;
    d->gpu.shared = &d->shared->base;
    d->gpu.facts = d->shared->base.facts;
    d->gpu.facts.epilogues = epilogues;
    d->gpu.base.kernels = dn_gpu_kernels_for(d->gpu.facts.arch, has_blas);
    danaus_status status = share_tuning(d);
    if (status == DANAUS_OK)
        dn_cuda_open_queue(d);
    else
        dn_cuda_unshare(d);
    return status;
}
