/* The activation of results: ACTIVATION, a value of danaus_activation. The compiler knows it, so
   there are no branches, which would process one number after the other. */
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ptx.cuh"
#define FN INLINE
#include "normal.h"

/* Exponential and quotient err by a few units in the last place, and take few
   instructions. */
INLINE float activate(float v)
{
    if (ACTIVATION == 0)
        return v;
    if (ACTIVATION == 1)
        return v < 0 ? 0 : v;
#if ELEMENT == 4
    if (ACTIVATION == 2)
        return 0.5f * v * (1 + erff(v * 0.70710678f));
#endif
    float u = ACTIVATION == 2   ? normal_logit(v)
              : ACTIVATION == 3 ? v
                                : 1.59576912f * (v + 0.044715f * v * v * v);
    return __fdividef(v, 1 + __expf(-u));
}

/* A number of 32 bits, or two of 16. */
INLINE u32 activate_word(u32 v)
{
#if ELEMENT == 4
    return __float_as_uint(activate(__uint_as_float(v)));
#else
    return pack_pair(activate(low_of(v)), activate(high_of(v)));
#endif
}

INLINE uint4 activate_words(uint4 v)
{
    return make_uint4(
        activate_word(v.x), activate_word(v.y), activate_word(v.z), activate_word(v.w));
}
