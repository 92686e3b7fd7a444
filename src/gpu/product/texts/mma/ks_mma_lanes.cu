/* Kronecker-sparse products on tensor cores from compute capability 8.0 on, batch-first,
   d > 1:
       y[s, i, r, j] = sum over k of w[i][r][k][j] x[s, i, k, j] + bias[i, r, j].
   The elements of x for one (i, j) are LANES apart; neighbouring lanes j are contiguous. So a
   block computes a tile of TOGETHER lanes j at once, TILE_S columns s of the batch by TILE_R
   rows r, and x and y move in pieces of 16 bytes that hold several lanes. A tensor core needs
   the columns k of one lane together. Threads bring them together in registers: a thread reads
   4 lanes of its columns k at once and needs all that it reads.

   A warp computes 4 lanes of 16 TILES_R rows by 8 TILES_S columns s. The GROUPS warps for the
   lanes of the same rows and columns are neighbours and store together. ks_mma_tiles.cuh has
   the tiles, their steps and packed weights.

   Shared memory: STAGES times x [TILE_S][TILE_K][TOGETHER], pieces exchanged as piece_at()
   says, and w; then for each warp 16 rows of y before they are stored.

   f32 is the sum of two tf32 numbers (SPLIT), and products of the small parts are left out.
   Tensor cores do not round to nearest, so sums leave them after every step. Both operands are
   split in registers. w has 22 bits: tensor cores read only the first 11, and the rest is a
   tf32 number too.

   Grid: as many blocks as are resident. */
// SPDX-License-Identifier: Apache-2.0
#include "ks_mma_lanes_product.cuh"

/* ---- a stage ---- */

/* In a step: chunks of a column s; the distance of the columns s that a thread copies one
   after the other, whose chunks are exchanged alike; how many columns s it copies; and how
   many chunks of weights. */
#define PIECES   (X_PITCH / 16)
#define APART    (THREADS / PIECES)
#define X_COPIES (TILE_S / APART)
#define W_COPIES ((W_BYTES / 16 + THREADS - 1) / THREADS)

/* What a thread copies in the next step: its piece of the first column s, how many columns
   of the batch begin there, and its part of w. */
typedef struct source {
    const element *x;
    const u8 *w;
    int left;
} source;

INLINE source source_of(const element *x, const u8 *w, tile t, i64 batch)
{
    int first = threadIdx.x % PIECES * PER;
    i64 s = t.s0 + threadIdx.x / PIECES;
    source from;
    from.x = x + ((s * BLOCKS + t.i) * COLS + first / TOGETHER) * LANES + t.j +
             first % TOGETHER;
    from.w = weights_of(w, t, 0) + threadIdx.x * 16;
    from.left = up_to(batch - s, TILE_S);
    return from;
}

/* Columns k and s beyond the matrix are zeros. */
INLINE void load_x_with_borders(
    u32 to, source from, const element *x, int k, int width)
{
#pragma unroll 1
    for (int c = 0; c < X_COPIES; c++)
#pragma unroll
        for (int e = 0; e < PER; e += RUN) {
            i64 bytes = ((i64)(COLS - k) * TOGETHER - e) * ELEMENT;
            if (c * APART >= from.left || bytes < 0)
                bytes = 0;
            const element *at = from.x + (i64)c * APART * BLOCKS * COLS * LANES;
            load_piece<RUN * ELEMENT>(
                to + c * APART * X_PITCH + e * ELEMENT,
                bytes ? at + e / RUN * LANES : x, bytes, width);
        }
}

/* Loads x for the step that begins at column k. */
INLINE void load_x(u32 to, source from, const element *x, int k)
{
    int width = width_of(x, (i64)COLS * LANES * ELEMENT);
    k += threadIdx.x % PIECES * PER / TOGETHER;
    to += piece_at(threadIdx.x / PIECES, threadIdx.x % PIECES);
    int inside = COLS % TILE_K == 0 || k < COLS / TILE_K * TILE_K;
    if (RUN == PER && width == 16 && inside && from.left > (X_COPIES - 1) * APART)
#pragma unroll
        for (int c = 0; c < X_COPIES; c++)
            copy16(
                to + c * APART * X_PITCH,
                from.x + (i64)c * APART * BLOCKS * COLS * LANES, 16);
    else
        load_x_with_borders(to, from, x, k, width);
}

INLINE void load_w(u32 to, source from)
{
    const int pieces = W_BYTES / 16;
#pragma unroll
    for (int c = 0; c < W_COPIES; c++)
        if (pieces % THREADS == 0 || c * THREADS + threadIdx.x < pieces)
            copy16(
                to + threadIdx.x * 16 + c * THREADS * 16, from.w + c * THREADS * 16,
                16);
}

INLINE void next_step(source *from)
{
    from->x += TILE_K * LANES;
    from->w += W_BYTES;
}

/* ---- results ---- */

/* The warps that store together are all here. */
INLINE void meet()
{
    if (GROUPS == 1)
        sync_warp();
    else
        barrier(1 + threadIdx.x / (32 * GROUPS), 32 * GROUPS);
}

/* Where piece number `piece` of a column of y lies: threads that write the same row of
   different columns then meet different banks. */
INLINE u32 out_at(int column, int piece)
{
    const int row_bytes = TOGETHER * ELEMENT;
    int turn = column / 2 % 4;
    piece ^= row_bytes == 32                   ? turn % 2 + turn / 2 * 4
             : row_bytes == 16 && ELEMENT == 2 ? turn % 2 * 4
                                               : turn * 2;
    return column * Y_PITCH + piece * 16;
}

INLINE void put_four(u32 to, float v0, float v1, float v2, float v3)
{
#if ELEMENT == 4
    store_shared128(to, words_of(v0, v1, v2, v3));
#else
    store_shared64(to, pack_pair(v0, v1), pack_pair(v2, v3));
#endif
}

/* 16 rows, tile `tile` of the warp's. */
INLINE void put_sums(u32 out, sums sum, int tile, int group)
{
    int thread = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = half * 8 + thread / 4, at = (row * TOGETHER + group * 4) * ELEMENT;
#pragma unroll
        for (int s = 0; s < TILES_S; s++)
#pragma unroll
            for (int odd = 0; odd < 2; odd++) {
                int column = s * 8 + thread % 4 * 2 + odd, e = half * 2 + odd;
                put_four(
                    out + out_at(column, at / 16) + at % 16,
                    sum[0][tile][s][e], sum[1][tile][s][e], sum[2][tile][s][e],
                    sum[3][tile][s][e]);
            }
    }
}

/* Pieces of a column of y; columns between those that a thread stores. */
#define Y_PIECES (Y_PITCH / 16)
#define Y_APART  (32 * GROUPS / Y_PIECES)
#define Y_COPIES (8 * TILES_S / Y_APART)

/* A thread's piece of the columns of y. */
typedef struct target {
    element *y;
    int left; /* columns s of the batch from the first one on */
    int rows; /* rows from the piece's on */
    int column, piece;
} target;

INLINE target target_of(element *y, tile t, int row0, i64 s0, i64 batch)
{
    int thread = threadIdx.x % (32 * GROUPS);
    target to;
    to.column = thread / Y_PIECES, to.piece = thread % Y_PIECES;
    int first = to.piece * PER, row = row0 + first / TOGETHER;
    i64 s = s0 + to.column;
    to.y = y + ((s * BLOCKS + t.i) * ROWS + row) * LANES + t.j + first % TOGETHER;
    to.left = up_to(batch - s, TILE_S);
    to.rows = ROWS - row;
    return to;
}

/* 16 rows of y that lie in shared memory. */
INLINE void store_rows_with_borders(u32 out, target to, i64 apart, int width)
{
    i64 bytes = (i64)to.rows * TOGETHER * ELEMENT;
#pragma unroll 1
    for (int c = 0; c < Y_COPIES && c * Y_APART < to.left; c++) {
        uint4 v = load_shared128(out + out_at(to.column + c * Y_APART, to.piece));
        element *y = to.y + (i64)c * Y_APART * BLOCKS * ROWS * LANES;
        uint4 first = end_piece<RUN * ELEMENT>(v, y, apart, bytes, width);
        store_piece<RUN * ELEMENT>(y, first, bytes, width);
        if (RUN < PER) {
            element *other = y + LANES;
            uint4 second = end_piece<8>({ v.z, v.w }, other, apart, bytes - 8, width);
            store_piece<8>(other, second, bytes - 8, width);
        }
    }
}

/* The same of pieces that are whole and aligned. */
INLINE void store_whole_rows(u32 out, target to)
{
#pragma unroll 2
    for (int c = 0; c < Y_COPIES; c++)
        store128(
            to.y + (i64)c * Y_APART * BLOCKS * ROWS * LANES,
            load_shared128(out + out_at(to.column + c * Y_APART, to.piece)));
}

INLINE void store_rows(u32 out, target to, i64 apart, int width)
{
    int whole = to.rows * TOGETHER >= PER && to.left > (Y_COPIES - 1) * Y_APART;
    if (RUN == PER && width == 16 && whole && !ENDS)
        store_whole_rows(out, to);
    else
        store_rows_with_borders(out, to, apart, width);
}

/* The last borders, and endings, are left to a loop: every copy is compiled. With SPLIT
   that form would take registers from the products, which would be up to 27 % slower. */
INLINE void write_y(
    u32 out, sums sum, const element *residual, element *y, tile t, place p, i64 batch)
{
    int width = width_of_both(residual, y, (i64)ROWS * LANES * ELEMENT);
    i64 apart = apart_of(residual, y);
    i64 s0 = t.s0 + p.column * TILES_S * 8;
    int inside = t.s0 + TILE_S <= batch && (ROWS % TILE_R == 0 || t.r0 + TILE_R <= ROWS);
    if (SPLIT || (RUN == PER && width == 16 && inside && !ENDS)) {
#pragma unroll
        for (int r = 0; r < TILES_R; r++) {
            int row0 = t.r0 + (p.row * TILES_R + r) * 16;
            meet();
            put_sums(out, sum, r, p.group);
            meet();
            target to = target_of(y, t, row0, s0, batch);
            if (SPLIT)
                store_rows(out, to, apart, width);
            else
                store_whole_rows(out, to);
        }
        return;
    }
#pragma unroll 1
    for (int r = 0; r < TILES_R; r++) {
        int row0 = not_before(t.r0) + (p.row * TILES_R + r) * 16;
        meet();
#pragma unroll
        for (int tile = 0; tile < TILES_R; tile++)
            if (tile == r)
                put_sums(out, sum, tile, p.group);
        meet();
        store_rows(out, target_of(y, t, row0, s0, batch), apart, width);
    }
}

INLINE void begin(sums sum, const float *bias, tile t, place p)
{
    int row = t.r0 + p.row * TILES_R * 16 + threadIdx.x % 32 / 4;
    if (SPLIT)
        asm volatile("");
    clear<4 * TILES_R * TILES_S * 4>(sum[0][0][0]);
    if (!bias)
        return;
#pragma unroll
    for (int q = 0; q < 2 * TILES_R; q++)
#pragma unroll
        for (int lane = 0; lane < 4; lane++) {
            int r = row + q * 8;
            float b = 0;
            if (r < ROWS)
                b = bias[((i64)t.i * ROWS + r) * LANES + t.j + p.group * 4 + lane];
            begin_row(sum[lane][q / 2], q % 2, b);
        }
}

/* ---- all of it ---- */

INLINE void load_step(u32 stage, source *from, const element *x, int step, i64)
{
    load_x(stage, *from, x, step * TILE_K);
    load_w(stage + X_BYTES, *from);
    next_step(from);
}

typedef struct reader {
} reader;

INLINE reader reader_of(const element *, u32, place, i64) { return {}; }
INLINE tile tile_of(reader, u32 number, i64 batch) { return tile_at(number, batch); }

INLINE void multiply(sums sum, u32 stage, int, reader, place p)
{
    product(sum, stage, stage + X_BYTES, p);
}

INLINE u32 out_of(u32 outs, place p)
{
    return outs + (p.row * WARPS_S + p.column) * Y_BYTES;
}

#include "ks_mma_kernel.cuh"
