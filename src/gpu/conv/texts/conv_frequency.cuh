/* Frequencies of the numbers of a spectrum, whose order is [POINTS / N][p][block] of the last
   pass (conv_passes.cuh). DIGITS and LAST_RADIX give the radices of all passes. */
// SPDX-License-Identifier: Apache-2.0

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

/* Where number f = p0 + root (p1 + 16 p2) of a row of 256 root is among those of conv_mma.cu, as
   registers have them: block p0, words of four numbers, lane, number. */
FN int place_in_lanes(int f, int root)
{
    int p0 = f % root, p1 = f / root % 16, p2 = f / root / 16;
    int lane = p1 % 8 * 4 + p2 % 8 / 2, number = p2 / 8 * 4 + p1 / 8 * 2 + p2 % 2;
    return ((p0 * 2 + number / 4) * 32 + lane) * 4 + number % 4;
}
