/* The next numbers of a stream,

       y[t] = sum over segments of (sum over s in the segment of k[s] u[t - s]),

   each sum in order, whatever the block of numbers, so the bits do not depend on the cut. The
   past is in ring[channel][SEGMENT][columns], number t at t mod (SEGMENT columns), and taps are
   in k[filter][SEGMENT][segments]. A block of threads has TIMES numbers of a channel. For each
   number 32 threads sum one segment each at a time. */
// SPDX-License-Identifier: Apache-2.0
#define TIMES   8
#define LANES   32
#define THREADS (TIMES * LANES)
#include "simt.h"

#include "conv_stream.cuh"

/* Segment `segment` of the sum for time t mod the ring's length. */
FN S sum_segment(
    const GLOBAL S *k, const GLOBAL S *ring, int t, int segment, int segments, int columns)
{
    S sum = 0;
    for (int j = 0; j < SEGMENT; j++) {
        int at = t - j + (t < j ? SEGMENT * columns : 0);
        int column = at / SEGMENT - segment;
        column += column < 0 ? columns : 0;
        sum += k[j * segments + segment] * ring[at % SEGMENT * columns + column];
    }
    return sum;
}

/* `count` numbers from `from` on of y[channels][whole], the first one of time `time`. */
KERNEL conv(
    const GLOBAL S *k, const GLOBAL S *ring, GLOBAL S *y, int64 share, int64 whole,
    int64 from, int64 count, int64 time, int segments, int columns)
{
    IN_BLOCK S part[TIMES][LANES];
    int64 tiles = (count + TIMES - 1) / TIMES, channel = BLOCK / tiles;
    int own = THREAD / LANES, lane = THREAD % LANES;
    int64 i = BLOCK % tiles * TIMES + own;
    int t = (int)((time + i) % ((int64)columns * SEGMENT));
    S sum = 0;
    k += channel / share * SEGMENT * segments;
    ring += channel * SEGMENT * columns;
    ROLL for (int first = 0; first < segments; first += LANES)
    {
        int segment = first + lane;
        part[own][lane] = segment < segments && i < count
                              ? sum_segment(k, ring, t, segment, segments, columns)
                              : 0;
        BARRIER();
        for (int n = 0; lane == 0 && n < LANES && first + n < segments; n++)
            sum += part[own][n];
        BARRIER();
    }
    if (lane == 0 && i < count)
        y[channel * whole + from + i] = sum;
}
