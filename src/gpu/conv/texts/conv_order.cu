/* Adds up all parts of a filter in order, from conv_mma_sums.cu, and writes them in the order of
   conv_transform.cu and with its scale: transforms there are not divided by the root of
   POINTS. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "simt.h"

#include "conv_frequency.cuh"
#include "conv_points.cuh"

KERNEL conv(const GLOBAL C *sums, GLOBAL C *to, int64 filters, int64 parts)
{
    int64 i = BLOCK * THREADS + THREAD, filter = i / POINTS;
    C value = point(0, 0);
    if (filter >= filters)
        return;
    int f = frequency_of((int)(i % POINTS));
    sums += filter * parts * POINTS + place_in_lanes(f, POINTS / 256);
    for (int64 part = 0; part < parts; part++)
        value = sum(value, sums[part * POINTS]);
    to[i] = point(POINTS * value.re, POINTS * value.im);
}
