/* What texts for tensor cores share beside instructions (ptx.cuh). */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ptx.cuh"

/* A type; a word of it as tensor cores take it; and d += A B for 32 bytes of columns k, A of 16
   rows and B of 8 columns. */
#if ELEMENT == 4
typedef u32 element;
INLINE u32 factor_of(u32 v) { return round_tf32(__uint_as_float(v)); }
INLINE void mma_unit(float *d, const u32 *a, u32 b0, u32 b1) { mma8(d, a, b0, b1); }
#else
typedef u16 element;
INLINE u32 factor_of(u32 v) { return v; }
INLINE void mma_unit(float *d, const u32 *a, u32 b0, u32 b1) { mma16(d, a, b0, b1); }
#endif

template <int count> INLINE void clear(float *v)
{
#pragma unroll
    for (int n = 0; n < count; n++)
        v[n] = 0;
}

template <int count> INLINE void add(float *to, const float *v)
{
#pragma unroll
    for (int n = 0; n < count; n++)
        to[n] += v[n];
}

/* Where a 16-byte chunk lies in rows of 128 bytes with the 128-byte swizzle. */
INLINE u32 swizzled(int row, int chunk)
{
    return row * 128 + ((chunk ^ (row & 7)) << 4);
}

/* Returns v, and keeps the compiler from computing values of v earlier: loops have few registers
   left. */
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

/* The rest of an f32 without a part of it. */
INLINE u32 rest_of(u32 v, u32 part)
{
    return __float_as_uint(__uint_as_float(v) - __uint_as_float(part));
}

/* Numbers' tf32 parts, and what these leave of them, which tensor cores cut; `high` may be
   `v`. */
template <int count> INLINE void split(u32 *high, u32 *low, const u32 *v)
{
#pragma unroll
    for (int n = 0; n < count; n++) {
        u32 whole = v[n];
        high[n] = near_tf32(__uint_as_float(whole));
        low[n] = rest_of(whole, high[n]);
    }
}

/* The same for weights of 22 bits; tensor cores read their first 11. */
INLINE void split_weights(u32 low[4], const u32 w[4])
{
#pragma unroll
    for (int n = 0; n < 4; n++)
        low[n] = rest_of(w[n], w[n] & ~0x1fffu);
}
