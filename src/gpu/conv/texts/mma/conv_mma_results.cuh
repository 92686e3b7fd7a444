/* Stores results of conv_mma.cu to rows: numbers, scaled and multiplied by a factor, or points. A
   lane stores four at a time. */
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
    s->is_aligned = (!PLANE_PITCH || is_in_eights(k)) &&
                    is_aligned_sink(k, s->y[0], s->factor[0]) &&
                    (!s->y[1] || is_aligned_sink(k, s->y[1], s->factor[1]));
    s->is_plain = s->is_aligned && is_all(k, k->w.made);
}

INLINE void put_number(
    const work *k, const few_row *few, const X *factor, X *y, int64 base, int j, float v)
{
    int place = place_of_number(k, k->w.made, j);
    int64 at = base + place;
    if (place >= 0)
        y[at] = store(factor ? v * read_number(&k->w, few, factor + at, j) : v);
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

/* True if this launch makes some of the numbers from, ..., end - 1 of a window. */
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

/* Stores four scaled numbers of result number n. */
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
#if PLANE_PITCH
    if (IN_EIGHTS && s->is_aligned) {
        int place = place_of_some(k, k->w.made, j, 4);
        if (place >= 0)
            put_plain(
                k, &few, y + base + place, factor ? factor + base + place : 0, j, v);
        return;
    }
#endif
    if (s->is_plain || ((ODD || !TAPS) && !PLANE_PITCH && s->is_aligned && is_in(k->w.made, j) &&
                        is_in(k->w.made, j + 3))) {
        put_plain(k, &few, y + base + j, factor ? factor + base + j : 0, j, v);
        return;
    }
    UNROLL for (int i = 0; i < 4; i++)
        put_number(k, &few, factor, y, base, j + i, v[i]);
}

/* For both results; of numbers of 32 bits through few taps one by one, for want of registers;
   of columns that would take more of them. */
#undef RESULTS
#if IS_WIDE && TAPS && !TILED
#define RESULTS ROLL
#else
#define RESULTS UNROLL
#endif

/* Four numbers of the results. */
INLINE void put_four(const work *k, const sinks *s, spot a, float v[4])
{
    int j = number_in_window(k, a);
    if (ODD && !is_some_made(k, j, j + 4))
        return;
    UNROLL for (int i = 0; i < 4; i++) v[i] *= a.part ? s->scale.of[1] : s->scale.of[0];
    RESULTS for (int n = 0; n < 2; n++) put_four_of(k, s, n, a, v);
}

/* A lane has two pairs of 16 columns, 8 apart. It exchanges one pair with the lane beside it,
   and then has four neighbouring columns: even lanes get both first pairs, odd lanes both
   second pairs. Takes a word of the lane's first and second pair; returns that of its lower two
   and upper two columns. */
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

/* Stores 16 columns of one of the two rows of results that lanes have after a product, as
   points, if `wanted`. */
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
