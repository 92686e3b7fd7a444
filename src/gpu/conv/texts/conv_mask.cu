/* Sets to zero what sparse spectra leave out: frequencies f = f_1 + N_1 (f_2 + N_2 (f_3 + ...))
   with some f_i >= keep_i (conv/frame.c). shift: log2 of the axes N_i. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "simt.h"

#include "conv_frequency.cuh"
#include "conv_points.cuh"

FN int is_outside(int *frequency, int shift, int keep)
{
    int out = (*frequency & ((1 << shift) - 1)) >= keep;
    *frequency >>= shift;
    return out;
}

KERNEL conv(
    GLOBAL C *spectrum, int64 count, int shift_1, int shift_2, int shift_3, int shift_4,
    int keep_1, int keep_2, int keep_3, int keep_4)
{
    int64 i = BLOCK * THREADS + THREAD;
    if (i >= count)
        return;
    int f = frequency_of((int)(i % POINTS));
    int out = is_outside(&f, shift_1, keep_1);
    out |= is_outside(&f, shift_2, keep_2);
    out |= is_outside(&f, shift_3, keep_3);
    out |= is_outside(&f, shift_4, keep_4);
    if (out)
        spectrum[i] = point(0, 0);
}
