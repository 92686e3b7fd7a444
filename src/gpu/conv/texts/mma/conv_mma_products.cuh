/* Products of conv_mma.cu over the second and the third index, in the registers of a warp. */
// SPDX-License-Identifier: Apache-2.0
/* Stores 16 columns of one of the two rows of results that lanes have after a product, if
   `wanted`. */
INLINE void put_row_of(
    const work *k, const sinks *s, spot a, const float v[2][4], int row, int wanted)
{
    if (STORE)
        put_points(k, a, v, row, wanted);
    else if (IN_ORDER)
        keep_row(k, s, a, v, row, wanted);
    else
        put_numbers(k, s, a, v, row, wanted);
}

/* ---- products ---- */

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

/* a b of 16 x 16 matrices; is_real: of b; wants_re alone. */
INLINE complex_tile multiply_some(
    const complex_left *a, const u32 re[4], const u32 im[4], int is_real, int wants_re)
{
    complex_tile d = {};
    UNROLL for (int n = 0; n < 2; n++)
    {
        mma16(d.re[n], a->re, re[2 * n], re[2 * n + 1]);
        if (!is_real)
            mma16(d.re[n], a->minus, im[2 * n], im[2 * n + 1]);
        if (!is_real && !wants_re)
            mma16(d.im[n], a->re, im[2 * n], im[2 * n + 1]);
        if (!wants_re)
            mma16(d.im[n], a->im, re[2 * n], re[2 * n + 1]);
    }
    return d;
}

INLINE complex_tile multiply(const complex_left *a, const u32 re[4], const u32 im[4])
{
    return multiply_some(a, re, im, 0, 0);
}

/* Numbers 2 i and 2 i + 1 of eight times two, or their conjugates. */
INLINE void turn_two(complex_tile *e, int i, float4 two, int conjugate)
{
    UNROLL for (int n = 2 * i; n < 2 * i + 2; n++)
    {
        float re = n % 2 ? two.z : two.x, im = n % 2 ? two.w : two.y;
        im = conjugate ? -im : im;
        float a = e->re[n / 4][n % 4], b = e->im[n / 4][n % 4];
        e->re[n / 4][n % 4] = a * re - b * im;
        e->im[n / 4][n % 4] = a * im + b * re;
    }
}

INLINE void turn(complex_tile *e, const float4 turns[4], int conjugate)
{
    UNROLL for (int i = 0; i < 4; i++) turn_two(e, i, turns[i], conjugate);
}

INLINE void times_spectrum(
    complex_tile *e, const uint4 *spectrum, int lane, int conjugate)
{
    uint4 two[] = { spectrum[lane], spectrum[32 + lane] };
    float4 turns[4];
    UNROLL for (int i = 0; i < 2; i++)
    {
        const u32 v[] = { two[i].x, two[i].y, two[i].z, two[i].w };
        UNROLL for (int h = 0; h < 2; h++) turns[2 * i + h] = make_float4(
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

/* A block without frequencies. */
INLINE void clear_block(const work *k, int p0)
{
    complex_tile none = {};
    put_tile(k, p0, none.re);
    put_tile(k, ROOT + p0, none.im);
}

/* A tile of results, if there is no first index. */
INLINE void put_results(const work *k, const sinks *s, int part, const float v[2][4])
{
    if (!is_row_made(k, part, 1))
        return;
    UNROLL for (int half = 0; half < 2; half++)
        put_row_of(k, s, spot_of(part, 0, k->lane / 4 + half * 8, 0), v, half, 1);
}

/* 256 points of D as a right operand. */
INLINE void load_right(const work *k, int p0, u32 re[4], u32 im[4])
{
    int row = k->lane % 16, half = k->lane / 16;
    load_matrices_turned(re, place_in_d(k, p0, row, half));
    if (LOADED > 1)
        load_matrices_turned(im, place_in_d(k, ROOT + p0, row, half));
    UNROLL for (int i = 0; LOADED == 1 && i < 4; i++) im[i] = 0;
}

/* The last product of all, to D or to where results go. */
INLINE void inner_back(
    const work *k, const sinks *s, int p0, const u32 re[4], const u32 im[4])
{
    complex_left a = load_left(k, INNER_BACK_AT + p0 * 64);
    complex_tile e = multiply_some(&a, re, im, 0, ROOT == 1 && PARTS == 1);
    if (ROOT == 1) {
        if (IN_ORDER) /* results take the place of what other lanes have read */
            sync_warp();
        put_results(k, s, 0, e.re);
        if (PARTS > 1)
            put_results(k, s, 1, e.im);
        return;
    }
    put_tile(k, p0, e.re);
    put_tile(k, ROOT + p0, e.im);
}

/* 256 points of D to numbers of the spectrum; what else is needed on the way back. */
typedef struct inner_way {
    float4 turns[4];
    complex_left last; /* of two right operands */
} inner_way;

INLINE complex_tile inner_forward(const work *k, int p0, inner_way *way)
{
    u32 re[4], im[4];
    load_right(k, p0, re, im);
    complex_left a = load_left(k, INNER_AT + p0 * 64);
    complex_tile e = multiply_some(&a, re, im, LOADED == 1, 0);
    UNROLL for (int i = 0; i < 4; i++)
    {
        uint4 two = table(k, TURNS_AT + (p0 * 4 + i) * 32);
        way->turns[i] = make_float4(
            __uint_as_float(two.x), __uint_as_float(two.y), __uint_as_float(two.z),
            __uint_as_float(two.w));
        turn_two(&e, i, way->turns[i], 0);
    }
    a = left_of(&e);
    way->last = load_left(k, LAST_AT);
    return multiply(&a, way->last.re, way->last.im);
}

/* 256 points of D through registers, and back to where they were. */
INLINE void inner_tile(const work *k, const sinks *s, int p0, const uint4 *spectrum)
{
    u32 re[4], im[4];
    inner_way way;
    complex_tile e = inner_forward(k, p0, &way);
    times_spectrum(&e, spectrum + p0 * 64, k->lane, k->r.flags & ADJOINT);
    complex_left a = left_of(&e);
    e = multiply(&a, way.last.re, way.last.minus);
    turn(&e, way.turns, 1);
    a = left_of(&e);
    UNROLL for (int i = 0; i < 4; i++)
    {
        re[i] = turn_matrix(a.re[i]);
        im[i] = turn_matrix(a.im[i]);
    }
    inner_back(k, s, p0, re, im);
}
