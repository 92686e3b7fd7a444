/* Adds up all parts of a filter in order: sums[filter][part][count] to to[filter][count]. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "simt.h"

KERNEL conv(
    const GLOBAL S *sums, GLOBAL S *to, int64 filters, int64 parts, int64 count)
{
    int64 i = BLOCK * THREADS + THREAD, filter = i / count;
    if (filter >= filters)
        return;
    S value = 0;
    sums += filter * parts * count + i % count;
    for (int64 part = 0; part < parts; part++)
        value += sums[part * count];
    to[i] = value;
}
