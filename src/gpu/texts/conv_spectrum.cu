/* Spectra for conv_mma.cu from those of conv_transform.cu: of each filter POINTS numbers as
   pairs of f16, in the order of the registers that meet them, scaled so that the largest part
   is 1 to 2, and then that scale, in f32, times POINTS, by which transforms there are less.

   Number f of a spectrum is that of the frequency f = p0 + ROOT (p1 + 16 p2). A block of
   threads has a filter. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "simt.h"

#include "conv_frequency.cuh"
#include "conv_points.cuh"

/* Where it goes: block p0, words of four numbers, lane, number. */
FN int place_of(int f)
{
    int root = POINTS / 256, p0 = f % root, p1 = f / root % 16, p2 = f / root / 16;
    int lane = p1 % 8 * 4 + p2 % 8 / 2, number = p2 / 8 * 4 + p1 / 8 * 2 + p2 % 2;
    return ((p0 * 2 + number / 4) * 32 + lane) * 4 + number % 4;
}

FN S magnitude(S s) { return s < 0 ? -s : s; }

KERNEL conv(const C *from, unsigned char *to)
{
    LOCAL S most[THREADS];
    const C *own = from + BLOCK * POINTS;
    unsigned short *pairs = (unsigned short *)(to + BLOCK * (POINTS * 4 + 16));
    S peak = 0;
    for (int i = THREAD; i < POINTS; i += THREADS) {
        S re = magnitude(own[i].re), im = magnitude(own[i].im);
        peak = re > peak ? re : peak;
        peak = im > peak ? im : peak;
    }
    most[THREAD] = peak;
    BARRIER();
    for (int i = 0; i < THREADS; i++)
        peak = most[i] > peak ? most[i] : peak;
    unsigned exponent = BITS(peak) >> 23 & 255;
    exponent = exponent < 1 ? 1 : exponent > 253 ? 253 : exponent;
    S scale = UNBITS((254 - exponent) << 23);
    for (int i = THREAD; i < POINTS; i += THREADS) {
        int place = 2 * place_of(frequency_of(i));
        pairs[place] = f16_store(own[i].re * scale);
        pairs[place + 1] = f16_store(own[i].im * scale);
    }
    if (THREAD == 0)
        *(S *)(pairs + 2 * POINTS) = UNBITS(exponent << 23) * POINTS;
}
