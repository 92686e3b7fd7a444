/* Sums over the windows of a filter, of the spectrum of dy times the conjugate spectrum of x. For
   pairs, the real part of the transformed result is the sum of both rows. Rows of dy have the
   inverses of the exponents of x, so the products of both rows have their true magnitudes.

   A block of threads has a tile of a part of the windows of a filter, which follow each other.
   Windows are rows of numbers (LOAD 0) or points (1). The sums are computed in order, in
   sums[filter][part][POINTS]; `kept` has room for N points of every block of threads. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS TEAM
#include "simt.h"

#include "conv_exponents.cuh"

/* Keeps the children of x; multiplies and adds those of dy. Loads what they meet, several at
   once. */
FN void put_children(
    const work *k, const column *c, int radix, const C *v, GLOBAL C *kept,
    GLOBAL C *sums, int is_dy, int is_begin)
{
    GLOBAL C *own = kept - k->tile * N;
    UNROLL for (int first = 0; first < radix; first += AT_ONCE)
    {
        C with_x[AT_ONCE], was[AT_ONCE];
        UNROLL for (int q = 0; q < AT_ONCE; q++)
        {
            int at = in_spectrum(k, c, radix, first + q);
            if (first + q < radix && is_dy) {
                with_x[q] = own[at];
                was[q] = is_begin ? point(0, 0) : sums[at];
            }
        }
        UNROLL for (int q = 0; q < AT_ONCE; q++)
        {
            int at = in_spectrum(k, c, radix, first + q);
            if (first + q >= radix)
                continue;
            C z = v[child(radix, first + q)];
            if (is_dy)
                sums[at] = sum(was[q], times_conjugate(z, with_x[q]));
            else
                own[at] = z;
        }
    }
}

/* The last pass. */
FN void finish(
    work *k, GLOBAL C *kept, GLOBAL C *sums, int is_dy, int is_begin, int radix,
    int blocks, int64 constants, int is_only)
{
    ROLL for (int n = 0; n < EACH(radix); n++)
    {
        C v[MOST_RADIX], with[MOST_RADIX / 2];
        column c = begin_column(k, n, radix, blocks, constants, !is_only, with);
        if (!c.is_there)
            continue;
        take(k, &c, radix, is_only, v);
        evaluate(v, with, radix);
        FORGET(k->tile); /* reads what follows only then, as registers are few before */
        put_children(k, &c, radix, v, kept, sums, is_dy, is_begin);
    }
    BARRIER();
}

FN void add_window(
    work *k, GLOBAL C *kept, GLOBAL C *sums, int is_dy, int is_begin, LOCAL int *flag)
{
#ifdef LAST
    if (is_dy)
        pass(k, FIRST, 1, 0, 0);
    else
        first_pass(k, flag, FIRST);
    MIDDLE(FORWARD_PASS)
    finish(k, kept, sums, is_dy, is_begin, LAST, 0);
#else
    finish(k, kept, sums, is_dy, is_begin, FIRST, 1);
#endif
}

/* Windows from, ..., to - 1 of filters first, ..., first + filters - 1, which have `each`
   windows each; points begin with the first of these. */
KERNEL conv(
    const GLOBAL X *x, const GLOBAL X *x_factor, const GLOBAL X *dy,
    const GLOBAL X *dy_factor, GLOBAL C *points, GLOBAL C *dy_points, GLOBAL C *kept,
    GLOBAL C *sums, const GLOBAL C *constants, int64 first, int64 filters, int64 parts,
    int64 each, int64 from, int64 to, int64 length, int64 batch, int64 channels,
    int64 windows, int64 step, int64 lead, int64 before, int64 after,
    const GLOBAL packed_window *packed, int flags)
{
    SHARED(C, all, ROOM);
    rows r = { length, batch,  channels, windows, step,
               lead,   before, after,    packed,  flags };
    work k;
    k.z = all;
    k.r = &r;
    k.constants = constants;
    k.thread = THREAD;
    k.is_idle = 0;
    k.parts = 0;
    LOCAL int *flag = (LOCAL int *)&all[ROOM - 1];
    ROLL for (int64 number = BLOCK; number < filters * parts * TILES; number += BLOCKS)
    {
        int64 group = number / TILES, filter = group / parts, part = group % parts;
        int64 begin = from + (to - from) * part / parts;
        int64 end = from + (to - from) * (part + 1) / parts;
        k.tile = (int)(number % TILES);
        ROLL for (int64 i = begin; i < end; i++)
        {
            int64 place = (filter * (to - from) + i - from) * POINTS;
            k.w = window_of(&r, (first + filter) * each + i);
            k.x = x + beside(&r, &k.w, GROUPED_X);
            k.x_factor = GATED ? x_factor + beside(&r, &k.w, GROUPED_X_FACTOR) : 0;
            k.points = points + place;
            k.exponent[0] = k.exponent[1] = 0;
            r.flags = flags & ~LOWER;
            add_window(&k, kept + BLOCK * N, sums + group * POINTS, 0, 0, flag);
            k.w.there = k.w.made;
            k.x = dy + beside(&r, &k.w, GROUPED_Y(0));
            k.x_factor =
                GATED ? dy_factor + beside(&r, &k.w, GROUPED_Y_FACTOR(0)) : 0;
            k.points = dy_points + place;
            k.squares = 0;
            r.flags = (flags & ~CONJUGATE_X) | LOWER;
            r.flags |= flags & CONJUGATE_Y_FACTOR(0) ? CONJUGATE_X : 0;
            add_window(
                &k, kept + BLOCK * N, sums + group * POINTS, 1, i == begin && !from,
                flag);
        }
    }
}
