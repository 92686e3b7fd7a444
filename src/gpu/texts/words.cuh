/* What texts for tensor cores have in common beside instructions (ptx.cuh). */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ptx.cuh"

#if ELEMENT == 4
typedef u32 element;
#else
typedef u16 element;
#endif

/* Where a 16-byte chunk lies in rows of 128 bytes with the 128-byte swizzle. */
INLINE u32 swizzled(int row, int chunk)
{
    return row * 128 + ((chunk ^ (row & 7)) << 4);
}

/* v, but what is made of it is not made before: registers are short in loops. */
INLINE int not_before(int v)
{
    asm volatile("" : "+r"(v));
    return v;
}

/* Words that lie together. */
template <int bytes> INLINE void load_words(u32 *v, u32 from)
{
    if constexpr (bytes == 4) {
        v[0] = load_shared32(from);
    } else if constexpr (bytes == 8) {
        uint2 two = load_shared64(from);
        v[0] = two.x, v[1] = two.y;
    } else {
        uint4 four = load_shared128(from);
        v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
    }
}

INLINE uint4 words_of(float v0, float v1, float v2, float v3)
{
    return make_uint4(
        __float_as_uint(v0), __float_as_uint(v1), __float_as_uint(v2), __float_as_uint(v3));
}

/* What is left of an f32 without a part of it. */
INLINE u32 rest_of(u32 v, u32 part)
{
    return __float_as_uint(__uint_as_float(v) - __uint_as_float(part));
}
