/* Adds to sums the products of 16 rows of w with TILES_S tiles of 8 columns s, for 32 bytes of
   columns k: for ks_mma_runs.cu and ks_split.cu. With SPLIT each number is the sum of two tf32
   numbers, and the product of the small ones is left out. If `first`, products replace the
   sums. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "words.cuh"

INLINE void multiply_rows(
    float sum[TILES_S][4], const u32 a[4], const u32 b[TILES_S][2], int first)
{
#if SPLIT
    u32 rest[4], high[TILES_S][2], low[TILES_S][2];
    split_weights(rest, a);
    split<TILES_S * 2>(high[0], low[0], b[0]);
  #pragma unroll
    for (int pass = 0; pass < 3; pass++)
  #pragma unroll
        for (int t = 0; t < TILES_S; t++) {
            const u32 *right = pass == 1 ? low[t] : high[t];
            if (first && pass == 0)
                mma8_first(sum[t], rest, right[0], right[1]);
            else
                mma8(sum[t], pass ? a : rest, right[0], right[1]);
        }
#else
  #pragma unroll
    for (int t = 0; t < TILES_S; t++)
        mma_unit(sum[t], a, factor_of(b[t][0]), factor_of(b[t][1]));
#endif
}
