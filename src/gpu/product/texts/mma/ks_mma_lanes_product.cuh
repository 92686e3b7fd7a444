/* Products of a step for ks_mma_lanes.cu: operands from shared memory to registers, in f32
   split there. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ks_mma_lanes.cuh"

/* The right operand for 4 lanes: columns k of half `half` of a step, 8 columns s. */
INLINE void load_right(u32 v[4], u32 x, place p, int tile, int half)
{
    int thread = threadIdx.x % 32, s = p.column * TILES_S * 8 + thread / 4;
    x += tile * 8 * X_PITCH;
#if ELEMENT == 4
    int k = half * 4 + thread % 4;
    load_words<16>(v, x + piece_at(s, k * GROUPS + p.group));
#else
    int k = half * 8 + thread % 4 * 2;
    uint2 first, next;
    if (TOGETHER == 4) {
        uint4 both = load_shared128(x + piece_at(s, k / 2));
        first = { both.x, both.y }, next = { both.z, both.w };
    } else {
        u32 in = p.group % 2 * 8;
        first = load_shared64(x + piece_at(s, k * GROUPS / 2 + p.group / 2) + in);
        next = load_shared64(x + piece_at(s, (k + 1) * GROUPS / 2 + p.group / 2) + in);
    }
    v[0] = low_halves(first.x, next.x), v[1] = high_halves(first.x, next.x);
    v[2] = low_halves(first.y, next.y), v[3] = high_halves(first.y, next.y);
#endif
}

INLINE u32 left_at(place p, int lane, int tile)
{
    int rows = (p.group * 4 + lane) * (TILE_R / 16) + p.row * TILES_R + tile;
    return rows * 512 + threadIdx.x % 32 * 16;
}

#if SPLIT
/* Rows that are multiplied beside each other, so that neighbouring products are
   independent. */
#define BESIDE (TILES_R % 2 ? TILES_R : 2)

/* part = the sum of high * high and the two mixed products of a lane. */
INLINE void product_of_lane(
    float part[TILES_R][TILES_S][4], const u32 right[TILES_S][2][4], u32 w, place p,
    int lane)
{
    u32 high[TILES_S][2], low[TILES_S][2];
#pragma unroll
    for (int t = 0; t < TILES_S; t++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            split<1>(&high[t][half], &low[t][half], &right[t][half][lane]);
#pragma unroll
    for (int r0 = 0; r0 < TILES_R; r0 += BESIDE) {
        u32 a[BESIDE][4], rest[BESIDE][4];
#pragma unroll
        for (int r = 0; r < BESIDE; r++) {
            load_words<16>(a[r], w + left_at(p, lane, r0 + r));
            split_weights(rest[r], a[r]);
        }
#pragma unroll
        for (int pass = 0; pass < 3; pass++)
#pragma unroll
            for (int r = 0; r < BESIDE; r++)
#pragma unroll
                for (int t = 0; t < TILES_S; t++) {
                    float *to = part[r0 + r][t];
                    const u32 *left = pass ? a[r] : rest[r];
                    const u32 *b = pass == 1 ? low[t] : high[t];
                    if (pass == 0)
                        mma8_first(to, left, b[0], b[1]);
                    else
                        mma8(to, left, b[0], b[1]);
                }
    }
}
#endif

INLINE void product(sums sum, u32 x, u32 w, place p)
{
    u32 right[TILES_S][2][4];
#pragma unroll
    for (int t = 0; t < TILES_S; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            load_right(right[t][half], x, p, t, half);
#pragma unroll
            for (int lane = 0; lane < 4 && !SPLIT; lane++)
                right[t][half][lane] = factor_of(right[t][half][lane]);
        }
#pragma unroll
    for (int lane = 0; lane < 4; lane++) {
#if SPLIT
        float part[TILES_R][TILES_S][4];
        product_of_lane(part, right, w, p, lane);
        add<TILES_R * TILES_S * 4>(sum[lane][0][0], part[0][0]);
#else
  #pragma unroll
        for (int r = 0; r < TILES_R; r++) {
            u32 a[4];
            load_words<16>(a, w + left_at(p, lane, r));
  #pragma unroll
            for (int t = 0; t < TILES_S; t++)
                mma_unit(sum[lane][r][t], a, right[t][0][lane], right[t][1][lane]);
        }
#endif
    }
}
