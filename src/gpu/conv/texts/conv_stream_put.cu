/* Puts numbers of a stream into its ring (conv_stream.cu): numbers from, ..., from + count - 1
   of each channel of u[channels][whole], which have the times `time`, `time` + 1, ... */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "simt.h"

#include "conv_stream.cuh"

KERNEL conv(
    const GLOBAL S *u, GLOBAL S *ring, int64 channels, int64 whole, int64 from, int64 count,
    int64 time, int64 columns)
{
    int64 n = BLOCK * THREADS + THREAD, channel = n / count, i = n % count;
    if (channel >= channels)
        return;
    int64 at = (time + i) % (columns * SEGMENT);
    ring[(channel * SEGMENT + at % SEGMENT) * columns + at / SEGMENT] =
        u[channel * whole + from + i];
}
