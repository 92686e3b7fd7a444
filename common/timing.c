/* Times of calls. */
// SPDX-License-Identifier: Apache-2.0
#include "common/timing.h"

#include "common/args.h"
#include "common/room.h"

#include <stdlib.h>
#include <time.h>

#define SAMPLE      0.001 /* seconds, about */
#define ENOUGH      0.2   /* seconds of samples, at least */
#define LONG        2.0   /* seconds after which few samples will do */
#define MIN_SAMPLES 9
#define FEW_SAMPLES 3
#define MAX_SAMPLES 1000

static int by_value(const void *p, const void *q)
{
    double x = *(const double *)p, y = *(const double *)q;
    return (x > y) - (x < y);
}

void sort_numbers(double *numbers, size_t count)
{
    qsort(numbers, count, sizeof *numbers, by_value);
}

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct timed {
    danaus_device *device;
    danaus_status (*run)(void *self);
    void *self;
} timed;

/* Seconds of a call, over so many. */
static danaus_status sample(const timed *c, int64_t calls, double *seconds)
{
    danaus_status status = DANAUS_OK;
    double start = seconds_now();
    for (int64_t i = 0; i < calls && !status; i++)
        status = c->run(c->self);
    status = status ? status : danaus_device_sync(c->device);
    *seconds = (seconds_now() - start) / (double)calls;
    return status;
}

static int is_enough(int64_t samples, double spent)
{
    int64_t least = spent > LONG ? FEW_SAMPLES : MIN_SAMPLES;
    return samples >= least && (spent > ENOUGH || samples == MAX_SAMPLES);
}

int measure_calls(
    danaus_device *device, int64_t repeat, danaus_status (*run)(void *self), void *self,
    timing *t)
{
    const timed c = { device, run, self };
    int64_t room = repeat ? repeat : MAX_SAMPLES, count = 0, calls = 1;
    double *seconds = room_make(1, room, sizeof *seconds, "times"), one = 0, spent = 0;
    if (!seconds)
        return STATUS_FAILURE;
    danaus_status status = DANAUS_OK;
    for (int warm = 0; warm < 3 && !repeat && !status && one < ENOUGH; warm++)
        status = sample(&c, calls, &one);
    if (one > 0 && one < SAMPLE)
        calls = (int64_t)(SAMPLE / one) + 1;
    while (!status && (repeat ? count < repeat : !is_enough(count, spent))) {
        status = sample(&c, calls, &seconds[count]);
        spent += seconds[count++] * (double)calls;
    }
    sort_numbers(seconds, (size_t)count);
    *t = (timing){ .median = seconds[count / 2], .p10 = seconds[count / 10] };
    t->p90 = seconds[count * 9 / 10];
    t->calls = count * calls;
    free(seconds);
    return library(status);
}
