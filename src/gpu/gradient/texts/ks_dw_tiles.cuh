/* Tiles of weight gradients by products of four warps, for compute capability 9.0. Operand A is
   dy and B is x, or the other way round (SWAPPED). A block of threads computes TILE_A rows of A,
   64 for each of GROUPS_A groups, by TILE_B rows of B, COLUMNS for each of GROUPS_B groups, for
   TOGETHER lanes. COPIERS, if there are any, are four more warps. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "words.cuh"

#define GROUPS  (GROUPS_A * GROUPS_B)
#define MAKERS  (128 * GROUPS)
#define COPIERS 128
#define COPIER  (threadIdx.x - MAKERS)
#define TILE_A  (64 * GROUPS_A)
#define TILE_B  (COLUMNS * GROUPS_B)
#define SIZE_A  (SWAPPED ? COLS : ROWS)
#define SIZE_B  (SWAPPED ? ROWS : COLS)
#define A_TILES ((SIZE_A + TILE_A - 1) / TILE_A)
#define B_TILES ((SIZE_B + TILE_B - 1) / TILE_B)
#define TILES   (A_TILES * B_TILES * (LANES / TOGETHER) * BLOCKS)

typedef struct tile {
    int i, j, a, b;
} tile;

INLINE tile tile_at(int t)
{
    int i = t / A_TILES / B_TILES / (LANES / TOGETHER);
    int j = t / A_TILES / B_TILES % (LANES / TOGETHER) * TOGETHER;
    return { i, j, t % A_TILES * TILE_A, t / A_TILES % B_TILES * TILE_B };
}
