/* Kronecker-sparse products on the tensor cores of sm_90a, as small dense products:
       y[i, r, j] = sum over k of w[i][r][k][j] x[i, k, j] + bias[i, r, j]
   for block (i, j) and all columns s of the batch. Batch-last, or batch-first with
   LANES = 1: then x of a block is a matrix that the copy engine can fetch.

   A thread block stays on its multiprocessor and computes tile after tile, TILE_M columns s of
   the batch by TILE_N rows r of one (i, j), in STEPS steps of LINE columns k,
   LINE x ELEMENT = 128 bytes. Its last threads ask for copies, up to STAGES steps ahead over
   the borders of tiles. GROUPS groups of four warps multiply, 64 columns s each. The CLUSTER
   blocks of a cluster compute neighbouring tiles of the same (i, j) and r, and each fetches a
   share of the weights for all.

   Shared memory: STAGES times x, [TILE_M][LINE] (batch-first) or [TILE_M / LINE][DEPTH]
   [LINE] (batch-last), and w [PARTS][TILE_N][LINE]; for each group OUTS pieces of y, 64
   columns s by LINE rows r; all in rows of 128 bytes with the 128-byte swizzle; flags.
   w is packed in tiles as they lie there, [i][j][tile of rows][step], zeros outside
   the matrix; of 8 columns k of 32 bits, batch-last, the even ones come first.
   Maps, if ALIGNED: x in boxes [DEPTH][1][LINE] of [a][c][d][batch] (batch-last) or
   [TILE_M][1][LINE] of [batch][a][c]; y in boxes [LINE][1][LINE] or [64][1][LINE] of
   the like. Other operands are fetched by the threads, in the largest units that fit.
   A y that another factor reads (Y_MIDDLE) is [batch / LINE][a][b][LINE], which has whole lines.

   GATED: y = activation(u) v has half as many blocks. u[i] is block i of the sums with their
   bias, and v[i] is block i + a / 2. A tile of y takes the steps of both; activation(u), rounded
   to the type of y, waits in registers for v.

   Grid: as many blocks as are resident. */
// SPDX-License-Identifier: Apache-2.0
#define STORE_BULK (ALIGNED || Y_MIDDLE)

/* Two groups alone on a multiprocessor get most of the fetchers' registers. */
#define TRADE     (GROUPS == 2 && RESIDENT == 1)
#define FETCHERS  (TRADE || (GROUPS == 1 && !ALIGNED) ? 128 : 32)
#define THREADS   (128 * GROUPS + FETCHERS)
#define TILE_M    (64 * GROUPS)
#define X_BYTES   (X_LAST ? TILE_M / LINE * DEPTH * 128 : TILE_M * 128)
#define STAGE     (X_BYTES + W_BYTES)
/* Bytes of x for 64 columns s. */
#define COLUMNS_BYTES ((X_LAST ? 64 / LINE * DEPTH : 64) * 128)

#include "ks_tile.cuh"

/* Blocks that run at a time share weights (MANY_BLOCKS 0) or columns of x. */
INLINE tile tile_at(u32 t, u32 tiles_m)
{
    tile at;
    at.r0 = (int)(t % ROW_TILES) * TILE_N;
    t /= ROW_TILES;
    u32 block = MANY_BLOCKS ? t % (Y_BLOCKS * LANES) : t / tiles_m;
    u32 m = MANY_BLOCKS ? t / (Y_BLOCKS * LANES) : t % tiles_m;
    at.s0 = (int)(m * CLUSTER + (CLUSTER > 1 ? cluster_rank() : 0)) * TILE_M;
    at.i = (int)(block / LANES), at.j = (int)(block % LANES);
    return at;
}

INLINE i64 x_place(tile t, int k, i64 s, i64 batch)
{
    return X_LAST ? (((i64)t.i * COLS + k) * LANES + t.j) * batch + s
                : s * (BLOCKS * COLS) + t.i * COLS + k;
}

INLINE i64 y_place(tile t, int r, i64 s, i64 batch)
{
    return Y_LAST ? (((i64)t.i * ROWS + r) * LANES + t.j) * batch + s
                : s * (Y_BLOCKS * ROWS) + t.i * ROWS + r;
}

/* ---- fetching ---- */

INLINE void fetch_w(u32 to, u32 flag, const u8 *w, tile t, int step)
{
    i64 block = ((i64)t.i * LANES + t.j) * ROW_TILES + t.r0 / TILE_N;
    const u8 *from = w + (block * STEPS + step) * W_BYTES;
    if (CLUSTER > 1) {
        const u32 share = W_BYTES / CLUSTER;
        u32 at = cluster_rank() * share;
        bulk_load_all(to + at, from + at, share, flag, (1 << CLUSTER) - 1);
    } else
        bulk_load(to, from, W_BYTES, flag);
}

INLINE void fetch_x(u32 to, u32 flag, const tensor_map *x, tile t, int step)
{
    if (X_LAST)
#pragma unroll
        for (int m = 0; m < TILE_M; m += LINE)
            bulk_load_4(to + m * DEPTH * ELEMENT, x, flag, t.s0 + m, t.j, step * LINE, t.i);
    else
        bulk_load_3(to, x, flag, step * LINE, t.i, t.s0);
}

/* What fetch_x() does, by FETCHERS threads. */
INLINE void fetch_x_unaligned(
    u32 to, u32 flag, const element *x, tile t, int step, i64 batch, int width)
{
    const int lines = X_LAST ? TILE_M / LINE * DEPTH : TILE_M;
    const u8 *base = (const u8 *)x;
    for (int q = threadIdx.x % FETCHERS; q < lines * 8; q += FETCHERS) {
        int line = q / 8, chunk = q % 8, lane = chunk * (16 / ELEMENT);
        int k = step * LINE + (X_LAST ? line % DEPTH : lane);
        i64 s = t.s0 + (X_LAST ? line / DEPTH * LINE + lane : line);
        i64 valid = k < COLS && s < batch ? (X_LAST ? batch - s : COLS - k) * ELEMENT : 0;
        load_piece<16>(
            to + swizzled(line, chunk),
            valid ? base + x_place(t, k, s, batch) * ELEMENT : base, valid, width);
    }
    fence_async();
    flag_arrive_copies(flag);
}

/* ---- results ---- */

INLINE void store_boxes(const tensor_map *y, u32 piece, tile t, int r0, int s)
{
    if (Y_LAST)
        for (int m = 0; m < 64; m += LINE)
            Y_MIDDLE ? bulk_store_4(y, piece + m * 128, 0, r0, t.i, (s + m) / LINE)
                     : bulk_store_4(y, piece + m * 128, s + m, t.j, r0, t.i);
    else
        bulk_store_3(y, piece, r0, t.i, s);
    bulk_commit();
}

/* Where lane `lane` of line `line` of a piece goes, and how many bytes from there on belong
   to y: none if it is outside. r0: of the tile's rows. */
INLINE i64 bytes_at(tile t, int line, int lane, int r0, i64 s0, i64 batch, i64 *place)
{
    int r = r0 + (Y_LAST ? line % LINE : lane);
    i64 s = s0 + (Y_LAST ? line / LINE * LINE + lane : line);
    *place = y_place(t, t.r0 + r, s, batch);
    if (r >= TILE_N || t.r0 + r >= ROWS || s >= batch)
        return 0;
    return (Y_LAST ? batch - s : min(TILE_N - r, ROWS - t.r0 - r)) * ELEMENT;
}

/* Applies the activation and the residual to a whole piece, by the threads of the group.
   Loads from global memory come first. */
INLINE void end_pieces(
    u32 piece, const element *y, i64 apart, tile t, int r0, i64 s0, i64 batch, int width)
{
    const int count = RESIDUAL ? PIECE / 16 / 128 : 1;
#pragma unroll 1
    for (int first = threadIdx.x % 128; first < PIECE / 16; first += 128 * count) {
        uint4 more[count];
#pragma unroll
        for (int n = 0; RESIDUAL && n < count; n++) {
            int line = (first + n * 128) / 8, lane = (first % 8 ^ line % 8) * (16 / ELEMENT);
            i64 place, valid = bytes_at(t, line, lane, r0, s0, batch, &place);
            more[n] = fetch_piece<16>((const u8 *)(y + place) + apart, valid, width);
        }
#pragma unroll
        for (int n = 0; n < count; n++) {
            u32 at = piece + (first + n * 128) * 16;
            uint4 v = load_shared128(at);
            if (ACTIVATION)
                v = activate_words(v);
            store_shared128(at, RESIDUAL ? add_words(v, more[n]) : v);
        }
    }
}

/* What store_boxes() does, by the threads of the group; r0: of the tile's rows. */
INLINE void store_unaligned(element *y, u32 piece, tile t, int r0, i64 s0, i64 batch)
{
    for (int q = threadIdx.x % 128; q < 64 * LINE; q += 128) {
        int line = q / LINE, lane = q % LINE;
        u32 from = piece + swizzled(line, lane * ELEMENT / 16) + lane * ELEMENT % 16;
        element v = ELEMENT == 4 ? load_shared32(from) : load_shared16(from);
        i64 place;
        if (bytes_at(t, line, lane, r0, s0, batch, &place))
            y[place] = v;
    }
}

/* ---- the roles of threads ---- */

INLINE void fetch_tiles(
    ring r, const tensor_map *x_map, const element *x, const u8 *w, i64 batch,
    u32 tiles_m, u32 tiles, u32 first, u32 stride)
{
    int width = width_of(x, (X_LAST ? batch : (i64)COLS) * ELEMENT);
    int leader = threadIdx.x % FETCHERS == 0;
    if (ALIGNED && !leader)
        return;
    for (u32 n = first; n < tiles; n += stride) {
        tile t = tile_at(n, tiles_m);
        for (int at = 0; at < EACH * STEPS; at++) {
            int step = at % STEPS;
            if (at == STEPS)
                t.i += Y_BLOCKS;
            u32 to = r.stages + r.slot * STAGE, flag = r.full + r.slot * 8;
            flag_wait(r.empty + r.slot * 8, r.phase ^ 1);
            if (leader) {
                flag_expect(flag, (ALIGNED ? X_BYTES : 0) + W_BYTES);
                fetch_w(to + X_BYTES, flag, w, t, step);
            }
            if (ALIGNED)
                fetch_x(to, flag, x_map, t, step);
            else
                fetch_x_unaligned(to, flag, x, t, step, batch, width);
            advance(&r);
        }
    }
}

/* From u to activation(u) v. */
INLINE void gate(float *sum, ring *r, const float *bias, tile t, int group)
{
    u32 gates[TILE_N / 4];
    add_bias<TILE_N>(sum, bias, t, t.r0);
    hold_gates<TILE_N / 4>(gates, sum);
    multiply_tile(sum, r, group * COLUMNS_BYTES);
    t.i += Y_BLOCKS;
    add_bias<TILE_N>(sum, bias, t, t.r0);
    multiply_by_gates<TILE_N / 4>(sum, gates);
}

/* 64 columns from s on, piece by piece. Where threads store, the loop is compiled once;
   elsewhere that would make it 2 % slower. */
INLINE void write_y(
    float *sum, u32 out, int *turn, const tensor_map *y_map, const element *residual,
    element *y, const float *bias, tile t, int group, int s, i64 batch)
{
    int leader = threadIdx.x % 128 == 0;
    int width = width_of_both(residual, y, (Y_LAST ? batch : (i64)ROWS) * ELEMENT);
#pragma unroll(STORE_BULK ? PIECES : 1)
    for (int n = 0; n < PIECES; n++) {
        u32 piece = out + *turn * PIECE;
        if (!STORE_BULK)
            t.r0 = not_before(t.r0);
        *turn = *turn + 1 == OUTS ? 0 : *turn + 1;
        if (STORE_BULK && leader)
            bulk_wait_read<OUTS - 1>();
        barrier(1 + group, 128);
        write_piece_number<0>(piece, sum, bias, t, n);
        if (ENDS && !GATED) {
            barrier(1 + group, 128);
            end_pieces(piece, y, apart_of(residual, y), t, n * LINE, s, batch, width);
        }
        if (STORE_BULK)
            fence_async();
        barrier(1 + group, 128);
        if (!STORE_BULK)
            store_unaligned(y, piece, t, n * LINE, s, batch);
        else if (leader)
            store_boxes(y_map, piece, t, t.r0 + n * LINE, s);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    ks(const element *x, const u8 *w, const float *bias, const element *residual,
       element *y, i64 batch, int, i64, i64, i64, i64,
       const __grid_constant__ tensor_map x_map,
       const __grid_constant__ tensor_map, const __grid_constant__ tensor_map y_map)
{
    extern __shared__ u8 memory[];
    ring r = { (shared_address(memory) + 1023) & ~1023u };
    u32 pieces = r.stages + STAGES * STAGE;
    r.full = pieces + GROUPS * OUTS * PIECE, r.empty = r.full + STAGES * 8;
    begin_ring(&r, 1 + (ALIGNED ? 0 : FETCHERS), GROUPS * 4 * CLUSTER);
    if (CLUSTER > 1)
        cluster_sync();

    u32 tiles_m = (u32)((batch + TILE_M * CLUSTER - 1) / (TILE_M * CLUSTER));
    u32 tiles = tiles_m * (Y_BLOCKS * LANES * ROW_TILES);
    u32 first = blockIdx.x / CLUSTER, stride = gridDim.x / CLUSTER;
    /* The same for all lanes, as the compiler can see. */
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (group == GROUPS) {
        if constexpr (TRADE)
            registers_drop<ALIGNED ? 40 : 88>();
        fetch_tiles(r, &x_map, x, w, batch, tiles_m, tiles, first, stride);
    } else {
        if constexpr (TRADE)
            registers_take<ALIGNED ? 232 : 208>();
        u32 out = pieces + group * OUTS * PIECE;
        int turn = 0;
        for (u32 n = first; n < tiles; n += stride) {
            tile t = tile_at(n, tiles_m);
            float sum[TILE_N / 2];
            multiply_tile(sum, &r, group * COLUMNS_BYTES);
            if constexpr (GATED)
                gate(sum, &r, bias, t, group);
            write_y(
                sum, out, &turn, &y_map, residual, y, GATED ? 0 : bias, t, group,
                t.s0 + group * 64, batch);
        }
        if (STORE_BULK && threadIdx.x % 128 == 0)
            bulk_wait_read<0>();
    }
    __syncthreads();
    if (CLUSTER > 1)
        cluster_sync();
}
