/* What the parts of ks_mma_lanes.cu share: sizes, places in shared memory, a warp's sums. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ks_mma_tiles.cuh"

#define GROUPS    (TOGETHER / 4)
#define THREADS   (32 * GROUPS * WARPS_R * WARPS_S)
#define X_PITCH   (32 * TOGETHER) /* bytes of a column s */
#define X_BYTES   (TILE_S * X_PITCH)
#define STAGE     (X_BYTES + W_BYTES)
/* Elements that lie together in memory, of a piece. */
#define RUN       (TOGETHER == LANES || TOGETHER > PER ? PER : TOGETHER)
/* Bytes of y before it is stored: a column s of 16 rows, and all columns s of a warp. */
#define Y_PITCH   (16 * TOGETHER * ELEMENT)
#define Y_BYTES   (8 * TILES_S * Y_PITCH)

INLINE int up_to(i64 count, int most) { return count < most ? (int)count : most; }

/* Where piece number `piece` of column s lies: threads that read one place of 8 columns s
   or of 4 columns k then meet different banks. */
INLINE u32 piece_at(int s, int piece)
{
    const int odd = TOGETHER == 4 ? 4 : TOGETHER == 8 ? 1 : 2;
    int turned = piece ^ s % 2 * odd;
    if (TOGETHER == 16)
        turned ^= piece / 8 % 2;
    return s * X_PITCH + turned * 16;
}

/* A warp's sums: lane, tile of rows, tile of columns; element e is at row
   l / 4 + 8 (e / 2) and column s 2 (l mod 4) + e mod 2, l the thread. */
typedef float sums[4][TILES_R][TILES_S][4];
typedef struct place {
    int group, row, column; /* of 4 lanes; of the block's warps */
} place;

INLINE place place_of_warp()
{
    int warp = threadIdx.x / 32;
    return { warp % GROUPS, warp / GROUPS / WARPS_S, warp / GROUPS % WARPS_S };
}
