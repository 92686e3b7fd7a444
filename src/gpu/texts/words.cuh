/* What texts for tensor cores have in common beside instructions (ptx.cuh). */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ptx.cuh"

/* Where a 16-byte chunk lies in rows of 128 bytes with the 128-byte swizzle. */
INLINE u32 swizzled(int row, int chunk)
{
    return row * 128 + ((chunk ^ (row & 7)) << 4);
}

/* The numbers of danaus_activation, from 1 on. */
INLINE float activate(float v, int activation)
{
    if (activation == 1)
        return v < 0 ? 0 : v;
    if (activation == 2)
        return 0.5f * v * (1 + erff(v * 0.70710678f));
    if (activation == 3)
        return v / (1 + expf(-v));
    return v / (1 + expf(-1.59576912f * (v + 0.044715f * v * v * v)));
}

/* Of two 16-bit elements. */
INLINE u32 activate_pair(u32 pair, int activation)
{
    return pack_pair(
        activate(low_of(pair), activation), activate(high_of(pair), activation));
}
