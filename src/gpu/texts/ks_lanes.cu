/* Kronecker-sparse products on the tensor cores of sm_90a, batch-first, d > 1:
       y[s, i, r, j] = sum over k of w[i][r][k][j] x[s, i, k, j] + bias[i, r, j].
   The x of one (i, j) lies apart, an element every LANES; together lie its neighbours
   j. So a cluster makes a tile of TOGETHER = 2 CLUSTER lanes j: its blocks each fetch
   a share of the columns s, for all lanes, and give every block the elements of its
   two lanes; each multiplies, and y goes the same way back.

   A block has five roles: two groups of four warps multiply, one lane each, TILE_M
   columns s by TILE_N rows r; MOVERS groups take steps in turn, fetch x, turn units of
   PER columns k by UNIT_LANES lanes in registers, and send them; one group receives
   units of y, turns and stores them. What is sent lies ready in shared memory, rows of
   128 bytes, and is copied by the copy engine, SHARE rows of a lane at once.

   Shared memory: STAGES times x [2][TILE_M][LINE], w [2][PARTS][TILE_N][LINE] and x to
   be sent, [TOGETHER][SHARE][LINE]; BUFFERS times y to be sent, [2][MULTIPLE][PIECES]
   pieces, and y received, [TOGETHER][PIECES][SHARE][LINE]; flags. What is sent may be
   overwritten when the receiver has read it. w is packed as for ks_wgmma.cu.

   Grid: as many clusters as are resident. */
// SPDX-License-Identifier: Apache-2.0
#define BY_THREADS 1
#define TOGETHER   (2 * CLUSTER)
#define PER        (16 / ELEMENT)
#define UNIT_LANES (TOGETHER < PER ? TOGETHER : PER)
#define BESIDE     (TOGETHER / UNIT_LANES) /* units, for all lanes */
#define TILE_M     (64 * MULTIPLE)
#define SHARE      (TILE_M / CLUSTER)
#define X_LANE     (TILE_M * 128)
#define SHARE_BYTES (SHARE * 128)
#define READY_AT   (2 * X_LANE + 2 * W_BYTES)
#define STAGE      (READY_AT + TOGETHER * SHARE_BYTES)
#define X_UNITS    (SHARE * (DEPTH / PER) * BESIDE)
#define ITEMS      ((X_UNITS + 127) / 128) /* units of a thread in a step */
#define Y_GROUPS   (TILE_N / PER)
#define Y_UNITS    (SHARE * Y_GROUPS * BESIDE)
#define Y_READY    (2 * MULTIPLE * PIECES * PIECE)
#define BUFFER     (Y_READY + TOGETHER * PIECES * SHARE_BYTES)
#define THREADS    (128 * (3 + MOVERS))
/* Registers of threads: those of all, of those that move, that multiply. */
#define EACH          (65536 / THREADS / 8 * 8)
#define LEAST(a, b)   ((a) < (b) ? (a) : (b))
#define X_REGISTERS   LEAST(40 + ITEMS * UNIT_LANES * 4, EACH)
#define Y_REGISTERS   LEAST(64, EACH)
#define REGISTERS     ((EACH * (3 + MOVERS) - Y_REGISTERS - X_REGISTERS * MOVERS) / 16 * 8)

/* Rows r (columns k) of a chunk of 16 bytes. */
#define IN_CHUNK (PER / UNIT_LANES)
/* If a row's lanes are all here, chunk c of unit g, of `groups` units, begins at row
   CHUNK_ROW: neighbouring units have neighbouring chunks, so that threads of a warp
   meet lines of memory together. */
#if LANES == TOGETHER
#  define CHUNK_ROW(c, g, groups) (((c) * (groups) + (g)) * IN_CHUNK)
#else
#  define CHUNK_ROW(c, g, groups) ((g) * PER + (c) * IN_CHUNK)
#endif
#define ROW_AT(n) (CHUNK_ROW((n) % PER / IN_CHUNK, (n) / PER, Y_GROUPS) + (n) % IN_CHUNK)

#include "ks_tile.cuh"

/* PER by UNIT_LANES elements in the order of their memory, or lane by lane. */
typedef struct unit {
    u32 v[UNIT_LANES * 4];
} unit;

/* Two halves of words, or a word: elements e and f of 16 bits, e of 32. */
INLINE u32 pick(const unit *u, int e, int f)
{
#if ELEMENT == 4
    return u->v[e];
#else
    return __byte_perm(
        u->v[e / 2], u->v[f / 2], (f % 2 ? 0x7600 : 0x5400) | (e % 2 ? 0x32 : 0x10));
#endif
}

/* Memory's order is [PER][UNIT_LANES]. */
INLINE unit by_lane(unit u)
{
    unit turned;
#pragma unroll
    for (int l = 0; l < UNIT_LANES; l++)
#pragma unroll
        for (int q = 0; q < 4; q++) {
            int k = q * PER / 4;
            turned.v[l * 4 + q] = pick(&u, k * UNIT_LANES + l, (k + 1) * UNIT_LANES + l);
        }
    return turned;
}

INLINE unit by_memory(unit u)
{
    unit turned;
#pragma unroll
    for (int q = 0; q < UNIT_LANES * 4; q++) {
        int e = q * PER / 4, f = e + 1;
        turned.v[q] = pick(
            &u, e % UNIT_LANES * PER + e / UNIT_LANES, f % UNIT_LANES * PER + f / UNIT_LANES);
    }
    return turned;
}

/* The lanes are the cluster's; s0 is the cluster's too. */
INLINE tile tile_at(u32 t)
{
    tile at;
    at.r0 = (int)(t % ROW_TILES) * TILE_N;
    t /= ROW_TILES;
    at.j = (int)(t % (LANES / TOGETHER)) * TOGETHER;
    t /= LANES / TOGETHER;
    at.i = (int)(t % BLOCKS);
    at.s0 = (int)(t / BLOCKS) * TILE_M;
    return at;
}

INLINE uint4 load_elements(const element *from)
{
    element v[PER];
#pragma unroll
    for (int e = 0; e < PER; e++)
        v[e] = from[e];
    return *(uint4 *)v;
}

/* Unit number q of this block's share of a step: (column s, columns k, lanes). */
INLINE unit fetch_unit(const element *x, tile t, int step, int q, i64 batch)
{
    const int groups = DEPTH / PER;
    int lane = t.j + q % BESIDE * UNIT_LANES, group = q / BESIDE % groups;
    i64 s = t.s0 + cluster_rank() * SHARE + q / (BESIDE * groups);
    const element *from = x + ((s * BLOCKS + t.i) * COLS) * LANES + lane;
    unit u;
#pragma unroll
    for (int c = 0; c < UNIT_LANES; c++) {
        uint4 v = make_uint4(0, 0, 0, 0);
        int k = step * LINE + CHUNK_ROW(c, group, groups);
        if (s < batch && k < COLS) {
            const element *at = from + k * LANES;
            v = ALIGNED ? load_once(at) : load_elements(at);
        }
        u.v[c * 4] = v.x, u.v[c * 4 + 1] = v.y, u.v[c * 4 + 2] = v.z, u.v[c * 4 + 3] = v.w;
    }
    return u;
}

INLINE void ready_unit(unit u, u32 ready, int q)
{
    const int groups = DEPTH / PER;
    int lane0 = q % BESIDE * UNIT_LANES, group = q / BESIDE % groups;
    int row = q / (BESIDE * groups);
    u = by_lane(u);
#pragma unroll
    for (int l = 0; l < UNIT_LANES; l++)
        store_shared128(
            ready + (lane0 + l) * SHARE_BYTES + swizzled(row, group),
            make_uint4(u.v[l * 4], u.v[l * 4 + 1], u.v[l * 4 + 2], u.v[l * 4 + 3]));
}

INLINE void fetch_w(u32 to, u32 flag, const u8 *w, tile t, int step)
{
    for (int l = 0; l < 2; l++) {
        i64 block = (i64)t.i * LANES + t.j + cluster_rank() * 2 + l;
        const u8 *from =
            w + ((block * ROW_TILES + t.r0 / TILE_N) * STEPS + step) * W_BYTES;
        bulk_load(to + l * W_BYTES, from, W_BYTES, flag);
    }
}

/* The steps of mover `mover`, all tiles through; loads for its next one run while others
   send. */
INLINE void move_x(
    ring r, int mover, const element *x, const u8 *w, i64 batch, u32 tiles, u32 first,
    u32 stride)
{
    int thread = threadIdx.x % 128;
    u32 steps = first < tiles ? ((tiles - first - 1) / stride + 1) * STEPS : 0;
    unit next[ITEMS];
    auto load = [&](u32 g) {
        tile t = tile_at(first + g / STEPS * stride);
#pragma unroll
        for (int e = 0; e < ITEMS; e++)
            if (X_UNITS % 128 == 0 || e * 128 + thread < X_UNITS)
                next[e] = fetch_unit(x, t, g % STEPS, e * 128 + thread, batch);
    };
    if (mover < steps)
        load(mover);
    for (u32 g = mover; g < steps; g += MOVERS) {
        int slot = g % STAGES;
        u32 stage = r.stages + slot * STAGE, flag = r.full + slot * 8;
        flag_wait(r.empty + slot * 8, g / STAGES % 2 ^ 1);
        if (thread == 0) {
            flag_expect(flag, 2 * X_LANE + 2 * W_BYTES);
            fetch_w(
                stage + 2 * X_LANE, flag, w, tile_at(first + g / STEPS * stride),
                g % STEPS);
        }
#pragma unroll
        for (int e = 0; e < ITEMS; e++)
            if (X_UNITS % 128 == 0 || e * 128 + thread < X_UNITS)
                ready_unit(next[e], stage + READY_AT, e * 128 + thread);
        fence_async();
        barrier(4 + mover, 128);
        if (thread < TOGETHER)
            bulk_send(
                in_block(
                    stage + thread % 2 * X_LANE + cluster_rank() * SHARE_BYTES,
                    thread / 2),
                stage + READY_AT + thread * SHARE_BYTES, SHARE_BYTES,
                in_block(flag, thread / 2));
        /* Not before the fence, which waits for loads too. */
        if (g + MOVERS < steps)
            load(g + MOVERS);
    }
}

/* Places for y, in turn. */
typedef struct places {
    u32 at, full, empty;
    int slot;
    u32 phase;
} places;

INLINE void pass(places *p)
{
    if (++p->slot == BUFFERS)
        p->slot = 0, p->phase ^= 1;
}

/* Where piece number n of a lane is received. */
INLINE u32 received(u32 buffer, int lane, int n)
{
    return buffer + Y_READY + (lane * PIECES + n) * SHARE_BYTES;
}

/* Sends all of a lane: 64 MULTIPLE columns s, from piece `from` on. */
template <int from>
INLINE void send_y(
    float *sum, u32 piece, u32 buffer, u32 flag, const float *bias, tile t, int group,
    int s0)
{
    const int rows = TILE_N - from * LINE < LINE ? TILE_N - from * LINE : LINE;
    int thread = threadIdx.x % 128;
    write_piece<rows>(piece, sum + from * LINE / 2, bias, t, from * LINE);
    if (ACTIVATION) {
        barrier(1 + group, 128);
        activate_piece(piece);
    }
    fence_async();
    barrier(1 + group, 128);
    if (thread < 64 / SHARE) {
        int block = s0 / SHARE + thread;
        bulk_send(
            in_block(received(buffer, t.j % TOGETHER, from), block),
            piece + thread * SHARE_BYTES, SHARE_BYTES, in_block(flag, block));
    }
    if constexpr (from + 1 < PIECES)
        send_y<from + 1>(sum, piece + PIECE, buffer, flag, bias, t, group, s0);
}

INLINE void store_unit(element *y, unit u, tile t, int q, i64 batch)
{
    int lane = t.j + q % BESIDE * UNIT_LANES, group = q / BESIDE % Y_GROUPS;
    i64 s = t.s0 + cluster_rank() * SHARE + q / (BESIDE * Y_GROUPS);
    element *to = y + ((s * BLOCKS + t.i) * ROWS) * LANES + lane;
    u = by_memory(u);
#pragma unroll
    for (int c = 0; c < UNIT_LANES; c++) {
        int r = t.r0 + CHUNK_ROW(c, group, Y_GROUPS);
        element *at = to + r * LANES;
        uint4 v = make_uint4(u.v[c * 4], u.v[c * 4 + 1], u.v[c * 4 + 2], u.v[c * 4 + 3]);
        if (s >= batch || r >= ROWS)
            continue;
        if (ALIGNED)
            *(uint4 *)at = v;
        else
#pragma unroll
            for (int e = 0; e < PER; e++)
                at[e] = ((element *)&v)[e];
    }
}

INLINE void
move_y(places p, element *y, i64 batch, u32 tiles, u32 first, u32 stride)
{
    int thread = threadIdx.x % 128;
    for (u32 n = first; n < tiles; n += stride, pass(&p)) {
        tile t = tile_at(n);
        u32 buffer = p.at + p.slot * BUFFER, full = p.full + p.slot * 8;
        if (thread == 0)
            flag_expect(full, BUFFER - Y_READY);
        flag_wait(full, p.phase);
        for (int q = thread; q < Y_UNITS; q += 128) {
            int group = q / BESIDE % Y_GROUPS, s = q / (BESIDE * Y_GROUPS);
            unit u;
#pragma unroll
            for (int l = 0; l < UNIT_LANES; l++) {
                uint4 v = load_shared128(
                    received(buffer, q % BESIDE * UNIT_LANES + l, group / 8) +
                    swizzled(s, group % 8));
                u.v[l * 4] = v.x, u.v[l * 4 + 1] = v.y, u.v[l * 4 + 2] = v.z,
                        u.v[l * 4 + 3] = v.w;
            }
            store_unit(y, u, t, q, batch);
        }
        barrier(3, 128);
        if (thread < CLUSTER)
            flag_arrive(in_block(p.empty + p.slot * 8, thread));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    ks(const element *x, const u8 *w, const float *bias, element *y, i64 batch,
       int)
{
    extern __shared__ u8 memory[];
    ring r = { (shared_address(memory) + 1023) & ~1023u };
    places p = { r.stages + STAGES * STAGE };
    r.full = p.at + BUFFERS * BUFFER, r.empty = r.full + STAGES * 8;
    p.full = r.empty + STAGES * 8, p.empty = p.full + BUFFERS * 8;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            flag_init(r.full + s * 8, 1);
            flag_init(r.empty + s * 8, 2 * CLUSTER);
        }
        for (int s = 0; s < BUFFERS; s++) {
            flag_init(p.full + s * 8, 1);
            flag_init(p.empty + s * 8, CLUSTER);
        }
        flag_publish();
    }
    __syncthreads();
    cluster_sync();

    u32 tiles = (u32)((batch + TILE_M - 1) / TILE_M) *
                (BLOCKS * (LANES / TOGETHER) * ROW_TILES);
    u32 first = blockIdx.x / CLUSTER, stride = gridDim.x / CLUSTER;
    /* The same for all lanes, as the compiler can see. */
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (group >= 3) {
        registers_drop<X_REGISTERS>();
        move_x(r, group - 3, x, w, batch, tiles, first, stride);
    } else if (group == 2) {
        registers_drop<Y_REGISTERS>();
        move_y(p, y, batch, tiles, first, stride);
    } else {
        registers_take<REGISTERS>();
        for (u32 n = first; n < tiles; n += stride, pass(&p)) {
            tile t = tile_at(n);
            t.j += cluster_rank() * 2 + group;
            float sum[MULTIPLE][TILE_N / 2];
            multiply_tile(
                sum, &r, group * X_LANE, 64 * 128, 2 * X_LANE + group * W_BYTES,
                [&](int slot) {
                    if (threadIdx.x % 128 < CLUSTER)
                        flag_arrive(in_block(r.empty + slot * 8, threadIdx.x % 128));
                });
            flag_wait(p.empty + p.slot * 8, p.phase ^ 1);
            u32 buffer = p.at + p.slot * BUFFER;
#pragma unroll
            for (int m = 0; m < MULTIPLE; m++)
                send_y<0>(
                    sum[m], buffer + (group * MULTIPLE + m) * PIECES * PIECE, buffer,
                    p.full + p.slot * 8, bias, t, group, m * 64);
        }
    }
    __syncthreads();
    cluster_sync();
}
