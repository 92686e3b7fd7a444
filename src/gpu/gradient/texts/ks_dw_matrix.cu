/* Parts of dw[i][r][k] = sum over s of dy[s, i, r] x[s, i, k] as in ks_dw_mma.cu, of 16-bit
   numbers batch-first with one lane: dy and x are matrices that tensor cores of compute
   capability 9.0 read as they lie, both turned.

   The copy engine fetches the operands of a tile (ks_dw_tiles.cuh) in stages of DEPTH columns s.
   A stage has segments of 64 rows [segment][s][128 bytes], with the 128-byte swizzle and zeros
   outside of the matrix.

   part[slab][i][r][k]; if `add`, sums are added to what is there. Grid: tiles x slabs, slab
   by slab. */
// SPDX-License-Identifier: Apache-2.0
#include "ks_dw_tiles.cuh"

#define THREADS MAKERS

#define SEGMENT       64 /* rows */
#define SEGMENTS_B    ((COLUMNS + SEGMENT - 1) / SEGMENT)
#define SEGMENT_BYTES (DEPTH * 128)
#define STAGE_BYTES   ((GROUPS + SEGMENTS_B) * SEGMENT_BYTES)

/* The products of a stage are made while the one before is still read. */
#define AHEAD (STAGES - 2)

INLINE void load_boxes(
    u32 stage, u32 flag, const tensor_map *x, const tensor_map *dy, tile t, int s)
{
    for (int n = 0; n < GROUPS; n++, stage += SEGMENT_BYTES)
        bulk_load_3(stage, SWAPPED ? x : dy, flag, t.a + n * SEGMENT, t.i, s);
    for (int n = 0; n < SEGMENTS_B; n++, stage += SEGMENT_BYTES)
        bulk_load_3(stage, SWAPPED ? dy : x, flag, t.b + n * SEGMENT, t.i, s);
}

#include "ks_dw_boxes.cuh"

typedef float sums[COLUMNS / 2];

INLINE void stage_products(sums sum, u32 stage, int first)
{
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    u64 a = wgmma_segments(stage + group * SEGMENT_BYTES, SEGMENT_BYTES);
    u64 b = wgmma_segments(stage + GROUPS * SEGMENT_BYTES, SEGMENT_BYTES);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < DEPTH; s += 16)
        wgmma<COLUMNS, 1, 1>(sum, a + s * 128 / 16, b + s * 128 / 16, !first || s);
    wgmma_commit();
}

INLINE void store_sums(float *part, const sums sum, tile t, int add)
{
    int thread = threadIdx.x % 32, first = t.a + threadIdx.x / 32 * 16 + thread / 4;
    part += (i64)t.i * ROWS * COLS;
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int a = first + half * 8, b = t.b + n * 8 + thread % 4 * 2;
            const float *v = sum + n * 4 + half * 2;
            if (a >= SIZE_A || b >= SIZE_B)
                continue;
            for (int e = 0; e < 2; e++)
                store_sum(
                    part + (SWAPPED ? (i64)(b + e) * COLS + a : (i64)a * COLS + b + e),
                    v[e], add);
        }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    dw(const element *, const element *, float *part, i64 batch, i64 slab, int add MAPS)
{
    extern __shared__ u8 memory[];
    span columns = span_of(batch, blockIdx.x / TILES, slab, DEPTH);
    tile t = tile_at(blockIdx.x % TILES);
    queue q;
    sums sum;
    q.begin(shared_address(memory), &x_map, &dy_map, t, columns);
#pragma unroll 1
    for (int n = 0; n < columns.steps; n++) {
        stage_products(sum, q.next(), n == 0);
        wgmma_wait<1>();
        if (n > 0)
            q.free();
    }
    wgmma_wait<0>();
    part += blockIdx.x / TILES * ((i64)BLOCKS * ROWS * COLS);
    store_sums(part, sum, t, add);
}
