/* The inverse of conv_lay.cu: gradients of filters from `points` times their sums by lag, as
   dn_conv_take_filter() computes them (conv/frame.c). */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "simt.h"

/* *to = value, or is added. */
FN void put(GLOBAL S *to, S value, int is_more) { *to = is_more ? *to + value : value; }

/* Takes the first `reach` taps of each filter; beyond them nothing is added. Each of dk,
   dk_reverse, dskip may be NULL. */
KERNEL conv(
    const GLOBAL S *windows, GLOBAL S *dk, GLOBAL S *dk_reverse, GLOBAL S *dskip,
    int64 filters, int64 points, int64 taps, int64 reach, int64 length, int64 positive,
    int64 negative, int is_periodic, int is_folded, int is_more)
{
    int64 i = BLOCK * THREADS + THREAD, filter = i / reach, s = i % reach;
    S scale = (S)1 / (S)points;
    if (filter >= filters)
        return;
    i = filter * taps + s;
    windows += filter * 2 * points;
    if (dk && is_periodic) {
        int64 lag = s % length;
        S beyond = is_folded ? windows[points + lag] : 0;
        put(&dk[i], scale * (windows[lag] - beyond), is_more);
    } else if (dk) {
        put(&dk[i], s < positive ? scale * windows[s] : 0, is_more);
    }
    if (dk_reverse)
        put(&dk_reverse[i], s < negative ? -scale * windows[2 * points - 1 - s] : 0,
            is_more);
    if (dskip && s == 0)
        put(&dskip[filter], scale * windows[0], is_more);
}
