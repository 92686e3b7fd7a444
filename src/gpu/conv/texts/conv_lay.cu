/* Lays filters into windows of 2 points numbers, with taps at their lag divided by `points`,
   as dn_conv_lay_filter() does (conv/frame.c). type: of the filters (numbers.cuh). */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "numbers.cuh"

KERNEL conv(
    const GLOBAL void *k, const GLOBAL void *k_reverse, const GLOBAL void *skip, int type,
    GLOBAL S *windows, int64 filters, int64 points, int64 taps, int64 length, int64 positive,
    int64 negative, int is_periodic)
{
    int64 i = BLOCK * THREADS + THREAD, filter = i / (2 * points), j = i % (2 * points);
    S value = 0, scale = (S)1 / (S)points;
    if (filter >= filters)
        return;
    if (is_periodic)
        for (int64 s = j; j < length && s < taps; s += length)
            value += number_at(k, type, filter * taps + s, 0) * scale;
    else if (j < positive)
        value = number_at(k, type, filter * taps + j, 0) * scale;
    if (2 * points - 1 - j < negative)
        value -=
            number_at(k_reverse, type, filter * taps + 2 * points - 1 - j, 0) * scale;
    if (j == 0 && skip)
        value += number_at(skip, type, filter, 0) * scale;
    windows[i] = value;
}
