/* What batch-first products by warps of compute capability 8.0 and later share
   (ks_mma_lanes.cu, ks_mma_runs.cu): tiles of TOGETHER lanes j of a block i, TILE_S columns s
   of the batch by TILE_R rows r, in STEPS steps of TILE_K columns k, which are UNITS times 32
   bytes. w is packed as the registers of the product's left operand, [i][lanes][tile of rows]
   [unit][TOGETHER][16 rows][thread of a warp][16 bytes], zeros outside the matrix. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ending.cuh"

#define PER        (16 / ELEMENT) /* elements of 16 bytes */
#define UNIT_K     (32 / ELEMENT) /* columns k that an instruction multiplies */
#define TILE_K     (UNIT_K * UNITS)
#define TILE_R     (16 * TILES_R * WARPS_R)
#define TILE_S     (8 * TILES_S * WARPS_S)
#define STEPS      ((COLS + TILE_K - 1) / TILE_K)
#define ROW_TILES  ((ROWS + TILE_R - 1) / TILE_R)
#define LANE_TILES ((LANES + TOGETHER - 1) / TOGETHER)
#define W_UNIT     (TOGETHER * TILE_R * 32)
#define W_BYTES    (UNITS * W_UNIT)

typedef struct tile {
    int i, j, r0;
    i64 s0;
} tile;

INLINE u32 tiles_of(i64 batch) { return (u32)((batch + TILE_S - 1) / TILE_S); }

/* Blocks that run at a time share rows of x, and the weights of SHARED_BLOCKS blocks i,
   which the second cache holds. */
INLINE tile tile_at(u32 t, i64 batch)
{
    tile at;
    at.r0 = (int)(t % ROW_TILES) * TILE_R;
    t /= ROW_TILES;
    at.j = (int)(t % LANE_TILES) * TOGETHER;
    t /= LANE_TILES;
    at.i = (int)(t % SHARED_BLOCKS);
    t /= SHARED_BLOCKS;
    if (SHARED_BLOCKS < BLOCKS) {
        at.i += (int)(t / tiles_of(batch)) * SHARED_BLOCKS;
        t %= tiles_of(batch);
    }
    at.s0 = (i64)t * TILE_S;
    return at;
}

/* Where the weights of a step begin. */
INLINE const u8 *weights_of(const u8 *w, tile t, int step)
{
    i64 block = (i64)t.i * LANE_TILES + t.j / TOGETHER;
    return w + ((block * ROW_TILES + t.r0 / TILE_R) * STEPS + step) * W_BYTES;
}

/* The sums of half `half` of 16 rows and of one lane begin with a number, in all columns s. */
INLINE void begin_row(float sum[TILES_S][4], int half, float v)
{
#pragma unroll
    for (int s = 0; s < TILES_S; s++)
        sum[s][half * 2] = sum[s][half * 2 + 1] = v;
}
