/* Frequencies of the numbers of a spectrum, whose order is [POINTS / N][p][block] of the last
   pass (conv_passes.cuh). DIGITS and LAST_RADIX give the radices of all passes. */
// SPDX-License-Identifier: Apache-2.0

#include "conv_kept.cuh"

#define DIGIT(radix)                                                                   \
    f = number % radix + radix * f;                                                    \
    number /= radix;

FN int frequency_of(int place)
{
    int tile = place / N, in = place % N, f = 0;
    int number = tile * N + in % (N / LAST_RADIX) * LAST_RADIX + in / (N / LAST_RADIX);
    DIGITS(DIGIT)
    return f;
}
