/* IN_ORDER: results of rows at any address (conv_mma_odd.cuh) pass through shared memory, so that
   each store has 16 aligned bytes of memory, wherever these begin in a window.

   Results take the place of D, in the order of numbers in the window. They are rounded to 16
   bits if no multiplication follows. Otherwise they are f16 that must still be scaled; such
   numbers are at most a few times the norm of a row. Then each thread takes eight numbers that
   are contiguous in memory. Where a row begins or ends, the rest of the 16 bytes belongs to
   other rows. */
// SPDX-License-Identifier: Apache-2.0
/* ---- to shared memory ---- */

INLINE int is_final(const sinks *s)
{
    return sizeof(X) == 2 && !s->y[1] && !s->factor[0];
}

INLINE u32 kept_pair(const sinks *s, float v0, float v1)
{
    float scale = s->scale.of[0];
    return is_final(s) ? stored_pair(v0 * scale, v1 * scale) : pack_pair(v0, v1);
}

/* Keeps 16 columns of one of the two rows of results that lanes have after a product, if
   `wanted`. */
INLINE void keep_row(
    const work *k, const sinks *s, spot a, const float v[2][4], int row, int wanted)
{
    UNROLL for (int half = 0; half < 2 && wanted; half++)
    {
        const float *two = &v[half][2 * row];
        store_shared32(
            place_in_d(k, a.part * ROOT + a.q0, a.q, half) + k->lane % 4 * 4,
            kept_pair(s, two[0], two[1]));
    }
}

/* ---- to memory ---- */

/* Eight numbers of the window from j on; numbers outside of the window are undefined. */
INLINE void read_kept(const work *k, int j, u32 v[8])
{
    UNROLL for (int i = 0; i < 2; i++)
    {
        u32 at = (u32)((j >> 3) + i);
        at = at < IN * 32 ? at : 0;
        uint4 four = load_shared128(place_in_d(k, at / 32, at / 2 % 16, at % 2));
        v[i * 4] = four.x, v[i * 4 + 1] = four.y;
        v[i * 4 + 2] = four.z, v[i * 4 + 3] = four.w;
    }
    move_words<4, 2>(v, (j & 7) * 2);
}

INLINE void results_of(const sinks *s, const u32 words[4], float v[8])
{
    UNROLL for (int i = 0; i < 8; i++)
    {
        u32 bits = words[i / 2] >> i % 2 * 16;
        v[i] = is_final(s) ? load((X)bits) : low_of(bits) * s->scale.of[0];
    }
}

/* Eight results, which begin at a multiple of 16 bytes. */
INLINE void put_eight(X *to, const float v[8])
{
    UNROLL for (int i = 0; i < 8; i += 16 / (int)sizeof(X))
    {
        const float *of = v + i;
        store128(
            to + i, sizeof(X) == 2
                        ? make_uint4(
                              stored_pair(of[0], of[1]), stored_pair(of[2], of[3]),
                              stored_pair(of[4], of[5]), stored_pair(of[6], of[7]))
                        : make_uint4(
                              __float_as_uint(of[0]), __float_as_uint(of[1]),
                              __float_as_uint(of[2]), __float_as_uint(of[3])));
    }
}

/* Stores numbers j, ..., j + 7 of result number n, as far as they are in the range `made`. */
INLINE void put_piece(const work *k, const sinks *s, int n, int j)
{
    const X *factor = n ? s->factor[1] : s->factor[0];
    X *y = n ? s->y[1] : s->y[0];
    int64 at = k->w.base + j;
    int is_whole = is_in(k->w.made, j) && is_in(k->w.made, j + 7);
    u32 words[8];
    float v[8], by[8];
    few_row few = s->few;
    few.is_on = few.is_on && !n;
    read_kept(k, j, words);
    if (is_whole && is_final(s)) {
        store128(y + at, make_uint4(words[0], words[1], words[2], words[3]));
        return;
    }
    results_of(s, words, v);
    if (is_whole && (!factor || is_safe(&k->r, &k->w, j))) {
        if (factor)
            read_eight(k, &few, factor + at, j, by);
        UNROLL for (int i = 0; i < 8; i++) v[i] *= factor ? by[i] : 1;
        put_eight(y + at, v);
        return;
    }
    UNROLL for (int i = 0; i < 8; i++)
        put_number(k, &few, factor, y, k->w.base, j + i, v[i]);
}

/* The results of a window, which have been kept. */
INLINE void put_in_order(const work *k, const sinks *s)
{
    UNROLL for (int n = 0; n < 2; n++)
    {
        const X *y = n ? s->y[1] : s->y[0];
        int j = k->w.made.from;
        j -= (int)((u64)(y + k->w.base + j) % 16 / sizeof(X));
        ROLL for (j += k->thread * 8; y && j < end_of(k->w.made); j += TEAM * 8)
            put_piece(k, s, n, j);
    }
}
