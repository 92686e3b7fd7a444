/* Kronecker-sparse products, batch-first with d > 1, on the tensor cores of sm_90a:
       y[s][i, r, j] = sum over k of w[i][r][k][j] x[s][i, k, j] + bias[i, r, j].
   Lanes j are contiguous in memory and in shared memory. A thread loads 16 bytes from shared
   memory, several lanes of one or two columns k, and makes words of them as in the registers of
   a left operand, one operand for each lane. Or x comes from another factor (X_MIDDLE),
   [batch / BLOCK_S][a][c][d][BLOCK_S], where each lane is a matrix of whole lines of 128 bytes.

   A thread block stays on its multiprocessor and computes tile after tile, TILE_S columns s of
   the batch by TILE_R rows r for TOGETHER lanes j of a block i, in steps of UNITS times 32 bytes
   of columns k. Its last threads ask for copies, up to STAGES steps ahead over the borders of
   tiles. Two groups of four warps multiply, 64 columns s for PER_LOAD lanes each: the two halves
   of 32 bytes of lanes, or other columns s of fewer lanes. The CLUSTER blocks of a cluster
   compute tiles of the same columns s, and each fetches a share of x for all.

   Shared memory: STAGES times x, STEP_PIECES pieces, or, X_MIDDLE, [TILE_S / BLOCK_S][lane]
   [STEP_K][128 bytes] with the 128-byte swizzle, and w, [lane][unit][part][TILE_R / 8][2][8]
   times 16 bytes; OUTS times y of eight rows r, ROW_PIECES pieces; flags. A piece is a box of
   TILE_S columns s and, for each, 64 or 128 bytes: four units, which are 16 bytes of lanes
   of a column k (or row r) and of two for lanes of 8 bytes, with the 32-byte swizzle where
   units are 32 bytes; or eight (FOURS), and the 128-byte swizzle. Of eight columns k of 16
   bits in two pieces, or of eight rows r, those in even places come from the first.
   Maps, if ALIGNED: x in boxes [TILE_S][1][4][TOGETHER] of [batch][a][c][d], or
   [TILE_S][1][LINE bytes] of [batch][a][c d] if FLAT; y the like, of 64 columns s if a group
   stores alone. Other operands are fetched and stored by threads.

   f32 (SPLIT) is the sum of two tf32 numbers, for x in registers and for w in two parts. The
   product of the small ones is left out. Tensor cores do not round to nearest, so sums leave
   them after every step.

   w is packed as in shared memory, [i][d / TOGETHER][tile of rows][step], zeros outside the
   matrix. Grid: as many blocks as are resident. */
// SPDX-License-Identifier: Apache-2.0
#include "ks_wgmma_lanes_store.cuh"
#if SPLIT
  #include "ks_wgmma_lanes_split.cuh"
#elif !FROM_SHARED
  #include "ks_wgmma_lanes_operands.cuh"
#endif

/* ---- fetching ---- */

INLINE void fetch_w(u32 to, u32 flag, const u8 *w, tile t, int step)
{
    bulk_load(to, w + ((i64)t.weights * STEPS + step) * W_BYTES, W_BYTES, flag);
}

/* The blocks that a share of x goes to. */
#define EVERY_BLOCK (CLUSTER > 1 ? (1 << CLUSTER) - 1 : 0)

/* Every CLUSTER-th piece. */
INLINE void fetch_x(u32 to, u32 flag, const tensor_map *x, tile t, int step)
{
#pragma unroll
    for (int n = 0; n < STEP_PIECES; n += CLUSTER) {
        int piece = n + rank(), k = step * STEP_K + piece * PIECE_K;
        if (STEP_PIECES % CLUSTER && piece >= STEP_PIECES)
            break;
        if (FLAT)
            bulk_load_3(to + piece * PIECE, x, flag, k * TOGETHER, t.i, t.s0, EVERY_BLOCK);
        else
            bulk_load_4(to + piece * PIECE, x, flag, t.j, k, t.i, t.s0, EVERY_BLOCK);
    }
}

/* Some of the lanes, X_MIDDLE. */
INLINE void fetch_x_middle(u32 to, u32 flag, const tensor_map *x, tile t, int step)
{
    const int share = TOGETHER / CLUSTER;
    u32 lane = rank() * share;
#pragma unroll
    for (int block = 0; block < TILE_S / BLOCK_S; block++)
        bulk_load_4(
            to + block * X_BLOCK + lane * X_LANE, x, flag, 0, step * STEP_K, t.j + lane,
            (t.s0 / BLOCK_S + block) * BLOCKS + t.i, EVERY_BLOCK);
}

/* What fetch_x() does, without other blocks, by FETCHERS threads: each has a place in the
   pieces of every so many columns s. */
INLINE void fetch_x_by_threads(
    u32 to, u32 flag, const element *x, tile t, int step, i64 batch, int width)
{
    const int units = LINE / 16, columns = FETCHERS / units;
    int part = threadIdx.x % units, s = threadIdx.x % FETCHERS / units;
    int k = step * STEP_K + part / HALVES * UNIT_K;
    i64 place, left = batch - t.s0;
    bytes_at(t, COLS, k, part % HALVES, t.s0 + s, batch, &place);
    to += in_piece(s, part / HALVES, part % HALVES);
#pragma unroll 1
    for (int n = 0; n < TILE_S / columns; n++) {
#pragma unroll
        for (int piece = 0; piece < STEP_PIECES; piece++) {
            int rest = COLS - k - piece * PIECE_K;
            int valid = s < left && rest > 0 ? (NARROW ? rest * LANE_BYTES : 16) : 0;
            const element *from = x + place + piece * (PIECE_K * LANES);
            load_piece<16>(to + piece * PIECE, valid ? from : x, valid, width);
        }
        s += columns, to += columns * LINE, place += (i64)columns * BLOCKS * COLS * LANES;
    }
    fence_async(); /* some were stored, not copied */
    flag_arrive_copies(flag);
}

INLINE void fetch_tiles(
    ring r, const tensor_map *x_map, const element *x, const u8 *w, i64 batch,
    u32 tiles_s, u32 tiles, u32 first, u32 stride)
{
    int width = width_of(x, (i64)COLS * LANES * ELEMENT);
    int leader = threadIdx.x % FETCHERS == 0;
    if (FETCH_BULK && !leader)
        return;
    for (u32 n = first; n < tiles; n += stride) {
        tile t = tile_at(n, tiles_s);
#pragma unroll 1
        for (int step = 0; step < STEPS; step++) {
            u32 to = r.stages + r.slot * STAGE, flag = r.full + r.slot * 8;
            flag_wait(r.empty + r.slot * 8, r.phase ^ 1);
            if (leader) {
                flag_expect(flag, (FETCH_BULK ? X_BYTES : 0) + W_BYTES);
                fetch_w(to + X_BYTES, flag, w, t, step);
            }
            if (X_MIDDLE)
                fetch_x_middle(to, flag, x_map, t, step);
            else if (ALIGNED)
                fetch_x(to, flag, x_map, t, step);
            else
                fetch_x_by_threads(to, flag, x, t, step, batch, width);
            advance(&r);
        }
    }
}

/* ---- products ---- */

#if FROM_SHARED

template <int from> INLINE void rows_of(float *sum, u64 x, u64 w)
{
    const int left = TILE_R - from, n = wgmma_columns(left);
    wgmma<n, 1>(sum + from / 2, x, w + from * 32 / 16, 1);
    if constexpr (left > n)
        rows_of<from + n>(sum, x, w);
}

/* Tensor cores read x as it lies, turned. A stage is given back at once, rather than when the
   next one has come: there are but three or four. */
INLINE void multiply_tile(float sum[PER_LOAD][TILE_R / 2], ring *r)
{
    int group = threadIdx.x / 128;
    u32 x_at = group * (HALVES == 2 ? PER_LOAD * X_LANE : X_BLOCK);
    clear<PER_LOAD * TILE_R / 2>(sum[0]);
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
        u32 stage = r->stages + r->slot * STAGE;
        u64 x = wgmma_matrix(stage + x_at), w = wgmma_pieces(stage + own_weights());
        flag_wait(r->full + r->slot * 8, r->phase);
        wgmma_fence();
#pragma unroll
        for (int lane = 0; lane < PER_LOAD; lane++)
            rows_of<0>(sum[lane], x + lane * (X_LANE / 16), w + lane * (W_LANE / 16));
        wgmma_commit();
        wgmma_wait<0>();
        release<CLUSTER>(r->empty + r->slot * 8);
        advance(r);
    }
}

#elif !SPLIT

/* The left operands of PER_LOAD lanes. */
typedef struct operands {
    u32 a[PER_LOAD][4];
} operands;

/* Register e of a lane. */
INLINE u32 operand_of(units u, int lane, int e)
{
#if ELEMENT == 4
    return round_tf32(number_of(u, lane, 0, e));
#else
    /* Two columns k of two lanes. */
    const int half = STEP_K / FOUR_K / 2;
    uint4 first = u.v[e / 2 * half][e % 2], other = u.v[e / 2 * half + half - 1][e % 2];
    u32 lo = word_of(first, lane / 2), hi = word_of(other, lane / 2 + (NARROW ? 2 : 0));
    return lane % 2 ? high_halves(lo, hi) : low_halves(lo, hi);
#endif
}

/* Made here, not between products. */
INLINE operands operands_of(units u)
{
    operands x;
#pragma unroll
    for (int lane = 0; lane < PER_LOAD; lane++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            x.a[lane][e] = operand_of(u, lane, e);
            asm volatile("" : "+r"(x.a[lane][e]));
        }
    return x;
}

/* True if there are registers for the units of the next step. */
#define AHEAD (PER_LOAD == 4)

INLINE void multiply_tile(float sum[PER_LOAD][TILE_R / 2], ring *r)
{
    units u;
    clear<PER_LOAD * TILE_R / 2>(sum[0]);
    if (AHEAD)
        u = next_units(r);
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
        int slot = r->slot;
        u64 w = wgmma_pieces(r->stages + slot * STAGE + own_weights());
        if (!AHEAD)
            u = next_units(r);
        operands x = operands_of(u);
        wgmma_fence();
#pragma unroll
        for (int lane = 0; lane < PER_LOAD; lane++)
            rows_of<0>(sum[lane], x.a[lane], w + lane * (W_LANE / 16), 1);
        wgmma_commit();
        advance(r);
        if (AHEAD && step + 1 < STEPS)
            u = next_units(r);
        wgmma_wait<0>(); /* products keep their registers until they are done */
        release<CLUSTER>(r->empty + slot * 8);
    }
}

#endif

/* ---- all of it ---- */

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    ks(const element *x, const u8 *w, const float *bias, const element *residual,
       element *y, i64 batch, int, i64, i64, i64, i64,
       const __grid_constant__ tensor_map x_map,
       const __grid_constant__ tensor_map, const __grid_constant__ tensor_map y_map)
{
    extern __shared__ __align__(1024) u8 memory[];
    ring r = { shared_address(memory) };
    u32 outs = r.stages + STAGES * STAGE;
    r.full = outs + OUTS * OUT, r.empty = r.full + STAGES * 8;
    begin_ring(&r, 1 + (FETCH_BULK ? 0 : FETCHERS), GROUPS * 4 * CLUSTER);
    if (CLUSTER > 1)
        cluster_sync();

    u32 tiles_s = (u32)((batch + TILE_S - 1) / TILE_S);
    u32 tiles = tiles_s * (BLOCKS * LANE_GROUPS * (ROW_TILES / CLUSTER));
    u32 first = blockIdx.x / CLUSTER, stride = gridDim.x / CLUSTER;
    /* The same for all lanes, as the compiler can see. */
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (group == GROUPS) {
        registers_drop<24>();
        fetch_tiles(r, &x_map, x, w, batch, tiles_s, tiles, first, stride);
    } else {
        registers_take<240>();
#if SPLIT
        begin_turns();
#endif
        int width = ALIGNED ? 16 : width_of_both(residual, y, (i64)ROWS * LANES * ELEMENT);
        results to = { outs, &y_map, y, apart_of(residual, y), batch, width };
        for (u32 n = first; n < tiles; n += stride) {
            float sum[PER_LOAD][TILE_R / 2];
            multiply_tile(sum, &r);
            tile t = tile_at(n, tiles_s);
            if (bias)
                add_bias<0>(sum, bias_of(bias, t), ROWS - t.r0);
            write_y(sum, &to, t);
        }
        if (STORE_BULK && threadIdx.x % STORERS == 0)
            bulk_wait_read<0>();
    }
    __syncthreads();
    if (CLUSTER > 1)
        cluster_sync();
}
