/* Kronecker-sparse products of few columns, on tensor cores from compute capability 8.0
   on:
       y[i, r, j] = sum over k of w[i][r][k][j] x[i, k, j] + bias[i, r, j].
   The weights bound their time; they are read once for 8 TILES_S columns s of the batch. To
   keep many bytes in flight, columns k are split: WARPS_K ways of a block take steps of TILE_K
   columns in turn. A block computes a tile of 16 TILES_R WARPS_R rows r and TOGETHER lanes j of
   one block i. Copies run STAGES - 1 steps ahead. No way waits for another until their sums are
   added up, in the order of the ways.

   w is packed as the registers of the product's left operand, [i][lanes][16 rows]
   [step][unit][TOGETHER][thread of a warp][16 bytes], zeros outside the matrix. Each thread
   copies what it needs itself. In each of the UNITS instructions of a step a thread has SLOTS
   columns k of x. They follow each other and begin at (its number mod 4) OWN_K. BESIDE elements
   are contiguous at a column k: batch-first lanes j, of column s = 8 t + n for tile t and
   n = the thread's number / 4; batch-last columns s = TILES_S n + t.

   f32 is the sum of two tf32 numbers (SPLIT), as in ks_mma_lanes.cu. Batch-last x is read and
   y is written in orders of rows (orders.cuh).

   Shared memory: for each way STAGES times w and x; after them sums, [way][tile of 16
   rows by 8 columns][thread of a warp][4].

   Grid: a block for each tile. */
// SPDX-License-Identifier: Apache-2.0
#include "ending.cuh"
#include "ks_mma_products.cuh"
#include "orders.cuh"

#define WARPS     (WARPS_R * WARPS_K)
#define THREADS   (32 * WARPS)
#define SLOTS     (8 / ELEMENT)
#define OWN_K     (UNITS * SLOTS) /* columns k of a thread */
#define TILE_K    (4 * OWN_K)
#define TILE_R    (16 * TILES_R * WARPS_R)
#define TILE_S    (8 * TILES_S)
#define BESIDE    (LAST ? TILES_S : TOGETHER)
/* Bytes of a run of x that a thread reads in a step, and how many runs. */
#define RUN       (8 * BESIDE * UNITS)
#define RUNS      (LAST ? 1 : TILES_S)
#define LINE      (ALL_LANES ? RUN : BESIDE * ELEMENT) /* contiguous */
#define PIECE     (LINE < 16 ? LINE : 16)
#define X_ROW     (8 * LINE) /* batch-last: of a column k */
#define X_BYTES   (LAST ? (TILE_K + 4) * X_ROW : RUNS * RUN * 32)
#define W_ROWS    (UNITS * TOGETHER * 512) /* of 16 rows in a step */
#define X_AT      (WARPS_R * TILES_R * W_ROWS)
#define STAGE     (X_AT + X_BYTES)
#define FRAGMENTS (WARPS_R * TILES_R * TOGETHER * TILES_S) /* of 16 rows by 8 columns */

/* The sizes of a problem. */
typedef struct sizes {
    i64 batch, a, b, c, d;
} sizes;

typedef struct tile {
    int i, j, r0;
    i64 s0;
} tile;

/* Where a warp is in its block. */
typedef struct place {
    int row, way, thread;
} place;

INLINE place place_of_thread()
{
    int warp = threadIdx.x / 32;
    return { warp % WARPS_R, warp / WARPS_R, (int)(threadIdx.x % 32) };
}

/* Neighbours share weights, then x. */
INLINE tile tile_at(u32 n, const sizes &z)
{
    tile t;
    u32 tiles_s = (u32)((u64)(z.batch + TILE_S - 1) / TILE_S);
    u32 tiles_r = (u32)(z.b + TILE_R - 1) / TILE_R, groups = (u32)z.d / TOGETHER;
    t.s0 = (i64)(n % tiles_s) * TILE_S;
    n /= tiles_s;
    t.r0 = (int)(n % tiles_r) * TILE_R;
    n /= tiles_r;
    t.j = (int)(n % groups) * TOGETHER;
    t.i = (int)(n / groups);
    return t;
}

/* ---- a stage ---- */

/* What a thread copies: its bytes of w, those of 16 rows further `rows` bytes on, and
   how many such tiles there are; x at column k 0, batch-first of its own column s, and
   how many columns s there are from there on. With READS x is at row 0 instead, rows are
   stride_k apart, and those of columns k are found from `order` on, `lanes` apart. */
typedef struct source {
    const u8 *w;
    i64 rows;
    int tiles;
    const element *x;
    const i64 *order;
    i64 lanes, stride_k, stride_s;
    int columns, width;
} source;

INLINE source source_of(
    const element *x, const i64 *order, const u8 *w, tile t, place p, const sizes &z,
    int steps)
{
    source from;
    int tiles = (int)(z.b + 15) / 16, r = t.r0 / 16 + p.row * TILES_R;
    i64 block = (i64)t.i * ((u32)z.d / TOGETHER) + (u32)t.j / TOGETHER;
    i64 s = t.s0 + (LAST ? 0 : p.thread / 4), left = z.batch - s;
    from.rows = (i64)steps * W_ROWS;
    from.w = w + (block * tiles + r) * from.rows + p.thread * 16;
    from.tiles = tiles - r;
    from.stride_k = READS ? z.batch : LAST ? z.d * z.batch : z.d;
    from.stride_s = LAST ? 1 : z.a * z.c * z.d;
    from.x = x + (t.i * z.c * z.d + t.j) * (READS ? 0 : LAST ? z.batch : 1) +
             s * from.stride_s;
    from.order = order + (READS ? t.i * z.c * z.d + t.j : 0);
    from.lanes = z.d;
    from.columns = left < TILE_S ? (int)left : TILE_S;
    from.width =
        width_of(x, (LAST ? z.batch : ALL_LANES ? z.c * z.d : z.d) * ELEMENT);
    return from;
}

INLINE void load_w(u32 to, const source &from, int step)
{
    const u8 *w = from.w + (i64)step * W_ROWS;
#pragma unroll
    for (int r = 0; r < TILES_R; r++, w += from.rows)
#pragma unroll
        for (int n = 0; n < W_ROWS; n += 512)
            if (r < from.tiles)
                copy16(to + r * W_ROWS + n, w + n, 16);
}

/* Where byte n of run t of a thread's x lies in a stage. Batch-last a row of nothing
   follows the columns k of a thread, so that others meet other banks. */
INLINE u32 x_place(int thread, int t, int n)
{
    if (LAST)
        return (thread % 4 * (OWN_K + 1) + n / LINE) * X_ROW + thread / 4 * LINE +
               n % LINE;
    return (t * RUN + n / PIECE * PIECE) * 32 + thread * PIECE + n % PIECE;
}

/* Batch-first: piece number n of a thread, whose columns k begin at k. */
INLINE void load_own_piece(
    u32 to, const element *x, const source &from, int n, int k, int c, int thread,
    int width)
{
    const int in_run = RUN / PIECE;
    int t = n / in_run, at = n % in_run * PIECE, bytes = 0;
    int v = at / (BESIDE * ELEMENT), e = at % (BESIDE * ELEMENT);
    if (t * 8 < from.columns)
        bytes = ALL_LANES ? (c - k) * (BESIDE * ELEMENT) - at : k + v < c ? PIECE : 0;
    const element *place =
        from.x + t * 8 * from.stride_s + (k + v) * from.stride_k + e / ELEMENT;
    load_piece<PIECE>(
        to + x_place(thread, t, at), bytes > 0 ? place : x, bytes, width);
}

/* Batch-last: which row of x piece number n comes from; negative: none. */
INLINE i64 x_row(const source &from, int n, int k0, int c)
{
    int k = k0 + n / (X_ROW / 16);
    return k < c ? row_of_x(from.order, READS ? k * from.lanes : k) : -1;
}

/* Batch-last: piece number n of a warp, of 16 bytes of columns s, with READS of this row. */
INLINE void load_piece_of_row(
    u32 to, const element *x, const source &from, i64 read, int n, int k0, int c,
    int width)
{
    int row = n / (X_ROW / 16), at = n % (X_ROW / 16) * 16;
    int inside = READS ? read >= 0 : k0 + row < c;
    int bytes = inside ? from.columns * ELEMENT - at : 0;
    i64 k = READS ? read : k0 + row;
    load_piece<16>(
        to + (row + row / OWN_K) * X_ROW + at,
        bytes > 0 ? from.x + k * from.stride_k + at / ELEMENT : x, bytes, width);
}

/* All of x in a step, by the warps that share it. All rows are found before the first copy,
   which would wait for its own. */
INLINE void load_x(u32 to, const element *x, const source &from, int k0, int c, place p)
{
    const int pieces = LAST ? TILE_K * X_ROW / 16 : RUNS * RUN / PIECE;
    const int stride = LAST ? 32 * WARPS_R : WARPS_R;
    int first = LAST ? p.row * 32 + p.thread : p.row;
    auto load = [&](i64 read, int n, int width) {
        if (LAST)
            load_piece_of_row(to, x, from, read, n, k0, c, width);
        else
            load_own_piece(
                to, x, from, n, k0 + p.thread % 4 * OWN_K, c, p.thread, width);
    };
    if (from.width >= (LAST ? 16 : PIECE)) {
        i64 read[(pieces + stride - 1) / stride] = {};
        if (READS)
#pragma unroll
            for (int n = 0; n < pieces; n += stride)
                read[n / stride] = x_row(from, n + first, k0, c);
#pragma unroll
        for (int n = 0; n < pieces; n += stride)
            if (pieces % stride == 0 || n + first < pieces)
                load(read[n / stride], n + first, 16);
    } else {
#pragma unroll 1
        for (int n = first; n < pieces; n += stride)
            load(READS ? x_row(from, n, k0, c) : 0, n, from.width);
    }
}

/* ---- products ---- */

/* Element e is at row l / 4 + 8 (e / 2) and column 2 (l mod 4) + e mod 2, l the
   thread. */
typedef float sums[TILES_R][TOGETHER][TILES_S][4];

/* The right operand of a unit: lane l, tile t of columns. */
INLINE void right_of(u32 b[2], const u32 x[RUNS][RUN / 4], int unit, int l, int t)
{
    const u32 *v = x[LAST ? 0 : t] + unit * 2 * BESIDE;
    int e = LAST ? t : l;
#if ELEMENT == 4
    b[0] = v[e], b[1] = v[BESIDE + e];
#else
    const u32 *lo = v + e / 2, *hi = lo + BESIDE;
    if (BESIDE == 1)
        b[0] = v[0], b[1] = v[1];
    else if (e % 2)
        b[0] = high_halves(lo[0], lo[BESIDE / 2]),
        b[1] = high_halves(hi[0], hi[BESIDE / 2]);
    else
        b[0] = low_halves(lo[0], lo[BESIDE / 2]),
        b[1] = low_halves(hi[0], hi[BESIDE / 2]);
#endif
}

/* With SPLIT sums leave the tensor cores at once, since those do not round to nearest. */
INLINE void multiply(float sum[TILES_S][4], const u32 *a, const u32 b[TILES_S][2])
{
#if SPLIT
    float part[TILES_S][4];
    multiply_rows(part, a, b, 1);
    add<TILES_S * 4>(sum[0], part[0]);
#else
    multiply_rows(sum, a, b, 0);
#endif
}

/* w and x are those of the warp in a stage. */
INLINE void product(sums sum, u32 w, u32 x, int thread)
{
    u32 run[RUNS][RUN / 4];
#pragma unroll
    for (int t = 0; t < RUNS; t++)
#pragma unroll
        for (int n = 0; n < RUN; n += PIECE)
            load_words<PIECE>(run[t] + n / 4, x + x_place(thread, t, n));
#pragma unroll
    for (int u = 0; u < UNITS; u++)
#pragma unroll
        for (int l = 0; l < TOGETHER; l++) {
            u32 b[TILES_S][2];
#pragma unroll
            for (int t = 0; t < TILES_S; t++)
                right_of(b[t], run, u, l, t);
#pragma unroll
            for (int r = 0; r < TILES_R; r++) {
                u32 a[4];
                load_words<16>(
                    a, w + r * W_ROWS + (u * TOGETHER + l) * 512 + thread * 16);
                multiply(sum[r][l], a, b);
            }
        }
}

/* ---- results ---- */

/* Where sums of a way and a tile of 16 rows by 8 columns begin. */
INLINE u32 sums_at(u32 memory, int way, int fragment)
{
    return memory + (way * FRAGMENTS + fragment) * 512;
}

INLINE void put_sums(u32 to, sums sum, place p)
{
    const int own = TILES_R * TOGETHER * TILES_S;
#pragma unroll
    for (int n = 0; n < own; n++) {
        const float *v = sum[0][0][n];
        store_shared128(
            sums_at(to, p.way, p.row * own + n) + p.thread * 16,
            words_of(v[0], v[1], v[2], v[3]));
    }
}

INLINE void store_element(element *to, float v)
{
#if ELEMENT == 4
    *to = __float_as_uint(v);
#else
    *to = (u16)pack_pair(v, v);
#endif
}

/* Adds the sums of all ways, and stores them, a number at a time. */
INLINE void store_sums(
    u32 from, element *y, const i64 *order, const float *bias, i64 apart, tile t,
    const sizes &z)
{
#pragma unroll 1
    for (int n = threadIdx.x; n < FRAGMENTS * 128; n += THREADS) {
        int fragment = n / 128, thread = n / 4 % 32, e = n % 4;
        int tile_s = fragment % TILES_S, l = fragment / TILES_S % TOGETHER;
        int column = thread % 4 * 2 + e % 2;
        i64 r = t.r0 + fragment / (TILES_S * TOGETHER) * 16 + thread / 4 + e / 2 * 8;
        i64 s = t.s0 + (LAST ? column * TILES_S + tile_s : tile_s * 8 + column);
        if (r >= z.b || s >= z.batch)
            continue;
        i64 at = (t.i * z.b + r) * z.d + t.j + l, row = row_of_y(order, at);
        if (WRITES && row < 0)
            continue;
        float sum = bias ? bias[at] : 0;
#pragma unroll
        for (int way = 0; way < WARPS_K; way++)
            sum += __uint_as_float(
                load_shared32(sums_at(from, way, fragment) + n % 128 * 4));
        element *to = y + (LAST ? row * z.batch + s : s * (z.a * z.b * z.d) + at);
        if (ACTIVATION)
            sum = activate(sum);
        store_element(to, RESIDUAL ? sum + residual_at(to, apart) : sum);
    }
}

/* ---- all of it ---- */

/* Waits for all warps that load x together. */
INLINE void meet(int way)
{
    if (WARPS_R > 1)
        barrier(1 + way, 32 * WARPS_R);
    else if (LAST)
        sync_warp();
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    ks(const element *x, const u8 *w, const float *bias, const element *residual,
       element *y, i64 batch, int, i64 a, i64 b, i64 c, i64 d ORDERS)
{
    extern __shared__ u8 memory[];
    const int ahead = STAGES - 1;
    sizes z = { batch, a, b, c, d };
    place p = place_of_thread();
    u32 begin = shared_address(memory), stages = begin + p.way * (STAGES * STAGE);
    u32 own_w = p.row * (TILES_R * W_ROWS);
    tile t = tile_at(blockIdx.x, z);
    int steps = (int)(c + TILE_K - 1) / TILE_K;
    int count = (steps - p.way + WARPS_K - 1) / WARPS_K, slot = 0, loaded = 0;
    source from = source_of(x, X_ORDER, w, t, p, z, steps);

    sums sum;
    clear<TILES_R * TOGETHER * TILES_S * 4>(sum[0][0][0]);
#pragma unroll 1
    for (int n = 0; n < count + ahead; n++) {
        if (n >= ahead) {
            copy_wait<ahead - 1>();
            meet(p.way);
        }
        if (n < count) {
            int step = p.way + n * WARPS_K;
            u32 stage = stages + loaded * STAGE;
            load_w(stage + own_w + p.thread * 16, from, step);
            load_x(stage + X_AT, x, from, step * TILE_K, (int)c, p);
            loaded = loaded + 1 == STAGES ? 0 : loaded + 1;
        }
        copy_commit();
        if (n >= ahead) {
            u32 stage = stages + slot * STAGE;
            product(sum, stage + own_w, stage + X_AT, p.thread);
            slot = slot + 1 == STAGES ? 0 : slot + 1;
        }
    }

    __syncthreads();
    put_sums(begin, sum, p);
    __syncthreads();
    store_sums(begin, y, Y_ORDER, bias, apart_of(residual, y), t, z);
}
