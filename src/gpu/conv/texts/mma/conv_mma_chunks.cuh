/* Rows of conv_mma_rows.cuh that have 16 bits and whose chunks are taken as they lie. */
// SPDX-License-Identifier: Apache-2.0
/* True if a row has 16 bits and its chunks are taken as they lie: contiguous and aligned, or
   odd. */
INLINE int is_plain(const work *k, const X *x, const X *factor)
{
    int is_made = TAPS && k->few[0].is_on;
    int is_anywhere = ODD || (is_in_eights(k) && is_aligned(k, x, 16));
    return !IS_WIDE && !factor && !is_made && is_anywhere;
}

/* Reads a chunk of such a row; the row may be whole or not. */
INLINE uint4 read_chunk(const work *k, const X *x, spot a)
{
    int j = number_in_window(k, a), is_there = is_row(k, a.part);
    int is_whole = is_in(k->w.there, j) && is_in(k->w.there, j + 7) && is_there;
    const X *from = x + base_of(k, a.part) + j;
    u32 words[4] = {};
    if (is_whole)
        return load_once_if(from, 1);
    UNROLL for (int i = 0; i < 8; i++)
    {
        if (is_in(k->w.there, j + i) && is_there)
            words[i / 2] |= (u32)from[i] << i % 2 * 16;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* The largest magnitudes of pairs, as bits, for each half of a word. */
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
    return PAIR && scale == 0 ? 0 : multiply_pairs(pair, pack_pair(scale, scale));
#else
    return scaled(load((X)pair), load((X)(pair >> 16)), scale);
#endif
}

/* All of such a row is there. */
INLINE void read_whole_row(const work *k, const X *x, uint4 words[EACH])
{
    UNROLL for (int i = 0; i < EACH; i++)
    {
        spot a = chunk_of(k, i);
        words[i] = load_once_if(
            x + base_of(k, a.part) + number_in_window(k, a),
            is_chunk(k, i) && is_row(k, a.part));
    }
}

/* True if all of such a row is fetched ahead. */
INLINE int is_ahead(const work *k, const X *x, const X *factor)
{
    return AHEAD && !ODD && !TAPS && is_plain(k, x, factor) && is_all(k, k->w.there);
}

INLINE void ask_for_row(const work *k, const X *x, const X *factor)
{
    if (!is_ahead(k, x, factor))
        return;
    UNROLL for (int i = 0; i < EACH; i++)
    {
        spot a = chunk_of(k, i);
        ask_for_chunk(
            k, i, x + base_of(k, a.part) + number_in_window(k, a), is_row(k, a.part));
    }
    copy_commit();
}

#if ODD && !IS_WIDE
/* So many chunks are asked for before any is waited for. */
#    define ASKED (EACH < 4 ? EACH : 4)

/* Chunks of a thread from number `first` on, aligned or not. */
INLINE void read_some(
    const work *k, const X *row, int first, int aligned, uint4 words[EACH])
{
    chunk asked[ASKED];
    u32 v[ASKED][8];
    UNROLL for (int i = 0; i < ASKED; i++)
    {
        int n = first + i < EACH ? first + i : first;
        asked[i] = ask_for_odd_chunk(
            &k->r, &k->w, row, number_in_window(k, chunk_of(k, n)), aligned,
            first + i < EACH && is_chunk(k, n), v[i]);
    }
    UNROLL for (int i = 0; i < ASKED && first + i < EACH; i++) words[first + i] =
        take_odd_chunk(&k->r, &k->w, row, asked[i], aligned, v[i]);
}

INLINE void read_row(const work *k, const X *x, uint4 words[EACH])
{
    const X *row = x + base_of(k, 0);
    if (!IN_ORDER && !wraps(k) && is_aligned(k, x, 16))
        UNROLL for (int i = 0; i < EACH; i += ASKED) read_some(k, row, i, 1, words);
    else
        UNROLL for (int i = 0; i < EACH; i += ASKED) read_some(k, row, i, 0, words);
}
#elif PLANE_PITCH
INLINE void read_row(const work *k, const X *x, uint4 words[EACH])
{
    UNROLL for (int i = 0; i < EACH; i++)
    {
        spot a = chunk_of(k, i);
        int place = place_of_some(k, k->w.there, number_in_window(k, a), 8);
        int is_there = place >= 0 && is_chunk(k, i) && is_row(k, a.part);
        words[i] =
            load_once_if(x + base_of(k, a.part) + (is_there ? place : 0), is_there);
    }
}
#else
INLINE void read_row(const work *k, const X *x, uint4 words[EACH])
{
    if (is_all(k, k->w.there))
        read_whole_row(k, x, words);
    else
        UNROLL for (int i = 0; i < EACH; i++) words[i] =
            is_chunk(k, i) ? read_chunk(k, x, chunk_of(k, i)) : make_uint4(0, 0, 0, 0);
}
#endif

INLINE void peak_of_words(const work *k, const uint4 words[EACH], u32 peak[2])
{
    u32 pairs[2] = {};
    UNROLL for (int i = 0; i < EACH; i++)
    {
        int part = PAIR && chunk_of(k, i).part;
        u32 most = largest_of(words[i], part ? pairs[1] : pairs[0]);
        pairs[0] = part ? pairs[0] : most;
        pairs[1] = part ? most : pairs[1];
    }
    UNROLL for (int part = 0; part < 1 + PAIR; part++) peak[part] = larger(
        magnitude(load((X)pairs[part])), magnitude(load((X)(pairs[part] >> 16))));
}

/* The same of such a row, whose chunks have been read. */
INLINE void put_row(const work *k, uint4 words[EACH], u32 most, scales *back)
{
    u32 peak[2] = {};
    if (ROWS == 1)
        peak_of_words(k, words, peak);
    scales s = find_scales(k, peak, most, back);
    UNROLL for (int i = 0; i < EACH; i++)
    {
        float scale = chunk_of(k, i).part ? s.of[1] : s.of[0];
        uint4 v = words[i];
        words[i] = make_uint4(
            scaled_pair(v.x, scale), scaled_pair(v.y, scale), scaled_pair(v.z, scale),
            scaled_pair(v.w, scale));
    }
    put_chunks(k, words);
}

/* True if a row is the product of two rows of 16 bits that are whole and aligned, or are read in
   chunks in any case, and registers hold all of both at once. */
INLINE int is_plain_product(const work *k, const X *x, const X *factor)
{
    int is_made = TAPS && (k->few[0].is_on || k->few[1].is_on);
    int is_whole = !ODD && is_wide(k, x, factor) && is_all(k, k->w.there);
    return !IS_WIDE && EACH <= (ODD ? 4 : 8) && factor && !is_made &&
           (IN_ORDER || is_whole);
}

/* The same as load_row() of such a product. */
INLINE void load_product(
    const work *k, const X *x, const X *factor, u32 most, scales *back)
{
    uint4 words[EACH], by[EACH];
    float v[EACH][8];
    u32 peak[2] = {};
    if (ODD) {
        read_row(k, x, words);
        read_row(k, factor, by);
    } else {
        read_whole_row(k, x, words);
        read_whole_row(k, factor, by);
    }
    UNROLL for (int i = 0; i < EACH; i++)
    {
        int part = PAIR && chunk_of(k, i).part;
        u32 largest = part ? peak[1] : peak[0];
        products_of(words[i], by[i], v[i]);
        UNROLL for (int n = 0; n < 8; n++) largest =
            larger(largest, magnitude(v[i][n]));
        peak[0] = part ? peak[0] : largest;
        peak[1] = part ? largest : peak[1];
    }
    scales s = find_scales(k, peak, most, back);
    UNROLL for (int i = 0; i < EACH; i++)
    {
        float scale = chunk_of(k, i).part ? s.of[1] : s.of[0];
        words[i] = make_uint4(
            scaled(v[i][0], v[i][1], scale), scaled(v[i][2], v[i][3], scale),
            scaled(v[i][4], v[i][5], scale), scaled(v[i][6], v[i][7], scale));
    }
    put_chunks(k, words);
}

INLINE void load_rows(
    const work *k, const X *x, const X *factor, u32 most, scales *back)
{
    uint4 words[EACH];
    if (is_plain_product(k, x, factor)) {
        load_product(k, x, factor, most, back);
        return;
    }
    int plain = is_plain(k, x, factor);
    if (is_ahead(k, x, factor)) {
        copy_wait<0>();
        take_chunks(k, words);
    } else if (plain) {
        read_row(k, x, words);
    }
    if (plain)
        put_row(k, words, most, back);
    else
        load_row(k, x, factor, most, back);
}

/* The largest magnitudes that a thread finds in a part of a window. */
INLINE void peaks_of(const work *k, const X *x, const X *factor, u32 peak[2])
{
    uint4 words[EACH];
    peak[0] = peak[1] = 0;
    if (is_plain(k, x, factor)) {
        read_row(k, x, words);
        peak_of_words(k, words, peak);
    } else {
        find_peak(k, x, factor, is_wide(k, x, factor), peak);
    }
}

/* The same, together with those of others. */
INLINE void add_peaks(const work *k, const X *x, const X *factor)
{
    u32 peak[2];
    peaks_of(k, x, factor, peak);
    UNROLL for (int part = 0; part < 1 + PAIR; part++)
    {
        u32 most = largest_of_warp(peak[part]);
        if (k->lane == 0)
            keep_largest(&k->peaks[part], most);
    }
}
