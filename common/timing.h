/* Times of calls. */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_TIMING_H
#define COMMON_TIMING_H

#include "danaus/danaus.h"

typedef struct timing {
    double median, p10, p90; /* seconds of a call */
    int64_t calls;
} timing;

double seconds_now(void);

/* The least first. */
void sort_numbers(double *numbers, size_t count);

/* Times calls of run(self) on a device: `repeat` of them one by one or, for 0, after a
   warm-up, at least 0.2 s in at least 9 samples of about a millisecond (3, where calls take
   seconds). Returns an exit status. */
int measure_calls(
    danaus_device *device, int64_t repeat, danaus_status (*run)(void *self), void *self,
    timing *t);

#endif
