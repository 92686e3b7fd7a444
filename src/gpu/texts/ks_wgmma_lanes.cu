/* Kronecker-sparse products, batch-first with d > 1, on the tensor cores of sm_90a:
       y[s][i, r, j] = sum over k of w[i][r][k][j] x[s][i, k, j] + bias[i, r, j].
   Lanes j lie beside each other in memory, and stay so in shared memory: there a thread
   loads 16 bytes, several lanes of one column k or two, and makes words of them as the
   registers of a left operand hold them, one operand for each lane. Or x is what another
   factor made (X_MIDDLE), [batch / BLOCK_S][a][c][d][BLOCK_S], where each lane is a matrix,
   of whole lines of 128 bytes.

   A thread block stays on its multiprocessor and makes tile after tile, TILE_S columns s
   of the batch by TILE_R rows r for TOGETHER lanes j of a block i, in steps of UNITS times
   32 bytes of columns k. Its last threads ask for copies, up to STAGES steps ahead over the
   borders of tiles; two groups of four warps multiply, 64 columns s for PER_LOAD lanes each:
   the two halves of 32 bytes of lanes, or other columns s of fewer lanes. The CLUSTER blocks
   of a cluster make tiles of the same columns s, and each fetches a share of x for all.

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

   f32 (SPLIT) is the sum of two tf32 numbers, of x in registers and of w in two parts, the
   product of the small ones left out; sums leave the tensor cores after every step, since
   those do not round to nearest.

   w is packed as it will lie, [i][d / TOGETHER][tile of rows][step], zeros outside the
   matrix. Grid: as many blocks as are resident. */
// SPDX-License-Identifier: Apache-2.0
#include "pieces.cuh"

#if ELEMENT == 4
typedef u32 element;
#else
typedef u16 element;
#endif

#define LANE_BYTES  (TOGETHER * ELEMENT)
#define HALVES      (LANE_BYTES == 32 ? 2 : 1)
#define NARROW      (LANE_BYTES == 8) /* 16 bytes are two columns k */
#define PER_LOAD    ((NARROW ? 8 : 16) / ELEMENT)
#define UNIT_K      (NARROW ? 2 : 1)
/* Fours of units in a piece: wide lines where there are registers for two units of each. */
#define FOURS       (FLAT && !X_MIDDLE && PER_LOAD == 4 && HALVES == 1 && !NARROW ? 2 : 1)
#define FOUR_K      (4 * UNIT_K)
#define PIECE_K     (FOURS * FOUR_K) /* columns k, or rows r, of a piece */
#define STEP_K      (UNITS * 32 / ELEMENT)
#define STEPS       ((COLS + STEP_K - 1) / STEP_K)
#define STEP_PIECES (STEP_K / PIECE_K)
#define ROW_PIECES  (8 / PIECE_K)
#define LINE        (64 * FOURS * HALVES) /* bytes of a piece for one column s */

#define GROUPS   2
#define FETCHERS 128
#define THREADS  (128 * GROUPS + FETCHERS)
#define TILE_S   (HALVES == 2 ? 64 : 64 * GROUPS)

#define PIECE   (TILE_S * LINE)
#define X_BYTES (TILE_S * TOGETHER * UNITS * 32)
#define BLOCK_S (128 / ELEMENT) /* columns s that lie together, X_MIDDLE */
#define X_LANE  (STEP_K * 128)
#define X_BLOCK (TOGETHER * X_LANE)
#define W_UNIT  (TILE_R * 32) /* of a lane */
#define W_LANE  (UNITS * (SPLIT ? 2 : 1) * W_UNIT)
#define W_BYTES (TOGETHER * W_LANE)
#define STAGE   (X_BYTES + W_BYTES)
#define OUT     (ROW_PIECES * PIECE)

/* Whether the copy engine fetches x. */
#define FETCH_BULK (ALIGNED || X_MIDDLE)

/* The copy engine stores pieces of 32 bytes slowly, but threads that make pairs are slower. */
#define STORE_BULK (ALIGNED && (HALVES == 1 || FLAT || ELEMENT == 2))

/* Rows of what a group stores at once, and who stores it: the group or both. */
#define STORE_S       64
#define STORERS       (128 * HALVES)
#define STORE_BARRIER (HALVES == 2 ? 1 : 1 + threadIdx.x / 128)

/* ROW_TILES is the tiles of rows r, a multiple of CLUSTER; the last may be empty. */
#define LANE_GROUPS (LANES / TOGETHER)

typedef struct tile {
    int i, j, r0, s0, weights; /* the last: of the tile of weights */
} tile;

/* A ring of stages with flags: bytes have come, everybody has read them. */
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

INLINE u32 rank() { return CLUSTER > 1 ? cluster_rank() : 0; }

/* Tiles of all rows r are beside each other, then those of all lanes, which share lines of
   memory, and then of all blocks i, or, if their weights are too many for the second cache
   (COLUMNS_FIRST), of all columns s. */
INLINE tile tile_at(u32 t, u32 tiles_s)
{
    u32 row = t % (ROW_TILES / CLUSTER) * CLUSTER + rank();
    t /= ROW_TILES / CLUSTER;
    u32 lanes = t % LANE_GROUPS;
    t /= LANE_GROUPS;
    u32 i = COLUMNS_FIRST ? t / tiles_s : t % BLOCKS;
    u32 s = COLUMNS_FIRST ? t % tiles_s : t / BLOCKS;
    return tile{ (int)i, (int)lanes * TOGETHER, (int)row * TILE_R, (int)s * TILE_S,
                 (int)((i * LANE_GROUPS + lanes) * ROW_TILES + row) };
}

INLINE tile not_before(tile t)
{
    t.i = not_before(t.i), t.j = not_before(t.j);
    t.r0 = not_before(t.r0), t.s0 = not_before(t.s0);
    return t;
}

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

/* Where 16 bytes lie in a piece: those of a half of the unit for a column s. */
INLINE u32 in_piece(int s, int unit, int half)
{
    if (LINE == 64)
        return s * LINE + unit * 16;
    return FLAT ? swizzled(s, unit * HALVES + half)
                : s * LINE + unit * 32 + ((half ^ (s & 1)) << 4);
}

/* Of x (rows COLS) or y (rows ROWS): the bytes from 16 of column s on that are there, and
   where they are. */
INLINE i64 bytes_at(
    tile t, int rows, int k, int half, i64 s, i64 batch, i64 *place)
{
    *place = ((s * BLOCKS + t.i) * rows + k) * LANES + t.j + half * PER_LOAD;
    return k < rows && s < batch ? (NARROW ? (i64)(rows - k) * LANE_BYTES : 16) : 0;
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

/* This thread's first 16 bytes in a piece: column s of its operand's row, unit of its
   operand's column. Rows are exchanged where those beside each other meet the same banks. */
INLINE u32 own_place()
{
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, group = threadIdx.x / 128;
    int row = FOURS == 2 ? lane / 4 % 2 * 4 + lane / 8 : lane / 4;
    int s = warp * 16 + row + (HALVES == 2 ? 0 : group * 64);
    return in_piece(s, lane % 4, group % HALVES);
}

/* Of four number n from there on, and of column s or s + 8. */
INLINE u32 own_unit(u32 own, int n, int eight)
{
    return (own ^ n % FOURS * 64) + n / FOURS * PIECE + eight * 8 * LINE;
}

INLINE u32 word_of(uint4 v, int n)
{
    return n == 0 ? v.x : n == 1 ? v.y : n == 2 ? v.z : v.w;
}

/* One thread for each block of the cluster tells it that a stage is free again. */
INLINE void release(const ring *r, int slot)
{
    u32 flag = r->empty + slot * 8, thread = threadIdx.x % 128;
    if (thread < CLUSTER)
        flag_arrive(CLUSTER > 1 ? in_block(flag, thread) : flag);
}

/* In a stage: the weights of this group's lanes. */
INLINE u32 own_weights()
{
    return X_BYTES + (HALVES == 2 ? threadIdx.x / 128 * PER_LOAD * W_LANE : 0);
}

INLINE void clear(float sum[PER_LOAD][TILE_R / 2])
{
#pragma unroll
    for (int e = 0; e < PER_LOAD * TILE_R / 2; e++)
        sum[0][e] = 0;
}

#if X_MIDDLE && ELEMENT == 2

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
    clear(sum);
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
        release(r, r->slot);
        advance(r);
    }
}

#else

/* What a thread reads of a step. */
typedef struct units {
    uint4 v[STEP_K / FOUR_K][2]; /* of columns s and s + 8 */
} units;

INLINE units load_units(u32 from)
{
    units u;
#pragma unroll
    for (int n = 0; n < STEP_K / FOUR_K; n++)
        for (int eight = 0; eight < 2; eight++)
            u.v[n][eight] = load_shared128(own_unit(from, n, eight));
    return u;
}

#if ELEMENT == 4
/* Of a lane: what register e of unit n is made of. */
INLINE float number_of(const units &u, int lane, int n, int e)
{
    int at = NARROW ? e / 2 * 2 + lane : lane;
    return __uint_as_float(word_of(u.v[n * (8 / FOUR_K) + (NARROW ? 0 : e / 2)][e % 2], at));
}
#endif

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

#if X_MIDDLE
/* Of lane n and register e: column s, and of eight columns k an even one first. */
INLINE u32 load_middle(u32 stage, int n, int e)
{
    int lane = threadIdx.x % 32, group = threadIdx.x / 128;
    int s = threadIdx.x / 32 % 4 * 16 + lane / 4 + e % 2 * 8;
    u32 block = s / BLOCK_S + (HALVES == 2 ? 0 : group * (64 / BLOCK_S));
    u32 from = stage + block * X_BLOCK + ((HALVES == 2 ? group * PER_LOAD : 0) + n) * X_LANE;
    return load_shared32(
        from + swizzled(lane % 4 * 2 + e / 2, s % BLOCK_S / 4) + s % 4 * 4);
}

INLINE units load_units_middle(u32 stage)
{
    units u;
#pragma unroll
    for (int e = 0; e < 4; e++)
        u.v[e / 2][e % 2] = make_uint4(
            load_middle(stage, 0, e), load_middle(stage, 1, e), load_middle(stage, 2, e),
            load_middle(stage, 3, e));
    return u;
}
#endif

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

INLINE units next_units(const ring *r)
{
    u32 stage = r->stages + r->slot * STAGE;
    flag_wait(r->full + r->slot * 8, r->phase);
#if X_MIDDLE
    return load_units_middle(stage);
#else
    return load_units(stage + own_place());
#endif
}

template <int from> INLINE void rows_of(float *sum, const u32 *a, u64 w, int add)
{
    const int left = TILE_R - from, n = left == 40 ? 40 : wgmma_columns(left);
    wgmma_held<n>(sum + from / 2, a, w + from * 32 / 16, add);
    if constexpr (left > n)
        rows_of<from + n>(sum, a, w, add);
}

#if SPLIT

/* The left operands of a lane: what tf32 holds of x, and what it leaves. */
typedef struct operand {
    u32 high[UNITS][4], rest[UNITS][4];
} operand;

/* Made here, not between products. */
INLINE operand operand_of_lane(const units &u, int lane)
{
    operand x;
#pragma unroll
    for (int n = 0; n < UNITS; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float v = number_of(u, lane, n, e);
            x.high[n][e] = near_tf32(v);
            x.rest[n][e] = __float_as_uint(v - __uint_as_float(x.high[n][e]));
            asm volatile("" : "+r"(x.high[n][e]), "+r"(x.rest[n][e]));
        }
    return x;
}

INLINE void add(float *sum, const float *part)
{
#pragma unroll
    for (int e = 0; e < TILE_R / 2; e++)
        sum[e] += part[e];
}

/* part = the products of a lane, the small ones first: tensor cores cut where f32 rounds. */
INLINE void multiply_lane(float *part, const operand &x, u64 w)
{
    const u64 rest = W_UNIT / 16;
#pragma unroll
    for (int pass = 0; pass < 3; pass++)
#pragma unroll
        for (int n = 0; n < UNITS; n++)
            rows_of<0>(
                part, pass == 0 ? x.rest[n] : x.high[n], w + (n * 2 + (pass == 1)) * rest,
                pass + n > 0);
}

/* The groups ask for products in turn, so that they do not add at the same time. */
#define TURN_BARRIER(group) (3 + (group))

INLINE void begin_turns()
{
    if (threadIdx.x / 128 == 1)
        barrier_arrive(TURN_BARRIER(0), 128 * GROUPS);
}

/* While a lane is multiplied, the operands of the next are made. */
INLINE void multiply_tile(float sum[PER_LOAD][TILE_R / 2], ring *r)
{
    operand x[2];
    clear(sum);
    units u = next_units(r);
    x[0] = operand_of_lane(u, 0);
#pragma unroll 1
    for (int step = 0; step < STEPS; step++) {
        int slot = r->slot;
        u64 w = wgmma_pieces(r->stages + slot * STAGE + own_weights());
        advance(r);
#pragma unroll
        for (int lane = 0; lane < PER_LOAD; lane++) {
            float part[TILE_R / 2];
            barrier(TURN_BARRIER(threadIdx.x / 128), 128 * GROUPS);
            wgmma_fence();
            multiply_lane(part, x[lane % 2], w + lane * (W_LANE / 16));
            wgmma_commit();
            barrier_arrive(TURN_BARRIER(1 - threadIdx.x / 128), 128 * GROUPS);
            if (lane + 1 == PER_LOAD && step + 1 < STEPS)
                u = next_units(r);
            x[1 - lane % 2] = operand_of_lane(u, (lane + 1) % PER_LOAD);
            wgmma_wait<0>();
            if (lane + 1 == PER_LOAD)
                release(r, slot);
            add(sum[lane], part);
        }
    }
}

#else

/* Whether there are registers for the units of the next step. */
#define AHEAD (PER_LOAD == 4)

INLINE void multiply_tile(float sum[PER_LOAD][TILE_R / 2], ring *r)
{
    units u;
    clear(sum);
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
        release(r, slot);
    }
}

#endif
#endif

/* ---- results ---- */

/* Of the tile's first row, for this thread's first lane. */
INLINE const float *bias_of(const float *bias, tile t)
{
    int half = HALVES == 2 ? threadIdx.x / 128 : 0;
    return bias + ((i64)t.i * ROWS + t.r0) * LANES + t.j + half * PER_LOAD;
}

/* Adds the bias of the eight rows r from place `from` of the tile on, and of later ones, to
   this thread's sums. Of the four of a lane 2 n + e is at column s 8 n, row r e of a unit.
   Rows outside get that of the last: no sum may depend on a branch, or all leave their
   registers. */
template <int from>
INLINE void add_bias(float sum[PER_LOAD][TILE_R / 2], const float *bias, int r0)
{
    int unit = threadIdx.x % 4;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        int r = from + (NARROW ? unit * 2 + e : e * 4 + unit);
        if (ROWS < ROW_TILES * TILE_R)
            r = min(r, ROWS - 1 - r0);
#pragma unroll
        for (int lane = 0; lane < PER_LOAD; lane++) {
            float b = bias[r * LANES + lane];
            sum[lane][from / 2 + e] += b;
            sum[lane][from / 2 + 2 + e] += b;
        }
    }
    if constexpr (from + 8 < TILE_R)
        add_bias<from + 8>(sum, bias, r0);
}

/* Eight rows r of this thread's columns s, from place `from` of the tile on, to `out`. */
template <int from>
INLINE void write_rows_from(u32 out, const float sum[PER_LOAD][TILE_R / 2])
{
#pragma unroll
    for (int eight = 0; eight < 2; eight++)
#pragma unroll
        for (int four = 0; four < 8 / FOUR_K; four++) {
            u32 v[4];
#pragma unroll
            for (int q = 0; q < 4; q++) {
                int at = from / 2 + eight * 2 + (NARROW ? q / 2 : four);
#if ELEMENT == 4
                v[q] = __float_as_uint(sum[NARROW ? q % 2 : q][at]);
#else
                int lane = NARROW ? q % 2 * 2 : q * 2;
                v[q] = pack_pair(sum[lane][at], sum[lane + 1][at]);
#endif
            }
            store_shared128(
                own_unit(out + own_place(), four, eight), make_uint4(v[0], v[1], v[2], v[3]));
        }
}

/* Those of eight with this number, counted from `from` on. */
template <int from>
INLINE void write_rows(u32 out, const float sum[PER_LOAD][TILE_R / 2], int number)
{
    if (number == from)
        write_rows_from<from * 8>(out, sum);
    else if constexpr ((from + 1) * 8 < TILE_R)
        write_rows<from + 1>(out, sum, number);
}

/* The unit at place q of those that STORERS threads store, of eight rows r. */
typedef struct unit {
    int s, r, half;
    u32 at;
} unit;

INLINE unit unit_at(int q)
{
    const int units = LINE / 16;
    int part = q % units, piece = q / (units * STORE_S);
    unit u = { q / units % STORE_S, 0, part % HALVES };
    u.s += HALVES == 2 ? 0 : threadIdx.x / 128 * 64;
    u.r = piece * PIECE_K + part / HALVES * UNIT_K;
    u.at = piece * PIECE + in_piece(u.s, part / HALVES, u.half);
    return u;
}

INLINE void activate_rows(u32 out, int activation)
{
#pragma unroll 1
    for (int q = threadIdx.x % STORERS; q < OUT * STORE_S / TILE_S / 16; q += STORERS) {
        u32 at = out + unit_at(q).at;
        store_shared128(at, activate_words<ELEMENT>(load_shared128(at), activation));
    }
}

INLINE void store_rows(const tensor_map *y, u32 out, tile t, int r0)
{
    int s = HALVES == 2 ? 0 : threadIdx.x / 128 * 64;
#pragma unroll
    for (int piece = 0; piece < ROW_PIECES; piece++) {
        u32 from = out + piece * PIECE + s * LINE;
        if (FLAT)
            bulk_store_3(y, from, (r0 + piece * PIECE_K) * TOGETHER, t.i, t.s0 + s);
        else
            bulk_store_4(y, from, t.j, r0 + piece * PIECE_K, t.i, t.s0 + s);
    }
    bulk_commit();
}

/* What store_rows() does, by STORERS threads. */
INLINE void store_by_threads(element *y, u32 out, tile t, int r0, i64 batch, int width)
{
#pragma unroll(ALIGNED && SPLIT ? 4 : 1)
    for (int q = threadIdx.x % STORERS; q < OUT * STORE_S / TILE_S / 16; q += STORERS) {
        unit u = unit_at(q);
        i64 place, valid = bytes_at(t, ROWS, r0 + u.r, u.half, t.s0 + u.s, batch, &place);
        if (valid)
            store_piece<16>(y + place, load_shared128(out + u.at), valid, width);
    }
}

/* Where a tile's results go. */
typedef struct results {
    u32 outs;
    const tensor_map *map;
    element *y;
    i64 batch;
    int activation, width;
} results;

/* Eight rows r, those with this number; `known` is the number too, or -1. */
template <int known>
INLINE void write_eight(
    const float sum[PER_LOAD][TILE_R / 2], const results *to, tile t, int number)
{
    int leader = threadIdx.x % STORERS == 0, r0 = t.r0 + number * 8;
    u32 out = to->outs + number % OUTS * OUT;
    if (STORE_BULK && leader)
        bulk_wait_read<OUTS - 1>();
    if (STORE_BULK || OUTS == 1 || TILE_R % 16)
        barrier(STORE_BARRIER, STORERS);
    if constexpr (known < 0)
        write_rows<0>(out, sum, number);
    else
        write_rows_from<known * 8>(out, sum);
    if (known < 0 && to->activation) {
        barrier(STORE_BARRIER, STORERS);
        activate_rows(out, to->activation);
    }
    if (STORE_BULK)
        fence_async();
    barrier(STORE_BARRIER, STORERS);
    if (!STORE_BULK)
        store_by_threads(to->y, out, t, r0, to->batch, to->width);
    else if (leader)
        store_rows(to->map, out, t, r0);
}

template <int from>
INLINE void write_from(
    const float sum[PER_LOAD][TILE_R / 2], const results *to, tile t)
{
    write_eight<from>(sum, to, t, from);
    if constexpr ((from + 1) * 8 < TILE_R)
        write_from<from + 1>(sum, to, t);
}

/* A loop takes a tenth longer than its text written out, which takes as long to compile:
   so activations, and what is not aligned, have the loop. */
INLINE void write_y(
    const float sum[PER_LOAD][TILE_R / 2], const results *to, tile t)
{
    if (STORE_BULK && threadIdx.x % STORERS == 0)
        bulk_wait_read<0>();
    if (ALIGNED && !to->activation) {
        write_from<0>(sum, to, STORE_BULK ? t : not_before(t));
        return;
    }
#pragma unroll 1
    for (int n = 0; n < TILE_R / 8; n++) {
        t = not_before(t);
        write_eight<-1>(sum, to, t, n);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    ks(const element *x, const u8 *w, const float *bias, element *y, i64 batch,
       int activation, i64, i64, i64, i64, const __grid_constant__ tensor_map x_map,
       const __grid_constant__ tensor_map, const __grid_constant__ tensor_map y_map)
{
    extern __shared__ __align__(1024) u8 memory[];
    ring r = { shared_address(memory) };
    u32 outs = r.stages + STAGES * STAGE;
    r.full = outs + OUTS * OUT, r.empty = r.full + STAGES * 8;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            flag_init(r.full + s * 8, 1 + (FETCH_BULK ? 0 : FETCHERS));
            flag_init(r.empty + s * 8, GROUPS * CLUSTER);
        }
        flag_publish();
    }
    __syncthreads();
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
        int width = ALIGNED ? 16 : width_of(y, (i64)ROWS * LANES * ELEMENT);
        results to = { outs, &y_map, y, batch, activation, width };
        for (u32 n = first; n < tiles; n += stride) {
            float sum[PER_LOAD][TILE_R / 2];
            multiply_tile(sum, &r);
            tile t = tile_at(n, tiles_s);
            if (bias)
                add_bias<0>(sum, bias_of(bias, t), t.r0);
            write_y(sum, &to, t);
        }
        if (STORE_BULK && threadIdx.x % STORERS == 0)
            bulk_wait_read<0>();
    }
    __syncthreads();
    if (CLUSTER > 1)
        cluster_sync();
}
