/* Parts of dw as in ks_dw_mma.cu, of f32 numbers on the tensor cores of compute capability
   9.0: a block (i, j) is a dense product of matrices whose sums run over columns s of the
   batch.

   Operands A and B of a tile (ks_dw_tiles.cuh) are fetched in stages of DEPTH columns s, in
   their order in memory. Threads read their elements of A from a stage. Tensor cores need B in
   shared memory row by row, with the 128-byte swizzle. So B is split into two tf32 numbers,
   and turned if it is batch-first, on the way from the stage to one of PLACES.

   A tile has 1 to 4 lanes, batch-last 1. Products of the small parts are left out. Tensor cores
   do not round to nearest, so sums leave them after FLUSH stages. Four more warps prepare B,
   and fetch, or let the copy engine fetch FLAT boxes of all lanes of some rows. */
// SPDX-License-Identifier: Apache-2.0
#include "ks_dw_tiles.cuh"

#define THREADS      (MAKERS + COPIERS)
#define B_LANE       (TILE_B * 128) /* bytes of a lane of a part of B */
#define B_PART       (TOGETHER * B_LANE)
#define HALVES       (32 / DEPTH) /* places that share rows of 128 bytes */
#define PLACES_BYTES (PLACES / HALVES * 2 * B_PART)

/* Batch-last, stages have the swizzle; batch-first, lines of A are apart so that threads
   meet banks once. */
#define FLIPPED(line) (LAST ? (line) % 8 * 16 : 0)
#define FLIP_PERIOD   (LAST ? 8 : 1)
#define PAD_A         (LAST || FLAT ? 0 : 32)

/* Rows of B in a piece of 16 bytes, if they are whole. Batch-first, those of eight pieces
   take turns in B's place, so that eight threads that turn a piece each write to different
   banks. */
#define WHOLE_ROWS (TOGETHER != 3)
#define PIECE_ROWS (LAST ? 1 : 4 / TOGETHER)

/* Runs of lanes that a thread reads one by one of an element of A. */
#define RUNS (WHOLE_ROWS ? 1 : TOGETHER)

#include "ks_dw.cuh"

typedef lines<TILE_A, PAD_A> lines_a;
typedef lines<TILE_B> lines_b;

/* ---- operands ---- */

INLINE void split(uint4 v, u32 high, u32 low)
{
    u32 word[4] = { v.x, v.y, v.z, v.w }, near[4], rest[4];
    split<4>(near, rest, word);
    store_shared128(high, { near[0], near[1], near[2], near[3] });
    store_shared128(low, { rest[0], rest[1], rest[2], rest[3] });
}

/* The column s of eight that is at place k of an operand: threads that read A then meet
   banks of flat boxes once. */
INLINE int column_at(int k) { return FLAT ? k % 4 * 2 + k / 4 : k; }

/* Where `place`, in bytes, of a column s of an operand is in its stage, batch-first. */
template <int pitch> INLINE u32 in_stage(int place, int s)
{
    return FLAT ? place / 128 * (DEPTH * 128) + s * 128 + (place % 128 ^ s % 8 * 16)
                : s * pitch + place;
}

/* A piece of the columns s at places 4 chunk and on: of its element e, the four columns. */
INLINE void turn_four(uint4 v[4], u32 stage, int piece, int chunk)
{
    const int step = FLAT ? 256 : lines_b::pitch;
    u32 from = stage + in_stage<lines_b::pitch>(
                           piece * 16, chunk / 2 * 8 + column_at(chunk % 2 * 4));
    uint4 s[4];
#pragma unroll
    for (int u = 0; u < 4; u++)
        s[u] = load_shared128((from ^ (FLAT ? u * 32 : 0)) + u * step);
    v[0] = { s[0].x, s[1].x, s[2].x, s[3].x };
    v[1] = { s[0].y, s[1].y, s[2].y, s[3].y };
    v[2] = { s[0].z, s[1].z, s[2].z, s[3].z };
    v[3] = { s[0].w, s[1].w, s[2].w, s[3].w };
}

/* Where element e of a piece has its columns in a part of B, from chunk 0 on. */
INLINE u32 line_of_b(u32 piece, u32 e)
{
    u32 number = piece * 4 + e;
    u32 row = WHOLE_ROWS ? (piece / 8 * PIECE_ROWS + e / TOGETHER) * 8 + piece % 8
                         : number / TOGETHER;
    return number % TOGETHER * B_LANE + swizzled(row, 0);
}

/* B of a stage, in pieces of four columns s, from a chunk of the place on. */
INLINE void make_b(u32 to, u32 stage, int first)
{
#if LAST
#pragma unroll
    for (int n = 0; n < TILE_B * 8; n += COPIERS) {
        u32 at = (n + COPIER) * 16;
        split(load_shared128(stage + at), to + at, to + B_PART + at);
    }
#else
    const int pieces = TILE_B * TOGETHER / 4, units = pieces * (DEPTH / 4);
#pragma unroll
    for (int n = 0; n < units; n += COPIERS) {
        int unit = n + COPIER;
        if (n + COPIERS > units && unit >= units)
            break;
        int chunk = unit / pieces, piece = unit % pieces;
        uint4 v[4];
        turn_four(v, stage, piece, chunk);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            u32 at = to + (line_of_b(piece, e) ^ (first + chunk) * 16);
            split(v[e], at, at + B_PART);
        }
    }
#endif
}

typedef u32 operand_a[TOGETHER][4];

/* Where a thread's first columns s of its two rows of A are in a stage. */
typedef u32 rows_of_a[2][RUNS];

INLINE void begin_rows(rows_of_a from, u32 stages)
{
    int thread = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row = warp / 4 % GROUPS_A * 64 + warp % 4 * 16 + thread / 4;
#pragma unroll
    for (int half = 0; half < 2; half++, row += 8)
#pragma unroll
        for (int run = 0; run < RUNS; run++)
            from[half][run] =
                stages + (LAST ? swizzled(row, 0) + thread % 4 * 4
                               : in_stage<lines_a::pitch>(
                                     (row * TOGETHER + run) * 4, column_at(thread % 4)));
}

/* Columns s further: of the step k of a stage the thread's first or second one. */
INLINE u32 next_column(u32 from, int k, int second)
{
    if (LAST)
        return from ^ (k * 2 + second) * 16;
    if (FLAT)
        return (from ^ second * 16) + (k * 8 + second) * 128;
    return from + (k * 8 + second * 4) * lines_a::pitch;
}

/* Loads the left operand of wgmma_held() for step k of a stage. */
INLINE void load_a(operand_a high, operand_a low, const rows_of_a from, u32 stage, int k)
{
#pragma unroll
    for (int e = 0; e < 4; e++) {
        u32 v[TOGETHER];
#pragma unroll
        for (int run = 0; run < RUNS; run++)
            load_words<4 * TOGETHER / RUNS>(
                v + run, next_column(from[e % 2][run] + stage, k, e / 2));
#pragma unroll
        for (int lane = 0; lane < TOGETHER; lane++)
            split<1>(&high[lane][e], &low[lane][e], &v[lane]);
    }
}

/* ---- products ---- */

typedef float sums[TOGETHER][COLUMNS / 2];

/* Adds the products of 8 columns s with the group's rows of B: low high + high low + high high.
   Instructions that follow each other are for different lanes. */
INLINE void products(sums sum, operand_a high, operand_a low, u64 b, int add)
{
    wgmma_fence();
#pragma unroll
    for (int pass = 0; pass < 3; pass++)
#pragma unroll
        for (int lane = 0; lane < TOGETHER; lane++)
            wgmma_held<COLUMNS>(
                sum[lane], (pass == 0 ? low : high)[lane],
                b + ((pass == 1 ? B_PART : 0) + lane * B_LANE) / 16, add || pass);
    wgmma_commit();
}

/* Where the sum for rows a of A and b of B lies, of the first lane. */
INLINE i64 place_of(int i, int j, int a, int b)
{
    i64 r = SWAPPED ? b : a, k = SWAPPED ? a : b;
    return LAST ? ((i64)(i * LANES + j) * ROWS + r) * COLS + k
                : ((i * (i64)ROWS + r) * COLS + k) * LANES + j;
}

/* Stores sums of row a of A with the rows of B in a piece, the first of them b, or adds what
   is there to them. */
template <int stores>
INLINE void move_piece_sums(float *part, int i, int j, int a, int b, float *v)
{
    const int together =
        TOGETHER == 4 || (WHOLE_ROWS && !SWAPPED && TOGETHER == LANES);
    if (a >= SIZE_A)
        return;
    if (!LAST && together && COLS * (i64)LANES % 4 == 0 && b + PIECE_ROWS <= SIZE_B) {
        float *at = part + place_of(i, j, a, b);
        if (stores)
            store_four_sums(at, v);
        else
            add_four_sums(v, at);
    } else
#pragma unroll
        for (int e = 0; e < PIECE_ROWS * TOGETHER; e++)
            if (b + e / TOGETHER < SIZE_B) {
                float *at = &part[place_of(i, j, a, b + e / TOGETHER) + e % TOGETHER];
                if (stores)
                    *at = v[e];
                else
                    v[e] += *at;
            }
}

INLINE void store_sums(float *to, sums sum, int i, int j, int a0, int b0, int add)
{
    int thread = threadIdx.x % 32, warp = threadIdx.x / 32;
    a0 += warp / 4 % GROUPS_A * 64 + warp % 4 * 16 + thread / 4;
    b0 += warp / 4 / GROUPS_A * COLUMNS + thread % 4 * 2 * PIECE_ROWS;
#pragma unroll
    for (int n = 0; n < COLUMNS / 8 / PIECE_ROWS; n++) {
        float v[4][4];
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
            for (int m = 0; m < PIECE_ROWS * TOGETHER; m++)
                v[e][m] = sum[m % TOGETHER][(n * PIECE_ROWS + m / TOGETHER) * 4 + e];
#pragma unroll
        for (int e = 0; e < 4 && add; e++)
            move_piece_sums<0>(
                to, i, j, a0 + e / 2 * 8, b0 + (n * 8 + e % 2) * PIECE_ROWS, v[e]);
#pragma unroll
        for (int e = 0; e < 4; e++)
            move_piece_sums<1>(
                to, i, j, a0 + e / 2 * 8, b0 + (n * 8 + e % 2) * PIECE_ROWS, v[e]);
    }
}

/* ---- all of it ---- */

#define A_BYTES     (lines_a::bytes)
#define STAGE_BYTES (A_BYTES + lines_b::bytes)

INLINE u32 place_at(u32 places, int n)
{
    return places + n % PLACES / HALVES * 2 * B_PART;
}

INLINE void make_place(u32 stage, u32 places, int n)
{
    make_b(place_at(places, n), stage + A_BYTES, n % HALVES * (DEPTH / 4));
}

#include "ks_dw_places.cuh"

/* ---- stages, by the four warps that are left ---- */

#if !FLAT
  #define MAPS

struct queue {
    u32 flags, stages;
    source<SIZE_A, TILE_A, PAD_A> a;
    source<SIZE_B, TILE_B> b;
    int steps;

    MEMBER void load(int n)
    {
        u32 stage = stages + n % STAGES * STAGE_BYTES;
        if (n < steps) {
            a.load(stage);
            b.load(stage + A_BYTES);
        }
        copy_commit();
    }

    MEMBER void wait(int)
    {
        copy_wait<STAGES - PLACES>();
        barrier(1, COPIERS);
    }
};
#endif

/* Operands are loaded while products of the step before are made, also across stages. */
INLINE void make(u32 flags, u32 stages, u32 places, sums sum, int steps)
{
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    u64 b = wgmma_matrix(places + group / GROUPS_A * COLUMNS * 128);
    rows_of_a a;
    operand_a high[2], low[2];
    sums recent;
    begin_rows(a, stages);
#pragma unroll
    for (int e = 0; e < TOGETHER * COLUMNS / 2; e++)
        sum[0][e] = 0;
#pragma unroll 1
    for (int n = 0; n < steps; n++) {
        u64 place = b + (place_at(0, n) + n % HALVES * (DEPTH * 4)) / 16;
        if (FLAT)
            flag_wait(STAGE_FLAG(n), n / STAGES & 1);
        else
            flag_wait(PLACE_FLAG(n), n / PLACES & 1);
#pragma unroll
        for (int k = 0; k < DEPTH / 8; k++) {
            wgmma_wait<1>(); /* which read these registers two steps ago */
            load_a(high[k % 2], low[k % 2], a, n % STAGES * STAGE_BYTES, k);
            if (k == 0) {
                wgmma_wait<0>();
                if (n > 0)
                    release(FREE_FLAG(n - 1));
                if (n > 0 && n % FLUSH == 0)
                    add<TOGETHER * COLUMNS / 2>(sum[0], recent[0]);
                if (FLAT)
                    flag_wait(PLACE_FLAG(n), n / PLACES & 1);
            }
            products(recent, high[k % 2], low[k % 2], place + k * 2, n % FLUSH || k);
        }
    }
    wgmma_wait<0>();
    add<TOGETHER * COLUMNS / 2>(sum[0], recent[0]);
}

#include "ks_dw_kernel.cuh"
