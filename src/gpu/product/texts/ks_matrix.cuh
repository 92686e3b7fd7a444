/* What products of matrices in ks_mma.cu and ks_wgmma.cu share: tiles of rows, the bias, and,
   with GATED, gates, which leave half as many blocks of y. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ending.cuh"

#define EACH      (GATED ? 2 : 1) /* blocks of x for one of y */
#define Y_BLOCKS  (BLOCKS / EACH)
#define ROW_TILES ((ROWS + TILE_N - 1) / TILE_N)

/* Adds the bias of so many rows r from r0 on to the sums of a tile's block i and lane j:
   element 4 t + e is in row 8 t + 2 (l mod 4) + e mod 2, l the thread of the warp. */
template <int rows, class tile>
INLINE void add_bias(float *sum, const float *bias, tile t, int r0)
{
    int lane = threadIdx.x % 32;
    if (bias)
#pragma unroll
        for (int e = 0; e < rows / 2; e++) {
            int r = r0 + e / 4 * 8 + lane % 4 * 2 + e % 2;
            if (r < ROWS)
                sum[e] += bias[((i64)t.i * ROWS + r) * LANES + t.j];
        }
}

/* ---- gates: y = activation(u) v of sums u and v; u is computed first ---- */

/* Two of activation(u) in one register, rounded to the type of y, while v is computed. */
template <int count> INLINE void hold_gates(u32 *gates, const float *u)
{
#pragma unroll
    for (int e = 0; e < count; e++)
        gates[e] = pack_pair(activate(u[2 * e]), activate(u[2 * e + 1]));
}

template <int count> INLINE void multiply_by_gates(float *v, const u32 *gates)
{
#pragma unroll
    for (int e = 0; e < count; e++) {
        v[2 * e] *= low_of(gates[e]);
        v[2 * e + 1] *= high_of(gates[e]);
    }
}
