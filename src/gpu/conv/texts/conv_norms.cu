/* Sums of squares of the rows of pairs, for conv_transform.cu. A window has PARTS norms, and a
   block of threads computes each. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "simt.h"

#include "conv_points.cuh"
#include "conv_rows.cuh"
#include "conv_scales.cuh"

#define LOADS   8 /* points of a thread that are on their way */
#define FOLDS   8

/* Squares of a thread's share of a part, times 2^e. */
FN C squares_of(
    const rows *r, const window *w, const GLOBAL X *x, const GLOBAL X *x_factor, int e)
{
    C squares = point(0, 0);
    ROLL for (int j = THREAD; j < w->there.count; j += LOADS * THREADS)
    {
        C v[MOST_RADIX];
        fetch_points(r, w, x, x_factor, w->there.from + j, THREADS, LOADS, v);
        UNROLL for (int q = 0; q < LOADS; q++) v[q] =
            point(v[q].re * power(e), v[q].im * power(e));
        add_squares(v, LOADS, &squares);
    }
    return squares;
}

/* Sums as they are where those times 2^UP, or 2^DOWN, are not needed unless others are tiny, or
   huge, too. */
FN norms norms_of(
    const rows *r, const window *w, const GLOBAL X *x, const GLOBAL X *x_factor)
{
    C as_is = squares_of(r, w, x, x_factor, 0), down = as_is;
    down = point(down.re * power(DOWN), down.im * power(DOWN));
    down = point(down.re * power(DOWN), down.im * power(DOWN));
    norms n = { { as_is, as_is, down } };
    if (as_is.re <= LEAST || as_is.im <= LEAST)
        n.of[1] = squares_of(r, w, x, x_factor, UP);
    if (!(as_is.re < MOST && as_is.im < MOST))
        n.of[2] = squares_of(r, w, x, x_factor, DOWN);
    return n;
}

KERNEL conv(
    const GLOBAL X *x, const GLOBAL X *x_factor, GLOBAL X *y, const GLOBAL X *y_factor,
    GLOBAL X *y2, const GLOBAL X *y2_factor, GLOBAL C *points, GLOBAL C *spectrum,
    const GLOBAL C *constants, int64 first, int64 items, int64 share, int64 length,
    int64 batch, int64 channels, int64 windows, int64 step, int64 lead, int64 before,
    int64 after, const GLOBAL packed_window *packed, int flags,
    GLOBAL norms *to)
{
    IN_BLOCK norms all[THREADS];
    rows r = { length, batch,  channels, windows, step,
               lead,   before, after,    packed,  flags };
    int part = (int)(BLOCK % PARTS);
    window w = window_of(&r, first + BLOCK / PARTS);
    w.there =
        range_of((int64)part * POINTS / PARTS, (int64)(part + 1) * POINTS / PARTS, 0);
    x += beside(&r, &w, GROUPED_X);
    x_factor = GATED ? x_factor + beside(&r, &w, GROUPED_X_FACTOR) : 0;
    all[THREAD] = norms_of(&r, &w, x, x_factor);
    BARRIER();
    int which = THREAD / FOLDS;
    if (which < 3) {
        C squares = point(0, 0);
        for (int i = THREAD % FOLDS; i < THREADS; i += FOLDS)
            squares = sum(squares, all[i].of[which]);
        all[THREAD % FOLDS].of[which] = squares;
    }
    BARRIER();
    if (THREAD < 3) {
        C squares = all[0].of[THREAD];
        UNROLL for (int i = 1; i < FOLDS; i++) squares = sum(squares, all[i].of[THREAD]);
        to[BLOCK].of[THREAD] = squares;
    }
}
