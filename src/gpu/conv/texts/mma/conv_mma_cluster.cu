/* Convolutions of long windows by tensor cores in one launch, where conv_mma.cu needs several.
   The blocks of a cluster keep the matrix of points in their shared memory, ROWS / CLUSTER rows
   each, from the first product to the last.

   A block finds the largest magnitudes of its rows. Then each warp reads tiles of 16 columns,
   transforms them and puts them where their rows are. Rows are multiplied by the spectrum in
   place. Last, tiles of columns are fetched, transformed back and stored. Between these steps
   the blocks of a cluster wait for each other.

   ROWS = 16; ROW_ROOT: COLUMNS = 256 ROW_ROOT; MEMBERS rows of a block are multiplied at a
   time, by ROW_WARPS warps each. NEAR: the tables of rows are copied to shared memory. All else
   is as in conv_mma.cu. */
// SPDX-License-Identifier: Apache-2.0
#include "conv_mma_numbers.cuh"

#define BLOCK_WARPS  (ROW_WARPS * MEMBERS)
#define THREADS      (BLOCK_WARPS * 32)
#define OWN_ROWS     (ROWS / CLUSTER)
#define COLUMN_TILES (COLUMNS / 16)

/* Rows of points, as D of conv_mma_part.cuh, which do not begin in the same bank. */
#define ROW_BYTES  (16 * TILES(2 * ROW_ROOT) * PITCH + 32)
#define TILE_BYTES (2 * PITCH) /* D of a tile of columns */

/* Where eight points begin, or four: in any block of the cluster. */
INLINE u32 place_of_points(const work *k, int row, int part, int column)
{
    int q = column / 16 % 16, half = column / 8 % 2 ^ (q >> 2 & 1);
    u32 at = k->points_at + row % OWN_ROWS * ROW_BYTES;
    at += (part * ROW_ROOT + column / 256) * PITCH + q * 32 + half * 16 + column % 8 * 2;
#if CLUSTER > 1
    at = in_block(at, row / OWN_ROWS);
#endif
    return at;
}

INLINE uint4 load_eight_points(const work *k, int row, int part, int column, int wanted)
{
    uint4 none = {};
    if (!wanted)
        return none;
#if CLUSTER > 1
    return load_cluster128(place_of_points(k, row, part, column));
#else
    return load_shared128(place_of_points(k, row, part, column));
#endif
}

INLINE void put_four_points(const work *k, int row, int part, int column, uint2 words)
{
#if CLUSTER > 1
    store_cluster64(place_of_points(k, row, part, column), words.x, words.y);
#else
    store_shared64(place_of_points(k, row, part, column), words.x, words.y);
#endif
}

INLINE void meet_blocks()
{
#if CLUSTER > 1
    cluster_sync();
#else
    __syncthreads();
#endif
}

INLINE u32 rank()
{
#if CLUSTER > 1
    return cluster_rank();
#else
    return 0;
#endif
}

/* ---- the parts ---- */

#define ROOT ROW_ROOT
#define WARPS ROW_WARPS
#define LOAD 1
#define STORE 1
#define FORWARD 1
#define INVERSE 1
namespace in_rows {
#include "conv_mma_part.cuh"
enum { ALL_TABLES = NEAR ? TABLES : 0 };

/* Own rows `member` and every MEMBERS-th more, of the spectrum of the window's filter. */
INLINE void multiply_rows(work *k, const char *spectrum)
{
    const sinks none = {};
    u32 first = rank() * OWN_ROWS;
    ROLL for (int own = k->member; own < OWN_ROWS; own += MEMBERS)
    {
        k->task = first + own;
        if (is_left_out(k->task))
            continue;
        const char *of = spectrum + k->task * (COLUMNS * 4 + 16);
        k->d = k->points_at + own * ROW_BYTES;
        first_forward(k);
        meet_all(k);
        ROLL for (int p0 = k->warp; p0 < ROOT; p0 += WARPS)
        {
            if (is_left_out(k->task + ROWS * p0))
                clear_block(k, p0);
            else
                inner_tile(k, &none, p0, (const uint4 *)of);
        }
        meet_all(k);
        first_back(k, &none);
    }
}
}

#undef NEAR
#define NEAR 1

/* Some chunks of each thread at once. */
#undef WARPS
#undef LOAD
#undef STORE
#define LOADED_ROWS (ROW_ROOT * (HALF ? 1 : 2))
#define WARPS                                                                          \
    (LOADED_ROWS < 16 ? 1 : LOADED_ROWS < 32 ? 2 : LOADED_ROWS < 64 ? 4 : LOADED_ROWS < 128 ? 8 : 16)
#define LOAD 0
#define STORE 0
namespace in_peaks {
#include "conv_mma_part.cuh"

INLINE void find_peaks(work *k, const X *x, const X *factor, u32 peak[2])
{
    int number = threadIdx.x / TEAM, first = rank() * OWN_ROWS;
    k->warp = threadIdx.x % TEAM / 32;
    peak[0] = peak[1] = 0;
    ROLL for (int own = number; own < OWN_ROWS; own += BLOCK_WARPS / WARPS)
    {
        u32 found[2];
        k->task = first + own;
        peaks_of(k, x, factor, found);
        peak[0] = larger(peak[0], found[0]);
        peak[1] = larger(peak[1], found[1]);
    }
}
}

#undef ROOT
#undef WARPS
#undef STORE
#undef INVERSE
#define ROOT 1
#define WARPS 1
#define STORE 1
#define INVERSE 0
namespace in_split {
#include "conv_mma_part.cuh"
enum { ALL_TABLES = TURNS_AT }; /* in both directions */
}

#undef LOAD
#undef STORE
#undef FORWARD
#undef INVERSE
#define LOAD 1
#define STORE 0
#define FORWARD 0
#define INVERSE 1
namespace in_join {
#include "conv_mma_part.cuh"
}

/* ---- the kernel ---- */

/* What a block has in shared memory: tables, rows, a tile for each warp, the largest magnitudes
   that warps found, and blocks. */
#define COLUMN_TABLES_AT (in_rows::ALL_TABLES * 16)
#define ROWS_AT          (COLUMN_TABLES_AT + in_split::ALL_TABLES * 16)
#define TILES_AT         (ROWS_AT + OWN_ROWS * ROW_BYTES)
#define PEAKS_AT         (TILES_AT + BLOCK_WARPS * TILE_BYTES)
#define BLOCK_PEAKS_AT   (PEAKS_AT + BLOCK_WARPS * 8)

/* The largest of each part that any thread of the cluster has. */
INLINE void meet_peaks(const work *k, u32 memory, u32 peak[2])
{
    int warp = threadIdx.x / 32, part = threadIdx.x % 2, to = threadIdx.x / 2;
    u32 most = 0;
    UNROLL for (int i = 0; i < 2; i++)
    {
        peak[i] = largest_of_warp(peak[i]);
        if (k->lane == 0)
            store_shared32(memory + PEAKS_AT + warp * 8 + i * 4, peak[i]);
    }
    __syncthreads();
    for (int w = 0; w < BLOCK_WARPS && to < CLUSTER; w++)
        most = in_peaks::larger(most, load_shared32(memory + PEAKS_AT + w * 8 + part * 4));
    u32 at = memory + BLOCK_PEAKS_AT + rank() * 8 + part * 4;
#if CLUSTER > 1
    if (to < CLUSTER)
        store_cluster32(in_block(at, to), most);
#else
    if (to < CLUSTER)
        store_shared32(at, most);
#endif
    meet_blocks();
    UNROLL for (int i = 0; i < 2; i++)
    {
        peak[i] = 0;
        UNROLL for (int b = 0; b < CLUSTER; b++)
            peak[i] = in_peaks::larger(
                peak[i], load_shared32(memory + BLOCK_PEAKS_AT + b * 8 + i * 4));
    }
}

/* A warp has tiles of columns to itself, and rows together with others. */
INLINE void take_columns(work *k, u32 memory)
{
    k->member = 0;
    k->warp = 0;
    k->beside[0] = 0;
    k->d = memory + TILES_AT + threadIdx.x / 32 * TILE_BYTES;
    k->near = memory + COLUMN_TABLES_AT + k->lane * 16;
}

INLINE void take_rows(work *k, u32 memory)
{
    k->member = threadIdx.x / (ROW_WARPS * 32);
    k->warp = threadIdx.x / 32 % ROW_WARPS;
    k->near = memory + k->lane * 16;
}

/* Short filters of x and its factor. They are loaded before each use, because other values need
   the registers in between. */
INLINE void take_few(work *k, const float *few, const float *few_bias, int few_groups)
{
    UNROLL for (int i = 0; i < 2; i++)
        k->few[i] = few_of(&k->r, &k->w, few, few_bias, few_groups, i);
}

/* Tiles of columns of a warp: every `step`-th, so that those of a block lie beside each
   other. */
typedef struct column_tiles {
    int first, step;
} column_tiles;

/* Rows to points. */
INLINE void split(work *k, column_tiles t, const X *x, const X *factor)
{
    ROLL for (k->task = t.first; k->task < COLUMN_TILES; k->task += t.step)
    {
        in_split::scales back;
        in_split::load_rows(k, x, factor, 0, &back);
        sync_warp();
        in_split::split_tile(k, 0);
    }
}

/* Points to rows. */
INLINE void join(work *k, column_tiles t, const in_join::sinks *to)
{
    ROLL for (k->task = t.first; k->task < COLUMN_TILES; k->task += t.step)
    {
        in_join::load_points(k);
        sync_warp();
        in_join::join_tile(k, to, 0);
    }
}

/* Windows first, ..., first + items - 1. column_constants are the tables of columns. */
extern "C" __global__ void __launch_bounds__(THREADS, 1) conv(
    const X *x, const X *x_factor, X *y, const X *y_factor, X *y2, const X *y2_factor,
    const uint4 *column_constants, const char *spectra, const uint4 *constants, int64 first,
    int64 items, int64 share, int64 length, int64 batch, int64 channels, int64 windows,
    int64 step, int64 lead, int64 before, int64 after, const packed_window *packed, int flags,
    const float *few, const float *few_bias, int few_groups)
{
    extern __shared__ u8 memory[];
    const u32 own_memory = shared_address(memory);
    for (int i = threadIdx.x; i < in_rows::ALL_TABLES; i += THREADS)
        store_shared128(own_memory + i * 16, constants[i]);
    for (int i = threadIdx.x; i < in_split::ALL_TABLES; i += THREADS)
        store_shared128(own_memory + COLUMN_TABLES_AT + i * 16, column_constants[i]);
    work k;
    u32 peaks[2];
    k.r = { length, batch, channels, windows, step, lead, before, after, packed, flags };
    k.points_at = own_memory + ROWS_AT;
    k.tables = constants + threadIdx.x % 32; /* of rows */
    k.peaks = peaks;
    k.lane = threadIdx.x % 32;
    column_tiles tiles = { (int)(rank() * BLOCK_WARPS + threadIdx.x / 32),
                           CLUSTER * BLOCK_WARPS };
    ROLL for (int64 item = blockIdx.x / CLUSTER; item < items; item += gridDim.x / CLUSTER)
    {
        k.w = first_window(&k.r, first + item);
        int64 filter = k.w.channel / share;
        const char *spectrum = spectra + filter * ROWS * (COLUMNS * 4 + 16);
        const X *from = x + beside(&k.r, &k.w, GROUPED_X);
        const X *gate = x_factor + beside(&k.r, &k.w, GROUPED_X_FACTOR);
        take_few(&k, few, few_bias, few_groups);
        in_peaks::find_peaks(&k, from, gate, peaks);
        meet_peaks(&k, own_memory, peaks);

        take_columns(&k, own_memory);
        take_few(&k, few, few_bias, few_groups);
        split(&k, tiles, from, gate);
        meet_blocks();

        take_rows(&k, own_memory);
        in_rows::multiply_rows(&k, spectrum);
        meet_blocks();

        take_columns(&k, own_memory);
        in_join::scales back;
        in_join::sinks to = in_join::sinks_of(&k, y, y_factor, y2, y2_factor);
        in_join::scales_of(peaks, &back);
        float scale = *(const float *)(spectrum + COLUMNS * 4);
        to.scale.of[0] = back.of[0] * scale;
        to.scale.of[1] = back.of[1] * scale;
        to.few = few_of(&k.r, &k.w, few, few_bias, few_groups, 2);
        in_join::align_sinks(&k, &to);
        join(&k, tiles, &to);
    }
    meet_blocks();
}
