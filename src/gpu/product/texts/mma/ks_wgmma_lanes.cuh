/* How ks_wgmma_lanes.cu cuts its work and uses shared memory: sizes of pieces, stages and tiles,
   the order of tiles, the ring of stages, and a thread's places in a piece. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "pieces.cuh"
#include "ring.cuh"

#define LANE_BYTES  (TOGETHER * ELEMENT)
#define HALVES      (LANE_BYTES == 32 ? 2 : 1)
#define NARROW      (LANE_BYTES == 8) /* 16 bytes are two columns k */
#define PER_LOAD    ((NARROW ? 8 : 16) / ELEMENT)
#define UNIT_K      (NARROW ? 2 : 1)
/* Fours of units in a piece: wide lines where there are registers for two units of each. */
#define FOURS       (FLAT && !X_MIDDLE && PER_LOAD == 4 && HALVES == 1 && !NARROW ? 2 : 1)
#define FOUR_K      (4 * UNIT_K)
#define PIECE_K     (FOURS * FOUR_K) /* columns k, or rows r, of a piece */
#define STEP_K      (UNITS * 32 / ELEMENT)
#define STEPS       ((COLS + STEP_K - 1) / STEP_K)
#define STEP_PIECES (STEP_K / PIECE_K)
#define ROW_PIECES  (8 / PIECE_K)
#define LINE        (64 * FOURS * HALVES) /* bytes of a piece for one column s */

#define GROUPS   2
#define FETCHERS 128
#define THREADS  (128 * GROUPS + FETCHERS)
#define TILE_S   (HALVES == 2 ? 64 : 64 * GROUPS)

#define PIECE   (TILE_S * LINE)
#define X_BYTES (TILE_S * TOGETHER * UNITS * 32)
#define BLOCK_S (128 / ELEMENT) /* columns s that lie together, X_MIDDLE */
#define X_LANE  (STEP_K * 128)
#define X_BLOCK (TOGETHER * X_LANE)
#define W_UNIT  (TILE_R * 32) /* of a lane */
#define W_LANE  (UNITS * (SPLIT ? 2 : 1) * W_UNIT)
#define W_BYTES (TOGETHER * W_LANE)
#define STAGE   (X_BYTES + W_BYTES)
#define OUT     (ROW_PIECES * PIECE)

/* True if tensor cores read x from shared memory, transposed, and not from registers. */
#define FROM_SHARED (X_MIDDLE && ELEMENT == 2)

/* True if the copy engine fetches x. */
#define FETCH_BULK (ALIGNED || X_MIDDLE)

/* The copy engine stores pieces of 32 bytes slowly, but threads that make pairs are slower. */
#define STORE_BULK (ALIGNED && (HALVES == 1 || FLAT || ELEMENT == 2))

/* Rows of what a group stores at once, and who stores it: the group or both. */
#define STORE_S       64
#define STORERS       (128 * HALVES)
#define STORE_BARRIER (HALVES == 2 ? 1 : 1 + threadIdx.x / 128)

/* ROW_TILES is the tiles of rows r, a multiple of CLUSTER; the last may be empty. */
#define LANE_GROUPS (LANES / TOGETHER)

typedef struct tile {
    int i, j, r0, s0, weights; /* the last: of the tile of weights */
} tile;

INLINE u32 rank() { return CLUSTER > 1 ? cluster_rank() : 0; }

/* Tiles of all rows r are beside each other, then those of all lanes, which share lines of
   memory, and then of all blocks i, or, if their weights are too many for the second cache
   (COLUMNS_FIRST), of all columns s. */
INLINE tile tile_at(u32 t, u32 tiles_s)
{
    u32 row = t % (ROW_TILES / CLUSTER) * CLUSTER + rank();
    t /= ROW_TILES / CLUSTER;
    u32 lanes = t % LANE_GROUPS;
    t /= LANE_GROUPS;
    u32 i = COLUMNS_FIRST ? t / tiles_s : t % BLOCKS;
    u32 s = COLUMNS_FIRST ? t % tiles_s : t / BLOCKS;
    return tile{ (int)i, (int)lanes * TOGETHER, (int)row * TILE_R, (int)s * TILE_S,
                 (int)((i * LANE_GROUPS + lanes) * ROW_TILES + row) };
}

INLINE tile not_before(tile t)
{
    t.i = not_before(t.i), t.j = not_before(t.j);
    t.r0 = not_before(t.r0), t.s0 = not_before(t.s0);
    return t;
}

/* Where 16 bytes lie in a piece: those of a half of the unit for a column s. */
INLINE u32 in_piece(int s, int unit, int half)
{
    if (LINE == 64)
        return s * LINE + unit * 16;
    return FLAT ? swizzled(s, unit * HALVES + half)
                : s * LINE + unit * 32 + ((half ^ (s & 1)) << 4);
}

/* How many bytes of x (rows COLS) or y (rows ROWS) are there from this chunk of column s on;
   *place is where they are. */
INLINE i64 bytes_at(
    tile t, int rows, int k, int half, i64 s, i64 batch, i64 *place)
{
    *place = ((s * BLOCKS + t.i) * rows + k) * LANES + t.j + half * PER_LOAD;
    return k < rows && s < batch ? (NARROW ? (i64)(rows - k) * LANE_BYTES : 16) : 0;
}

/* This thread's first 16 bytes in a piece: column s of its operand's row, unit of its
   operand's column. Rows are exchanged where those beside each other meet the same banks. */
INLINE u32 own_place()
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, group = threadIdx.x / 128;
    int row = FOURS == 2 ? lane / 4 % 2 * 4 + lane / 8 : lane / 4;
    int s = warp * 16 + row + (HALVES == 2 ? 0 : group * 64);
    return in_piece(s, lane % 4, group % HALVES);
}

/* The place of four columns number n from `own` on, in column s or s + 8. */
INLINE u32 own_unit(u32 own, int n, int eight)
{
    return (own ^ n % FOURS * 64) + n / FOURS * PIECE + eight * 8 * LINE;
}

/* In a stage: the weights of this group's lanes. */
INLINE u32 own_weights()
{
    return X_BYTES + (HALVES == 2 ? threadIdx.x / 128 * PER_LOAD * W_LANE : 0);
}
