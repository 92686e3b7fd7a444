/* Softmax attention (nn_attention.cu) in 16 bits, by tensor cores from compute capability 8.0
   on. HEAD is the size of a head, rounded up to a multiple of 16, at most 128.

   A block computes QUERIES rows of y for one head, a warp 16 of them. It takes KEYS rows of k
   and v at a time while the next rows are fetched. In the registers of a warp the results of
   one product are the left operand of the next: weights exp(score - most), rounded to the type
   of rows. At the end they are divided by the sum of the weights before rounding. */
// SPDX-License-Identifier: Apache-2.0
#include "pieces.cuh"

typedef i64 int64;
typedef float S;
#include "nn_table.cuh"

#define THREADS 128
#define QUERIES 64
#define KEYS    64
#define PITCH   (2 * HEAD + 16) /* bytes of a row in shared memory */
#define TILE    (KEYS * PITCH)
#define NONE    (-3.0e38f)
#define LEAST   (-1.0e30f) /* below all scores, and far above NONE */

/* Copies KEYS rows of a head to shared memory; rows that do not exist are zero. */
INLINE void fetch(const u16 *x, i64 first, i64 rows, i64 pitch, int head, u32 to)
{
    int together = width_of(x, 2 * pitch);
#pragma unroll 1
    for (int i = 0; i < HEAD / 16; i++) {
        int piece = i * THREADS + threadIdx.x;
        int row = piece / (HEAD / 8), column = piece % (HEAD / 8) * 8;
        i64 valid = first + row < rows ? 2 * (head - column) : 0;
        load_piece<16>(
            to + row * PITCH + 2 * column, x + (valid ? (first + row) * pitch + column : 0),
            valid, together);
    }
}

/* The keys of a tile, `from` to `to` - 1, that a query sees. */
typedef struct seen {
    int from, to;
} seen;

INLINE int inside(i64 key) { return key < 0 ? 0 : key < KEYS ? (int)key : KEYS; }

/* The query would be at `place` in the tile, which has so many keys. */
INLINE seen keys_of(i64 place, i64 keys, i64 window)
{
    seen of = { 0, inside(keys) };
    if (window) {
        of.from = inside(place - window + 1);
        of.to = min(of.to, inside(place + window));
    }
    return of;
}

/* scores[n] of 16 queries with keys 8 n to 8 n + 7; those of keys that are not seen are NONE.
   of[] are what a lane's two queries see. */
INLINE void
score(float scores[KEYS / 8][4], const u32 q[HEAD / 16][4], u32 k, const seen of[2])
{
    int lane = threadIdx.x % 32, row = lane % 8 + lane / 16 * 8;
    clear<KEYS / 8 * 4>(scores[0]);
#pragma unroll
    for (int c = 0; c < HEAD / 16; c++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n += 2) {
            u32 pair[4];
            load_matrices(pair, k + (8 * n + row) * PITCH + 32 * c + lane / 8 % 2 * 16);
            mma16(scores[n], q[c], pair[0], pair[1]);
            mma16(scores[n + 1], q[c], pair[2], pair[3]);
        }
    if (of[0].from > 0 || of[1].from > 0 || of[0].to < KEYS || of[1].to < KEYS)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int key = 8 * n + lane % 4 * 2 + e % 2;
                if (key < of[e / 2].from || key >= of[e / 2].to)
                    scores[n][e] = NONE;
            }
}

/* Adds a bias (device/nn.h) to scores that have not been scaled; `near`: that of distance 0;
   the first of a lane's two queries would be at `place` in the tile. */
INLINE void add_bias(
    float scores[KEYS / 8][4], const float *near, int reach, int place, float scale)
{
    float part = 1 / scale;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int distance = 8 * n + threadIdx.x % 4 * 2 + e % 2 - place - e / 2 * 8;
            distance = distance < -reach ? -reach : min(distance, reach);
            scores[n][e] += near[distance] * part;
        }
}

/* The largest v among the four lanes that share a row. */
INLINE float largest_of_row(float v)
{
#pragma unroll
    for (int bits = 1; bits < 4; bits *= 2) {
        u32 other = __shfl_xor_sync(0xffffffff, __float_as_uint(v), bits);
        v = fmaxf(v, __uint_as_float(other));
    }
    return v;
}

INLINE float sum_of_row(float v)
{
#pragma unroll
    for (int bits = 1; bits < 4; bits *= 2)
        v += __uint_as_float(__shfl_xor_sync(0xffffffff, __float_as_uint(v), bits));
    return v;
}

/* What a lane knows of two rows, 8 apart: sums of weights are of its columns alone. */
typedef struct rows {
    float most[2], sum[2], y[HEAD / 8][4];
} rows;

/* Turns scores into weights; the largest one so far is 1, and earlier sums are scaled down.
   `scale` turns scores into exponents of two. */
INLINE void weigh(rows *of, float scores[KEYS / 8][4], float scale)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = scores[0][2 * r], sum = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
            most = fmaxf(most, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
        most = fmaxf(of->most[r], largest_of_row(most) * scale);
        float less = near_exp2(of->most[r] - most);
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 2 * r; e < 2 * r + 2; e++)
                sum += scores[n][e] = near_exp2(fmaf(scores[n][e], scale, -most));
        of->most[r] = most;
        of->sum[r] = of->sum[r] * less + sum;
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++)
            of->y[n][2 * r] *= less, of->y[n][2 * r + 1] *= less;
    }
}

INLINE void add_values(rows *of, const float weights[KEYS / 8][4], u32 v)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++) {
        const float *near = weights[2 * k], *far = weights[2 * k + 1];
        const u32 left[4] = { pack_pair(near[0], near[1]), pack_pair(near[2], near[3]),
                              pack_pair(far[0], far[1]), pack_pair(far[2], far[3]) };
#pragma unroll
        for (int n = 0; n < HEAD / 8; n += 2) {
            u32 pair[4];
            load_matrices_turned(
                pair, v + (16 * k + lane % 16) * PITCH + 16 * n + lane / 16 * 16);
            mma16(of->y[n], left, pair[0], pair[1]);
            mma16(of->y[n + 1], left, pair[2], pair[3]);
        }
    }
}

/* Stores rows `first` and first + 8, if they exist. */
INLINE void store_rows(const rows *of, u16 *y, i64 first, i64 length, i64 width, int head)
{
    int together = width_of(y, 2 * width), column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        i64 row = first + 8 * r;
        float part = 1 / sum_of_row(of->sum[r]);
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++) {
            u32 pair = pack_pair(of->y[n][2 * r] * part, of->y[n][2 * r + 1] * part);
            i64 valid = row < length ? 2 * (head - 8 * n - column) : 0;
            store_piece<4>(
                y + row * width + 8 * n + column, make_uint4(pair, 0, 0, 0), valid,
                together);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, HEAD > 64 ? 2 : 4)
    attention(const __grid_constant__ job j)
{
    extern __shared__ u8 memory[];
    u32 tiles = shared_address(memory);
    i64 width = j.size[1], pitch = j.size[3], window = j.size[4];
    i64 reach = j.size[0];
    const float *near = (const float *)j.in[3];
    i64 s = 0, length = j.offset[1] - j.offset[0];
    int heads = (int)j.size[2], head = (int)(width / heads), lane = threadIdx.x % 32;
    i64 tile = blockIdx.x / heads;
#pragma unroll 1
    while (tile >= (length + QUERIES - 1) / QUERIES) {
        tile -= (length + QUERIES - 1) / QUERIES;
        s++;
        length = j.offset[s + 1] - j.offset[s];
    }
    i64 from = j.offset[s] * pitch + blockIdx.x % heads * head;
    if (near)
        near += blockIdx.x % heads * (2 * reach + 1) + reach;
    const u16 *queries = (const u16 *)j.in[0] + from;
    const u16 *keys = (const u16 *)j.in[1] + from, *values = (const u16 *)j.in[2] + from;
    i64 first = tile * QUERIES, begin = 0, end = length; /* of keys that are seen */
    if (window && first + 1 > window)
        begin = (first + 1 - window) / KEYS * KEYS;
    if (window && first + QUERIES + window - 1 < length)
        end = first + QUERIES + window - 1;
    int row = threadIdx.x / 32 * 16; /* of a warp */
    u32 q[HEAD / 16][4];
    fetch(queries, first, length, pitch, head, tiles + 2 * TILE);
    fetch(keys, begin, length, pitch, head, tiles);
    fetch(values, begin, length, pitch, head, tiles + TILE);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int c = 0; c < HEAD / 16; c++)
        load_matrices(
            q[c], tiles + 2 * TILE + (row + lane % 16) * PITCH + 32 * c + lane / 16 * 16);
    rows of = { { LEAST, LEAST } };
    int now = 0;
#pragma unroll 1
    for (i64 at = begin; at < end; at += KEYS, now = 2 * TILE - now) {
        i64 place = first - at + row + lane / 4;
        const seen keys_here[2] = { keys_of(place, length - at, window),
                                    keys_of(place + 8, length - at, window) };
        float weights[KEYS / 8][4];
        copy_wait<0>();
        __syncthreads();
        if (at + KEYS < end) {
            u32 to = tiles + 2 * TILE - now;
            fetch(keys, at + KEYS, length, pitch, head, to);
            fetch(values, at + KEYS, length, pitch, head, to + TILE);
            copy_commit();
        }
        score(weights, q, tiles + now, keys_here);
        if (near)
            add_bias(weights, near, (int)reach, (int)place, j.number[0]);
        weigh(&of, weights, j.number[0] * 1.44269504f);
        add_values(&of, weights, tiles + now + TILE);
    }
    u16 *y = (u16 *)j.out[0] + j.offset[s] * width + blockIdx.x % heads * head;
    store_rows(&of, y, first + row + lane / 4, length, width, head);
}
