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
