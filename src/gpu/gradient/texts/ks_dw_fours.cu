/* Parts of dw as in ks_dw_mma.cu, of 16-bit numbers batch-first with four lanes, on the tensor
   cores of compute capability 9.0. Blocks are a multiple of 16 rows, and of 16 columns k.

   A tile (ks_dw_tiles.cuh) has all four lanes, and a multiple of 16 rows of B. Operands come by
   flat boxes: stages of DEPTH columns s in segments of 16 rows by four lanes, [segment][s]
   [128 bytes], with the 128-byte swizzle.

   Threads read their elements of A from there, all lanes at once, and pack two columns s into
   a word. Four more warps separate the lanes of B, [lane][64 rows][s][128 bytes]. They turn a
   matrix of eight pieces of 16 bytes, of two rows each: for each lane this gives the eight even
   or odd rows of 16, a chunk. Chunks of a lane are rotated by twice its number, so that eight
   chunks that are stored together are in different banks.

   part[slab][i][r][k][j]; if `add`, sums are added to what is there. Grid: tiles x slabs,
   slab by slab. */
// SPDX-License-Identifier: Apache-2.0
#include "ks_dw_tiles.cuh"

#define THREADS (MAKERS + COPIERS)

#define SEGMENT       16            /* rows */
#define LINES_BYTES   (DEPTH * 128) /* of all columns s */
#define A_BYTES       (TILE_A / SEGMENT * LINES_BYTES)
#define STAGE_BYTES   (A_BYTES + COLUMNS / SEGMENT * LINES_BYTES)
#define CHUNKS        (COLUMNS / 8)
#define LANE_BYTES    ((CHUNKS + 7) / 8 * LINES_BYTES) /* of a place */
#define PLACE_BYTES   (LANES * LANE_BYTES)
#define PLACES_BYTES  (PLACES * PLACE_BYTES)

/* ---- operands ---- */

/* Where a chunk of B has its place among those of its lane. */
INLINE int rotated(int chunk, int lane) { return (chunk + 2 * lane) % CHUNKS; }

/* A warp turns four matrices at once, of four columns s. */
INLINE void make_place(u32 stage, u32 places, int n)
{
    const int fours = DEPTH / 4;
    int warp = COPIER / 32, matrix = threadIdx.x % 32 / 8, line = threadIdx.x % 8;
    u32 place = places + n % PLACES * PLACE_BYTES + line % LANES * LANE_BYTES;
#pragma unroll
    for (int u = 0; u < COLUMNS / SEGMENT * fours; u += COPIERS / 32) {
        int segment = (u + warp) / fours, s = (u + warp) % fours * 4 + matrix;
        int chunk = rotated(segment * 2 + line / LANES, line % LANES);
        u32 v[4];
        if (u + warp >= COLUMNS / SEGMENT * fours)
            break;
        load_matrices_turned(
            v, stage + A_BYTES + segment * LINES_BYTES + swizzled(s, line));
        store_matrices(
            place + chunk / 8 * LINES_BYTES + swizzled(s, chunk % 8), v[0], v[1], v[2],
            v[3]);
    }
}

#include "ks_dw_places.cuh"

typedef u32 operand_a[LANES][4];

/* Where a thread's first column s of its first row of A is in a stage. */
INLINE u32 begin_a()
{
    int thread = threadIdx.x % 32, row = threadIdx.x / 32 * SEGMENT;
    return row / SEGMENT * LINES_BYTES +
           (swizzled(thread % 4 * 2, 0) ^ thread / 4 * (LANES * 2));
}

/* Loads 16 columns s from `from` on as the left operand of wgmma_held(). */
INLINE void load_a(operand_a a, u32 from)
{
#pragma unroll
    for (int e = 0; e < 4; e++) {
        u32 row = (from ^ e % 2 * (8 * LANES * 2)) + e / 2 * (8 * 128);
        uint2 first = load_shared64(row), next = load_shared64((row ^ 16) + 128);
        a[0][e] = low_halves(first.x, next.x);
        a[1][e] = high_halves(first.x, next.x);
        a[2][e] = low_halves(first.y, next.y);
        a[3][e] = high_halves(first.y, next.y);
    }
}

/* ---- products ---- */

typedef float sums[LANES][COLUMNS / 2];

INLINE void products(sums sum, operand_a a, u64 b, int add)
{
    wgmma_fence();
#pragma unroll
    for (int lane = 0; lane < LANES; lane++)
        wgmma_held<COLUMNS, 1>(sum[lane], a[lane], b + lane * LANE_BYTES / 16, add);
    wgmma_commit();
}

/* Operands are loaded while products of the step before are made, also across stages. */
INLINE void make(u32 flags, u32 stages, u32 places, sums sum, int steps)
{
    u64 b = wgmma_segments(places, LINES_BYTES);
    u32 from = stages + begin_a();
    operand_a a[2];
#pragma unroll 1
    for (int n = 0; n < steps; n++) {
        flag_wait(STAGE_FLAG(n), n / STAGES & 1);
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) {
            wgmma_wait<1>(); /* which read these registers two steps ago */
            load_a(a[k % 2], from + n % STAGES * STAGE_BYTES + k * (16 * 128));
            if (k == 0) {
                wgmma_wait<0>();
                if (n > 0)
                    release(FREE_FLAG(n - 1));
                flag_wait(PLACE_FLAG(n), n / PLACES & 1);
            }
            products(
                sum, a[k % 2], b + (n % PLACES * PLACE_BYTES + k * (16 * 128)) / 16,
                n || k);
        }
    }
    wgmma_wait<0>();
}

/* A thread has four neighbouring rows of B in every 16, the even ones in one chunk and the
   odd ones in the next. */
INLINE void store_sums(float *part, sums sum, int i, int, int a0, int b0, int add)
{
    int thread = threadIdx.x % 32;
    part += (i64)i * ROWS * COLS * LANES;
    a0 += threadIdx.x / 32 * 16 + thread / 4;
    b0 += thread % 4 * 4;
#pragma unroll
    for (int segment = 0; segment < COLUMNS / SEGMENT; segment++)
#pragma unroll
        for (int e = 0; e < 8; e++) {
            int a = a0 + e / 4 * 8, b = b0 + segment * SEGMENT + e % 4;
            i64 place = SWAPPED ? (i64)b * COLS + a : (i64)a * COLS + b;
            float v[LANES];
#pragma unroll
            for (int lane = 0; lane < LANES; lane++)
                v[lane] = sum[lane][rotated(segment * 2 + e % 2, lane) * 4 + e / 4 * 2 +
                                    e % 4 / 2];
            if (a >= SIZE_A || b >= SIZE_B)
                continue;
            if (add)
                add_four_sums(v, part + place * LANES);
            store_four_sums(part + place * LANES, v);
        }
}

#include "ks_dw_kernel.cuh"
