/* Convolutions of windows, and parts of them.

       LOAD    0: rows of numbers   1: points   2: the spectrum
       FORWARD and INVERSE: transforms; both: with the product with the spectrum between
       STORE   0: rows of numbers   1: points   2: the spectrum
       GATED   rows may have factors, and go to y and y2 */
// SPDX-License-Identifier: Apache-2.0
#define THREADS (TEAM * MEMBERS)
#include "simt.h"

#include "conv_exponents.cuh"

/* Times the spectrum, or its conjugate: without branches, as numbers are asked for before others
   are there. */
FN void multiply(
    const work *k, const column *c, int radix, const GLOBAL C *spectrum, C *v)
{
    S sign = k->r->flags & ADJOINT ? -1 : 1;
    UNROLL for (int p = 0; p < MOST_RADIX; p++)
    {
        if (p >= radix)
            continue;
        C *z = &v[child(radix, p)], s = spectrum[in_spectrum(k, c, radix, p)];
        *z = times(*z, point(s.re, sign * s.im));
    }
}

FN void exchange(
    const work *k, const column *c, int radix, GLOBAL C *spectrum, C *v)
{
    UNROLL for (int p = 0; p < MOST_RADIX; p++)
    {
        if (p >= radix || k->is_idle)
            continue;
        C *z = &v[child(radix, p)];
        GLOBAL C *s = &spectrum[in_spectrum(k, c, radix, p)];
        if (LOAD == 2)
            *z = *s;
        else
            *s = *z;
    }
}

/* The last pass forward, whose children have one point each, what is done with the
   spectrum, and the first pass back. */
FN void turn(
    work *k, GLOBAL C *spectrum, int radix, int blocks, int64 constants, int is_only)
{
    ROLL for (int n = 0; n < EACH(radix); n++)
    {
        int waits = FORWARD && !is_only;
        C v[MOST_RADIX], with[MOST_RADIX / 2];
        column c = begin_column(k, n, radix, blocks, constants, waits, with);
        if (!c.is_there)
            continue;
        if (FORWARD) {
            take(k, &c, radix, is_only, v);
            evaluate(v, with, radix);
        }
        if (FORWARD && INVERSE)
            multiply(k, &c, radix, spectrum, v);
        else
            exchange(k, &c, radix, spectrum, v);
        if (INVERSE) {
            interpolate(v, with, radix);
            give(k, &c, radix, is_only, v);
        }
    }
}

#define TURNS (LOAD == 2 || STORE == 2 || (FORWARD && INVERSE))

FN void transform(work *k, GLOBAL C *spectrum, LOCAL int *flag)
{
#ifdef LAST
    if (FORWARD) {
        first_pass(k, flag, FIRST);
        MIDDLE(FORWARD_PASS)
    }
    if (TURNS)
        turn(k, spectrum, LAST, 0);
    else if (FORWARD)
        pass(k, LAST, 0, 1, 0);
    else
        pass(k, LAST, 1, 0, 1);
    if (INVERSE) {
        MIDDLE_BACK(INVERSE_PASS)
        pass(k, FIRST, 0, 1, 1);
    }
#else
    if (TURNS)
        turn(k, spectrum, FIRST, 1);
    else if (FORWARD)
        pass(k, FIRST, 1, 1, 0);
    else
        pass(k, FIRST, 1, 1, 1);
#endif
}

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
    int64 number = BLOCK * MEMBERS + THREAD / TEAM, item = number / TILES;
    int is_idle = item >= items;
    work k;
    k.z = all + THREAD / TEAM * ROOM;
    k.r = &r;
    k.w = window_of(&r, first + (is_idle ? 0 : item));
    k.x = x + beside(&r, &k.w, GROUPED_X);
    k.x_factor = GATED ? x_factor + beside(&r, &k.w, GROUPED_X_FACTOR) : 0;
    k.y[0] = y + beside(&r, &k.w, GROUPED_Y(0));
    k.y[1] = GATED ? y2 + beside(&r, &k.w, GROUPED_Y(1)) : 0;
    k.y_factor[0] = GATED ? y_factor + beside(&r, &k.w, GROUPED_Y_FACTOR(0)) : 0;
    k.y_factor[1] = GATED ? y2_factor + beside(&r, &k.w, GROUPED_Y_FACTOR(1)) : 0;
    k.points = points + item * POINTS;
    k.constants = constants;
    k.tile = (int)(number % TILES);
    k.thread = THREAD % TEAM;
    k.is_idle = is_idle;
    k.exponent[0] = k.exponent[1] = 0;
    k.squares = 0;
    k.parts = SCALED == 2 && k.w.other && !is_idle ? parts + item * PARTS : 0;
    transform(
        &k, spectrum + divide(k.w.channel, share) * POINTS, (LOCAL int *)&all[ROOM - 1]);
}
