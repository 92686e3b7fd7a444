/* Convolutions of windows by tensor cores, in 16 bits with sums in f32.

   A window of 256 ROOT points is a matrix [ROOT][16][16] of them, and its transform three
   products with matrices: over the first index, whose blocks p0 < ROOT then have 256 points
   each, and, by one warp in its registers, over the other two. All are orthogonal up to
   rounding, so that numbers keep their size: each has a factor 1 / sqrt(R).

       D[p0]         = sum over q0 of first[p0][q0] x[q0],      real and imaginary rows apart
       E[p0][p1][j]  = turn[p0][p1][j] sum over q of inner[p0][p1][q] D[p0][q][j]
       Y[p0][p1][p2] = sum over j of last[j][p2] E[p0][p1][j]

   The constants of blocks (docs/conv.md (3)) are in `first` and `inner`, but for those of
   the last step, turn. Y is multiplied with the spectrum and the same is done backwards.

   The results of a product are, in the registers of a warp, what is the left operand of the
   next one; the way back needs them transposed once.

   Rows are scaled by a power of two so that they do not leave the range of f16, and the
   spectrum has a scale for each filter.

   ROOT, WARPS for a window, MEMBERS windows of a block, HALF, TYPE_f16, _bf16, _f32: of rows. */
// SPDX-License-Identifier: Apache-2.0
#define TEAM    (WARPS * 32)
#define POINTS  (ROOT * 256)
#define PARTS   (HALF ? 1 : 2) /* of rows of x that count: real, imaginary */
#define IN      (ROOT * PARTS)
#define BOTH    (2 * ROOT)
#define TILES(n) (((n) + 15) / 16)
#define PITCH   528 /* bytes of 256 points and some more */

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

#include "conv_window.cuh"

/* What a member of a block works on, in shared memory, bytes. */
#define X_BYTES   (IN * 512)
#define OWN_BYTES (X_BYTES + 16 * TILES(BOTH) * PITCH)

/* Where tables of matrices and turns begin, as registers of lanes, in uint4. */
#define FIRST_AT      0 /* [row tile][column tile] */
#define BACK_SIZE     (TILES(BOTH) * TILES(IN) * 32)
#define BACK_AT       BACK_SIZE /* of three kinds */
#define INNER_AT      (BACK_AT + 3 * BACK_SIZE) /* [p0][real, imaginary] */
#define INNER_BACK_AT (INNER_AT + ROOT * 64)
#define TURNS_AT      (INNER_BACK_AT + ROOT * 64) /* [p0][pair]: two of eight points */
#define LAST_AT       (TURNS_AT + ROOT * 128)     /* [real, imaginary] */
#define TABLES        (LAST_AT + 64)

typedef struct work {
    rows r;
    window w;
    const uint4 *tables; /* this lane's */
    u32 near;            /* NEAR: their copy in shared memory */
    int back;            /* where the matrix is for the way back */
    u32 x, d; /* addresses of rows of x and of D */
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

/* ---- rows ---- */

/* Row q0 of x has 32 chunks of 16 bytes, exchanged so that eight rows do not meet. */
INLINE u32 chunk_of_x(const work *k, int row, int chunk)
{
    return k->x + row * 512 + ((chunk ^ (row & 7)) << 4);
}

/* Of exponents of f32: scales of f16 are numbers of f16. */
#if defined TYPE_f16
#define LEAST (127 - 15)
#else
#define LEAST 1
#endif

/* The power of two by which a row is brought to numbers of at most 1 to 2, from the bits of
   its largest magnitude as f32; *back: 1 over it. What is not finite stays so. */
INLINE float scale_of(u32 most, float *back)
{
    u32 exponent = most >> 23;
    int is_finite = exponent < 255;
    exponent = exponent < LEAST ? LEAST : exponent > 253 ? 253 : exponent;
    *back = is_finite ? __uint_as_float(exponent << 23) : 1;
    return is_finite ? __uint_as_float((254 - exponent) << 23) : 1;
}

INLINE u32 magnitude(float v) { return __float_as_uint(v) & 0x7fffffffu; }
INLINE u32 larger(u32 a, u32 b) { return a > b ? a : b; }

/* The largest that a member's threads have, in all of them; most: a place for each of its
   warps. */
INLINE u32 meet(const work *k, u32 peak, u32 most)
{
    UNROLL for (int lanes = 16; lanes; lanes /= 2)
        peak = larger(peak, __shfl_xor_sync(~0u, peak, lanes));
    if (k->lane == 0)
        store_shared32(most + 4 * k->warp, peak);
    meet_all(k);
    UNROLL for (int w = 0; w < WARPS; w++)
        peak = larger(peak, load_shared32(most + 4 * w));
    return peak;
}

/* Number j of a window, times that of the factor. */
INLINE float number_of(const work *k, const X *x, const X *factor, int j)
{
    int is_there = is_in(k->w.there, j);
    int64 at = k->w.base + place_in_row(&k->r, &k->w, is_there ? j : k->w.there.from);
    return !is_there ? 0 : factor ? load(x[at]) * load(factor[at]) : load(x[at]);
}

/* Brings a row to shared memory as f16, scaled; returns what undoes the scale. */
INLINE float load_row(const work *k, const X *x, const X *factor, u32 most)
{
    u32 peak = 0;
    float back;
    ROLL for (int j = k->thread; j < IN * 256; j += TEAM)
        peak = larger(peak, magnitude(number_of(k, x, factor, j)));
    float scale = scale_of(meet(k, peak, most), &back);
    ROLL for (int j = k->thread; j < IN * 256; j += TEAM)
    {
        u32 half = pack_pair(number_of(k, x, factor, j) * scale, 0);
        store_shared16(chunk_of_x(k, j / 256, j / 8 % 32) + j % 8 * 2, half);
    }
    return back;
}

#define CHUNKS (IN * 32)
#define EACH   ((CHUNKS + TEAM - 1) / TEAM) /* for a thread */

#if defined TYPE_f32
#define IS_WIDE 1
#else
#define IS_WIDE 0
#endif

/* Is a row one of 16 bits whose chunks lie together, aligned? */
INLINE int is_plain(const work *k, const X *x, const X *factor)
{
    int wraps = !HALF && k->r.flags & PERIODIC;
    return !IS_WIDE && !factor && !wraps && (u64)(x + k->w.base) % 16 == 0;
}

/* Chunk `chunk` of such a row, all of which is there, or not. */
INLINE uint4 read_chunk(const work *k, const X *x, int chunk)
{
    int j = chunk * 8, is_whole = is_in(k->w.there, j) && is_in(k->w.there, j + 7);
    u32 words[4] = {};
    if (is_whole)
        return load_once_if(x + k->w.base + j, 1);
    UNROLL for (int i = 0; i < 8; i++)
    {
        if (is_in(k->w.there, j + i))
            words[i / 2] |= (u32)x[k->w.base + j + i] << i % 2 * 16;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* The bits of magnitudes of pairs, of which the largest of each half is kept. */
INLINE u32 largest_of(uint4 words, u32 most)
{
    const u32 sign = 0x7fff7fff;
    most = __vmaxu2(__vmaxu2(most, words.x & sign), words.y & sign);
    return __vmaxu2(__vmaxu2(most, words.z & sign), words.w & sign);
}

/* f16 of a pair of numbers, scaled. */
INLINE u32 scaled_pair(u32 pair, float scale)
{
#if defined TYPE_f16
    return multiply_pairs(pair, pack_pair(scale, scale));
#else
    return pack_pair(load((X)pair) * scale, load((X)(pair >> 16)) * scale);
#endif
}

INLINE void read_row(const work *k, const X *x, uint4 words[EACH])
{
    const X *from = x + k->w.base + k->thread * 8;
    if (is_in(k->w.there, 0) && is_in(k->w.there, IN * 256 - 1)) {
        UNROLL for (int i = 0; i < EACH; i++)
            words[i] = load_once_if(from + i * TEAM * 8, k->thread + i * TEAM < CHUNKS);
        return;
    }
    UNROLL for (int i = 0; i < EACH; i++)
        words[i] = read_chunk(k, x, k->thread + i * TEAM);
}

/* The same of such a row, whose chunks have been read. */
INLINE float put_row(const work *k, const uint4 words[EACH], u32 most)
{
    u32 pairs = 0;
    float back;
    UNROLL for (int i = 0; i < EACH; i++) pairs = largest_of(words[i], pairs);
    u32 peak = larger(magnitude(load((X)pairs)), magnitude(load((X)(pairs >> 16))));
    float scale = scale_of(meet(k, peak, most), &back);
    UNROLL for (int i = 0; i < EACH; i++)
    {
        int chunk = k->thread + i * TEAM;
        uint4 to = words[i];
        to = make_uint4(
            scaled_pair(to.x, scale), scaled_pair(to.y, scale), scaled_pair(to.z, scale),
            scaled_pair(to.w, scale));
        if (chunk < CHUNKS)
            store_shared128(chunk_of_x(k, chunk / 32, chunk % 32), to);
    }
    return back;
}

/* ---- the first index ---- */

/* Where 8 numbers of D lie: row r of real and imaginary parts, of 16 points j of q. */
INLINE u32 place_in_d(const work *k, int r, int q, int half)
{
    return k->d + r * PITCH + q * 32 + ((half ^ (q >> 2 & 1)) << 4);
}

/* Rows g and g + 8 of 8 columns as pairs, into D. */
INLINE void put_pairs(const work *k, int r, int q, int half, u32 upper, u32 lower)
{
    int g = k->lane / 4, t = k->lane % 4;
    store_shared32(place_in_d(k, r + g, q, half) + t * 4, upper);
    store_shared32(place_in_d(k, r + g + 8, q, half) + t * 4, lower);
}

/* Row tile `mt` of a matrix, of `count` column tiles, times 16 columns. */
INLINE void product(
    const work *k, int matrix, int mt, int count, const u32 (*b)[4],
    float d[2][4])
{
    UNROLL for (int kt = 0; kt < TILES(BOTH); kt++)
    {
        if (kt >= count)
            continue;
        uint4 a4 = table(k, matrix + (mt * count + kt) * 32);
        const u32 a[] = { a4.x, a4.y, a4.z, a4.w };
        mma16(d[0], a, b[kt][0], b[kt][1]);
        mma16(d[1], a, b[kt][2], b[kt][3]);
    }
}

INLINE void first_forward(const work *k)
{
    ROLL for (int q = k->warp; q < 16; q += WARPS)
    {
        u32 b[TILES(BOTH)][4];
        UNROLL for (int kt = 0; kt < TILES(IN); kt++)
        {
            int row = kt * 16 + k->lane % 16;
            row = row < IN ? row : 0;
            load_matrices_turned(b[kt], chunk_of_x(k, row, q * 2 + k->lane / 16));
        }
        FEW for (int mt = 0; mt < TILES(BOTH); mt++)
        {
            float d[2][4] = {};
            product(k, FIRST_AT, mt, TILES(IN), b, d);
            UNROLL for (int n = 0; n < 2; n++)
            {
                u32 upper = pack_pair(d[n][0], d[n][1]);
                u32 lower = pack_pair(d[n][2], d[n][3]);
                put_pairs(k, mt * 16, q, n, upper, lower);
            }
        }
    }
}

/* Where results go. */
typedef struct sinks {
    X *y[2];
    const X *factor[2];
    int is_plain; /* one, aligned, without a factor, where all numbers are made */
    int64 base;   /* of the window, and what of it is made */
    range made;
} sinks;

INLINE void put_pair(
    const sinks *s, X *y, const X *factor, int j, float v0, float v1)
{
    int64 at = s->base + j;
    if (is_in(s->made, j))
        y[at] = store(factor ? v0 * load(factor[at]) : v0);
    if (is_in(s->made, j + 1))
        y[at + 1] = store(factor ? v1 * load(factor[at + 1]) : v1);
}

INLINE void put_pairs_of(const sinks *s, int j, float v0, float v1)
{
    if (s->is_plain) {
        X *to = s->y[0] + s->base + j;
        if (sizeof(X) == 2)
            *(u32 *)to = stored_pair(v0, v1);
        else
            *(float2 *)to = make_float2(v0, v1);
        return;
    }
    ROLL for (int i = 0; i < 2; i++)
    {
        X *y = i ? s->y[1] : s->y[0];
        if (y)
            put_pair(s, y, i ? s->factor[1] : s->factor[0], j, v0, v1);
    }
}

INLINE void first_back(const work *k, const sinks *s, float scale)
{
    ROLL for (int q = k->warp; q < 16; q += WARPS)
    {
        u32 b[TILES(BOTH)][4];
        UNROLL for (int kt = 0; kt < TILES(BOTH); kt++)
        {
            int row = kt * 16 + k->lane % 16;
            row = row < BOTH ? row : 0;
            load_matrices_turned(b[kt], place_in_d(k, row, q, k->lane / 16));
        }
        FEW for (int mt = 0; mt < TILES(IN); mt++)
        {
            float d[2][4] = {};
            product(k, k->back, mt, TILES(BOTH), b, d);
            UNROLL for (int i = 0; i < 4; i++)
            {
                const float *v = d[i / 2] + i % 2 * 2;
                int row = mt * 16 + i % 2 * 8 + k->lane / 4;
                int j = row * 256 + q * 16 + i / 2 * 8 + k->lane % 4 * 2;
                if (row < IN)
                    put_pairs_of(s, j, v[0] * scale, v[1] * scale);
            }
        }
    }
}

/* ---- the other two ---- */

typedef struct complex_tile {
    float re[2][4], im[2][4]; /* 16 x 16 numbers, as results of two products */
} complex_tile;

/* The left operand that such a tile is. */
typedef struct complex_left {
    u32 re[4], im[4], minus[4]; /* minus: of im */
} complex_left;

INLINE void negate(const u32 v[4], u32 to[4])
{
    UNROLL for (int i = 0; i < 4; i++) to[i] = v[i] ^ 0x80008000u;
}

INLINE complex_left left_of(const complex_tile *e)
{
    complex_left a;
    UNROLL for (int i = 0; i < 4; i++)
    {
        a.re[i] = pack_pair(e->re[i / 2][i % 2 * 2], e->re[i / 2][i % 2 * 2 + 1]);
        a.im[i] = pack_pair(e->im[i / 2][i % 2 * 2], e->im[i / 2][i % 2 * 2 + 1]);
    }
    negate(a.im, a.minus);
    return a;
}

INLINE complex_left load_left(const work *k, int at)
{
    complex_left a;
    uint4 re = table(k, at), im = table(k, at + 32);
    a.re[0] = re.x, a.re[1] = re.y, a.re[2] = re.z, a.re[3] = re.w;
    a.im[0] = im.x, a.im[1] = im.y, a.im[2] = im.z, a.im[3] = im.w;
    negate(a.im, a.minus);
    return a;
}

/* a b of 16 x 16 matrices. */
INLINE complex_tile multiply(const complex_left *a, const u32 re[4], const u32 im[4])
{
    complex_tile d = {};
    UNROLL for (int n = 0; n < 2; n++)
    {
        mma16(d.re[n], a->re, re[2 * n], re[2 * n + 1]);
        mma16(d.re[n], a->minus, im[2 * n], im[2 * n + 1]);
        mma16(d.im[n], a->re, im[2 * n], im[2 * n + 1]);
        mma16(d.im[n], a->im, re[2 * n], re[2 * n + 1]);
    }
    return d;
}

/* Times eight numbers, or their conjugates. */
INLINE void turn(complex_tile *e, const float4 turns[4], int conjugate)
{
    UNROLL for (int i = 0; i < 8; i++)
    {
        float4 two = turns[i / 2];
        float re = i % 2 ? two.z : two.x, im = i % 2 ? two.w : two.y;
        im = conjugate ? -im : im;
        float a = e->re[i / 4][i % 4], b = e->im[i / 4][i % 4];
        e->re[i / 4][i % 4] = a * re - b * im;
        e->im[i / 4][i % 4] = a * im + b * re;
    }
}

INLINE void times_spectrum(complex_tile *e, const uint4 *spectrum, int lane, int conjugate)
{
    uint4 two[] = { spectrum[lane], spectrum[32 + lane] };
    float4 turns[4];
    UNROLL for (int i = 0; i < 2; i++)
    {
        const u32 v[] = { two[i].x, two[i].y, two[i].z, two[i].w };
        UNROLL for (int h = 0; h < 2; h++)
            turns[2 * i + h] = make_float4(
                low_of(v[2 * h]), high_of(v[2 * h]), low_of(v[2 * h + 1]),
                high_of(v[2 * h + 1]));
    }
    turn(e, turns, conjugate);
}

/* A tile of real, or of imaginary parts, into D. */
INLINE void put_tile(const work *k, int r, const float v[2][4])
{
    int g = k->lane / 4, t = k->lane % 4;
    UNROLL for (int n = 0; n < 2; n++)
    {
        store_shared32(place_in_d(k, r, g, n) + t * 4, pack_pair(v[n][0], v[n][1]));
        store_shared32(place_in_d(k, r, g + 8, n) + t * 4, pack_pair(v[n][2], v[n][3]));
    }
}

/* 256 points of D through registers, and back to where they were. */
INLINE void inner_tile(const work *k, int p0, const uint4 *spectrum)
{
    u32 re[4], im[4];
    float4 turns[4];
    int row = k->lane % 16, half = k->lane / 16;
    load_matrices_turned(re, place_in_d(k, p0, row, half));
    load_matrices_turned(im, place_in_d(k, ROOT + p0, row, half));
    complex_left a = load_left(k, INNER_AT + p0 * 64);
    complex_tile e = multiply(&a, re, im);
    UNROLL for (int i = 0; i < 4; i++)
    {
        uint4 two = table(k, TURNS_AT + (p0 * 4 + i) * 32);
        turns[i] = make_float4(
            __uint_as_float(two.x), __uint_as_float(two.y), __uint_as_float(two.z),
            __uint_as_float(two.w));
    }
    turn(&e, turns, 0);
    a = left_of(&e);
    complex_left last = load_left(k, LAST_AT); /* of two right operands */
    e = multiply(&a, last.re, last.im);
    times_spectrum(&e, spectrum + p0 * 64, k->lane, k->r.flags & ADJOINT);
    a = left_of(&e);
    e = multiply(&a, last.re, last.minus);
    turn(&e, turns, 1);
    a = left_of(&e);
    UNROLL for (int i = 0; i < 4; i++)
    {
        re[i] = turn_matrix(a.re[i]);
        im[i] = turn_matrix(a.im[i]);
    }
    a = load_left(k, INNER_BACK_AT + p0 * 64);
    e = multiply(&a, re, im);
    put_tile(k, p0, e.re);
    put_tile(k, ROOT + p0, e.im);
}

/* ---- the kernel ---- */

#define SPECTRUM_BYTES (POINTS * 4 + 16) /* of a filter: numbers, then their scale */

/* Windows first, ..., first + items - 1, of which each member has as many, one after the
   other. */
extern "C" __global__ void __launch_bounds__(TEAM *MEMBERS, RESIDENT) conv(
    const X *x, const X *x_factor, X *y, const X *y_factor, X *y2, const X *y2_factor,
    void *unused, const char *spectra, const uint4 *constants, int64 first, int64 items,
    int64 share, int64 length, int64 batch, int64 channels, int64 windows, int64 step,
    int64 lead, int64 before, int64 after, const piece *pieces, int flags)
{
    extern __shared__ u8 memory[];
    work k;
    uint4 words[EACH];
    const u32 near = shared_address(memory), own_memory = near + (NEAR ? TABLES * 16 : 0);
    for (int i = threadIdx.x; NEAR && i < TABLES; i += TEAM * MEMBERS)
        store_shared128(near + i * 16, constants[i]);
    __syncthreads();
    k.near = near + threadIdx.x % 32 * 16;
    k.r = { length, batch, channels, windows, step, lead, before, after, pieces, flags };
    k.tables = constants + threadIdx.x % 32;
    k.back = BACK_AT + (!(flags & FOLD) ? 0 : flags & ADJOINT ? 2 : 1) * BACK_SIZE;
    k.member = threadIdx.x / TEAM;
    k.thread = threadIdx.x % TEAM;
    k.warp = k.thread / 32;
    k.lane = k.thread % 32;
    k.x = own_memory + k.member * OWN_BYTES;
    k.d = k.x + X_BYTES;
    u32 most = own_memory + MEMBERS * OWN_BYTES + k.member * WARPS * 4;
    int64 members = (int64)gridDim.x * MEMBERS, own = (int64)blockIdx.x * MEMBERS + k.member;
    int item = (int)divide(items * own, members);
    int end = (int)divide(items * (own + 1), members);
    if (item >= end)
        return;
    k.w = window_of(&k.r, first + item);
    int filter = k.w.channel / (int)share, beside = k.w.channel % (int)share;
    ROLL for (; item < end; item++)
    {
        int plain = is_plain(&k, x, x_factor);
        if (plain)
            read_row(&k, x, words);
        float scale = plain ? put_row(&k, words, most) : load_row(&k, x, x_factor, most);
        const char *spectrum = spectra + (int64)filter * SPECTRUM_BYTES;
        sinks to = { { y, y2 }, { y_factor, y2_factor }, 0, k.w.base, k.w.made };
        to.is_plain = !y2 && !y_factor && (u64)(y + k.w.base) % (2 * sizeof(X)) == 0 &&
                      is_in(k.w.made, 0) && is_in(k.w.made, IN * 256 - 1);
        scale *= *(const float *)(spectrum + POINTS * 4);
        meet_all(&k);
        if (item + 1 < end) {
            int channel = k.w.channel;
            go_on(&k.r, &k.w);
            beside += k.w.channel - channel;
            filter += beside == (int)share;
            beside = beside == (int)share ? 0 : beside;
        }
        first_forward(&k);
        meet_all(&k);
        ROLL for (int p0 = k.warp; p0 < ROOT; p0 += WARPS)
            inner_tile(&k, p0, (const uint4 *)spectrum);
        meet_all(&k);
        first_back(&k, &to, scale);
    }
}
