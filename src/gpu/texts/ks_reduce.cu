/* to[i s0 + r s1 + k s2 + j s3] = sum over slabs of part[slab][i][r][k][j], in their
   order; conjugated if asked. If dense, parts are [slab][i][r][j][k][j'], and those of
   equal lanes are taken. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 128
#include "simt.h"

#define AT_ONCE 8 /* loads that wait for memory together */

KERNEL reduce(
    const S *RESTRICT part, S *RESTRICT to, int64 slabs, int conjugated, int64 a, int64 b,
    int64 c, int64 d, int64 s0, int64 s1, int64 s2, int64 s3, int dense)
{
    int64 size = a * b * c * d, stride = dense ? size * d : size;
    for (int64 e = BLOCK * THREADS + THREAD; e < size; e += BLOCKS * THREADS) {
        int64 from = dense ? (e / d / c * d + e % d) * c * d + e % (c * d) : e;
        S sum = zero();
        for (int64 slab = 0; slab < slabs; slab += AT_ONCE) {
            S some[AT_ONCE];
            UNROLL
            for (int u = 0; u < AT_ONCE; u++)
                some[u] = slab + u < slabs ? part[(slab + u) * stride + from] : zero();
            UNROLL
            for (int u = 0; u < AT_ONCE; u++)
                sum = plus(sum, some[u]);
        }
        int64 at = e % d * s3 + e / d % c * s2 + e / d / c % b * s1 + e / d / c / b * s0;
        to[at] = conjugated ? conjugate(sum) : sum;
    }
}
