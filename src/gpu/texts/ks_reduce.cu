/* to[i s0 + r s1 + k s2 + j s3] = sum over slabs of part[slab][i][r][k][j], conjugated if
   asked. If dense, parts are [slab][i][r][j][k][j'], and those of equal lanes are taken.

   A thread adds up `per` neighbouring numbers, 1 or the V of 16 bytes if that divides their
   count, of a share of the slabs: `ways` threads, a power of two, have neighbouring slabs
   each, and one of them adds up their sums, all in order. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 128
#include "simt.h"

#define AT_ONCE 8 /* loads that wait for memory together */

/* Numbers of a part, and somewhat more: WIDE says that there are more than 2^30. */
#if WIDE
typedef int64 INDEX;
#else
typedef unsigned INDEX;
#endif

FN SV zeros(void)
{
    SV v;
    UNROLL
    for (int e = 0; e < V; e++)
        v.v[e] = zero();
    return v;
}

FN SV part_at(const S *RESTRICT part, int per)
{
    SV v = zeros();
    if (per == V)
        return *(const SV *)part;
    v.v[0] = *part;
    return v;
}

FN SV sum_of(const S *RESTRICT part, int slabs, int64 stride, int per)
{
    SV sum = zeros();
    for (int slab = 0; slab < slabs; slab += AT_ONCE) {
        SV some[AT_ONCE];
        UNROLL
        for (int u = 0; u < AT_ONCE; u++)
            some[u] = slab + u < slabs ? part_at(part + u * stride, per) : zeros();
        UNROLL
        for (int u = 0; u < AT_ONCE; u++)
            UNROLL
            for (int e = 0; e < V; e++)
                sum.v[e] = plus(sum.v[e], some[u].v[e]);
        part += AT_ONCE * stride;
    }
    return sum;
}

KERNEL reduce(
    const S *RESTRICT part, S *RESTRICT to, int64 slabs, int per, int ways,
    int conjugated, int64 a, int64 b, int64 c, int64 d, int64 s0, int64 s1, int64 s2,
    int64 s3, int dense)
{
    LOCAL SV sums[THREADS];
    INDEX B = (INDEX)b, C = (INDEX)c, D = (INDEX)d, size = (INDEX)(a * b * c * d);
    int width = THREADS / ways, way = THREAD / width;
    int share = (int)slabs / ways, more = way - (ways - (int)slabs % ways);
    int64 first = way * share + (more > 0 ? more : 0);
    int64 stride = dense ? size * d : size;
    INDEX step = (INDEX)width * per;
    for (INDEX block = (INDEX)BLOCK * step; block < size; block += (INDEX)BLOCKS * step) {
        INDEX e = block + THREAD % width * per, line = e / D, j = e - line * D;
        INDEX row = line / C, k = line - row * C, i = row / B, r = row - i * B;
        int64 from = dense ? ((int64)row * D + j) * C * D + k * D + j : e;
        from += first * stride;
        sums[THREAD] =
            e < size ? sum_of(part + from, share + (more >= 0), stride, per) : zeros();
        BARRIER();
        SV sum = sums[THREAD];
        for (int w = 1; w < ways && way == 0; w++)
            UNROLL
            for (int n = 0; n < V; n++)
                sum.v[n] = plus(sum.v[n], sums[w * width + THREAD].v[n]);
        UNROLL
        for (int n = 0; n < V; n++) {
            if (way == 0 && e < size && n < per)
                to[j * s3 + k * s2 + r * s1 + i * s0] =
                    conjugated ? conjugate(sum.v[n]) : sum.v[n];
            j++;
            if (j == D)
                j = 0, k++;
            if (k == C)
                k = 0, r++;
            if (r == B)
                r = 0, i++;
        }
        BARRIER();
    }
}
