/* Moves pieces of 16, 8 or 4 bytes between memory and shared memory, wherever they begin and
   end. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "words.cuh"

/* The most bytes, of 16, that lie together in every access to an operand whose rows are
   `stride` bytes apart. */
INLINE int width_of(const void *p, i64 stride)
{
    u64 bits = (u64)p | (u64)stride;
    return bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : 2;
}

/* `valid` bytes (none if negative, at most `size`), then zeros, to shared memory. */
template <int size> INLINE void load_piece(u32 to, const void *from, i64 valid, int width)
{
    const u8 *at = (const u8 *)from;
    int bytes = valid < 0 ? 0 : valid > size ? size : (int)valid;
    if (size == 16 && width == 16)
        copy16(to, at, bytes);
    else if (size >= 8 && width >= 8)
        for (int e = 0; e < size; e += 8)
            copy8(to + e, at + e, bytes > e ? min(bytes - e, 8) : 0);
    else if (width >= 4)
        for (int e = 0; e < size; e += 4)
            copy4(to + e, at + e, bytes > e ? min(bytes - e, 4) : 0);
    else
        for (int e = 0; e < size; e += 2)
            store_shared16(to + e, e < bytes ? *(const u16 *)(at + e) : 0);
}

/* The first words of v. */
template <int size> INLINE void store_piece(void *to, uint4 v, i64 valid, int width)
{
    u32 word[4] = { v.x, v.y, v.z, v.w };
    if (size == 16 && width == 16 && valid >= 16)
        store128(to, v);
    else
#pragma unroll
        for (int e = 0; e < size / 4; e++) {
            u32 *at = (u32 *)to + e;
            if (width >= 4 && valid >= e * 4 + 4) {
                *at = word[e];
                continue;
            }
            if (valid > e * 4)
                *(u16 *)at = (u16)word[e];
            if (valid > e * 4 + 2)
                *((u16 *)at + 1) = (u16)(word[e] >> 16);
        }
}
