/* Kronecker-sparse products on tensor cores from compute capability 8.0 on, 16-bit types,
   as small dense products:
       y[i, r, j] = sum over k of w[i][r][k][j] x[i, k, j] + bias[i, r, j]
   for block (i, j) and all columns s of the batch. Batch-last, or batch-first with
   LANES = 1: then x of a block is a matrix that copies of 16 bytes can fetch.

   A thread block stays on its multiprocessor and computes tile after tile, TILE_M columns s of
   the batch by TILE_N rows r of one (i, j), each in STEPS steps of TILE_K columns k. Copies run
   STAGES - 1 steps ahead, over the borders of tiles. A group of four warps computes 64 of the
   tile's columns s.

   Shared memory: STAGES times x [TILE_M][TILE_K] (batch-first) or
   [TILE_M / 64][TILE_K][64] (batch-last), and w [TILE_N][TILE_K], all in rows of 128
   bytes with the 128-byte swizzle; then for each group 64 columns of y before they are stored.
   w is packed in tiles as in shared memory, [i][j][tile of rows][step][TILE_N][64], zeros
   outside the matrix.

   Batch-last x is read and y is written in orders of rows (orders.cuh).

   GATED: as in ks_wgmma.cu; a tile of y takes the steps of block i, then those of i + a / 2.

   Grid: as many blocks as are resident. */
// SPDX-License-Identifier: Apache-2.0
#include "ks_matrix.cuh"
#include "orders.cuh"

#define THREADS   (128 * GROUPS)
#define TILE_M    (64 * GROUPS)
#define STEPS     ((COLS + TILE_K - 1) / TILE_K)
#define X_BYTES   (LAST ? GROUPS * TILE_K * 128 : TILE_M * 128)
#define STAGE     (X_BYTES + TILE_N * 128)
/* 16 bytes more than a row of y: rows then begin in different banks. */
#define OUT_PITCH (LAST ? 64 * 2 + 16 : OUT_N * 2 + 16)
#define OUT_BYTES (LAST ? OUT_N * OUT_PITCH : 64 * OUT_PITCH)

typedef struct tile {
    int i, j, r0;
    i64 s0;
} tile;

/* Blocks that run at a time share weights (MANY_BLOCKS 0) or rows of x. */
INLINE tile tile_at(u32 t, u32 tiles_m)
{
    tile at;
    at.r0 = (int)(t % ROW_TILES) * TILE_N;
    t /= ROW_TILES;
    u32 block = MANY_BLOCKS ? t % (Y_BLOCKS * LANES) : t / tiles_m;
    at.s0 = (i64)(MANY_BLOCKS ? t / (Y_BLOCKS * LANES) : t % tiles_m) * TILE_M;
    at.i = (int)(block / LANES), at.j = (int)(block % LANES);
    return at;
}

/* ---- a stage ---- */

#define X_CHUNKS (TILE_K * TILE_M / 8) /* a multiple of THREADS */
#define PER_ROW  (LAST ? TILE_M / 8 : TILE_K / 8)

/* Batch-last: which row of x chunk q comes from; negative: none. */
INLINE i64 x_row(const i64 *order, tile t, int k0, int q)
{
    int k = k0 + q / PER_ROW;
    i64 row = ((i64)t.i * COLS + k) * LANES + t.j;
    return k < COLS ? row_of_x(order, row) : -1;
}

/* Chunk q of the x that a step needs, with READS of this row. */
INLINE void load_x_chunk(
    u32 to, const u16 *x, i64 read, tile t, int k0, i64 batch, int width, int q)
{
    int row = q / PER_ROW, chunk = q % PER_ROW;
    const u16 *from;
    i64 count;
    if (LAST) {
        int k = k0 + row;
        i64 s = t.s0 + chunk * 8;
        from = x + (READS ? read : ((i64)t.i * COLS + k) * LANES + t.j) * batch + s;
        count = (READS ? read >= 0 : k < COLS) ? batch - s : 0;
        to += chunk / 8 * (TILE_K * 128) + swizzled(row, chunk % 8);
    } else {
        i64 s = t.s0 + row;
        int k = k0 + chunk * 8;
        from = x + s * (BLOCKS * COLS) + t.i * COLS + k;
        count = s < batch ? COLS - k : 0;
        to += swizzled(row, chunk);
    }
    load_piece<16>(to, count > 0 ? from : x, count * 2, width);
}

/* All rows are found before the first copy, which would wait for its own. */
INLINE void load_x(
    u32 to, const u16 *x, const i64 *order, tile t, int k0, i64 batch, int width)
{
    if (READS && width == 16) {
        const int own = X_CHUNKS / THREADS;
        i64 read[own];
#pragma unroll
        for (int n = 0; n < own; n++)
            read[n] = x_row(order, t, k0, threadIdx.x + n * THREADS);
#pragma unroll
        for (int n = 0; n < own; n++)
            load_x_chunk(to, x, read[n], t, k0, batch, 16, threadIdx.x + n * THREADS);
    } else if (width == 16) {
#pragma unroll
        for (int q = threadIdx.x; q < X_CHUNKS; q += THREADS)
            load_x_chunk(to, x, 0, t, k0, batch, 16, q);
    } else {
#pragma unroll 1
        for (int q = threadIdx.x; q < X_CHUNKS; q += THREADS) {
            i64 read = READS ? x_row(order, t, k0, q) : 0;
            load_x_chunk(to, x, read, t, k0, batch, width, q);
        }
    }
}

INLINE void load_w(u32 to, const u16 *w, tile t, int step)
{
    const int chunks = TILE_N * 8;
    i64 block = ((i64)t.i * LANES + t.j) * ROW_TILES + t.r0 / TILE_N;
    const u16 *from = w + (block * STEPS + step) * (TILE_N * 64);
#pragma unroll
    for (int q0 = 0; q0 < chunks; q0 += THREADS) {
        int q = q0 + threadIdx.x;
        if (chunks % THREADS && q >= chunks)
            break;
        copy16(to + q * 16, from + q * 8, 16);
    }
}

/* Adds the products of one step to 64 columns s by TILE_N rows r; the element of
   register 4 t + e is at s = l / 4 + 8 (e / 2), r = 8 t + 2 (l mod 4) + e mod 2 of the
   16 columns that belong to the warp, l its lane. */
INLINE void product(float *sum, u32 x, u32 w)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    int half = lane / 8 % 2, other = lane / 16, row = lane % 8;
#pragma unroll
    for (int k = 0; k < TILE_K; k += 16) {
        u32 xs[4], ws[4];
        if (LAST)
            load_matrices_turned(xs, x + swizzled(k + other * 8 + row, warp * 2 + half));
        else
            load_matrices(xs, x + swizzled(warp * 16 + half * 8 + row, k / 8 + other));
#pragma unroll
        for (int r = 0; r < TILE_N; r += 16) {
            load_matrices(ws, w + swizzled(r + other * 8 + row, k / 8 + half));
            mma16(sum + r / 2, xs, ws[0], ws[1]);
            mma16(sum + r / 2 + 4, xs, ws[2], ws[3]);
        }
    }
}

/* ---- results ---- */

/* OUT_N rows from r0 on of 64 columns, with their bias, to the group's shared memory. */
INLINE void put_sums(u32 out, float *sum, const float *bias, tile t, int r0)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    add_bias<OUT_N>(sum, bias, t, r0);
#pragma unroll
    for (int e = 0; e < OUT_N / 2; e += 2) {
        u32 pair = pack_pair(sum[e], sum[e + 1]);
        int s_in = warp * 16 + e % 4 * 4, r_in = e / 4 * 8;
        if (LAST)
            store_shared32(
                out + (r_in + lane / 4) * OUT_PITCH + (s_in + lane % 4 * 2) * 2,
                turn_matrix(pair));
        else
            store_shared32(
                out + (s_in + lane / 4) * OUT_PITCH + (r_in + lane % 4 * 2) * 2, pair);
    }
}

/* 64 columns of the batch from s on, OUT_N rows from r0 on. */
INLINE void write_y(
    u32 out, float *sum, u16 *y, const i64 *order, const float *bias, i64 apart, tile t,
    int r0, i64 s, i64 batch, int width)
{
    const int per_row = LAST ? 8 : OUT_N / 8, chunks = (LAST ? OUT_N : 64) * per_row;
    int group = threadIdx.x / 128, thread = threadIdx.x % 128;
    put_sums(out, sum, bias, t, r0);
    barrier(1 + group, 128);
#pragma unroll 1
    for (int q = thread; q < chunks; q += 128) {
        int row = q / per_row, chunk = q % per_row;
        int r = r0 + (LAST ? row : chunk * 8);
        i64 at = s + (LAST ? chunk * 8 : row);
        i64 count = LAST ? batch - at : ROWS - r;
        if (r >= ROWS || at >= batch)
            continue;
        i64 n = row_of_y(order, ((i64)t.i * ROWS + r) * LANES + t.j);
        if (WRITES && n < 0)
            continue;
        u16 *to = LAST ? y + n * batch + at : y + at * (Y_BLOCKS * ROWS) + t.i * ROWS + r;
        uint4 v = load_shared128(out + row * OUT_PITCH + chunk * 16);
        if (!GATED)
            v = end_piece<16>(v, to, apart, count * 2, width);
        store_piece<16>(to, v, count * 2, width);
    }
    barrier(1 + group, 128);
}

/* ---- all of it ---- */

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    ks(const u16 *x, const u16 *w, const float *bias, const u16 *residual, u16 *y,
       i64 batch, int SIZES_AND_ORDERS)
{
    extern __shared__ u8 memory[];
    u32 stages = (shared_address(memory) + 1023) & ~1023u;
    int group = threadIdx.x / 128;
    u32 out = stages + STAGES * STAGE + group * OUT_BYTES;
    u32 tiles_m = (u32)((batch + TILE_M - 1) / TILE_M);
    u32 tiles = tiles_m * (Y_BLOCKS * LANES * ROW_TILES);
    if (blockIdx.x >= tiles)
        return;
    int x_width = width_of(x, (LAST ? batch : (i64)COLS) * 2);
    int y_width = width_of_both(residual, y, (LAST ? batch : (i64)ROWS) * 2);
    i64 apart = apart_of(residual, y);
    u32 steps = ((tiles - blockIdx.x + gridDim.x - 1) / gridDim.x) * (EACH * STEPS);

    tile ahead = tile_at(blockIdx.x, tiles_m), t = ahead;
    u32 ahead_tile = blockIdx.x, current = blockIdx.x, loaded = 0;
    int ahead_step = 0, slot = 0, step = 0;
    auto load = [&](int to) {
        if (loaded < steps) {
            u32 stage = stages + to * STAGE;
            load_x(stage, x, X_ORDER, ahead, ahead_step * TILE_K, batch, x_width);
            load_w(stage + X_BYTES, w, ahead, ahead_step);
            loaded++;
            if (++ahead_step == STEPS) {
                ahead_step = 0;
                if (GATED && ahead.i < Y_BLOCKS)
                    ahead.i += Y_BLOCKS;
                else
                    ahead = tile_at(ahead_tile += gridDim.x, tiles_m);
            }
        }
        copy_commit();
    };
    for (int s = 0; s < STAGES - 1; s++)
        load(s);

    float sum[TILE_N / 2];
    u32 gates[TILE_N / 4];
    for (u32 n = 0; n < steps; n++) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        load(slot ? slot - 1 : STAGES - 1);
        if (step == 0)
#pragma unroll
            for (int e = 0; e < TILE_N / 2; e++)
                sum[e] = 0;
        u32 stage = stages + slot * STAGE;
        product(sum, stage + group * (LAST ? TILE_K : 64) * 128, stage + X_BYTES);
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        if (++step < STEPS)
            continue;
        step = 0;
        if (GATED) {
            add_bias<TILE_N>(sum, bias, t, t.r0);
            t.i += Y_BLOCKS;
            if (t.i < BLOCKS) {
                hold_gates<TILE_N / 4>(gates, sum);
                continue;
            }
            multiply_by_gates<TILE_N / 4>(sum, gates);
            t.i -= BLOCKS;
        }
#pragma unroll
        for (int r = 0; r < TILE_N; r += OUT_N)
            write_y(
                out, sum + r / 2, y, Y_ORDER, GATED ? 0 : bias, apart, t, t.r0 + r,
                t.s0 + group * 64, batch, y_width);
        current += gridDim.x;
        t = tile_at(current, tiles_m);
    }
}
