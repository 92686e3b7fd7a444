/* Two Kronecker-sparse factors at once, 16-bit types or tf32 (ELEMENT bytes), batch-first,
   on tensor cores from compute capability 8.0 on: y = K (L x) + bias, L (the inner
   factor) with one lane.
   For each of the BLOCKS blocks i of K and every column s of the batch

       mid[m]   = sum over k of l[i q + m / L_ROWS][m mod L_ROWS][k] x[i q + m / L_ROWS, k],
       y[r, j]  = sum over k of w[i][r][k][j] mid[k LANES + j],

   q = L_BLOCKS. mid is rounded to the type of x, as between two steps, and never leaves
   the multiprocessor.

   A thread block stays on its multiprocessor and computes tile after tile: all mid and all y
   of one i for TILE = 8 EIGHTS columns s. A warp takes units of a tile:
   - of the inner product: 16 JT lanes j for UNIT_K neighbouring k (of K). x goes from memory
     to registers, 16 bytes a lane. A register may hold any columns k of L, because l is packed
     in the same order. Words are stored, in 16-bit types pairs of k, which turns mid: each
     lane j has a matrix [TILE][COLS] in shared memory.
   - of the outer product: UNIT_J lanes j, which are ordinary products. Words, in 16-bit types
     pairs of j, are stored where the lanes' mid was, because only this warp reads it.
   Units of 16-bit types have two k or j, the halves of a word; units of tf32 may have one.
   Last, all warps gather these words and write y in whole lines.

   Weights are loaded from the second cache, 16 bytes a lane in the order of registers, two
   steps (16 JT or ROWS rows by 64 bytes of columns k) ahead. x is loaded a unit ahead, across
   the borders of tiles, so that its loads overlap the outer product.

   Limits of a tile: registers (8 floats for 16 rows by 8 columns s; x of a unit), shared
   memory (mid), and the second cache, from which each tile reads all weights.

   Shared memory: PAIRS = LANES / 2 places of PAIR_BYTES, in each
     mid  2 matrices of LANE_BYTES: [TILE][COLS], 16-byte chunks exchanged among eight
          rows, words of a chunk by lane: no two threads meet in a bank;
     y    planes of words [TILE][ROW_PITCH], one for each lane or pair, exchanged alike.
   Packed: l as [i][unit][step][row of tiles][half a step][lane of warp], then w alike.
   Grid: as many blocks as are resident. */
// SPDX-License-Identifier: Apache-2.0
#include "ending.cuh"

#define THREADS (32 * WARPS)
#define TILE    (8 * EIGHTS)
#define X_ROW   ((i64)BLOCKS * L_BLOCKS * L_COLS)
#define Y_ROW   ((i64)BLOCKS * ROWS * LANES)

#define PER  (16 / ELEMENT) /* elements of 16 bytes */
#define WORD (4 / ELEMENT)  /* of a word */
#define STEP (64 / ELEMENT) /* columns k of a step */

#define JT          (L_TILES)
#define LANE_GROUPS (LANES / (16 * JT))
#define L_UNITS     (COLS / UNIT_K * LANE_GROUPS)
#define L_DEPTH     ((L_COLS + STEP - 1) / STEP)
#define L_STEPS     (UNIT_K * L_DEPTH)
/* The k of a unit belong to one block of L. */
#define SAME_X  (L_ROWS % (UNIT_K * LANES) == 0 || UNIT_K == 1)
#define X_SLOTS (SAME_X ? 1 : 2)

#define UNITS     (LANES / UNIT_J)
#define DEPTH     (COLS / STEP)
#define STEPS     (UNIT_J * DEPTH)
#define ROW_TILES (ROWS / 16)

#define MID_PITCH   (COLS * ELEMENT)
#define PLANE_BYTES (PAIR_BYTES * WORD / 2)
#define LANE_BYTES  (UNIT_J == 1 ? PLANE_BYTES : TILE * MID_PITCH + 16)
/* How far the four planes of 16 bytes of y are moved against the next four. In 32 bits
   the planes themselves lie 16 words apart. */
#define Y_TURN ((LANES % 64 == 0 ? 4 : LANES % 32 == 0 ? 8 : 16) * WORD / 2)

/* A tile's block i and first column s. */
typedef struct corner {
    int i;
    i64 s;
} corner;

INLINE corner corner_of(u32 tile)
{
    corner at;
    at.i = (int)(tile % BLOCKS);
    at.s = (i64)(tile / BLOCKS) * TILE;
    return at;
}

/* ---- x ---- */

/* The x of a unit: 16 bytes from at[slot] + STEP elements for each step in depth
   + 8 rows for each eight columns s, if so many columns are left. */
typedef struct source {
    const element *at[X_SLOTS];
    int left;
} source;

INLINE source source_of(const element *x, u32 tile, int unit, i64 batch)
{
    source from;
    corner at = corner_of(tile);
    int lane = threadIdx.x % 32;
    i64 s = at.s + lane / 4, left = batch - s;
    from.left = left < 0 ? 0 : left > TILE ? TILE : (int)left;
#pragma unroll
    for (int slot = 0; slot < X_SLOTS; slot++) {
        int k = unit / LANE_GROUPS * UNIT_K + slot;
        int block = (k * LANES + unit % LANE_GROUPS * 16 * JT) / L_ROWS;
        from.at[slot] = x + s * X_ROW + ((i64)at.i * L_BLOCKS + block) * L_COLS +
                        lane % 4 * PER;
    }
    return from;
}

/* Loads PER elements; the first may be aligned like a type of 16 bytes, or not. */
INLINE void load_x(u32 to[4], const source *from, int slot, int depth, int eight)
{
    const element *at = from->at[slot] + eight * 8 * X_ROW + depth * STEP;
    int wanted = from->left > eight * 8;
    if (L_COLS % STEP != 0)
        wanted = wanted && depth * STEP + threadIdx.x % 4 * PER < L_COLS;
#if ALIGNED
    uint4 v = load_once_if(at, wanted);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
#else
    to[0] = to[1] = to[2] = to[3] = 0;
    if (wanted)
  #pragma unroll
        for (int e = 0; e < 4; e++)
            to[e] = ELEMENT == 4 ? at[e] : at[2 * e] | (u32)at[2 * e + 1] << 16;
#endif
}

/* ---- weights ---- */

/* Loads the weights of one step: `tiles` times 16 rows by STEP columns k; w points to this
   lane's. */
template <int tiles> INLINE void load_step(u32 (*to)[4], const uint4 *w, int wanted)
{
#pragma unroll
    for (int f = 0; f < 2 * tiles; f++) {
        uint4 v = load_once_if(w + f * 32, wanted);
        to[f][0] = v.x, to[f][1] = v.y, to[f][2] = v.z, to[f][3] = v.w;
    }
}

/* Where this lane's weights of a step are. */
template <int units, int steps, int tiles>
INLINE const uint4 *step_at(const uint4 *w, int i, int unit, int step)
{
    return w + (((i64)i * units + unit) * steps + step) * (tiles * 64) + threadIdx.x % 32;
}

/* Those of two steps after this one, if this warp has it. */
template <int units, int steps, int tiles>
INLINE void load_ahead(u32 (*to)[4], const uint4 *w, int i, int unit, int step)
{
    int next = step + 2 < steps ? unit : unit + WARPS;
    load_step<tiles>(
        to, step_at<units, steps, tiles>(w, i, next, (step + 2) % steps), next < units);
}

template <int units, int steps, int tiles>
INLINE void load_first(u32 (*to)[2 * tiles][4], const uint4 *w, int i)
{
    int unit = threadIdx.x / 32;
#pragma unroll
    for (int step = 0; step < 2; step++)
        load_step<tiles>(
            to[step], step_at<units, steps, tiles>(w, i, unit, step), unit < units);
}

/* ---- shared memory ---- */

/* Where the matrix of lane j is. */
INLINE u32 matrix_of(u32 mid, int j) { return mid + j / 2 * PAIR_BYTES + j % 2 * LANE_BYTES; }

/* Where 16 bytes of a matrix are: columns k from PER chunk on, for column s. */
INLINE u32 mid_chunk(int s, int chunk)
{
    int turn = s / 2 % 4 + s % 2 * 4;
    return (s * MID_PITCH & ~127) + chunk / 8 * 128 + (((chunk % 8) ^ turn) << 4);
}

/* Where the word of row r and column s is in a plane. */
INLINE u32 y_word(int plane, int s, int r)
{
    int turn = s / 2 % 4 * 8 ^ plane / (16 / WORD / 2) * Y_TURN % 32;
    return ((s * ROW_PITCH + r) ^ turn) * 4;
}

/* ---- one unit ---- */

/* What tensor cores take v as, which cut where tf32 rounds. */
INLINE float factor(float v) { return ELEMENT == 4 ? __uint_as_float(round_tf32(v)) : v; }

/* Adds half a step for eight columns s. */
template <int tiles>
INLINE void multiply(
    float (*sum)[EIGHTS][4], const u32 (*w)[4], const u32 *x, int half, int eight)
{
#pragma unroll
    for (int t = 0; t < tiles; t++)
        mma_unit(sum[t][eight], w[t * 2 + half], x[half * 2], x[half * 2 + 1]);
}

/* The first number at `to` and, of two, the second at `next`: in 16-bit types a word of both
   at `to`. */
template <int numbers> INLINE void store_sums(u32 to, u32 next, float v0, float v1)
{
#if ELEMENT == 4
    store_shared32(to, __float_as_uint(v0));
    if (numbers > 1)
        store_shared32(next, __float_as_uint(v1));
#else
    store_shared32(to, pack_pair(v0, v1));
#endif
}

/* Words of two neighbouring k to the matrices of 16 JT lanes j. */
INLINE void store_mid(u32 mid, float (*sum)[JT][EIGHTS][4], int unit)
{
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int word = unit / LANE_GROUPS * UNIT_K / WORD; /* of a row, the unit's first */
    u32 to = matrix_of(mid, unit % LANE_GROUPS * 16 * JT + g);
    u32 first = ((word ^ g) & 3) * 4;
#pragma unroll
    for (int tile = 0; tile < JT; tile++)
#pragma unroll
        for (int eight = 0; eight < EIGHTS; eight++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                u32 chunk = to + (tile * 8 + e / 2 * 4) * PAIR_BYTES +
                            mid_chunk(eight * 8 + t * 2 + e % 2, word / 4);
                store_sums<UNIT_K>(
                    chunk + first, chunk + (first ^ 4), factor(sum[0][tile][eight][e]),
                    factor(sum[UNIT_K - 1][tile][eight][e]));
            }
}

/* Takes x as it is used, and puts the x of the next unit there. */
INLINE void inner_unit(
    u32 mid, u32 (*x)[L_DEPTH][EIGHTS][4], u32 (*w)[2 * JT][4], const uint4 *l, int i,
    int unit, source next)
{
    float sum[UNIT_K][JT][EIGHTS][4] = { 0 };
#pragma unroll
    for (int step = 0; step < L_STEPS; step++) {
        int which = step / L_DEPTH, depth = step % L_DEPTH, slot = SAME_X ? 0 : which;
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int eight = 0; eight < EIGHTS; eight++) {
                u32 *piece = x[slot][depth][eight];
                if (ELEMENT == 4 && !half && (which == 0 || !SAME_X))
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        piece[e] = round_tf32(__uint_as_float(piece[e]));
                multiply<JT>(sum[which], w[step % 2], piece, half, eight);
                if (half && (which == UNIT_K - 1 || !SAME_X))
                    load_x(piece, &next, slot, depth, eight);
            }
        load_ahead<L_UNITS, L_STEPS, JT>(w[step % 2], l, i, unit, step);
    }
    store_mid(mid, sum, unit);
}

/* Words of two neighbouring lanes j. */
INLINE void store_y(u32 to, float (*sum)[ROW_TILES][EIGHTS][4], int unit)
{
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int tile = 0; tile < ROW_TILES; tile++)
#pragma unroll
        for (int eight = 0; eight < EIGHTS; eight++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                u32 at = to + y_word(
                                  unit * UNIT_J / WORD, eight * 8 + t * 2 + e % 2,
                                  tile * 16 + e / 2 * 8 + g);
                store_sums<UNIT_J>(
                    at, at + PLANE_BYTES, sum[0][tile][eight][e],
                    sum[UNIT_J - 1][tile][eight][e]);
            }
}

/* Sums begin with the bias. */
INLINE void begin_sums(
    float (*sum)[ROW_TILES][EIGHTS][4], const float *bias, int i, int unit)
{
#pragma unroll
    for (int which = 0; which < UNIT_J; which++)
#pragma unroll
        for (int n = 0; n < ROW_TILES * 2; n++) {
            int r = n * 8 + threadIdx.x % 32 / 4;
            float begin = bias ? bias[((i64)i * ROWS + r) * LANES + unit * UNIT_J + which] : 0;
#pragma unroll
            for (int eight = 0; eight < EIGHTS; eight++) {
                sum[which][n / 2][eight][n % 2 * 2] = begin;
                sum[which][n / 2][eight][n % 2 * 2 + 1] = begin;
            }
        }
}

INLINE void outer_unit(
    u32 mid, u32 (*w)[2 * ROW_TILES][4], const uint4 *k, const float *bias, int i,
    int unit)
{
    int lane = threadIdx.x % 32;
    float sum[UNIT_J][ROW_TILES][EIGHTS][4];
    begin_sums(sum, bias, i, unit);
    u32 place = matrix_of(mid, unit * UNIT_J);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        int which = step / DEPTH, depth = step % DEPTH;
        u32 from = place + which * LANE_BYTES + mid_chunk(lane % 8, depth * 4 + lane / 8);
#pragma unroll
        for (int eight = 0; eight < EIGHTS; eight++) {
            u32 x[4];
            load_matrices(x, from + eight * 8 * MID_PITCH);
            multiply<ROW_TILES>(sum[which], w[step % 2], x, 0, eight);
            multiply<ROW_TILES>(sum[which], w[step % 2], x, 1, eight);
        }
        load_ahead<UNITS, STEPS, ROW_TILES>(w[step % 2], k, i, unit, step);
    }
    sync_warp();
    store_y(place, sum, unit);
}

/* ---- results ---- */

/* PER lanes j of a row are a word of each of four planes. */
INLINE void write_y(u32 mid, element *y, i64 apart, corner at, i64 batch)
{
    const int per_row = LANES / PER, per_column = ROWS * per_row;
    i64 left = batch - at.s;
    element *to = y + at.s * Y_ROW + (i64)at.i * ROWS * LANES;
    int end = left < TILE ? (int)left * per_column : TILE * per_column;
#pragma unroll(ENDS || !ALIGNED ? 1 : 4)
    for (int q = threadIdx.x; q < end; q += THREADS) {
        int s = q / per_column, r = q % per_column / per_row, plane = q % per_row * 4;
        u32 from = mid + plane * PLANE_BYTES + y_word(plane, s, r);
        uint4 v = make_uint4(
            load_shared32(from), load_shared32(from + PLANE_BYTES),
            load_shared32(from + 2 * PLANE_BYTES), load_shared32(from + 3 * PLANE_BYTES));
        element *own = to + s * Y_ROW + q % per_column * PER;
        int width = ALIGNED ? 16 : ELEMENT;
        store_piece<16>(own, end_piece<16>(v, own, apart, 16, width), 16, width);
    }
}

/* ---- all of it ---- */

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    ks(const element *x, const uint4 *packed, const float *bias, const element *residual,
       element *y, i64 batch, int)
{
    extern __shared__ u8 memory[];
    u32 mid = shared_address(memory);
    int warp = threadIdx.x / 32;
    u32 tiles = (u32)((batch + TILE - 1) / TILE * BLOCKS);
    const uint4 *l = packed, *k = packed + (i64)BLOCKS * L_UNITS * L_STEPS * JT * 64;
    u32 xs[X_SLOTS][L_DEPTH][EIGHTS][4], l_step[2][2 * JT][4], k_step[2][2 * ROW_TILES][4];
    source from = source_of(x, blockIdx.x, warp, batch);
#pragma unroll
    for (int n = 0; n < X_SLOTS * L_DEPTH * EIGHTS; n++)
        load_x(
            xs[n / EIGHTS / L_DEPTH][n / EIGHTS % L_DEPTH][n % EIGHTS], &from,
            n / EIGHTS / L_DEPTH, n / EIGHTS % L_DEPTH, n % EIGHTS);
    load_first<L_UNITS, L_STEPS, JT>(l_step, l, corner_of(blockIdx.x).i);
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        corner at = corner_of(tile);
        for (int unit = warp; unit < L_UNITS; unit += WARPS) {
            int more = unit + WARPS < L_UNITS;
            from = source_of(
                x, more ? tile : tile + gridDim.x, more ? unit + WARPS : warp, batch);
            inner_unit(mid, xs, l_step, l, at.i, unit, from);
        }
        load_first<UNITS, STEPS, ROW_TILES>(k_step, k, at.i);
        __syncthreads();
        for (int unit = warp; unit < UNITS; unit += WARPS)
            outer_unit(mid, k_step, k, bias, at.i, unit);
        load_first<L_UNITS, L_STEPS, JT>(l_step, l, corner_of(tile + gridDim.x).i);
        __syncthreads();
        write_y(mid, y, apart_of(residual, y), at, batch);
        __syncthreads();
    }
}
