/* The limits of a GPU: a copy from its memory to its memory, and the best of danaus'
   own dense products. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/program/gpu_limits.h"

#include "bench/program/case.h"
#include "common/args.h"
#include "common/timing.h"

#define COPY_BYTES   ((size_t)1 << 30)
#define SMALLEST     ((size_t)1 << 20)
#define SIZE         4096
#define REPEATS      10
#define SMALL_MEMORY 8e9 /* bytes: of devices that get smaller problems */

static danaus_status copy_seconds(danaus_device *device, size_t bytes, double *seconds)
{
    void *from = NULL, *to = NULL;
    danaus_status status = danaus_alloc(device, bytes, &from);
    status = status ? status : danaus_alloc(device, bytes, &to);
    *seconds = 1e300;
    for (int i = 0; i < REPEATS && !status; i++) {
        double start = seconds_now();
        status = danaus_upload(device, to, from, bytes);
        double spent = seconds_now() - start;
        *seconds = spent < *seconds ? spent : *seconds;
    }
    danaus_free(device, from);
    danaus_free(device, to);
    return status;
}

static int best_flops(bench_case *c, double *flops)
{
    int status = bench_case_create(c);
    if (status)
        return status;
    runner one = {
        .name = "dense", .run = bench_case_run, .finish = bench_case_finish, .self = c
    };
    if (!measure(&one, 1, &c->inputs))
        return failure("no memory for times");
    if (c->failed)
        return library_failure();
    *flops = bench_case_flops(c) / one.p10;
    return STATUS_OK;
}

int gpu_limits(
    danaus_device *device, danaus_dtype dtype, danaus_math math, machine_limits *limits)
{
    danaus_device_info info;
    double seconds, flops = 0;
    if (danaus_device_describe(device, &info))
        return library_failure();
    int small = (double)info.memory < SMALL_MEMORY;
    size_t bytes = small ? SMALLEST : COPY_BYTES;
    int64_t size = small ? SIZE / 64 : SIZE;
    if (copy_seconds(device, bytes, &seconds))
        return library_failure();
    bench_case c = { .device = device,
                     .patterns = { { 1, size, size, 1 } },
                     .count = 1,
                     .dtype = dtype,
                     .math = math,
                     .batch = size };
    int status = best_flops(&c, &flops);
    bench_case_destroy(&c);
    if (status)
        return status;
    *limits = (machine_limits){ flops, flops, 2 * (double)bytes / seconds };
    return STATUS_OK;
}
