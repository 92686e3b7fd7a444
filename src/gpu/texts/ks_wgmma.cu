/* Kronecker-sparse products on the tensor cores of sm_90a, as small dense products:
       y[i, r, j] = sum over k of w[i][r][k][j] x[i, k, j] + bias[i, r, j]
   for block (i, j) and all columns s of the batch. Batch-last, or batch-first with
   LANES = 1: then x of a block is a matrix that the copy engine can fetch.

   Types: f16, bf16 (TYPE_BF16), and numbers of 32 bits (ELEMENT 4), which are rounded
   to tf32, or with SPLIT cut into two such numbers each, whose three large products
   are added: as good as f32.

   A thread block stays on its multiprocessor and makes tile after tile, TILE_M columns
   s of the batch by TILE_N rows r of one (i, j), in STEPS steps of LINE columns k,
   LINE x ELEMENT = 128 bytes. Its last threads ask for copies, up to STAGES steps ahead
   over the borders of tiles; GROUPS groups of four warps multiply, 64 MULTIPLE columns
   s each. The CLUSTER blocks of a cluster make neighbouring tiles of the same (i, j)
   and r: each fetches a share of the weights for all.

   Shared memory: STAGES times x, [TILE_M][LINE] (batch-first) or [TILE_M / LINE][DEPTH]
   [LINE] (batch-last), and w [PARTS][TILE_N][LINE]; for each group OUTS pieces of y, 64
   columns s by LINE rows r; all in rows of 128 bytes with the 128-byte swizzle; flags.
   w is packed in tiles as they lie there, [i][j][tile of rows][step], zeros outside
   the matrix; of 8 columns k of 32 bits, batch-last, the even ones come first.
   Maps, if ALIGNED: x in boxes [DEPTH][1][LINE] of [a][c][d][batch] (batch-last) or
   [TILE_M][1][LINE] of [batch][a][c]; y in boxes [LINE][1][LINE] or [64][1][LINE] of
   the like. Other operands are fetched by the threads, in the largest units that fit.

   Grid: as many blocks as are resident. */
// SPDX-License-Identifier: Apache-2.0
#include "ptx.cuh"

#define LINE      (128 / ELEMENT)
/* Two groups alone on a multiprocessor get most of the fetchers' registers. */
#define TRADE     (GROUPS == 2 && RESIDENT == 1)
#define FETCHERS  (TRADE || (GROUPS == 1 && !ALIGNED) ? 128 : 32)
#define THREADS   (128 * GROUPS + FETCHERS)
#define GROUP_M   (64 * MULTIPLE)
#define TILE_M    (GROUP_M * GROUPS)
#define STEPS     ((COLS + LINE - 1) / LINE)
#define ROW_TILES ((ROWS + TILE_N - 1) / TILE_N)
#define UNIT      (32 / ELEMENT) /* columns k of one instruction */
#define DEPTH     (STEPS > 1 ? LINE : (COLS + UNIT - 1) / UNIT * UNIT)
#define X_BYTES   (LAST ? TILE_M / LINE * DEPTH * 128 : TILE_M * 128)
#define PARTS     (SPLIT ? 2 : 1)
#define W_BYTES   (PARTS * TILE_N * 128)
#define STAGE     (X_BYTES + W_BYTES)
#define PIECE     (64 * 128)
#define PIECES    ((TILE_N + LINE - 1) / LINE)

#if ELEMENT == 4
typedef u32 element;
#else
typedef u16 element;
#endif

typedef struct tile {
    int i, j, r0, s0;
} tile;

/* Blocks that run at a time share weights (MANY_BLOCKS 0) or columns of x. */
INLINE tile tile_at(u32 t, u32 tiles_m)
{
    tile at;
    at.r0 = (int)(t % ROW_TILES) * TILE_N;
    t /= ROW_TILES;
    u32 block = MANY_BLOCKS ? t % (BLOCKS * LANES) : t / tiles_m;
    u32 m = MANY_BLOCKS ? t / (BLOCKS * LANES) : t % tiles_m;
    at.s0 = (int)(m * CLUSTER + (CLUSTER > 1 ? cluster_rank() : 0)) * TILE_M;
    at.i = (int)(block / LANES), at.j = (int)(block % LANES);
    return at;
}

INLINE u32 swizzled(int row, int chunk)
{
    return row * 128 + ((chunk ^ (row & 7)) << 4);
}

INLINE i64 x_place(tile t, int k, i64 s, i64 batch)
{
    return LAST ? (((i64)t.i * COLS + k) * LANES + t.j) * batch + s
                : s * (BLOCKS * COLS) + t.i * COLS + k;
}

INLINE i64 y_place(tile t, int r, i64 s, i64 batch)
{
    return LAST ? (((i64)t.i * ROWS + r) * LANES + t.j) * batch + s
                : s * (BLOCKS * ROWS) + t.i * ROWS + r;
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
    if (LAST)
#pragma unroll
        for (int m = 0; m < TILE_M; m += LINE)
            bulk_load_4(to + m * DEPTH * ELEMENT, x, flag, t.s0 + m, t.j, step * LINE, t.i);
    else
        bulk_load_3(to, x, flag, step * LINE, t.i, t.s0);
}

/* Bytes that lie together, aligned, wherever 16 bytes of rows begin; at most 16. */
INLINE int width_of(const void *p, i64 row)
{
    u64 bits = (u64)p | (u64)row * ELEMENT;
    return bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : 2;
}

/* `valid` bytes (0 to 16) to a chunk of shared memory; zeros after them. */
INLINE void fetch_chunk(u32 to, const u8 *from, int valid, int width)
{
    if (width == 16)
        copy16(to, from, valid);
    else if (width == 8)
        for (int e = 0; e < 16; e += 8)
            copy8(to + e, from + e, valid > e ? min(valid - e, 8) : 0);
    else if (width == 4)
        for (int e = 0; e < 16; e += 4)
            copy4(to + e, from + e, valid > e ? min(valid - e, 4) : 0);
    else
        for (int e = 0; e < 16; e += 2)
            store_shared16(to + e, e < valid ? *(const u16 *)(from + e) : 0);
}

/* What fetch_x() does, by FETCHERS threads. */
INLINE void fetch_x_unaligned(
    u32 to, u32 flag, const element *x, tile t, int step, i64 batch, int width)
{
    const int lines = LAST ? TILE_M / LINE * DEPTH : TILE_M;
    const u8 *base = (const u8 *)x;
    for (int q = threadIdx.x % FETCHERS; q < lines * 8; q += FETCHERS) {
        int line = q / 8, chunk = q % 8, lane = chunk * (16 / ELEMENT);
        int k = step * LINE + (LAST ? line % DEPTH : lane);
        i64 s = t.s0 + (LAST ? line / DEPTH * LINE + lane : line);
        i64 valid = k < COLS && s < batch ? (LAST ? batch - s : COLS - k) * ELEMENT : 0;
        fetch_chunk(
            to + swizzled(line, chunk),
            valid ? base + x_place(t, k, s, batch) * ELEMENT : base,
            valid < 16 ? (int)valid : 16, width);
    }
    fence_async();
    flag_arrive_copies(flag);
}

/* ---- products of one step: 64 columns s by TILE_N rows r ---- */

/* The element of register 4 t + e is at s = l / 4 + 8 (e / 2), r = 8 t + 2 (l mod 4) +
   e mod 2 of the 16 columns that belong to the warp, l its lane. */
#if ELEMENT == 4
template <int from> INLINE void columns(float *sum, const u32 *x, u64 w, int add)
{
    const int left = TILE_N - from, n = wgmma_columns(left);
    wgmma_tf32<n>(sum + from / 2, x, w + from * 128 / 16, add);
    if constexpr (left > n)
        columns<from + n>(sum, x, w, add);
}

INLINE float load_float(u32 from) { return __uint_as_float(load_shared32(from)); }

/* a[e] of wgmma_tf32(), for columns k0 to k0 + 7. */
INLINE float x_element(u32 x, int k0, int e)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    int s = warp * 16 + lane / 4 + e % 2 * 8;
    if (LAST) {
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
    wgmma<n, LAST>(sum + from / 2, x, w + from * 128 / 16, add);
    if constexpr (left > n)
        columns<from + n>(sum, x, w, add);
}

INLINE void product(float *sum, u32 x, u32 w, int add)
{
    u64 xs = wgmma_matrix(x), ws = wgmma_matrix(w);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16)
        columns<0>(sum, xs + (LAST ? k * 128 : k * 2) / 16, ws + k * 2 / 16, add || k);
}
#endif

/* ---- results ---- */

/* At most LINE rows from r0 on to a piece of y in shared memory. */
template <int rows>
INLINE void write_piece(u32 piece, float *sum, const float *bias, tile t, int r0)
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    if (bias)
#pragma unroll
        for (int e = 0; e < rows / 2; e++) {
            int r = r0 + e / 4 * 8 + lane % 4 * 2 + e % 2;
            if (r < ROWS)
                sum[e] += bias[((i64)t.i * ROWS + r) * LANES + t.j];
        }
#if ELEMENT == 4
  #pragma unroll
    for (int e = 0; e < rows / 2; e += 2) {
        int s = warp * 16 + lane / 4 + e % 4 * 4, r = e / 4 * 8 + lane % 4 * 2;
        if (LAST)
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
        if (LAST)
            store_matrices_turned(
                piece + swizzled(r + row, warp * 2 + half), v[0], v[1], v[2], v[3]);
        else
            store_matrices(
                piece + swizzled(warp * 16 + half * 8 + row, r / 8), v[0], v[1], v[2],
                v[3]);
    }
#endif
}

INLINE void store_piece(const tensor_map *y, u32 piece, tile t, int r0, int s)
{
    if (LAST)
        for (int m = 0; m < 64; m += LINE)
            bulk_store_4(y, piece + m * 128, s + m, t.j, r0, t.i);
    else
        bulk_store_3(y, piece, r0, t.i, s);
    bulk_commit();
}

/* 1: ReLU, 2: GELU, 3: SiLU. */
INLINE float activate(float v, int activation)
{
    if (activation == 1)
        return v < 0 ? 0 : v;
    if (activation == 2)
        return 0.5f * v * (1 + erff(v * 0.70710678f));
    return v / (1 + expf(-v));
}

/* Of a whole piece, by the threads of the group. */
INLINE void activate_piece(u32 piece, int activation)
{
#pragma unroll 1
    for (int at = threadIdx.x % 128 * 4; at < PIECE; at += 512) {
        u32 v = load_shared32(piece + at);
#if ELEMENT == 4
        v = __float_as_uint(activate(__uint_as_float(v), activation));
#else
        v = pack_pair(activate(low_of(v), activation), activate(high_of(v), activation));
#endif
        store_shared32(piece + at, v);
    }
}

/* What store_piece() does, by the threads of the group. */
INLINE void store_unaligned(
    element *y, u32 piece, tile t, int r0, int rows, i64 s0, i64 batch)
{
    for (int q = threadIdx.x % 128; q < 64 * LINE; q += 128) {
        int line = q / LINE, lane = q % LINE;
        int r = LAST ? line % LINE : lane;
        i64 s = s0 + (LAST ? line / LINE * LINE + lane : line);
        u32 from = piece + swizzled(line, lane * ELEMENT / 16) + lane * ELEMENT % 16;
        element v = ELEMENT == 4 ? load_shared32(from) : load_shared16(from);
        if (r < rows && r0 + r < ROWS && s < batch)
            y[y_place(t, r0 + r, s, batch)] = v;
    }
}

/* ---- the roles of threads ---- */

typedef struct ring {
    u32 stages, full, empty;
    int slot;
    u32 phase;
} ring;

INLINE void advance(ring *r)
{
    if (++r->slot == STAGES)
        r->slot = 0, r->phase ^= 1;
}

INLINE void fetch_tiles(
    ring r, const tensor_map *x_map, const element *x, const u8 *w, i64 batch,
    u32 tiles_m, u32 tiles, u32 first, u32 stride)
{
    int width = width_of(x, LAST ? batch : (i64)COLS);
    int leader = threadIdx.x % FETCHERS == 0;
    if (ALIGNED && !leader)
        return;
    for (u32 n = first; n < tiles; n += stride) {
        tile t = tile_at(n, tiles_m);
        for (int step = 0; step < STEPS; step++) {
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

/* One thread for each block of the cluster tells it that a stage is free again. */
INLINE void release(const ring *r, int slot)
{
    u32 flag = r->empty + slot * 8, thread = threadIdx.x % 128;
    if (thread < CLUSTER)
        flag_arrive(CLUSTER > 1 ? in_block(flag, thread) : flag);
}

/* Tensor cores cut sums off where f32 would round: with SPLIT they add up only one
   step at a time. */
INLINE void multiply_tile(float sum[MULTIPLE][TILE_N / 2], ring *r, int group)
{
    int before = 0;
#if SPLIT
    float part[MULTIPLE][TILE_N / 2];
#else
    float (*part)[TILE_N / 2] = sum;
#endif
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
        u32 stage = r->stages + r->slot * STAGE;
        flag_wait(r->full + r->slot * 8, r->phase);
        if (!ALIGNED)
            fence_async();
#pragma unroll
        for (int m = 0; m < MULTIPLE; m++)
            product(
                part[m],
                stage + (group * MULTIPLE + m) * (LAST ? 64 / LINE * DEPTH : 64) * 128,
                stage + X_BYTES, !SPLIT && step > 0);
        wgmma_commit();
        /* Products from registers keep them until they are done. */
        if (ELEMENT == 4) {
            wgmma_wait<0>();
            release(r, r->slot);
#if SPLIT
  #pragma unroll
            for (int e = 0; e < MULTIPLE * TILE_N / 2; e++)
                sum[0][e] = step ? sum[0][e] + part[0][e] : part[0][e];
#endif
        } else if (step > 0) {
            wgmma_wait<1>();
            release(r, before);
        }
        before = r->slot;
        advance(r);
    }
    if (ELEMENT != 4) {
        wgmma_wait<0>();
        release(r, before);
    }
}

/* Piece number `from` and those after it of 64 columns from s on. */
template <int from>
INLINE void write_y(
    float *sum, u32 out, int *turn, const tensor_map *y_map, element *y,
    const float *bias, int activation, tile t, int group, int s, i64 batch)
{
    const int rows = TILE_N - from * LINE < LINE ? TILE_N - from * LINE : LINE;
    int r0 = t.r0 + from * LINE, leader = threadIdx.x % 128 == 0;
    u32 piece = out + *turn * PIECE;
    *turn = *turn + 1 == OUTS ? 0 : *turn + 1;
    if (ALIGNED && leader)
        bulk_wait_read<OUTS - 1>();
    barrier(1 + group, 128);
    write_piece<rows>(piece, sum + from * LINE / 2, bias, t, r0);
    if (activation) {
        barrier(1 + group, 128);
        activate_piece(piece, activation);
    }
    if (ALIGNED)
        fence_async();
    barrier(1 + group, 128);
    if (!ALIGNED)
        store_unaligned(y, piece, t, r0, rows, s, batch);
    else if (leader)
        store_piece(y_map, piece, t, r0, s);
    if constexpr (from + 1 < PIECES)
        write_y<from + 1>(
            sum, out, turn, y_map, y, bias, activation, t, group, s, batch);
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    ks(const element *x, const u8 *w, const float *bias, element *y, i64 batch,
       int activation, i64, i64, i64, i64, const __grid_constant__ tensor_map x_map,
       const __grid_constant__ tensor_map, const __grid_constant__ tensor_map y_map)
{
    extern __shared__ u8 memory[];
    ring r = { (shared_address(memory) + 1023) & ~1023u };
    u32 pieces = r.stages + STAGES * STAGE;
    r.full = pieces + GROUPS * OUTS * PIECE, r.empty = r.full + STAGES * 8;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            flag_init(r.full + s * 8, 1 + (ALIGNED ? 0 : FETCHERS));
            flag_init(r.empty + s * 8, GROUPS * CLUSTER);
        }
        flag_publish();
    }
    __syncthreads();
    if (CLUSTER > 1)
        cluster_sync();

    u32 tiles_m = (u32)((batch + TILE_M * CLUSTER - 1) / (TILE_M * CLUSTER));
    u32 tiles = tiles_m * (BLOCKS * LANES * ROW_TILES);
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
            float sum[MULTIPLE][TILE_N / 2];
            multiply_tile(sum, &r, group);
#pragma unroll
            for (int m = 0; m < MULTIPLE; m++)
                write_y<0>(
                    sum[m], out, &turn, &y_map, y, bias, activation, t, group,
                    t.s0 + (group * MULTIPLE + m) * 64, batch);
        }
        if (ALIGNED && threadIdx.x % 128 == 0)
            bulk_wait_read<0>();
    }
    __syncthreads();
    if (CLUSTER > 1)
        cluster_sync();
}
