/* Brings the tiles of spectra of conv_filter.cu to one scale, if they differ, or if a part is too
   large for that scale, and writes it behind each row. A block of threads has a tile; `tiles` are
   the largest part of each and what it is divided by. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "simt.h"

#include "conv_points.cuh"
#include "conv_frequency.cuh"
#include "conv_lanes.cuh"

FN C larger(C a, C b)
{
    return point(a.re > b.re ? a.re : b.re, a.im > b.im ? a.im : b.im);
}

/* The largest of TILES, in all threads. */
FN C largest_of(const GLOBAL C *tiles, LOCAL C *most)
{
    C all = point(0, 0);
    for (int i = THREAD; i < TILES; i += THREADS)
        all = larger(all, tiles[i]);
    most[THREAD] = all;
    ROLL for (int half = THREADS / 2; half > 0; half /= 2)
    {
        BARRIER();
        if (THREAD < half)
            most[THREAD] = larger(most[THREAD], most[THREAD + half]);
    }
    BARRIER();
    return most[0];
}

FN unsigned pair_times(unsigned pair, S by)
{
    return f16_pair(
        f16_load((unsigned short)pair) * by, f16_load((unsigned short)(pair >> 16)) * by);
}

KERNEL conv(GLOBAL unsigned char *spectra, const GLOBAL C *tiles)
{
    IN_BLOCK C most[THREADS];
    int64 filter = BLOCK / TILES;
    int tile = (int)(BLOCK % TILES), frequency = frequency_of(tile * N);
    GLOBAL unsigned char *rows = spectra + filter * ROWS * ROW_BYTES;
    tiles += filter * TILES;
    C largest = largest_of(tiles, most);
    unsigned exponent = exponent_of(largest.im), own = exponent_of(tiles[tile].im);
    if (exponent_of(largest.re) > exponent + MOST_EXPONENT)
        exponent = exponent_of(largest.re);
    int less = (int)exponent - (int)own; /* zeros where that is beyond f16 */
    S by = UNBITS((unsigned)(less < 127 ? 127 - less : 0) << 23);
    if (THREAD == 0 && frequency < ROWS)
        *scale_of(rows, frequency) = scale_by(exponent);
    if (own == exponent)
        return;
    for (int i = THREAD; i < N / 4; i += THREADS) {
        word w = word_of(i, frequency);
        GLOBAL unsigned *at =
            (GLOBAL unsigned *)(rows + w.row * ROW_BYTES + w.at * 16);
        unsigned words[4];
        UNROLL for (int e = 0; e < 4; e++) words[e] = pair_times(at[e], by);
        PUT_WORDS(at, words);
    }
}
