/* Convolutions of windows by tensor cores, in 16 bits with sums in f32.

   256 ROOT points are a matrix [ROOT][16][16] of them, and their transform three products
   with matrices: over the first index, whose blocks p0 < ROOT then have 256 points each,
   and, by one warp in its registers, over the other two. All are orthogonal up to rounding,
   so that numbers keep their size: each has a factor 1 / sqrt(R).

       D[p0]         = sum over q0 of first[p0][q0] x[q0],      real and imaginary rows apart
       E[p0][p1][j]  = turn[p0][p1][j] sum over q of inner[p0][p1][q] D[p0][q][j]
       Y[p0][p1][p2] = sum over j of last[j][p2] E[p0][p1][j]

   The constants of blocks (docs/conv.md (3)) are in `first` and `inner`, but for those of
   the last step, turn. Y is multiplied with the spectrum and the same is done backwards.

   The results of a product are, in the registers of a warp, what is the left operand of the
   next one; the way back needs them transposed once.

   Longer windows are a matrix of points, ROWS x COLUMNS. TILED, a member of a block has 16 of
   its columns, ROWS = 16 ROOT: the first two products, over the rows, with j the column, and
   turns of its own (twist), by which rows become windows like others. These are then
   transformed, COLUMNS = 256 ROOT, and the columns back. In between points are pairs of f16,
   real and imaginary parts of a row apart.

       LOAD, STORE           0: rows of numbers   1: points
       FORWARD and INVERSE   both: windows, or rows of points; one: tiles of columns;
                             none: the largest magnitudes of rows, as bits of f32

   Rows are scaled by a power of two so that they do not leave the range of f16, and the
   spectrum has a scale for each filter.

   Sparse spectra keep frequencies p + ROWS (p0 + ROOT (p1 + 16 p2)) of a box: KEPT(X) is X of
   log2 of each of its axes and how many are kept of it. Rows p that have none are neither
   made, stored nor read; nor are blocks p0 without any.

   TAPS: numbers of x, of its factor and of that of y that are grouped may be those of rows that
   go through as many taps where they are read (conv_mma_few.cuh); 0: none.

   conv_mma_rows.cuh brings rows to shared memory, conv_mma_products.cuh multiplies,
   conv_mma_sparse.cuh says what is kept.

   ROOT, WARPS for a window, MEMBERS windows of a block, HALF and PAIR (conv_window.cuh),
   TYPE_f16, _bf16, _f32: of rows. */
// SPDX-License-Identifier: Apache-2.0
#define TEAM    (WARPS * 32)
#define POINTS  (ROOT * 256) /* that a member has at once */
#define WINDOW  (ROWS * COLUMNS)
#define TILED   (FORWARD != INVERSE)
#define TASKS   (TILED ? COLUMNS / 16 : FORWARD ? KEPT_ROWS : ROWS) /* of a window */
#define PARTS   (HALF ? 1 : 2) /* of rows of x that count: real, imaginary */
#define IN      (ROOT * PARTS)
#define BOTH    (2 * ROOT)
#define LOADED  (LOAD ? BOTH : IN)
#define TILES(n) (((n) + 15) / 16)
#define PITCH   528 /* bytes of 256 points and some more */
#define PHASE   (PAIR ? 0 : 1) /* windows are mod Z^WINDOW - i^PHASE */

#include "ptx.cuh"

typedef long long int64;
typedef float S;
#define FN       INLINE
#define UNROLL   _Pragma("unroll")
#define ROLL     _Pragma("unroll 1")
#if ROOT > 16
#define FEW ROLL /* row tiles one by one: there are many */
#else
#define FEW UNROLL
#endif

#if defined TYPE_f32
typedef float X;
INLINE u32 stored_pair(float v0, float v1) { return 0; }
INLINE float load(X x) { return x; }
INLINE X store(float v) { return v; }
#elif defined TYPE_bf16
typedef u16 X;
INLINE float load(X x) { return __uint_as_float((u32)x << 16); }
INLINE X store(float v)
{
    u32 u = __float_as_uint(v);
    return v != v ? (X)(u >> 16 | 0x40) : (X)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
INLINE u32 stored_pair(float v0, float v1) { return low_halves(store(v0), store(v1)); }
#else
typedef u16 X;
INLINE float load(X x) { return low_of(x); }
INLINE X store(float v) { return (u16)pack_pair(v, 0); }
INLINE u32 stored_pair(float v0, float v1) { return pack_pair(v0, v1); }
#endif

#include "conv_mma_sparse.cuh"
#include "conv_window.cuh"

#ifndef TAPS
#define TAPS 0
#endif
#include "conv_mma_few.cuh"

/* What a member of a block works on, in shared memory: rows of D, and of x before. */
#define OWN_BYTES ((ROOT == 1 ? BOTH : 16 * TILES(BOTH)) * PITCH)

/* What lies between launches, bytes: the points of each window, and of all windows, behind
   them, the largest magnitudes of rows, real and imaginary. */
#define WINDOW_BYTES ((int64)KEPT_ROWS * COLUMNS * 4)

/* Where tables of matrices and turns begin, as registers of lanes, in uint4. */
#define FIRST_AT      0 /* [row tile][column tile] */
#define BACK_SIZE     (TILES(BOTH) * TILES(IN) * 32)
#define BACK_AT       BACK_SIZE
#define INNER_AT      (BACK_AT + BACK_SIZE) /* [p0][real, imaginary] */
#define INNER_BACK_AT (INNER_AT + ROOT * 64)
#define TURNS_AT      (INNER_BACK_AT + ROOT * 64) /* [p0][pair]: two of eight points */
#define LAST_AT       (TURNS_AT + ROOT * 128)     /* [real, imaginary] */
#define TABLES        (TILED ? TURNS_AT : LAST_AT + 64)

typedef struct work {
    rows r;
    window w;
    few_row few[2];      /* of x, of its factor */
    const uint4 *tables; /* this lane's */
    u32 near;            /* NEAR: their copy in shared memory */
    u32 d;               /* the address of D */
    char *points;        /* of the window */
    u32 *peaks;          /* of its rows */
    int task;            /* the row of the window, or its tile of columns */
    int member, warp, lane, thread;
} work;

/* The threads of a member wait for each other. */
INLINE void meet_all(const work *k)
{
    if (WARPS == 1)
        sync_warp();
    else
        barrier(1 + k->member, TEAM);
}

/* Entry `at` of the tables. */
INLINE uint4 table(const work *k, int at)
{
    return NEAR ? load_shared128(k->near + at * 16) : k->tables[at];
}

/* Where 8 numbers of D lie: row r of real and imaginary parts, of 16 points j of q. Eight
   rows do not meet, nor eight q. */
INLINE u32 place_in_d(const work *k, int r, int q, int half)
{
    return k->d + r * PITCH + q * 32 + ((half ^ (q >> 2 & 1)) << 4);
}

#include "conv_mma_rows.cuh"
#include "conv_mma_products.cuh"

/* ---- columns of windows ---- */

/* z^j of block (p0, p1), that is row p = p0 + ROOT p1, and number j of the tile's columns:
   z^COLUMNS is by how much the row's Z^COLUMNS, e^(2 pi i (PHASE + 4 p) / (4 ROWS)), is
   more than i^PHASE. */
INLINE float angle_of(int p0, int p1)
{
    int phase = PHASE + 4 * (p0 + ROOT * p1) - PHASE * ROWS;
    return (float)phase * (1.5707963268f / WINDOW);
}

INLINE float2 twist(float angle, float column)
{
    float2 z;
    __sincosf(angle * column, &z.y, &z.x);
    return z;
}

/* 256 points of D to blocks, which are points of 16 rows. */
INLINE void split_tile(const work *k, int p0)
{
    u32 re[4], im[4];
    float4 turns[4];
    if (is_left_out(p0))
        return;
    load_right(k, p0, re, im);
    complex_left a = load_left(k, INNER_AT + p0 * 64);
    complex_tile e = multiply_some(&a, re, im, LOADED == 1, 0);
    UNROLL for (int i = 0; i < 4; i++)
    {
        float angle = angle_of(p0, k->lane / 4 + i % 2 * 8);
        float column = (float)(k->task * 16 + i / 2 * 8 + k->lane % 4 * 2);
        float2 z0 = twist(angle, column), z1 = twist(angle, column + 1);
        turns[i] = make_float4(z0.x, z0.y, z1.x, z1.y);
    }
    turn(&e, turns, 0);
    UNROLL for (int half = 0; half < 2; half++)
    {
        spot at = spot_of(0, p0, k->lane / 4 + half * 8, 0);
        int wanted = !is_left_out(p0 + ROOT * at.q);
        put_points(k, at, e.re, half, wanted);
        at.part = 1;
        put_points(k, at, e.im, half, wanted);
    }
}

/* And back. Blocks that are left out are zeros already. */
INLINE void join_tile(const work *k, const sinks *s, int p0)
{
    u32 re[4], im[4];
    if (is_left_out(p0))
        return;
    load_right(k, p0, re, im);
    UNROLL for (int i = 0; i < 4; i++)
    {
        int p1 = i % 2 * 8 + k->lane % 4 * 2;
        float column = (float)(k->task * 16 + i / 2 * 8 + k->lane / 4);
        float2 z0 = twist(angle_of(p0, p1), column);
        float2 z1 = twist(angle_of(p0, p1 + 1), column);
        float a0 = low_of(re[i]), b0 = low_of(im[i]);
        float a1 = high_of(re[i]), b1 = high_of(im[i]);
        re[i] = pack_pair(a0 * z0.x + b0 * z0.y, a1 * z1.x + b1 * z1.y);
        im[i] = pack_pair(b0 * z0.x - a0 * z0.y, b1 * z1.x - a1 * z1.y);
    }
    inner_back(k, s, p0, re, im);
}

/* ---- the kernel ---- */

#define SPECTRUM_BYTES (COLUMNS * 4 + 16) /* of a row: numbers, then their scale */

/* Where tasks begin and end. Rows follow each other for a member, as spectra do. Tiles that
   lie beside each other are those of the members of a block, or of all blocks if members
   are few. */
typedef struct tasks {
    int64 next, end;
    int step;
    int window, filter, beside; /* of the filter's channels */
} tasks;

#define SPREAD (TILED && MEMBERS < 4)

INLINE tasks begin(int member, int64 windows)
{
    int64 all = windows * TASKS, parts = gridDim.x, own = blockIdx.x;
    int together = TILED && !SPREAD;
    if (!together) {
        parts *= MEMBERS;
        own = own * MEMBERS + member;
    }
    tasks t = { divide(all * own, parts), divide(all * (own + 1), parts) };
    t.step = SPREAD ? (int)parts : together ? MEMBERS : 1;
    t.next = SPREAD ? own : t.next + (together ? member : 0);
    t.end = SPREAD ? all : t.end;
    return t;
}

INLINE void find(tasks *t, work *k, int64 first, int share)
{
    t->window = (int)divide(t->next, TASKS);
    k->task = (int)(t->next - (int64)t->window * TASKS);
    k->w = window_of(&k->r, first + t->window);
    t->filter = k->w.channel / share;
    t->beside = k->w.channel % share;
}

/* The next task, if there is one. */
INLINE void advance(tasks *t, work *k, int share)
{
    t->next += t->step;
    if (t->next >= t->end)
        return;
    k->task += t->step;
    ROLL for (; k->task >= TASKS; k->task -= TASKS)
    {
        int channel = k->w.channel;
        go_on(&k->r, &k->w);
        t->window++;
        t->beside += k->w.channel - channel;
        t->filter += t->beside == share;
        t->beside = t->beside == share ? 0 : t->beside;
    }
}

/* Windows first, ..., first + items - 1, of which each member has as many tasks. Points, and
   behind them peaks, are those of the first one and more. */
extern "C" __global__ void __launch_bounds__(TEAM *MEMBERS, RESIDENT) conv(
    const X *x, const X *x_factor, X *y, const X *y_factor, X *y2, const X *y2_factor,
    char *points, const char *spectra, const uint4 *constants, int64 first, int64 items,
    int64 share, int64 length, int64 batch, int64 channels, int64 windows, int64 step,
    int64 lead, int64 before, int64 after, const piece *pieces, int flags, const float *few,
    const float *few_bias, int few_groups)
{
    extern __shared__ u8 memory[];
    work k;
    const u32 near = shared_address(memory), own_memory = near + (NEAR ? TABLES * 16 : 0);
    for (int i = threadIdx.x; NEAR && i < TABLES; i += TEAM * MEMBERS)
        store_shared128(near + i * 16, constants[i]);
    __syncthreads();
    k.near = near + threadIdx.x % 32 * 16;
    k.r = { length, batch, channels, windows, step, lead, before, after, pieces, flags };
    k.tables = constants + threadIdx.x % 32;
    k.member = threadIdx.x / TEAM;
    k.thread = threadIdx.x % TEAM;
    k.warp = k.thread / 32;
    k.lane = k.thread % 32;
    k.d = own_memory + k.member * OWN_BYTES;
    u32 most = own_memory + MEMBERS * OWN_BYTES + k.member * WARPS * 8;
    tasks t = begin(k.member, items);
    if (t.next >= t.end)
        return;
    find(&t, &k, first, (int)share);
    ROLL for (; t.next < t.end; advance(&t, &k, (int)share))
    {
        scales back = {};
        k.points = points + t.window * WINDOW_BYTES;
        k.peaks = (u32 *)(points + items * WINDOW_BYTES) + t.window * 2;
        const X *from = x + beside(&k.r, &k.w, GROUPED_X);
        const X *gate = x_factor + beside(&k.r, &k.w, GROUPED_X_FACTOR);
        UNROLL for (int i = 0; i < 2 && !LOAD; i++)
            k.few[i] = few_of(&k.r, &k.w, few, few_bias, few_groups, i);
        if (!FORWARD && !INVERSE) {
            add_peaks(&k, from, gate);
            continue;
        }
        if (LOAD)
            load_points(&k);
        else
            load_rows(&k, from, gate, most, &back);
        const int row = TILED ? 0 : kept_row(k.task);
        const char *spectrum =
            spectra + ((int64)t.filter * ROWS + row) * SPECTRUM_BYTES;
        sinks to = sinks_of(&k, y, y_factor, y2, y2_factor);
        if (!STORE) {
            if (LOAD)
                scales_of(k.peaks, &back);
            float scale = *(const float *)(spectrum + COLUMNS * 4);
            to.scale.of[0] = back.of[0] * scale;
            to.scale.of[1] = back.of[1] * scale;
            to.few = few_of(&k.r, &k.w, few, few_bias, few_groups, 2);
            to.is_plain = is_plain_sink(&k, to.y[0], to.factor[0]) &&
                          (!y2 || is_plain_sink(&k, to.y[1], to.factor[1]));
        }
        meet_all(&k);
        if (FORWARD && ROOT > 1) {
            first_forward(&k);
            meet_all(&k);
        }
        ROLL for (int p0 = k.warp; p0 < ROOT; p0 += WARPS)
        {
            if (FORWARD && INVERSE && is_left_out(row + ROWS * p0))
                clear_block(&k, p0);
            else if (FORWARD && INVERSE)
                inner_tile(&k, &to, p0, (const uint4 *)spectrum);
            else if (FORWARD)
                split_tile(&k, p0);
            else
                join_tile(&k, &to, p0);
        }
        if (INVERSE && ROOT > 1) {
            meet_all(&k);
            first_back(&k, &to);
        }
    }
}
