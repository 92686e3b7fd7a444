/* Stores the sums of ks_wgmma_lanes.cu: adds the bias, moves eight rows at a time to shared
   memory, applies activation and residual, and writes y from there. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ending.cuh"
#include "ks_wgmma_lanes.cuh"

/* The bias of the tile's first row, for this thread's first lane. */
INLINE const float *bias_of(const float *bias, tile t)
{
    int half = HALVES == 2 ? threadIdx.x / 128 : 0;
    return bias + ((i64)t.i * ROWS + t.r0) * LANES + t.j + half * PER_LOAD;
}

/* The bias of lanes of a row that are loaded at once. */
#define BIAS_LANES (PER_LOAD == 2 ? 2 : 4)
typedef struct lanes_bias {
    alignas(4 * BIAS_LANES) float v[BIAS_LANES];
} lanes_bias;

/* Adds the bias of the eight rows r from place `from` of the tile on, and of later ones, to
   this thread's sums. Of the four of a lane 2 n + e is at column s 8 n, row r e of a unit.
   Rows outside get zeros: no sum may depend on a branch, or all leave their registers. */
template <int from>
INLINE void add_bias(float sum[PER_LOAD][TILE_R / 2], const float *bias, int rows)
{
    int unit = threadIdx.x % 4;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int r = from + (NARROW ? unit * 2 + e : e * 4 + unit);
#pragma unroll
        for (int lane = 0; lane < PER_LOAD; lane += BIAS_LANES) {
            lanes_bias b = {};
            if (ROWS == ROW_TILES * TILE_R || r < rows)
                b = *(const lanes_bias *)(bias + r * LANES + lane);
#pragma unroll
            for (int n = 0; n < BIAS_LANES; n++) {
                sum[lane + n][from / 2 + e] += b.v[n];
                sum[lane + n][from / 2 + 2 + e] += b.v[n];
            }
        }
    }
    if constexpr (from + 8 < TILE_R)
        add_bias<from + 8>(sum, bias, rows);
}

/* Eight rows r of this thread's columns s, from place `from` of the tile on, to `out`. */
template <int from>
INLINE void write_rows_from(u32 out, const float sum[PER_LOAD][TILE_R / 2])
{
#pragma unroll
    for (int eight = 0; eight < 2; eight++)
#pragma unroll
        for (int four = 0; four < 8 / FOUR_K; four++) {
            u32 v[4];
#pragma unroll
            for (int q = 0; q < 4; q++) {
                int at = from / 2 + eight * 2 + (NARROW ? q / 2 : four);
#if ELEMENT == 4
                v[q] = __float_as_uint(sum[NARROW ? q % 2 : q][at]);
#else
                int lane = NARROW ? q % 2 * 2 : q * 2;
                v[q] = pack_pair(sum[lane][at], sum[lane + 1][at]);
#endif
            }
            store_shared128(
                own_unit(out + own_place(), four, eight), make_uint4(v[0], v[1], v[2], v[3]));
        }
}

/* Those of eight with this number, counted from `from` on. */
template <int from>
INLINE void write_rows(u32 out, const float sum[PER_LOAD][TILE_R / 2], int number)
{
    if (number == from)
        write_rows_from<from * 8>(out, sum);
    else if constexpr ((from + 1) * 8 < TILE_R)
        write_rows<from + 1>(out, sum, number);
}

/* The unit at place q of those that STORERS threads store, of eight rows r. */
typedef struct unit {
    int s, r, half;
    u32 at;
} unit;

INLINE unit unit_at(int q)
{
    const int units = LINE / 16;
    int part = q % units, piece = q / (units * STORE_S);
    unit u = { q / units % STORE_S, 0, part % HALVES };
    u.s += HALVES == 2 ? 0 : threadIdx.x / 128 * 64;
    u.r = piece * PIECE_K + part / HALVES * UNIT_K;
    u.at = piece * PIECE + in_piece(u.s, part / HALVES, u.half);
    return u;
}

INLINE void store_rows(const tensor_map *y, u32 out, tile t, int r0)
{
    int s = HALVES == 2 ? 0 : threadIdx.x / 128 * 64;
#pragma unroll
    for (int piece = 0; piece < ROW_PIECES; piece++) {
        u32 from = out + piece * PIECE + s * LINE;
        if (FLAT)
            bulk_store_3(y, from, (r0 + piece * PIECE_K) * TOGETHER, t.i, t.s0 + s);
        else
            bulk_store_4(y, from, t.j, r0 + piece * PIECE_K, t.i, t.s0 + s);
    }
    bulk_commit();
}

/* What store_rows() does, by STORERS threads. */
INLINE void store_by_threads(element *y, u32 out, tile t, int r0, i64 batch, int width)
{
#pragma unroll(ALIGNED && SPLIT ? 4 : 1)
    for (int q = threadIdx.x % STORERS; q < OUT * STORE_S / TILE_S / 16; q += STORERS) {
        unit u = unit_at(q);
        i64 place, valid = bytes_at(t, ROWS, r0 + u.r, u.half, t.s0 + u.s, batch, &place);
        if (valid)
            store_piece<16>(y + place, load_shared128(out + u.at), valid, width);
    }
}

/* Where a tile's results go. */
typedef struct results {
    u32 outs;
    const tensor_map *map;
    element *y;
    i64 apart; /* as apart_of() has it */
    i64 batch;
    int width;
} results;

/* Applies the activation and the residual to eight rows in shared memory, by STORERS threads. */
INLINE void end_rows(const results *to, u32 out, tile t, int r0)
{
#pragma unroll(RESIDUAL ? 2 : 1)
    for (int q = threadIdx.x % STORERS; q < OUT * STORE_S / TILE_S / 16; q += STORERS) {
        unit u = unit_at(q);
        i64 place, s = t.s0 + u.s;
        i64 valid = bytes_at(t, ROWS, r0 + u.r, u.half, s, to->batch, &place);
        uint4 v = load_shared128(out + u.at);
        store_shared128(
            out + u.at, end_piece<16>(v, to->y + place, to->apart, valid, to->width));
    }
}

/* Eight rows r, those with this number; `known` is the number too, or -1. */
template <int known>
INLINE void write_eight(
    const float sum[PER_LOAD][TILE_R / 2], const results *to, tile t, int number)
{
    int leader = threadIdx.x % STORERS == 0, r0 = t.r0 + number * 8;
    u32 out = to->outs + number % OUTS * OUT;
    if (STORE_BULK && leader)
        bulk_wait_read<OUTS - 1>();
    if (STORE_BULK || OUTS == 1 || TILE_R % 16)
        barrier(STORE_BARRIER, STORERS);
    if constexpr (known < 0)
        write_rows<0>(out, sum, number);
    else
        write_rows_from<known * 8>(out, sum);
    if (ENDS) {
        barrier(STORE_BARRIER, STORERS);
        end_rows(to, out, t, r0);
    }
    if (STORE_BULK)
        fence_async();
    barrier(STORE_BARRIER, STORERS);
    if (!STORE_BULK)
        store_by_threads(to->y, out, t, r0, to->batch, to->width);
    else if (leader)
        store_rows(to->map, out, t, r0);
}

template <int from>
INLINE void write_from(
    const float sum[PER_LOAD][TILE_R / 2], const results *to, tile t)
{
    write_eight<from>(sum, to, t, from);
    if constexpr ((from + 1) * 8 < TILE_R)
        write_from<from + 1>(sum, to, t);
}

/* A loop is a tenth slower than unrolled text, but every copy of unrolled text is compiled. So
   endings and unaligned operands use the loop. */
INLINE void write_y(
    const float sum[PER_LOAD][TILE_R / 2], const results *to, tile t)
{
    if (STORE_BULK && threadIdx.x % STORERS == 0)
        bulk_wait_read<0>();
    if constexpr (ALIGNED && !ENDS)
        write_from<0>(sum, to, STORE_BULK ? t : not_before(t));
    else
#pragma unroll 1
        for (int n = 0; n < TILE_R / 8; n++) {
            t = not_before(t);
            write_eight<-1>(sum, to, t, n);
        }
}
