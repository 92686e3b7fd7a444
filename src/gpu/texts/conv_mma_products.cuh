/* Products of conv_mma.cu over the second and the third index, in the registers of a warp, and
   where results go. */
// SPDX-License-Identifier: Apache-2.0
/* ---- where results go ---- */

/* Where results go. */
typedef struct sinks {
    X *y[2];
    const X *factor[2];
    few_row few;    /* of factor[0] */
    int is_plain;   /* aligned, and all numbers are made */
    int is_aligned; /* to four */
    scales scale;
} sinks;

INLINE sinks sinks_of(const work *k, X *y, const X *y_factor, X *y2, const X *y2_factor)
{
    sinks s = {};
    s.y[0] = y + beside(&k->r, &k->w, GROUPED_Y(0));
    s.y[1] = y2 + beside(&k->r, &k->w, GROUPED_Y(1));
    s.factor[0] = y_factor + beside(&k->r, &k->w, GROUPED_Y_FACTOR(0));
    s.factor[1] = y2_factor + beside(&k->r, &k->w, GROUPED_Y_FACTOR(1));
    return s;
}

INLINE int is_aligned_sink(const work *k, const X *y, const X *factor)
{
    return is_aligned(k, y, 4 * sizeof(X)) &&
           (!factor || is_aligned(k, factor, 4 * sizeof(X)));
}

INLINE void align_sinks(const work *k, sinks *s)
{
    s->is_aligned = is_aligned_sink(k, s->y[0], s->factor[0]) &&
                    (!s->y[1] || is_aligned_sink(k, s->y[1], s->factor[1]));
    s->is_plain = s->is_aligned && is_all(k, k->w.made);
}

INLINE void put_number(
    const window *w, const few_row *few, const X *factor, X *y, int64 base, int j,
    float v)
{
    if (is_in(w->made, j))
        y[base + j] = store(factor ? v * read_number(w, few, factor + base + j, j) : v);
}

/* Four numbers, aligned. */
INLINE void load_four(const X *from, float v[4])
{
    if (sizeof(X) == 4) {
        float4 words = *(const float4 *)from;
        v[0] = words.x, v[1] = words.y, v[2] = words.z, v[3] = words.w;
    } else {
        uint2 words = *(const uint2 *)from;
        v[0] = load((X)words.x), v[1] = load((X)(words.x >> 16));
        v[2] = load((X)words.y), v[3] = load((X)(words.y >> 16));
    }
}

/* The same of a factor's from j on, which go through few taps. */
INLINE void read_four(const work *k, const few_row *f, const X *from, int j, float v[4])
{
    float before[4];
    load_four(from, v);
    if (!TAPS || !f->is_on)
        return;
    if (is_in(k->w.row, j - 4))
        load_four(from - 4, before);
    else
        UNROLL for (int n = 0; n < 4; n++) before[n] =
            is_in(k->w.row, j - 4 + n) ? load(from[n - 4]) : 0;
    make_numbers(f, before, 4, v);
}

INLINE void put_plain(
    const work *k, const few_row *few, X *to, const X *factor, int j, const float v[4])
{
    float of[4], by[4];
    if (factor)
        read_four(k, few, factor, j, by);
    UNROLL for (int n = 0; n < 4; n++) of[n] = factor ? v[n] * by[n] : v[n];
    if (sizeof(X) == 2) {
        uint2 words = { stored_pair(of[0], of[1]), stored_pair(of[2], of[3]) };
        store64(to, words);
    } else {
        store128(
            to, make_uint4(
                    __float_as_uint(of[0]), __float_as_uint(of[1]),
                    __float_as_uint(of[2]), __float_as_uint(of[3])));
    }
}

/* Of numbers from, ..., end - 1 of a window, are some made? */
INLINE int is_some_made(const work *k, int from, int end)
{
    return from < end_of(k->w.made) && end > k->w.made.from;
}

/* The same of `count` rows of D from row r on, as far as can be said of all threads. */
INLINE int is_row_made(const work *k, int r, int count)
{
    const int size = 16 * (TILED ? COLUMNS : 16);
    return STORE || HALF || PAIR || is_some_made(k, r * size, (r + count) * size);
}

/* Four numbers, scaled, of results number n. */
INLINE void put_four_of(const work *k, const sinks *s, int n, spot a, const float v[4])
{
    int j = number_in_window(k, a);
    int64 base = base_of(k, a.part);
    X *y = n ? s->y[1] : s->y[0];
    const X *factor = n ? s->factor[1] : s->factor[0];
    if (!y || !is_row(k, a.part))
        return;
    few_row few = s->few;
    few.is_on = few.is_on && !n;
    if (s->is_plain || ((ODD || !TAPS) && s->is_aligned && is_in(k->w.made, j) &&
                        is_in(k->w.made, j + 3))) {
        put_plain(k, &few, y + base + j, factor ? factor + base + j : 0, j, v);
        return;
    }
    UNROLL for (int i = 0; i < 4; i++)
        put_number(&k->w, &few, factor, y, base, j + i, v[i]);
}

/* Four numbers of the results. */
INLINE void put_four(const work *k, const sinks *s, spot a, float v[4])
{
    int j = number_in_window(k, a);
    if (ODD && !is_some_made(k, j, j + 4))
        return;
    UNROLL for (int i = 0; i < 4; i++) v[i] *= a.part ? s->scale.of[1] : s->scale.of[0];
    UNROLL for (int n = 0; n < 2; n++) put_four_of(k, s, n, a, v);
}

/* Lanes have two pairs of 16 columns, 8 apart, and make four that follow each other with the
   lane beside: even ones of the first pairs, odd ones of the second. Of the same number, or
   word, of both pairs: what becomes of the lower two of the four, and of the upper two. */
INLINE uint2 with_beside(const work *k, u32 first, u32 second)
{
    int odd = k->lane % 2;
    u32 other = __shfl_xor_sync(~0u, pick(odd, second, first), 1);
    uint2 v = { pick(odd, first, other), pick(odd, other, second) };
    return v;
}

/* Where these are. */
INLINE spot beside(const work *k, spot a)
{
    a.j = k->lane % 2 * 8 + k->lane % 4 / 2 * 4;
    return a;
}

/* 16 columns of a row of results, of the two that lanes have after a product; or none. */
INLINE void put_points(const work *k, spot a, const float v[2][4], int row, int wanted)
{
    u32 first = pack_pair(v[0][2 * row], v[0][2 * row + 1]);
    u32 second = pack_pair(v[1][2 * row], v[1][2 * row + 1]);
    uint2 words = with_beside(k, first, second);
    a = beside(k, a);
    if (wanted)
        put_four_points(k, row_of_point(k, a), a.part, column_of_point(k, a), words);
}

INLINE void put_numbers(
    const work *k, const sinks *s, spot a, const float v[2][4], int row, int wanted)
{
    float to[4];
    UNROLL for (int i = 0; i < 2; i++)
    {
        float first = v[0][2 * row + i], second = v[1][2 * row + i];
        uint2 two = with_beside(k, __float_as_uint(first), __float_as_uint(second));
        to[i] = __uint_as_float(two.x);
        to[2 + i] = __uint_as_float(two.y);
    }
    if (wanted)
        put_four(k, s, beside(k, a), to);
}

INLINE void put_row_of(
    const work *k, const sinks *s, spot a, const float v[2][4], int row, int wanted)
{
    if (STORE)
        put_points(k, a, v, row, wanted);
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
