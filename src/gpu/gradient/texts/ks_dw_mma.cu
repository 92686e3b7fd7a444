/* Parts of dw[i][r][k][j] = sum over s of dy[s, i, r, j] x[s, i, k, j] on tensor cores from
   compute capability 8.0 on, each over a slab of `slab` columns s of the batch;
   ks_reduce.cu adds them up. Sums run over s, and neither operand has to be turned:

   Batch-first, lanes j of one row, or rows, are contiguous. So a block computes a tile of
   TOGETHER lanes, TILE_R rows r by TILE_K columns k. A thread reads from shared memory vectors
   of VECTOR elements of one column s. LANES_OF of these are lanes, and each element belongs to
   a different operand. Two 16-bit elements of different columns s become a word in registers.
   Batch-last (LAST, 4 bytes an element), a vector is four columns s of one row, and TOGETHER
   is 1.

   A thread's places in an operand may stand for any columns s and rows if both operands agree.
   The choice makes threads access different banks.

   With BOXES the copy engine of compute capability 9.0 fetches stages by maps of x and dy. FLAT
   boxes have all lanes of some rows, in segments of 128 bytes [segment][s], with the 128-byte
   swizzle. Other boxes have lanes of 64 bytes. Their lines have two rows more than a tile, so
   that with the 64-byte swizzle threads access different banks. Without BOXES threads copy.

   A block has GROUPS times WARPS_R x WARPS_K warps; each group has its own vectors of lanes. A
   warp computes 16 TILES_R by 8 TILES_K vectors. Operands have STEP columns s; fewer need fewer
   registers. Copies run STAGES - 1 stages of DEPTH columns s ahead. f32 is the sum of two tf32
   numbers (SPLIT), and products of the small parts are left out. Tensor cores do not round to
   nearest, so sums leave them after FLUSH stages.

   part[slab][i][r][k][j], batch-last [slab][i][j][r][k]; if `add`, sums are added to what
   is there. Grid: tiles x slabs, slab by slab. */
// SPDX-License-Identifier: Apache-2.0
#if LAST && ELEMENT != 4
  #error "batch-last, a vector of four elements is of 16 bytes"
#endif

#define VECTOR_BYTES (VECTOR * ELEMENT)
#define WORDS        (VECTOR_BYTES / 4)
#define VECTOR_ROWS  (LAST ? 1 : VECTOR / LANES_OF)
#define GROUPS       (TOGETHER / LANES_OF)
#define THREADS      (32 * GROUPS * WARPS_R * WARPS_K)
#define TILE_R       (16 * TILES_R * WARPS_R * VECTOR_ROWS)
#define TILE_K       (8 * TILES_K * WARPS_K * VECTOR_ROWS)
#define ROW_TILES    ((ROWS + TILE_R - 1) / TILE_R)
#define COL_TILES    ((COLS + TILE_K - 1) / TILE_K)
#define LANE_TILES   (LANES / TOGETHER)
#define TILES        (ROW_TILES * COL_TILES * LANE_TILES * BLOCKS)

/* Bits of the place in a line that are flipped: threads that read vectors of 8 rows and 4
   lines, batch-last of 8 lines, then meet different banks. */
#define FLIPPED(line)                                                                  \
    (BOXES         ? 0                                                                 \
     : LAST        ? (line) % 2 * 64                                                   \
     : GROUPS == 1 ? (line) % 4 * 32                                                   \
     : GROUPS == 4 ? (line) % 4 * 16                                                   \
                   : (line) % 2 * 16 + (line) % 4 / 2 * 64)
#define FLIP_PERIOD 4
#define COPIERS     THREADS
#define COPIER      threadIdx.x

#define PAD          (BOXES && !FLAT ? 2 * TOGETHER * ELEMENT : 0)
#define SWIZZLED(at) (BOXES ? (at) ^ ((at) >> 7 & 3) << 4 : (at))

/* Flat boxes: elements in 128 bytes; bytes of all columns s. */
#define SEGMENT       (128 / ELEMENT)
#define SEGMENT_BYTES (DEPTH * 128)

#include "ks_dw.cuh"

typedef lines<TILE_R, PAD> lines_dy;
typedef lines<TILE_K, PAD> lines_x;

#define STAGE_BYTES (lines_dy::bytes + lines_x::bytes)

typedef struct tile {
    int i, j, r, k;
} tile;

/* Blocks that run at a time share columns s, and then lanes. */
INLINE tile tile_at(int t)
{
    tile at;
    at.r = t % ROW_TILES * TILE_R;
    t /= ROW_TILES;
    at.k = t % COL_TILES * TILE_K;
    t /= COL_TILES;
    at.j = t % LANE_TILES * TOGETHER;
    at.i = t / LANE_TILES;
    return at;
}

/* ---- products ---- */

/* Registers of an operand; elements of a vector that meet the same ones of the other
   operand's vectors: VECTOR_ROWS for each of these. Batch-last they are halves of a step. */
#define LEFT    (ELEMENT == 2 ? STEP / 4 : 4)
#define RIGHT   (LEFT / 2)
#define MATCHES (LAST ? 2 : LANES_OF)
#define PLACES  (LAST ? 2 : VECTOR)
#define SLOTS   (LAST ? 1 : VECTOR)

/* A warp's sums: tile of rows, element of dy's vector, tile of columns, row of x's
   vector; element e is at vectors l / 4 + 8 (e / 2) of dy and 2 (l mod 4) + e mod 2 of x,
   l the thread. */
typedef float sums[TILES_R][SLOTS][TILES_K][VECTOR_ROWS][4];

typedef struct place {
    int group, row, column; /* of lanes; of the block's warps */
} place;

INLINE place place_of_warp()
{
    int warp = threadIdx.x / 32;
    return { warp % GROUPS, warp / GROUPS / WARPS_K, warp / GROUPS % WARPS_K };
}

/* In flat boxes lines of 128 bytes that are read together must differ in how their pieces
   are exchanged: a thread's first column s of eight; its second one is so many further. */
#define FLAT_LINE(q) (GROUPS == 1 ? (q) * 2 : GROUPS == 2 ? (q) % 2 + (q) / 2 * 4 : (q))
#define FLAT_NEXT    (GROUPS)

/* Where a thread reads its vectors of an operand: at even[0], and at even[1] those 8
   rows, batch-last 16 columns s, further on. */
template <int tile> struct reader {
    typedef lines<tile, PAD> at;
    u32 even[2];

    MEMBER void begin(int vector, int group)
    {
        int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            int place = ((vector + g + odd * 8) * GROUPS + group) * VECTOR_BYTES;
            if (LAST)
                even[odd] = (vector + g) * at::pitch + ((odd * 64 + q * 16) ^ FLIPPED(g));
            else if (FLAT)
                even[odd] = place / 128 * SEGMENT_BYTES + FLAT_LINE(q) * 128 +
                            (place % 128 ^ FLAT_LINE(q) * 16);
            else
                even[odd] = SWIZZLED(q * at::pitch + (place ^ FLIPPED(q)));
        }
    }

    /* 8 t vectors from the first one on; of the columns s from `column` on the thread's
       u-th, batch-last four. */
    MEMBER void read(u32 v[WORDS], u32 stage, int t, int column, int u)
    {
        if (LAST)
            load_words<VECTOR_BYTES>(
                v, stage + even[column / 16 % 2] + column / 32 * 128 + t * 8 * at::pitch);
        else if (FLAT)
            load_words<VECTOR_BYTES>(
                v, (stage + even[t % 2] ^ u % 2 * FLAT_NEXT * 16) +
                       (column + u / 2 * 8 + u % 2 * FLAT_NEXT) * 128 +
                       t / 2 * (GROUPS * VECTOR_BYTES / 8) * SEGMENT_BYTES);
        else
            load_words<VECTOR_BYTES>(
                v, stage + even[t % 2] + t / 2 * (16 * GROUPS * VECTOR_BYTES) +
                       (column + u * 4) * at::pitch);
    }

    /* Registers `half` and 2 + half, or with one half 0 and 1, of the operands that are
       in one step's vectors. */
    template <int halves>
    MEMBER void operands(
        u32 to[PLACES][halves == 2 ? LEFT : RIGHT], u32 stage, int t, int half, int column)
    {
        u32 v[4][WORDS];
#if LAST
        read(v[0], stage, t, column, 0);
#pragma unroll
        for (int e = 0; e < 4; e++)
            to[e / 2][half + e % 2 * halves] = v[0][e];
#elif ELEMENT == 4
#pragma unroll
        for (int u = 0; u < 2; u++) {
            read(v[u], stage, t, column, u);
#pragma unroll
            for (int e = 0; e < VECTOR; e++)
                to[e][half + u * halves] = v[u][e];
        }
#else
#pragma unroll
        for (int u = 0; u < STEP / 4; u++)
            read(v[u], stage, t, column, u);
#pragma unroll
        for (int u = 0; u < STEP / 8; u++)
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
                u32 first = v[2 * u][w], next = v[2 * u + 1][w];
                to[2 * w][half + u * halves] = low_halves(first, next);
                to[2 * w + 1][half + u * halves] = high_halves(first, next);
            }
#endif
    }
};

INLINE void multiply(float *d, const u32 *a, const u32 *b)
{
#if ELEMENT == 2 && STEP == 8
    mma8(d, a, b[0]);
#else
    mma_unit(d, a, b[0], b[1]);
#endif
}

#define NUMBERS (sizeof(sums) / sizeof(float))

typedef u32 left_operands[TILES_R][PLACES][LEFT];

/* With the vectors of x of tile k; of split numbers high low + low high + high high. */
INLINE void products(
    sums sum, left_operands high, left_operands low, u32 right[PLACES][RIGHT], int k)
{
#pragma unroll
    for (int match = 0; match < MATCHES; match++) {
        u32 b[2][VECTOR_ROWS][RIGHT];
#pragma unroll
        for (int v = 0; v < VECTOR_ROWS; v++)
            if (SPLIT)
                split<RIGHT>(b[0][v], b[1][v], right[v * MATCHES + match]);
#pragma unroll
        for (int pass = SPLIT ? 0 : 2; pass < 3; pass++)
#pragma unroll
            for (int v = 0; v < VECTOR_ROWS; v++)
#pragma unroll
                for (int r = 0; r < TILES_R; r++)
#pragma unroll
                    for (int u = 0; u < VECTOR_ROWS; u++) {
                        int e = u * MATCHES + match;
                        multiply(
                            sum[r][LAST ? 0 : e][k][v], pass == 1 ? low[r][e] : high[r][e],
                            SPLIT ? b[pass == 0][v] : right[v * MATCHES + match]);
                    }
    }
}

/* Numbers of an operand as tf32 has them. */
template <int tiles, int registers>
INLINE void round_all(u32 v[tiles][PLACES][registers])
{
    if (ELEMENT != 4 || SPLIT)
        return;
#pragma unroll
    for (int e = 0; e < tiles * PLACES * registers; e++)
        (&v[0][0][0])[e] = round_tf32(__uint_as_float((&v[0][0][0])[e]));
}

INLINE void stage_products(
    sums sum, u32 stage, reader<TILE_R> dy, reader<TILE_K> x)
{
#pragma unroll
    for (int column = 0; column < DEPTH; column += STEP) {
        left_operands left;
#pragma unroll
        for (int r = 0; r < TILES_R; r++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                dy.operands<2>(left[r], stage, 2 * r + half, half, column);
        round_all<TILES_R, LEFT>(left);
        left_operands low;
        if (SPLIT)
            split<TILES_R * PLACES * LEFT>(left[0][0], low[0][0], left[0][0]);
#pragma unroll
        for (int k = 0; k < TILES_K; k++) {
            u32 right[1][PLACES][RIGHT];
            x.operands<1>(right[0], stage + lines_dy::bytes, k, 0, column);
            round_all<1, RIGHT>(right);
            products(sum, left, low, right[0], k);
        }
    }
}

/* ---- results ---- */

/* True if the results of two vectors are contiguous chunks of 16 bytes. */
#define WHOLE                                                                          \
    (!LAST && (VECTOR_ROWS == 1 || TOGETHER == LANES) && COLS * (i64)LANES % 4 == 0)

/* Stores a thread's results in row r with one vector of x, whose first row is k. */
INLINE void store_vector(
    float *part, tile t, int group, int r, int k, float *v, int add)
{
    if (LAST) {
        if (k < COLS)
            store_sum(
                &part[(((i64)t.i * LANES + t.j) * ROWS + r) * COLS + k], v[0], add);
        return;
    }
    int j = t.j + group * LANES_OF;
    float *to = part + (((i64)t.i * ROWS + r) * COLS + k) * LANES + j;
    if (WHOLE && k + VECTOR_ROWS <= COLS)
#pragma unroll
        for (int e = 0; e < VECTOR; e += 4) {
            if (add)
                add_four_sums(v + e, to + e);
            store_four_sums(to + e, v + e);
        }
    else
#pragma unroll
        for (int e = 0; e < VECTOR; e++)
            if (k + e / LANES_OF < COLS)
                store_sum(&to[e / LANES_OF * LANES + e % LANES_OF], v[e], add);
}

INLINE void store_sums(float *part, sums sum, tile t, place p, int add)
{
    int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < TILES_R; r++)
#pragma unroll
        for (int k = 0; k < TILES_K; k++)
#pragma unroll
            for (int u = 0; u < VECTOR_ROWS; u++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int vector = (p.row * TILES_R + r) * 16 + g + e / 2 * 8;
                    int row = t.r + vector * VECTOR_ROWS + u;
                    vector = (p.column * TILES_K + k) * 8 + q * 2 + e % 2;
                    float v[SLOTS];
#pragma unroll
                    for (int m = 0; m < SLOTS; m++)
                        v[m] = sum[r][LAST ? 0 : u * LANES_OF + m % LANES_OF][k]
                                  [m / LANES_OF][e];
                    if (row < ROWS)
                        store_vector(
                            part, t, p.group, row, t.k + vector * VECTOR_ROWS, v, add);
                }
}

/* ---- stages, of dy and then x, which come ahead of the products ---- */

#if BOXES
  #define AHEAD (STAGES > 4 ? STAGES - 2 : STAGES - 1)

INLINE void load_boxes(
    u32 stage, u32 flag, const tensor_map *x, const tensor_map *dy, tile t, int s)
{
    u32 to_x = stage + lines_dy::bytes;
  #if FLAT
    bulk_load_3(stage, dy, flag, 0, s, (t.i * ROWS + t.r) * LANES / SEGMENT);
    bulk_load_3(to_x, x, flag, 0, s, (t.i * COLS + t.k) * LANES / SEGMENT);
  #else
    bulk_load_3(stage, dy, flag, t.j, t.i * ROWS + t.r, s);
    bulk_load_3(to_x, x, flag, t.j, t.i * COLS + t.k, s);
  #endif
}

  #include "ks_dw_boxes.cuh"
#else
  #define MAPS

struct queue {
    u32 stages;
    source<ROWS, TILE_R> from_dy;
    source<COLS, TILE_K> from_x;
    int ahead, steps, slot;

    MEMBER void load(int to)
    {
        if (ahead++ < steps) {
            from_dy.load(stages + to * STAGE_BYTES);
            from_x.load(stages + to * STAGE_BYTES + lines_dy::bytes);
        }
        copy_commit();
    }

    MEMBER void begin(
        u32 memory, const element *x, const element *dy, tile t, span s, i64 batch)
    {
        stages = memory;
        ahead = slot = 0, steps = s.steps;
        from_dy.begin(dy, t.i, t.j, t.r, s.first, s.end, batch);
        from_x.begin(x, t.i, t.j, t.k, s.first, s.end, batch);
        from_dy.clear(stages, STAGE_BYTES);
        from_x.clear(stages + lines_dy::bytes, STAGE_BYTES);
        for (int n = 0; n < STAGES - 1; n++)
            load(n);
    }

    MEMBER u32 next()
    {
        copy_wait<STAGES - 2>();
        __syncthreads();
        load(slot ? slot - 1 : STAGES - 1);
        return stages + slot * STAGE_BYTES;
    }

    MEMBER void free() { slot = slot + 1 == STAGES ? 0 : slot + 1; }
};
#endif

/* ---- all of it ---- */

/* Adds what the tensor cores have summed up. */
INLINE void flush(sums sum, sums part)
{
    add<NUMBERS>(sum[0][0][0][0], part[0][0][0][0]);
    clear<NUMBERS>(part[0][0][0][0]);
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    dw(const element *x, const element *dy, float *part, i64 batch, i64 slab, int add MAPS)
{
    extern __shared__ u8 memory[];
    u32 stages = (shared_address(memory) + 127) & ~127u;
    span columns = span_of(batch, blockIdx.x / TILES, slab, DEPTH);
    queue q;
#if BOXES
    q.begin(stages, &x_map, &dy_map, tile_at(blockIdx.x % TILES), columns);
#else
    q.begin(stages, x, dy, tile_at(blockIdx.x % TILES), columns, batch);
#endif
    place p = place_of_warp();
    reader<TILE_R> read_dy;
    reader<TILE_K> read_x;
    read_dy.begin(p.row * TILES_R * 16, p.group);
    read_x.begin(p.column * TILES_K * 8, p.group);

    sums sum, recent;
    clear<NUMBERS>(sum[0][0][0][0]);
    clear<NUMBERS>(recent[0][0][0][0]);
#pragma unroll 1
    for (int n = 0; n < columns.steps; n++) {
        u32 stage = q.next();
        stage_products(SPLIT ? recent : sum, stage, read_dy, read_x);
        if (SPLIT && n % FLUSH == FLUSH - 1)
            flush(sum, recent);
        q.free();
    }
    if (SPLIT)
        flush(sum, recent);
    i64 size = (i64)BLOCKS * ROWS * COLS * LANES;
    store_sums(
        part + blockIdx.x / TILES * size, sum, tile_at(blockIdx.x % TILES),
        place_of_warp(), add);
}
