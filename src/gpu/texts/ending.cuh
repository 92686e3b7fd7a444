/* The end of products on tensor cores, before results go to y: their activation and, with the
   define RESIDUAL, the residual that they are added to, which is laid out like y, or is y. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "activate.cuh"
#include "pieces.cuh"

/* True if products end with more than the bias, which is added to sums. */
#define ENDS (ACTIVATION || RESIDUAL)

/* Where numbers are added to, from where they go: in bytes, which may be any number. */
INLINE i64 apart_of(const void *residual, const void *y)
{
    return RESIDUAL ? (i64)((u64)residual - (u64)y) : 0;
}

/* width_of() for y, and for the residual, whose lines are `stride` bytes apart. */
INLINE int width_of_both(const void *residual, const void *y, i64 stride)
{
    return width_of((const void *)((u64)y | (RESIDUAL ? (u64)residual : 0)), stride);
}

INLINE u32 add_word(u32 v, u32 more)
{
#if ELEMENT == 4
    return __float_as_uint(__uint_as_float(v) + __uint_as_float(more));
#else
    return pack_pair(low_of(v) + low_of(more), high_of(v) + high_of(more));
#endif
}

INLINE uint4 add_words(uint4 v, uint4 more)
{
    return make_uint4(
        add_word(v.x, more.x), add_word(v.y, more.y), add_word(v.z, more.z),
        add_word(v.w, more.w));
}

/* `valid` bytes, at most `size`, then zeros; `width` as width_of() has it. */
template <int size> INLINE uint4 fetch_piece(const void *from, i64 valid, int width)
{
    if (size == 16 && width == 16 && valid >= 16)
        return *(const uint4 *)from;
    u32 word[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (int e = 0; e < size / 4; e++) {
        const u32 *at = (const u32 *)from + e;
        if (width >= 4 && valid >= e * 4 + 4) {
            word[e] = *at;
            continue;
        }
        if (valid > e * 4)
            word[e] = *(const u16 *)at;
        if (valid > e * 4 + 2)
            word[e] |= (u32)*((const u16 *)at + 1) << 16;
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* Ends a piece that goes to `to`. */
template <int size>
INLINE uint4 end_piece(uint4 v, const void *to, i64 apart, i64 valid, int width)
{
    if (ACTIVATION)
        v = activate_words(v);
    if (RESIDUAL)
        v = add_words(v, fetch_piece<size>((const u8 *)to + apart, valid, width));
    return v;
}

/* What element `to` has in the residual. */
INLINE float residual_at(const void *to, i64 apart)
{
    const u8 *from = (const u8 *)to + apart;
#if ELEMENT == 4
    return *(const float *)from;
#else
    return low_of(*(const u16 *)from);
#endif
}
