/* Convolutions of windows, and parts of them.

       LOAD    0: rows of numbers   1: points
       FORWARD and INVERSE: transforms; both: with the product with the spectrum between
       STORE   0: rows of numbers   1: points
       GATED   rows may have factors, and go to y and y2 */
// SPDX-License-Identifier: Apache-2.0
#define THREADS (TEAM * MEMBERS)
#include "simt.h"

#include "conv_turn.cuh"

/* Windows first, ..., first + items - 1 of all. */
KERNEL conv(
    const GLOBAL X *x, const GLOBAL X *x_factor, GLOBAL X *y, const GLOBAL X *y_factor,
    GLOBAL X *y2, const GLOBAL X *y2_factor, GLOBAL C *points, GLOBAL C *spectrum,
    const GLOBAL C *constants, int64 first, int64 items, int64 share, int64 length,
    int64 batch, int64 channels, int64 windows, int64 step, int64 lead, int64 before,
    int64 after, const GLOBAL packed_window *packed, int flags,
    const GLOBAL norms *parts)
{
    SHARED(C, all, MEMBERS * ROOM);
    rows r = { length, batch,  channels, windows, step,
               lead,   before, after,    packed,  flags };
    work k;
    int64 item = place_member(&k, all, items);
    k.r = &r;
    k.w = window_of(&r, first + item);
    k.x = x + beside(&r, &k.w, GROUPED_X);
    k.x_factor = GATED ? x_factor + beside(&r, &k.w, GROUPED_X_FACTOR) : 0;
    k.y[0] = y + beside(&r, &k.w, GROUPED_Y(0));
    k.y[1] = GATED ? y2 + beside(&r, &k.w, GROUPED_Y(1)) : 0;
    k.y_factor[0] = GATED ? y_factor + beside(&r, &k.w, GROUPED_Y_FACTOR(0)) : 0;
    k.y_factor[1] = GATED ? y2_factor + beside(&r, &k.w, GROUPED_Y_FACTOR(1)) : 0;
    k.points = points + item * POINTS;
    k.constants = constants;
    k.exponent[0] = k.exponent[1] = 0;
    k.parts = SCALED == 2 && k.w.other && !k.is_idle ? parts + item * PARTS : 0;
    transform(
        &k, spectrum + divide(k.w.channel, share) * POINTS, (LOCAL int *)&all[ROOM - 1]);
}
