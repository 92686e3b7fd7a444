/* Monotonic time in seconds, and how long things take. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_CLOCK_H
#define DN_BASE_CLOCK_H

#include "base/status.h"

#define CLOCK_MOST_RUNS 15

double dn_seconds(void);

/* The median of what runs say that they took, after one that warms up: at least three,
   until they have taken `enough` seconds, at most `most`, which is at most
   CLOCK_MOST_RUNS. */
danaus_status dn_median_seconds(
    danaus_status (*run)(void *arg, double *seconds), void *arg, int most,
    double enough, double *seconds);

#endif
