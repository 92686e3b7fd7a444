/* Monotonic time in seconds, and how long things take. */
// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <stdlib.h>
#include <time.h>

#define LEAST_RUNS 3

double dn_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

danaus_status dn_median_seconds(
    danaus_status (*run)(void *arg, double *seconds), void *arg, int most,
    double enough, double *seconds)
{
    double times[CLOCK_MOST_RUNS], total = 0;
    int runs = 0;
    TRY(run(arg, times));
    while (runs < most && (runs < LEAST_RUNS || total < enough)) {
        TRY(run(arg, &times[runs]));
        total += times[runs++];
    }
    qsort(times, (size_t)runs, sizeof *times, by_value);
    *seconds = times[runs / 2];
    return DANAUS_OK;
}
