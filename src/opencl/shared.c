/* What all devices in one context share: the context, facts about the device of OpenCL, compiled
   kernels and the tuning table. It exists as long as one of them is open. */
// SPDX-License-Identifier: Apache-2.0
#include "opencl/opencl.h"

#include "base/mem.h"
#include "base/status.h"
#include "device/tuning.h"
#include "gpu/run/program.h"

static opencl_gpu *first_gpu; /* under the process's lock, as are counts of users */

/* No device is left: its work was waited for. */
static void close_gpu(opencl_gpu *g)
{
    if (g->context) {
        dn_gpu_free_constants(&g->base);
        dn_gpu_unload_all(&g->base);
        g->cl->ReleaseContext(g->context);
    }
    dn_tuning_destroy(g->tuning);
    dn_lock_destroy(g->base.lock);
    dn_lock_destroy(g->memory_lock);
    dn_free(g->blocks);
    dn_free(g->allocated);
    dn_free(g);
}

static danaus_status fill_context(opencl_gpu *g, cl_context callers)
{
    cl_int error = 0;
    if (callers)
        OPENCL_TRY(g->cl, RetainContext(callers));
    g->is_callers = callers != NULL;
    g->context =
        callers ? callers : g->cl->CreateContext(NULL, 1, &g->id, NULL, NULL, &error);
    return g->context ? DANAUS_OK : dn_opencl_status(error, "CreateContext");
}

static danaus_status fill_gpu(opencl_gpu *g, cl_context callers)
{
    TRY(dn_lock_create(&g->base.lock));
    TRY(dn_lock_create(&g->memory_lock));
    TRY(dn_opencl_find(g->cl, g->ordinal, &g->id));
    TRY(dn_opencl_facts(g->cl, g->id, g->ordinal, &g->base.facts));
    return fill_context(g, callers);
}

static danaus_status open_gpu(
    const opencl_functions *cl, int ordinal, cl_context callers, opencl_gpu **gpu)
{
    opencl_gpu *g = dn_calloc(1, sizeof *g);
    if (!g)
        return dn_fail_memory(sizeof *g, "a GPU");
    g->base.driver = &dn_opencl_driver;
    g->cl = cl;
    g->ordinal = ordinal;
    danaus_status status = fill_gpu(g, callers);
    if (status == DANAUS_OK) {
        g->next = first_gpu;
        first_gpu = *gpu = g;
    } else
        close_gpu(g);
    return status;
}

static opencl_gpu *find_gpu(int ordinal, cl_context callers)
{
    opencl_gpu *g = first_gpu;
    while (g && (g->ordinal != ordinal || g->is_callers != (callers != NULL) ||
                 (callers && g->context != callers)))
        g = g->next;
    return g;
}

opencl_gpu *dn_opencl_take_open(int ordinal)
{
    dn_lock_process();
    opencl_gpu *g = first_gpu;
    while (g && g->ordinal != ordinal)
        g = g->next;
    if (g)
        g->users++;
    dn_unlock_process();
    return g;
}

/* With one more user. */
static danaus_status take_gpu(
    const opencl_functions *cl, int ordinal, cl_context callers, opencl_gpu **gpu)
{
    danaus_status status = DANAUS_OK;
    dn_lock_process();
    opencl_gpu *g = find_gpu(ordinal, callers);
    if (!g)
        status = open_gpu(cl, ordinal, callers, &g);
    if (status == DANAUS_OK) {
        g->users++;
        *gpu = g;
    }
    dn_unlock_process();
    return status;
}

void dn_opencl_drop(opencl_gpu *g)
{
    opencl_gpu **at = &first_gpu;
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

static danaus_status share_tuning(opencl_device *d)
{
    opencl_gpu *g = d->shared;
    dn_lock(g->base.lock);
    danaus_status status =
        g->tuning ? DANAUS_OK : dn_tuning_open(&d->gpu.base, &g->tuning);
    d->gpu.base.tuning = g->tuning;
    dn_unlock(g->base.lock);
    return status;
}

danaus_status dn_opencl_share(opencl_device *d, int ordinal, cl_context context)
{
    TRY(dn_opencl_functions(&d->cl));
    TRY(take_gpu(d->cl, ordinal, context, &d->shared));
    d->gpu.shared = &d->shared->base;
    d->gpu.facts = d->shared->base.facts;
    d->gpu.base.kernels = dn_gpu_kernels_for(d->gpu.facts.arch, 0);
    danaus_status status = share_tuning(d);
    if (status == DANAUS_OK)
        status = dn_opencl_open_queue(d);
    if (status != DANAUS_OK)
        dn_opencl_drop(d->shared);
    return status;
}
