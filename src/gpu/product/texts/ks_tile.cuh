/* Steps of the tiles of ks_wgmma.cu, 64 columns s of the batch by TILE_N rows r and LINE
   columns k, in shared memory, and pieces of y. All are rows of 128 bytes, their 16-byte
   chunks exchanged by the 128-byte swizzle.

   Types: f16, bf16 (TYPE_BF16), and numbers of 32 bits (ELEMENT 4). The latter are rounded to
   tf32, or with SPLIT cut into two such numbers each, whose three large products are added:
   as exact as f32.

   The including text defines X_BYTES and STAGE, the bytes of x in a stage and of the whole
   stage; ALIGNED, true if the copy engine and not threads write x to shared memory; and
   CLUSTER, the number of blocks that fetch a stage together. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ks_matrix.cuh"
#include "ring.cuh"

#define LINE      (128 / ELEMENT)
#define STEPS     ((COLS + LINE - 1) / LINE)
#define UNIT      (32 / ELEMENT) /* columns k of one instruction */
#define DEPTH     (STEPS > 1 ? LINE : (COLS + UNIT - 1) / UNIT * UNIT)
#define PARTS     (SPLIT ? 2 : 1)
#define W_BYTES   (PARTS * TILE_N * 128)
#define PIECE     (64 * 128)
#define PIECES    ((TILE_N + LINE - 1) / LINE)

typedef struct tile {
    int i, j, r0, s0;
} tile;

/* ---- products of one step: 64 columns s by TILE_N rows r ---- */

/* The element of register 4 t + e is at s = l / 4 + 8 (e / 2), r = 8 t + 2 (l mod 4) +
   e mod 2 of the 16 columns that belong to the warp, l its lane. */
#if ELEMENT == 4
template <int from> INLINE void columns(float *sum, const u32 *x, u64 w, int add)
{
    const int left = TILE_N - from, n = wgmma_columns(left);
    wgmma_held<n>(sum + from / 2, x, w + from * 128 / 16, add);
    if constexpr (left > n)
        columns<from + n>(sum, x, w, add);
}

INLINE float load_float(u32 from) { return __uint_as_float(load_shared32(from)); }

/* a[e] of wgmma_held(), for columns k0 to k0 + 7. */
INLINE float x_element(u32 x, int k0, int e)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    int s = warp * 16 + lane / 4 + e % 2 * 8;
    if (X_LAST) {
        int k = k0 + lane % 4 * 2 + e / 2, block = s / LINE;
        return load_float(
            x + block * DEPTH * 128 + swizzled(k, s % LINE / 4) + s % 4 * 4);
    }
    return load_float(x + swizzled(s, k0 / 4 + e / 2) + lane % 4 * 4);
}

INLINE void product(float *sum, u32 x, u32 w, int add)
{
    u32 high[DEPTH / 8][4], low[SPLIT ? DEPTH / 8 : 1][4];
#pragma unroll
    for (int k = 0; k < DEPTH / 8; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float v = x_element(x, k * 8, e);
            high[k][e] = round_tf32(v);
            if (SPLIT)
                low[k][e] = round_tf32(v - __uint_as_float(high[k][e]));
        }
    u64 ws = wgmma_matrix(w);
    const u64 rest = TILE_N * 128 / 16;
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < DEPTH / 8; k++) {
        if (SPLIT) {
            columns<0>(sum, low[k], ws + k * 2, add || k);
            columns<0>(sum, high[k], ws + rest + k * 2, 1);
        }
        columns<0>(sum, high[k], ws + k * 2, SPLIT || add || k);
    }
}
#else
template <int from> INLINE void columns(float *sum, u64 x, u64 w, int add)
{
    const int left = TILE_N - from, n = wgmma_columns(left);
    wgmma<n, X_LAST>(sum + from / 2, x, w + from * 128 / 16, add);
    if constexpr (left > n)
        columns<from + n>(sum, x, w, add);
}

INLINE void product(float *sum, u32 x, u32 w, int add)
{
    u64 xs = wgmma_matrix(x), ws = wgmma_matrix(w);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16)
        columns<0>(sum, xs + (X_LAST ? k * 128 : k * 2) / 16, ws + k * 2 / 16, add || k);
}
#endif

/* All steps of 64 columns, whose x is at x_at in a stage.

   Tensor cores cut sums off where f32 would round: with SPLIT they add up only one
   step at a time. */
INLINE void multiply_tile(float sum[TILE_N / 2], ring *r, u32 x_at)
{
    u32 before = 0;
#if SPLIT
    float part[TILE_N / 2];
#else
    float *part = sum;
#endif
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
        u32 stage = r->stages + r->slot * STAGE;
        flag_wait(r->full + r->slot * 8, r->phase);
        if (!ALIGNED)
            fence_async();
        product(part, stage + x_at, stage + X_BYTES, !SPLIT && step > 0);
        wgmma_commit();
        /* Products from registers keep them until they are done. */
        if (ELEMENT == 4) {
            wgmma_wait<0>();
            release<CLUSTER>(r->empty + r->slot * 8);
#if SPLIT
  #pragma unroll
            for (int e = 0; e < TILE_N / 2; e++)
                sum[e] = step ? sum[e] + part[e] : part[e];
#endif
        } else if (step > 0) {
            wgmma_wait<1>();
            release<CLUSTER>(before);
        }
        before = r->empty + r->slot * 8;
        advance(r);
    }
    if (ELEMENT != 4) {
        wgmma_wait<0>();
        release<CLUSTER>(before);
    }
}

/* ---- results ---- */

/* At most LINE rows, from number `from` of the tile on, to a piece of y in shared
   memory. */
template <int rows>
INLINE void write_piece(u32 piece, float *sum, const float *bias, tile t, int from)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    add_bias<rows>(sum, bias, t, t.r0 + from);
#if ELEMENT == 4
  #pragma unroll
    for (int e = 0; e < rows / 2; e += 2) {
        int s = warp * 16 + lane / 4 + e % 4 * 4, r = e / 4 * 8 + lane % 4 * 2;
        if (Y_LAST)
            for (int q = 0; q < 2; q++)
                store_shared32(
                    piece + s / LINE * (LINE * 128) +
                        swizzled(r + q, s % LINE / 4) + s % 4 * 4,
                    __float_as_uint(sum[e + q]));
        else
            store_shared64(
                piece + swizzled(s, r / 4) + r % 4 * 4, sum[e], sum[e + 1]);
    }
#else
    /* The address that this lane gives: of a row in one of four matrices, which are
       columns s 0 and 8, rows r 0 and 8 of 16 x 16 elements. */
    int row = lane % 8, half = lane / 8 % 2, other = lane / 16;
  #pragma unroll
    for (int e = 0; e < rows / 2; e += 8) {
        int r = e / 4 * 8 + other * 8;
        u32 v[4];
        for (int q = 0; q < 4; q++)
            v[q] = pack_pair(sum[e + q * 2], sum[e + q * 2 + 1]);
        if (Y_LAST)
            store_matrices_turned(
                piece + swizzled(r + row, warp * 2 + half), v[0], v[1], v[2], v[3]);
        else
            store_matrices(
                piece + swizzled(warp * 16 + half * 8 + row, r / 8), v[0], v[1], v[2],
                v[3]);
    }
#endif
}

/* Piece number n of them, counted from `from` on. */
template <int from>
INLINE void write_piece_number(u32 piece, float *sum, const float *bias, tile t, int n)
{
    const int left = TILE_N - from * LINE;
    if (n == from)
        write_piece<left < LINE ? left : LINE>(
            piece, sum + from * LINE / 2, bias, t, from * LINE);
    else if constexpr (from + 1 < PIECES)
        write_piece_number<from + 1>(piece, sum, bias, t, n);
}
