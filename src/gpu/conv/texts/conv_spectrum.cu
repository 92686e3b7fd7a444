/* Spectra for conv_mma.cu from those of conv_transform.cu. A filter has POINTS numbers as pairs
   of f16, in the order of the registers that multiply them, scaled so that the largest part is
   1 to 2. The scale follows in f32, times POINTS, because transforms of conv_mma.cu are smaller
   by that factor.

   Number f of a spectrum has the frequency f = p + ROWS (p0 + ROOT (p1 + 16 p2)). Each row p has
   its numbers, its scale and beside it a place for the largest part of as many numbers in the
   order of conv_transform.cu. A block of threads has those numbers of a filter. It first finds
   their largest part, and then moves them; with one row, in the same launch. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "simt.h"

#define ROW_BYTES ((int64)(POINTS / ROWS) * 4 + 16)

#include "conv_frequency.cuh"
#include "conv_points.cuh"

FN S magnitude(S s) { return s < 0 ? -s : s; }

/* The place of row `row`. */
FN S *scale_of(unsigned char *rows, int row)
{
    return (S *)(rows + (row + 1) * ROW_BYTES - 16);
}

/* The largest of what threads have. */
FN S meet(S *most, S peak)
{
    most[THREAD] = peak;
    BARRIER();
    for (int i = 0; i < THREADS; i++)
        peak = most[i] > peak ? most[i] : peak;
    return peak;
}

KERNEL conv(const C *from, unsigned char *to, int is_first)
{
    IN_BLOCK S most[THREADS];
    int piece = (int)(BLOCK % ROWS), each = POINTS / ROWS;
    const C *own = from + BLOCK / ROWS * POINTS;
    unsigned char *rows = to + BLOCK / ROWS * ROWS * ROW_BYTES;
    S peak = 0;
    for (int i = piece * each + THREAD; is_first && i < (piece + 1) * each; i += THREADS) {
        S re = magnitude(own[i].re), im = magnitude(own[i].im);
        peak = re > peak ? re : peak;
        peak = im > peak ? im : peak;
    }
    for (int row = THREAD; !is_first && row < ROWS; row += THREADS) {
        S other = scale_of(rows, row)[1];
        peak = other > peak ? other : peak;
    }
    peak = meet(most, peak);
    if (is_first && THREAD == 0)
        scale_of(rows, piece)[1] = peak;
    if (is_first && ROWS > 1)
        return;
    unsigned exponent = BITS(peak) >> 23 & 255;
    exponent = exponent < 1 ? 1 : exponent > 253 ? 253 : exponent;
    S scale = UNBITS((254 - exponent) << 23);
    for (int i = piece * each + THREAD; i < (piece + 1) * each; i += THREADS) {
        int f = frequency_of(i), place = 2 * place_in_lanes(f / ROWS, POINTS / ROWS / 256);
        unsigned short *pairs = (unsigned short *)(rows + f % ROWS * ROW_BYTES);
        pairs[place] = f16_store(own[i].re * scale);
        pairs[place + 1] = f16_store(own[i].im * scale);
    }
    if (THREAD == 0)
        *scale_of(rows, piece) = UNBITS(exponent << 23) * POINTS;
}
