/* to[i s0 + r s1 + k s2 + j s3] = sum over slabs of part[slab][i][j][r][k], in their order.

   A block of threads makes tiles of WIDE lanes j, a power of two, by TALL places (r, k)
   through shared memory: neighbouring threads read neighbouring places and write
   neighbouring lanes. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "simt.h"

#define NUMBERS 1024 /* of a tile */
#define TALL    (NUMBERS / WIDE)
#define PITCH   (TALL + 1)

FN S sum_of(const S *RESTRICT part, int64 slabs, int64 stride)
{
    S sum = zero();
    for (int64 slab = 0; slab < slabs; slab++)
        sum = plus(sum, part[slab * stride]);
    return sum;
}

KERNEL reduce(
    const S *RESTRICT part, S *RESTRICT to, int64 slabs, int64 a, int64 b, int64 c,
    int64 d, int64 s0, int64 s1, int64 s2, int64 s3)
{
    LOCAL S tile[WIDE * PITCH];
    int64 size = b * c, across = (d + WIDE - 1) / WIDE, down = (size + TALL - 1) / TALL;
    for (int64 n = BLOCK; n < a * across * down; n += BLOCKS) {
        int64 i = n / down / across, lane = n / down % across * WIDE, at = n % down * TALL;
        const S *from = part + (i * d + lane) * size + at;
        UNROLL
        for (int u = 0; u < NUMBERS; u += THREADS) {
            int j = (u + THREAD) / TALL, e = (u + THREAD) % TALL;
            if (lane + j < d && at + e < size)
                tile[j * PITCH + e] = sum_of(from + j * size + e, slabs, a * d * size);
        }
        BARRIER();
        UNROLL
        for (int u = 0; u < NUMBERS; u += THREADS) {
            int j = (u + THREAD) % WIDE, e = (u + THREAD) / WIDE;
            unsigned place = (unsigned)(at + e), r = place / (unsigned)c;
            if (lane + j < d && at + e < size)
                to[i * s0 + r * s1 + (place - r * c) * s2 + (lane + j) * s3] =
                    tile[j * PITCH + e];
        }
        BARRIER();
    }
}
