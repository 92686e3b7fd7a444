/* Where numbers of spectra for conv_mma.cu lie in the shared memory of a tile, which has them in
   the order of its last pass. */
// SPDX-License-Identifier: Apache-2.0

#include "conv_lanes.cuh"

/* TILE_DIGITS: the radices of the tile's passes, from the first one on. */
#define TILE_DIGIT(radix)                                                              \
    number = number * radix + g % radix;                                               \
    g /= radix;

FN int place_of_frequency(int g)
{
    int number = 0;
    TILE_DIGITS(TILE_DIGIT)
    return place_of(number);
}

/* The four numbers of word i. */
FN void places_of(int i, int place[4])
{
    int row = i / (64 * OWN_ROOT), p0 = i % (64 * OWN_ROOT) / 64;
    int p1 = i % 32 / 4, p2 = i % 4 * 2 + i / 32 % 2 * 8;
    int first = row + OWN_ROWS * (p0 + OWN_ROOT * (p1 + 16 * p2));
    int at = place_of_frequency(first);
    UNROLL for (int e = 0; e < 4; e++)
    {
        int more = OWN_ROWS * OWN_ROOT * (e / 2 * 8 + e % 2 * 16);
        /* Digits of powers of two that differ do not meet. */
        place[e] = N & (N - 1) ? place_of_frequency(first + more)
                               : at + place_of_frequency(more);
    }
}
