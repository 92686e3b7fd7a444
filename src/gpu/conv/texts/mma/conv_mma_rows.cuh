/* Loads rows of conv_mma.cu to shared memory: numbers, scaled and as f16, or points. A thread
   loads chunks of 8. */
// SPDX-License-Identifier: Apache-2.0
/* ---- numbers of rows ---- */

/* Number j of 16, of 16 q, of q0 < ROOT, of real or imaginary parts. */
typedef struct spot {
    int part, q0, q, j;
} spot;

INLINE spot spot_of(int part, int q0, int q, int j)
{
    spot a = { part, q0, q, j };
    return a;
}

#if defined TYPE_f32
#    define IS_WIDE 1
#else
#    define IS_WIDE 0
#endif

#define EACH ((LOADED + WARPS - 1) / WARPS) /* chunks of 8 numbers, for a thread */

/* The row of chunk number i of a thread; true if there is such a chunk. */
INLINE int row_of_chunk(const work *k, int i) { return k->warp + i * WARPS; }
INLINE int is_chunk(const work *k, int i)
{
    return LOADED % WARPS == 0 || row_of_chunk(k, i) < LOADED;
}

INLINE spot chunk_of(const work *k, int i)
{
    int row = row_of_chunk(k, i), part = (ROOT % WARPS ? row : i * WARPS) >= ROOT;
    return spot_of(part, row - part * ROOT, k->lane / 2, k->lane % 2 * 8);
}

INLINE u32 place_of_chunk(const work *k, int i)
{
    return place_in_d(k, row_of_chunk(k, i), k->lane / 2, k->lane % 2);
}

INLINE void put_chunk(const work *k, int i, uint4 words)
{
    if (is_chunk(k, i))
        store_shared128(place_of_chunk(k, i), words);
}

/* Asks for a chunk, which comes to its place in D (AHEAD); unless it is there, for zeros. */
INLINE void ask_for_chunk(const work *k, int i, const void *from, int is_there)
{
    if (is_chunk(k, i))
        copy16(place_of_chunk(k, i), from, is_there ? 16 : 0);
}

/* The chunks that a thread has loaded, unchanged. */
INLINE void take_chunks(const work *k, uint4 words[EACH])
{
    UNROLL for (int i = 0; i < EACH; i++) words[i] =
        is_chunk(k, i) ? load_shared128(place_of_chunk(k, i)) : make_uint4(0, 0, 0, 0);
}

/* The chunks of a thread, to D or x; those of all rows are transformed before. */
#if AT_ONCE
INLINE void first_forward(const work *k);
INLINE void put_blocks(const work *k, const uint4 chunks[EACH]);
#endif
INLINE void put_chunks(const work *k, const uint4 words[EACH])
{
#if AT_ONCE
    put_blocks(k, words);
#else
    UNROLL for (int i = 0; i < EACH; i++) put_chunk(k, i, words[i]);
#endif
}

/* The number of the window at a spot; where a part's row begins; true if there is such a row. */
INLINE int number_in_window(const work *k, spot a)
{
    int row = ROWS > 1 ? k->task * (TILED ? 16 : COLUMNS) : 0;
    int at = row + (a.q0 * 16 + a.q) * (TILED ? COLUMNS : 16) + a.j;
    return PAIR ? at : at + a.part * WINDOW;
}

INLINE int64 base_of(const work *k, int part)
{
    return k->w.base + (PAIR && part ? k->w.other : 0);
}

INLINE int is_row(const work *k, int part) { return !PAIR || !part || k->w.other; }

/* True if all numbers of the window are in the range, and lie together in memory. */
INLINE int is_all(const work *k, range in)
{
    return !PLANE_PITCH && is_in(in, 0) && is_in(in, (PAIR ? 1 : PARTS) * WINDOW - 1);
}

/* True if chunks of the rows are aligned to so many bytes. */
INLINE int is_aligned(const work *k, const X *x, int bytes)
{
    return ((u64)(x + k->w.base) | (u64)(k->w.other * sizeof(X))) % bytes == 0;
}

/* Rows wrap around. */
INLINE int wraps(const work *k) { return !HALF && !PAIR && k->r.flags & PERIODIC; }

/* True if eight numbers from a multiple of 8 on lie together in memory, where there are such. */
INLINE int is_in_eights(const work *k)
{
    return PLANE_PITCH ? IN_EIGHTS && k->w.start % 8 == 0 : !wraps(k);
}

/* The place of number j of a row, or in its plane; or NOWHERE. */
#define NOWHERE (-1)

INLINE int place_of_number(const work *k, range in, int j)
{
#if PLANE_PITCH
    return place_in_memory(&k->r, &k->w, in, j);
#else
    return is_in(in, j) ? j : NOWHERE;
#endif
}

/* That of `count` numbers from j on of a plane, where is_in_eights(): of x they may be more than
   the range has, which change no result that is stored. */
INLINE int place_of_some(const work *k, range in, int j, int count)
{
    int some = j + count > in.from && j < in.from + in.count;
    int at = k->w.start + place_in_row(&k->r, &k->w, j);
    return some ? place_in_plane(
                      at, k->r.flags & PERIODIC, in.is_made, k->r.flags & ADJOINT)
                : NOWHERE;
}

/* The least exponent, as f32 biases it. Scales of f16 are numbers of f16. */
#if defined TYPE_f16
#    define LEAST (127 - 15)
#else
#    define LEAST 1
#endif

/* The power of two that brings a row's largest magnitude to 1 to 2, from that magnitude's bits
   as f32; *back: its inverse. Numbers that are not finite stay so. In a pair such a row counts
   as 0 for the other row, and its own results become NaN. */
INLINE float scale_of(u32 most, float *back)
{
    u32 exponent = most >> 23;
    int is_finite = exponent < 255;
    exponent = exponent < LEAST ? LEAST : exponent > 253 ? 253 : exponent;
    *back = is_finite ? __uint_as_float(exponent << 23)
            : PAIR    ? __uint_as_float(most | 1)
                      : 1;
    return is_finite ? __uint_as_float((254 - exponent) << 23) : PAIR ? 0 : 1;
}

/* Scales of real and of imaginary parts. They differ only where two rows are a pair. */
typedef struct scales {
    float of[2];
} scales;

INLINE scales scales_of(const u32 peak[2], scales *back)
{
    scales s;
    s.of[0] = s.of[1] = scale_of(peak[0], &back->of[0]);
    back->of[1] = back->of[0];
    if (PAIR)
        s.of[1] = scale_of(peak[1], &back->of[1]);
    return s;
}

/* Scales for a pair of rows of dy. `beside` undoes the scales of x. Products of both rows with x
   get the same scale, the larger one; numbers too small for it become zero. */
INLINE scales level_scales(const float beside[2], scales *back)
{
    scales s;
    int x[2], dy[2];
    UNROLL for (int part = 0; part < 2; part++)
    {
        x[part] = (int)(__float_as_uint(beside[part]) >> 23);
        dy[part] = (int)(__float_as_uint(back->of[part]) >> 23);
    }
    int most = x[0] + dy[0] > x[1] + dy[1] ? x[0] + dy[0] : x[1] + dy[1];
    UNROLL for (int part = 0; part < 2; part++)
    {
        int exponent = most - x[part];
        if (exponent > 253) {
            s.of[part] = 0;
            back->of[part] = dy[part] < 255 ? 0 : back->of[part];
        } else {
            s.of[part] = __uint_as_float((u32)(254 - exponent) << 23);
            back->of[part] = __uint_as_float((u32)exponent << 23);
        }
    }
    return s;
}

INLINE u32 magnitude(float v) { return __float_as_uint(v) & 0x7fffffffu; }
INLINE u32 larger(u32 a, u32 b) { return a > b ? a : b; }

/* The largest that a member's threads have, in all of them; most: a place for each of its
   warps. Nobody reads D any more. */
INLINE void meet(const work *k, u32 peak[2], u32 most)
{
    UNROLL for (int part = 0; part < 1 + PAIR; part++)
    {
        peak[part] = largest_of_warp(peak[part]);
        if (WARPS > 1 && k->lane == 0)
            store_shared32(most + 4 * (k->warp + part * WARPS), peak[part]);
    }
    meet_all(k);
    UNROLL for (int part = 0; part < 1 + PAIR && WARPS > 1; part++)
    {
        UNROLL for (int w = 0; w < WARPS; w++) peak[part] =
            larger(peak[part], load_shared32(most + 4 * (w + part * WARPS)));
    }
}

/* The scales of a window, from the largest magnitudes of its threads or, for a matrix, from
   `peaks` of the whole matrix. */
INLINE scales find_scales(const work *k, u32 peak[2], u32 most, scales *back)
{
    if (ROWS > 1) {
        if (!AHEAD) /* nobody reads D any more */
            meet_all(k);
        peak[0] = k->peaks[0];
        peak[1] = k->peaks[1];
    } else {
        meet(k, peak, most);
    }
    scales s = scales_of(peak, back);
    int is_dy = PAIR && (SUMS || (TILED && FORWARD)) && k->beside[0] != 0;
    return is_dy ? level_scales(k->beside, back) : s;
}

INLINE void products_of(uint4 x, uint4 factor, float v[8])
{
    const u32 a[] = { x.x, x.y, x.z, x.w };
    const u32 b[] = { factor.x, factor.y, factor.z, factor.w };
    UNROLL for (int i = 0; i < 8; i++) v[i] =
        load((X)(a[i / 2] >> i % 2 * 16)) * load((X)(b[i / 2] >> i % 2 * 16));
}

/* A number of x, times that of the factor. */
INLINE float number_of(const work *k, const X *x, const X *factor, spot a)
{
    int j = number_in_window(k, a),
        is_there = is_in(k->w.there, j) && is_row(k, a.part);
    int64 at = base_of(k, a.part);
#if PLANE_PITCH
    int place = place_of_number(k, k->w.there, j);
    is_there = is_there && place >= 0;
    at += is_there ? place : 0;
#else
    at += place_in_row(&k->r, &k->w, is_there ? j : k->w.there.from);
#endif
    if (!is_there)
        return 0;
    float v = read_number(&k->w, &k->few[0], x + at, j);
    return factor ? v * read_number(&k->w, &k->few[1], factor + at, j) : v;
}

/* Eight numbers that exist and are aligned or, in odd rows, safe (conv_mma_odd.cuh). */
INLINE void load_eight(const X *from, float v[8])
{
    u32 word[4 * sizeof(X)];
    const chunk all = { 0, 0, 8, 0, 1 };
    if (ODD)
        read_words(all, from, word);
    UNROLL for (int i = 0; i < (int)sizeof(X) / 2 && !ODD; i++)
    {
        uint4 four = ((const uint4 *)from)[i];
        word[i * 4] = four.x, word[i * 4 + 1] = four.y;
        word[i * 4 + 2] = four.z, word[i * 4 + 3] = four.w;
    }
    UNROLL for (int n = 0; n < 8; n++) v[n] =
        sizeof(X) == 4 ? __uint_as_float(word[n])
                       : load((X)(word[n / 2] >> n % 2 * 16));
}

/* The same of numbers from j on that go through few taps. */
INLINE void read_eight(
    const work *k, const few_row *f, const X *from, int j, float v[8])
{
    float before[8];
    load_eight(from, v);
    if (!TAPS || !f->is_on)
        return;
    if (is_in(k->w.row, j - 8))
        load_eight(from - 8, before);
    else
        UNROLL for (int n = 0; n < 8; n++) before[n] =
            is_in(k->w.row, j - 8 + n) ? load(from[n - 8]) : 0;
    make_numbers(f, before, 8, v);
}

/* A chunk of x, times that of the factor. */
INLINE void numbers_of(
    const work *k, const X *x, const X *factor, spot a, int is_wide, float v[8])
{
    int j = number_in_window(k, a);
    int64 at = base_of(k, a.part) + j;
#if PLANE_PITCH
    if (IN_EIGHTS && is_wide) {
        int place = place_of_some(k, k->w.there, j, 8);
        int is_there = place >= 0 && is_row(k, a.part);
        float by[8];
        at += (is_there ? place : 0) - j;
        load_eight(x + at, v);
        if (factor)
            load_eight(factor + at, by);
        UNROLL for (int n = 0; n < 8; n++) v[n] =
            !is_there ? 0 : factor ? v[n] * by[n] : v[n];
        return;
    }
    is_wide = 0;
#endif
#if ODD && !IS_WIDE
    if (factor && !(TAPS && (k->few[0].is_on || k->few[1].is_on))) {
        u32 words[2][8];
        chunk c = ask_for_odd_chunk(&k->r, &k->w, x + at - j, j, 0, 1, words[0]);
        ask_for_odd_chunk(&k->r, &k->w, factor + at - j, j, 0, 1, words[1]);
        products_of(
            take_odd_chunk(&k->r, &k->w, x + at - j, c, 0, words[0]),
            take_odd_chunk(&k->r, &k->w, factor + at - j, c, 0, words[1]), v);
        return;
    }
#endif
    if (ODD) {
        chunk c = chunk_at(&k->r, &k->w, j);
        is_wide = c.is_safe && !(TAPS && wraps(k));
        at += c.at;
    }
    if (is_wide && is_in(k->w.there, j) && is_in(k->w.there, j + 7) &&
        is_row(k, a.part)) {
        float by[8];
        read_eight(k, &k->few[0], x + at, j, v);
        if (factor)
            read_eight(k, &k->few[1], factor + at, j, by);
        UNROLL for (int n = 0; n < 8; n++) v[n] *= factor ? by[n] : 1;
        return;
    }
    UNROLL for (int n = 0; n < 8; n++) v[n] =
        number_of(k, x, factor, spot_of(a.part, a.q0, a.q, a.j + n));
}

/* True if a row, or its product with the factor, is read chunk by chunk. */
INLINE int is_wide(const work *k, const X *x, const X *factor)
{
    return is_in_eights(k) && is_aligned(k, x, 16) &&
           (!factor || is_aligned(k, factor, 16));
}

INLINE void find_peak(const work *k, const X *x, const X *factor, int wide, u32 peak[2])
{
    float v[8];
    ROLL for (int i = 0; i < EACH && is_chunk(k, i); i++)
    {
        u32 most = 0;
        spot a = chunk_of(k, i);
        numbers_of(k, x, factor, a, wide, v);
        UNROLL for (int n = 0; n < 8; n++) most = larger(most, magnitude(v[n]));
        peak[0] = PAIR && a.part ? peak[0] : larger(peak[0], most);
        peak[1] = PAIR && a.part ? larger(peak[1], most) : peak[1];
    }
}

INLINE u32 scaled(float v0, float v1, float scale)
{
    return PAIR && scale == 0 ? 0 : pack_pair(v0 * scale, v1 * scale);
}

/* Brings rows to shared memory as f16, scaled; *back: what undoes the scale. */
INLINE void load_row(const work *k, const X *x, const X *factor, u32 most, scales *back)
{
    u32 peak[2] = {};
    int wide = is_wide(k, x, factor);
    float v[8];
    if (ROWS == 1)
        find_peak(k, x, factor, wide, peak);
    scales s = find_scales(k, peak, most, back);
    ROLL for (int i = 0; i < EACH && is_chunk(k, i); i++)
    {
        spot a = chunk_of(k, i);
        float scale = a.part ? s.of[1] : s.of[0];
        numbers_of(k, x, factor, a, wide, v);
        uint4 to = make_uint4(
            scaled(v[0], v[1], scale), scaled(v[2], v[3], scale),
            scaled(v[4], v[5], scale), scaled(v[6], v[7], scale));
        put_chunk(k, i, to);
    }
#if AT_ONCE
    sync_warp();
    first_forward(k);
#endif
}

#include "conv_mma_chunks.cuh"

/* ---- points ---- */

INLINE int row_of_point(const work *k, spot a)
{
    return TILED ? a.q0 + ROOT * a.q : k->task;
}
INLINE int column_of_point(const work *k, spot a)
{
    return TILED ? k->task * 16 + a.j : a.q0 * 256 + a.q * 16 + a.j;
}

/* Sparse spectra have no points of rows that are left out. */
INLINE int is_point(const work *k, spot a)
{
    return !TILED || !is_left_out(row_of_point(k, a));
}

#if AHEAD
INLINE void ask_for_points(const work *k)
{
    UNROLL for (int i = 0; i < EACH; i++)
    {
        spot a = chunk_of(k, i);
        ask_for_chunk(
            k, i, point_of(k, row_of_point(k, a), a.part, column_of_point(k, a)),
            is_point(k, a));
    }
    copy_commit();
}
#endif

INLINE void read_points(const work *k, uint4 words[EACH])
{
    UNROLL for (int i = 0; i < EACH; i++)
    {
        spot a = chunk_of(k, i);
        words[i] = load_eight_points(
            k, row_of_point(k, a), a.part, column_of_point(k, a),
            is_chunk(k, i) && is_point(k, a));
    }
}

INLINE void load_points(const work *k)
{
    uint4 words[EACH];
    read_points(k, words);
    meet_all(k); /* nobody reads D any more */
    put_chunks(k, words);
}
