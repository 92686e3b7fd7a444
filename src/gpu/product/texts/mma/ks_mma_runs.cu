/* Kronecker-sparse products on tensor cores from compute capability 8.0 on, batch-first, for any
   LANES, wherever numbers lie:
       y[s, i, r, j] = sum over k of w[i][r][k][j] x[s, i, k, j] + bias[i, r, j].
   A block of threads computes a tile of TOGETHER lanes j, TILE_S columns s of the batch by
   TILE_R rows r. Its contiguous numbers in memory are a run: for a column s all TILE_K x LANES
   numbers if the tile has all lanes, otherwise TOGETHER numbers for each k. Runs begin and end
   at any address. Chunks of 16 bytes that hold a part of a run are copied whole: in shared
   memory a run has the same offset from a multiple of 16 bytes as in memory, with numbers of
   its neighbours around it. Columns k beyond the block are cleared in registers. y is stored
   the same way, in whole chunks except the first and the last of a run.

   A warp computes EACH neighbouring lanes, 16 TILES_R rows by 8 TILES_S columns. Lanes from LANES
   on are not stored. The warp reads its numbers, which are LANES apart, one by one.
   ks_mma_tiles.cuh has the tiles, their steps and packed weights.

   Shared memory: STAGES times x [TILE_S][runs] and w; then y, OUT tiles of 8 columns of each
   warp, before it is stored. f32 is the sum of two tf32 numbers (SPLIT), as in ks_mma_lanes.cu.

   Grid: as many blocks as are resident. */
// SPDX-License-Identifier: Apache-2.0
#include "ks_mma_products.cuh"
#include "ks_mma_tiles.cuh"

#define WARPS_J (TOGETHER / EACH)
#define THREADS (32 * WARPS_J * WARPS_R * WARPS_S)

/* Chunks that numbers which begin anywhere touch at most; columns s of an odd number of them
   begin in different banks. */
#define CHUNKS(numbers) (((numbers) + 2 * PER - 2) / PER)
#define ALL             (TOGETHER >= LANES)
#define X_RUN           CHUNKS(ALL ? TILE_K * LANES : TOGETHER)
#define X_CHUNKS        (ALL ? X_RUN : X_RUN * TILE_K)
#define X_PITCH         ((X_CHUNKS | 1) * 16)
#define K_PITCH         (ALL ? LANES * ELEMENT : X_RUN * 16)
#define Y_RUN           CHUNKS(ALL ? TILE_R * LANES : TOGETHER)
#define Y_CHUNKS        (ALL ? Y_RUN : Y_RUN * TILE_R)
#define Y_PITCH         ((Y_CHUNKS | 1) * 16)
#define R_PITCH         (ALL ? LANES * ELEMENT : Y_RUN * 16)
#define X_BYTES         (TILE_S * X_PITCH)
#define STAGE           (X_BYTES + W_BYTES)

/* Lane, rows and columns of a warp. */
typedef struct place {
    int lane, row, column;
} place;

INLINE place place_of_warp()
{
    int warp = threadIdx.x / 32, rest = warp / WARPS_J;
    return { warp % WARPS_J * EACH, rest / WARPS_S * (16 * TILES_R),
             rest % WARPS_S * (8 * TILES_S) };
}

/* Bytes from the last multiple of 16 on. */
INLINE u32 shift_of(const element *p) { return (u32)(u64)p & 15; }

/* ---- a stage ---- */

/* Chunk number `chunk` of the run of `count` numbers from `from` on, of numbers that lie from
   x to end. */
INLINE void load_chunk(
    u32 to, const element *from, int chunk, int count, const element *x,
    const element *end)
{
    u64 at = ((u64)from & ~(u64)15) + chunk * 16;
    if (at >= (u64)(from + count))
        return;
    if (at >= (u64)x && at + 16 <= (u64)end) {
        copy16(to, (const void *)at, 16);
        return;
    }
#pragma unroll 1
    for (int e = 0; e < 16; e += ELEMENT)
        if (at + e >= (u64)from && at + e < (u64)(from + count)) {
#if ELEMENT == 4
            store_shared32(to + e, *(const u32 *)(at + e));
#else
            store_shared16(to + e, *(const u16 *)(at + e));
#endif
        }
}

INLINE const element *x_at(const element *x, i64 s, int i, int k, int j)
{
    return x + ((s * BLOCKS + i) * COLS + k) * LANES + j;
}

INLINE void load_x(u32 to, const element *x, tile t, int k0, i64 batch)
{
    const element *end = x + batch * BLOCKS * COLS * LANES;
    int columns = min(COLS - k0, TILE_K), lanes = min(LANES - t.j, TOGETHER);
#pragma unroll 2
    for (int q = threadIdx.x; q < TILE_S * X_CHUNKS; q += THREADS) {
        int s = q / X_CHUNKS, chunk = q % X_CHUNKS, k = ALL ? 0 : chunk / X_RUN;
        if (t.s0 + s < batch && k < columns)
            load_chunk(
                to + s * X_PITCH + chunk * 16, x_at(x, t.s0 + s, t.i, k0 + k, t.j),
                chunk % X_RUN, ALL ? columns * LANES : lanes, x, end);
    }
}

INLINE void load_w(u32 to, const u8 *from)
{
#pragma unroll 2
    for (int q = threadIdx.x * 16; q < W_BYTES; q += THREADS * 16)
        copy16(to + q, from + q, 16);
}

/* What is copied in the next steps. */
typedef struct source {
    tile t;
    const u8 *w;
} source;

INLINE source source_of(const element *, const u8 *w, tile t, i64) { return { t, w }; }

INLINE void load_step(u32 stage, source *from, const element *x, int step, i64 batch)
{
    load_x(stage, x, from->t, step * TILE_K, batch);
    load_w(stage + X_BYTES, weights_of(from->w, from->t, step));
}

/* ---- products ---- */

/* A warp's sums: lane, tile of rows, tile of columns; element e is at row l / 4 + 8 (e / 2) and
   column s 2 (l mod 4) + e mod 2, l the thread. */
typedef float sums[EACH][TILES_R][TILES_S][4];

/* How many of a thread's columns k of a tile have a place in the stage of their own, in the
   first column s. All others are multiples of 16 bytes, or of all lanes, away. */
#if ELEMENT == 4
  #define THREAD_K 1
#else
  #define THREAD_K 2
#endif

typedef struct reader {
    tile t;
    u32 at[THREAD_K];
} reader;

INLINE tile tile_of(reader from, u32, i64) { return from.t; }

INLINE reader reader_of(const element *x, u32 number, place p, i64 batch)
{
    int thread = threadIdx.x % 32, s = thread / 4;
    reader from = { tile_at(number, batch) };
#pragma unroll
    for (int e = 0; e < THREAD_K; e++) {
        int k = thread % 4 * THREAD_K + e;
        from.at[e] = (p.column + s) * X_PITCH + k * K_PITCH + p.lane * ELEMENT +
                     shift_of(x_at(x, s, from.t.i, ALL ? 0 : k, from.t.j));
    }
    return from;
}

/* Half `half` of the right operand of a unit whose first numbers are at x. `left` columns k,
   from the thread's first one on, are in the block. */
INLINE u32 load_right(u32 x, reader from, int left)
{
#if ELEMENT == 4
    u32 v = load_shared32(x + from.at[0]);
    return left > 0 ? v : 0;
#else
    u32 v = load_shared16(x + from.at[0]) | (u32)load_shared16(x + from.at[1]) << 16;
    return left > 1 ? v : left > 0 ? v & 0xffff : 0;
#endif
}

#define SUMS (TILES_R * TILES_S * 4) /* of a lane */

INLINE void begin(sums sum, const float *bias, tile t, place p)
{
    int row = t.r0 + p.row + threadIdx.x % 32 / 4;
    clear<EACH * SUMS>(sum[0][0][0]);
    if (!bias)
        return;
#pragma unroll
    for (int e = 0; e < EACH; e++)
#pragma unroll
        for (int q = 0; q < 2 * TILES_R; q++) {
            int r = row + q * 8, j = t.j + p.lane + e;
            float b = 0;
            if (r < ROWS && j < LANES)
                b = bias[((i64)t.i * ROWS + r) * LANES + j];
            begin_row(sum[e][q / 2], q % 2, b);
        }
}

/* Adds the products of a unit whose x and w lie there, for one lane. */
INLINE void multiply_unit(
    float sum[TILES_R][TILES_S][4], u32 x, u32 w, reader from, int left, int first)
{
    u32 right[TILES_S][2];
#pragma unroll
    for (int t = 0; t < TILES_S; t++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int k = half * (UNIT_K / 2);
            right[t][half] = load_right(x + t * 8 * X_PITCH + k * K_PITCH, from, left - k);
        }
#pragma unroll
    for (int r = 0; r < TILES_R; r++) {
        u32 a[4];
        load_words<16>(a, w + r * 512);
        multiply_rows(sum[r], a, right, first);
    }
}

/* Adds the products of a step. */
INLINE void multiply(sums sum, u32 x, int step, reader from, place p)
{
    int thread = threadIdx.x % 32, left = COLS % TILE_K ? COLS - step * TILE_K : TILE_K;
    u32 w = x + X_BYTES + (p.lane * TILE_R + p.row) * 32 + thread * 16;
    left -= thread % 4 * THREAD_K; /* columns k that are in the block */
#pragma unroll
    for (int j = 0; j < EACH; j++) {
#if SPLIT
        float part[TILES_R][TILES_S][4];
#else
        float(*part)[TILES_S][4] = sum[j];
#endif
#pragma unroll
        for (int u = 0; u < UNITS; u++)
            multiply_unit(
                part, x + u * UNIT_K * K_PITCH + j * ELEMENT,
                w + u * W_UNIT + j * (TILE_R * 32), from, left - u * UNIT_K, u == 0);
        if (SPLIT)
            add<SUMS>(sum[j][0][0], part[0][0]);
    }
}

/* ---- results ---- */

INLINE element *y_at(element *y, i64 s, int i, int r, int j)
{
    return y + ((s * BLOCKS + i) * ROWS + r) * LANES + j;
}

/* Two numbers that lie `apart` bytes apart. */
INLINE void put_two(u32 to, u32 apart, float v0, float v1)
{
    if (ACTIVATION)
        v0 = activate(v0), v1 = activate(v1);
#if ELEMENT == 4
    store_shared32(to, __float_as_uint(v0));
    store_shared32(to + apart, __float_as_uint(v1));
#else
    u32 pair = pack_pair(v0, v1);
    store_shared16(to, pair);
    store_shared16(to + apart, pair >> 16);
#endif
}

/* Sums of one lane and column, `odd` of tile number `tile`. */
INLINE void put_column(u32 to, float sum[TILES_R][TILES_S][4], int tile, int odd)
{
#pragma unroll
    for (int r = 0; r < TILES_R; r++)
        put_two(
            to + r * 16 * R_PITCH, 8 * R_PITCH, sum[r][tile][odd],
            sum[r][tile][2 + odd]);
}

/* 8 columns of a warp, tile number `tile` of its sums, to place `at` of OUT. */
INLINE void
put_sums(u32 out, sums sum, int tile, int at, element *y, struct tile t, place p)
{
    int thread = threadIdx.x % 32, own = p.row + thread / 4, row = t.r0 + own;
    out += (p.column / TILES_S * OUT + at * 8) * Y_PITCH + own * R_PITCH;
#pragma unroll
    for (int odd = 0; odd < 2; odd++) {
        int column = thread % 4 * 2 + odd;
        u32 to = out + column * Y_PITCH +
                 shift_of(y_at(y, column, t.i, ALL ? t.r0 : row, t.j));
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            int j = p.lane + e;
            if (t.j + j < LANES)
                put_column(to + j * ELEMENT, sum[e], tile, odd);
        }
    }
}

/* Stores the numbers of a chunk at `at` in y that belong to the run from `to` to `end`. */
INLINE void store_part(u64 at, uint4 v, u64 to, u64 end, i64 apart)
{
    const u32 word[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (int e = 0; e < PER; e++) {
        u64 own = at + e * ELEMENT;
        u32 number = ELEMENT == 4 ? word[e % 4] : word[e / 2 % 4] >> e % 2 * 16;
        if (own < to || own >= end)
            continue;
        if (RESIDUAL)
            number = add_word(number, *(const element *)(own + apart));
        *(element *)own = (element)number;
    }
}

/* Chunk number `chunk` of the run of `count` numbers from `to` on. */
INLINE void store_chunk(element *to, u32 from, int chunk, int count, i64 apart)
{
    u64 at = ((u64)to & ~(u64)15) + chunk * 16, end = (u64)(to + count);
    if (at >= end)
        return;
    uint4 v = load_shared128(from);
    if (at < (u64)to || at + 16 > end) {
        store_part(at, v, (u64)to, end, apart);
        return;
    }
    int width = width_of((const void *)apart, 0);
    if (RESIDUAL)
        v = add_words(v, fetch_piece<16>((const void *)(at + apart), 16, width));
    store128((void *)at, v);
}

/* OUT tiles of the columns of all warps, from number `tile` on. */
INLINE void store_columns(
    element *y, u32 out, i64 apart, int tile, struct tile t, i64 batch)
{
    int rows = min(ROWS - t.r0, TILE_R), lanes = min(LANES - t.j, TOGETHER);
#pragma unroll 1
    for (int q = threadIdx.x; q < 8 * OUT * WARPS_S * Y_CHUNKS; q += THREADS) {
        int column = q / Y_CHUNKS, chunk = q % Y_CHUNKS, r = ALL ? 0 : chunk / Y_RUN;
        i64 s = t.s0 + column / (8 * OUT) * (8 * TILES_S) + tile * 8 + column % (8 * OUT);
        if (s < batch && r < rows)
            store_chunk(
                y_at(y, s, t.i, t.r0 + r, t.j), out + column * Y_PITCH + chunk * 16,
                chunk % Y_RUN, ALL ? rows * LANES : lanes, apart);
    }
}

INLINE u32 out_of(u32 outs, place) { return outs; }

INLINE void write_y(
    u32 out, sums sum, const element *residual, element *y, tile t, place p, i64 batch)
{
    i64 apart = apart_of(residual, y);
#pragma unroll
    for (int tile = 0; tile < TILES_S; tile += OUT) {
        __syncthreads();
#pragma unroll
        for (int at = 0; at < OUT; at++)
            put_sums(out, sum, tile + at, at, y, t, p);
        __syncthreads();
        store_columns(y, out, apart, tile, t, batch);
    }
}

#include "ks_mma_kernel.cuh"
