/* Sums over windows of a filter, of the spectrum of dy times the conjugate of x's.

   A block of threads has a tile of a part of the windows of a filter, which follow each
   other. Windows are rows of numbers (LOAD 0) or points (1). The sums are made in order,
   in sums[filter][part][POINTS]; `kept` has room for N points of every block of threads. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS TEAM
#include "simt.h"

#include "conv_passes.cuh"

/* The last pass: of x, children are kept; of dy, they are multiplied and added. */
FN void finish(
    work *k, C *kept, C *sums, int is_dy, int is_begin, int radix, int blocks,
    int64 constants, int is_only)
{
    ROLL for (int n = 0; n < EACH(radix); n++)
    {
        C v[MOST_RADIX], with[MOST_RADIX / 2];
        column c = begin_column(k, n, radix, blocks, constants, !is_only, with);
        if (!c.is_there)
            continue;
        take(k, &c, radix, is_only, v);
        evaluate(v, with, radix);
        C *own = kept - k->tile * N;
        C with_x[MOST_RADIX], was[MOST_RADIX];
        UNROLL for (int p = 0; p < MOST_RADIX; p++)
        {
            int at = in_spectrum(k, &c, radix, p);
            if (p < radix && is_dy) {
                with_x[p] = own[at];
                was[p] = is_begin ? point(0, 0) : sums[at];
            }
        }
        UNROLL for (int p = 0; p < MOST_RADIX; p++)
        {
            int at = in_spectrum(k, &c, radix, p);
            C z = v[child(radix, p)];
            if (p < radix && is_dy)
                sums[at] = sum(was[p], times_conjugate(z, with_x[p]));
            else if (p < radix)
                own[at] = z;
        }
    }
    BARRIER();
}

FN void add_window(work *k, C *kept, C *sums, int is_dy, int is_begin)
{
#ifdef LAST
    pass(k, FIRST, 1, 0, 0);
    MIDDLE(FORWARD_PASS)
    finish(k, kept, sums, is_dy, is_begin, LAST, 0);
#else
    finish(k, kept, sums, is_dy, is_begin, FIRST, 1);
#endif
}

/* Windows from, ..., to - 1 of each of the filters first, ..., first + filters - 1, of which
   each has `each`; points lie from the first one of these on. */
KERNEL conv(
    const X *x, const X *x_factor, const X *dy, const X *dy_factor, C *points,
    C *dy_points, C *kept, C *sums, const C *constants, int64 first, int64 filters,
    int64 parts, int64 each, int64 from, int64 to, int64 length, int64 batch,
    int64 channels, int64 windows, int64 step, int64 lead, int64 before, int64 after,
    const piece *pieces, int flags)
{
    SHARED(C, all);
    rows r = { length, batch,  channels, windows, step,
               lead,   before, after,    pieces,  flags };
    work k;
    k.z = all;
    k.r = &r;
    k.constants = constants;
    k.thread = THREAD;
    k.is_idle = 0;
    k.parts = 0;
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
            add_window(&k, kept + BLOCK * N, sums + group * POINTS, 0, 0);
            k.w.there = k.w.made;
            k.x = dy + beside(&r, &k.w, GROUPED_Y(0));
            k.x_factor =
                GATED ? dy_factor + beside(&r, &k.w, GROUPED_Y_FACTOR(0)) : 0;
            k.points = dy_points + place;
            add_window(
                &k, kept + BLOCK * N, sums + group * POINTS, 1, i == begin && !from);
        }
    }
}
