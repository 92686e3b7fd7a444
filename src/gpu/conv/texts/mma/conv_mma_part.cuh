/* A part of conv_mma.cu or conv_mma_cluster.cu: it loads windows, rows of points or tiles of
   columns to shared memory, multiplies and stores them. ROOT, WARPS, LOAD, STORE, FORWARD and
   INVERSE are as there. A text with several parts has each in a namespace. */
// SPDX-License-Identifier: Apache-2.0
#undef FEW
#if ROOT > 16
#define FEW ROLL /* row tiles one by one: there are many */
#else
#define FEW UNROLL
#endif

#define TEAM    (WARPS * 32)
#define POINTS  (ROOT * 256) /* that a member has at once */
#define TILED   (FORWARD != INVERSE)
#define PARTS   (HALF && !(LOAD && STORE) ? 1 : 2) /* of rows of x that count: real, imaginary */
#define IN      (ROOT * PARTS)
#define BOTH    (2 * ROOT)
#define LOADED  (LOAD ? BOTH : IN)

/* True if vector units do the first index in layers; else it is a product. Tiles of columns have
   half the registers, enough for two. */
#define LAYERS (ROOT <= (TILED ? 2 : 8))

/* True if that is done on the way to D, by a warp that loads all rows. */
#define AT_ONCE (LAYERS && ROOT > 1 && WARPS == 1 && FORWARD)

#ifndef AHEAD
#define AHEAD 0
#endif

/* What a member of a block works on, in shared memory: rows of D, which are filled up to tiles
   if they are products, and of x before. */
#define OWN_BYTES ((LAYERS ? BOTH : 16 * TILES(BOTH)) * PITCH)

/* Where tables of matrices and turns begin, as registers of lanes, in uint4. */
#define FIRST_AT      0 /* [row tile][column tile] */
#define FIRST_SIZE    (LAYERS ? 0 : TILES(BOTH) * TILES(IN) * 32)
#define INNER_AT      FIRST_SIZE /* [p0][real, imaginary] */
#define BACK_AT       (INNER_AT + ROOT * 64) /* the same two back */
#define INNER_BACK_AT (BACK_AT + FIRST_SIZE)
#define TURNS_AT      (SUMS ? BACK_AT : INNER_BACK_AT + ROOT * 64) /* [p0][pair]: 2 of 8 points */
#define LAST_AT       (TURNS_AT + ROOT * 128) /* [real, imaginary] */

/* The tables that are read: for columns, which have their own turns, those of one direction. */
#define TABLES_FROM (TILED && INVERSE ? BACK_AT : 0)
#define TABLES      (TILED ? BACK_AT : LAST_AT + 64)

/* The threads of a member wait for each other. */
INLINE void meet_all(const work *k)
{
    if (WARPS == 1)
        sync_warp();
    else
        barrier(1 + k->member, TEAM);
}

/* Entry `at` of the tables. */
INLINE uint4 table(const work *k, int at)
{
    return NEAR ? load_shared128(k->near + at * 16) : k->tables[at];
}

/* The place of 8 numbers of D: row r of real and imaginary parts, half of the 16 points j of q.
   Eight rows are in different banks, and so are eight q. */
INLINE u32 place_in_d(const work *k, int r, int q, int half)
{
    return k->d + r * PITCH + q * 32 + ((half ^ (q >> 2 & 1)) << 4);
}

#include "conv_mma_rows.cuh"
#include "conv_mma_results.cuh"
#include "conv_mma_in_order.cuh"
#include "conv_mma_products.cuh"
#if LAYERS
#include "conv_mma_layers.cuh"
#else
#include "conv_mma_first.cuh"
#endif

/* ---- columns of windows ---- */

/* z^j of block (p0, p1), that is row p = p0 + ROOT p1, and number j of the tile's columns:
   z^COLUMNS is by how much the row's Z^COLUMNS, e^(2 pi i (PHASE + 4 p) / (4 ROWS)), is
   more than i^PHASE. */
INLINE float angle_of(int p0, int p1)
{
    int phase = PHASE + 4 * (p0 + ROOT * p1) - PHASE * ROWS;
    return (float)phase * (1.5707963268f / WINDOW);
}

INLINE float2 twist(float angle, float column)
{
    float2 z;
    __sincosf(angle * column, &z.y, &z.x);
    return z;
}

/* 256 points of D to blocks, which are points of 16 rows. */
INLINE void split_tile(const work *k, int p0)
{
    u32 re[4], im[4];
    float4 turns[4];
    if (is_left_out(p0))
        return;
    load_right(k, p0, re, im);
    complex_left a = load_left(k, INNER_AT + p0 * 64);
    complex_tile e = multiply_some(&a, re, im, LOADED == 1, 0);
    UNROLL for (int i = 0; i < 4; i++)
    {
        float angle = angle_of(p0, k->lane / 4 + i % 2 * 8);
        float column = (float)(k->task * 16 + i / 2 * 8 + k->lane % 4 * 2);
        float2 z0 = twist(angle, column), z1 = twist(angle, column + 1);
        turns[i] = make_float4(z0.x, z0.y, z1.x, z1.y);
    }
    turn(&e, turns, 0);
    UNROLL for (int half = 0; half < 2; half++)
    {
        spot at = spot_of(0, p0, k->lane / 4 + half * 8, 0);
        int wanted = !is_left_out(p0 + ROOT * at.q);
        put_points(k, at, e.re, half, wanted);
        at.part = 1;
        put_points(k, at, e.im, half, wanted);
    }
}

/* The same backward. Blocks that are left out are zeros already. */
INLINE void join_tile(const work *k, const sinks *s, int p0)
{
    u32 re[4], im[4];
    if (is_left_out(p0))
        return;
    load_right(k, p0, re, im);
    UNROLL for (int i = 0; i < 4; i++)
    {
        int p1 = i % 2 * 8 + k->lane % 4 * 2;
        float column = (float)(k->task * 16 + i / 2 * 8 + k->lane / 4);
        float2 z0 = twist(angle_of(p0, p1), column);
        float2 z1 = twist(angle_of(p0, p1 + 1), column);
        float a0 = low_of(re[i]), b0 = low_of(im[i]);
        float a1 = high_of(re[i]), b1 = high_of(im[i]);
        re[i] = pack_pair(a0 * z0.x + b0 * z0.y, a1 * z1.x + b1 * z1.y);
        im[i] = pack_pair(b0 * z0.x - a0 * z0.y, b1 * z1.x - a1 * z1.y);
    }
    inner_back(k, s, p0, re, im);
}
