/* What texts for tensor cores have in common beside instructions (ptx.cuh). */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ptx.cuh"

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

/* The numbers of danaus_activation, from 1 on. Exponential and quotient err by a few units
   in the last place, and take few instructions: every copy of these lines is compiled. */
INLINE float activate(float v, int activation)
{
    if (activation == 1)
        return v < 0 ? 0 : v;
    if (activation == 2)
        return 0.5f * v * (1 + erff(v * 0.70710678f));
    float u = activation == 3 ? v : 1.59576912f * (v + 0.044715f * v * v * v);
    return __fdividef(v, 1 + __expf(-u));
}

/* Of two 16-bit elements. */
INLINE u32 activate_pair(u32 pair, int activation)
{
    return pack_pair(
        activate(low_of(pair), activation), activate(high_of(pair), activation));
}
