/* Seconds of work by the device's own clock, between two events. Other data are first read
   through the second cache, so that it is as a layer of a large network finds it. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"
#include "gpu/run/gradient.h"

#include "base/clock.h"
#include "base/status.h"

#define MOST_RUNS      9
#define ENOUGH_SECONDS 0.02
#define TIMES_L2       2  /* bytes that are read between runs */
#define SLABS          64 /* of which one is written */

typedef struct stopwatch {
    cuda_device *d;
    device_run *run;
    void *arg;
    cu_event first, last;
    void *other;  /* SLABS of numbers, and the one that they are added up in */
    int64_t slab; /* numbers */
} stopwatch;

/* Numbers of f32 are added up: they are read, and little is left to be written. */
static danaus_status open_stopwatch(stopwatch *w)
{
    cuda_device *d = w->d;
    w->slab = d->gpu.facts.l2 * TIMES_L2 / (SLABS * (int64_t)sizeof(float)) + 1;
    size_t bytes = (size_t)((SLABS + 1) * w->slab) * sizeof(float);
    TRY(dn_cuda_alloc(d->shared, bytes, &w->other));
    CUDA_TRY(d->driver, MemsetAsync((cu_pointer)w->other, 0, bytes, d->stream));
    CUDA_TRY(d->driver, EventCreate(&w->first, 0));
    CUDA_TRY(d->driver, EventCreate(&w->last, 0));
    return DANAUS_OK;
}

static void close_stopwatch(stopwatch *w)
{
    const cuda_driver *driver = w->d->driver;
    if (w->last)
        driver->EventDestroy(w->last);
    if (w->first)
        driver->EventDestroy(w->first);
    if (w->other)
        dn_cuda_free(w->d->shared, w->other);
}

static danaus_status read_other_data(stopwatch *w)
{
    gpu_sums sums = { .count = 0 };
    problem p = { .dtype = DANAUS_F32 };
    danaus_pattern line = { 1, 1, 1, w->slab };
    weights_view to =
        dn_weights_view((const float *)w->other + SLABS * w->slab, DANAUS_F32, line);
    gpu_sum sum = dn_gpu_sum(DANAUS_F32, SLABS, line, &to);
    TRY(dn_gpu_add_sum(&w->d->gpu, &sums, &p, w->other, &sum));
    return dn_gpu_make_sums(&w->d->gpu, &sums);
}

static danaus_status time_run(void *arg, double *seconds)
{
    stopwatch *w = arg;
    cuda_device *d = w->d;
    float milliseconds = 0;
    TRY(read_other_data(w));
    CUDA_TRY(d->driver, EventRecord(w->first, d->stream));
    TRY(w->run(&d->gpu.base, w->arg));
    CUDA_TRY(d->driver, EventRecord(w->last, d->stream));
    CUDA_TRY(d->driver, StreamSynchronize(d->stream));
    CUDA_TRY(d->driver, EventElapsedTime(&milliseconds, w->first, w->last));
    *seconds = milliseconds * 1e-3;
    return DANAUS_OK;
}

danaus_status dn_cuda_time(
    danaus_device *dev, device_run *run, void *arg, double *seconds)
{
    stopwatch w = { .d = (cuda_device *)dev, .run = run, .arg = arg };
    int pushed;
    TRY(dn_cuda_enter(w.d, &pushed));
    danaus_status status = open_stopwatch(&w);
    if (status == DANAUS_OK)
        status = dn_median_seconds(time_run, &w, MOST_RUNS, ENOUGH_SECONDS, seconds);
    close_stopwatch(&w);
    dn_cuda_leave(w.d, pushed);
    return status;
}
