/* Sums of squares of the rows of pairs, for conv_transform.cu, behind the points of windows:
   of each window PARTS norms, by a block of threads each. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "simt.h"

#include "conv_points.cuh"
#include "conv_rows.cuh"
#include "conv_scales.cuh"

#define AT_ONCE 8 /* points of a thread that are on their way */
#define FOLDS   8

FN void add(const C *v, int e, C *squares)
{
    C by[MOST_RADIX];
    UNROLL for (int q = 0; q < AT_ONCE; q++) by[q] =
        point(v[q].re * power(e), v[q].im * power(e));
    add_squares(by, AT_ONCE, squares);
}

KERNEL conv(
    const X *x, const X *x_factor, X *y, const X *y_factor, X *y2, const X *y2_factor,
    C *points, C *spectrum, const C *constants, int64 first, int64 items, int64 share,
    int64 length, int64 batch, int64 channels, int64 windows, int64 step, int64 lead,
    int64 before, int64 after, const piece *pieces, int flags)
{
    LOCAL norms all[THREADS];
    rows r = { length, batch,  channels, windows, step,
               lead,   before, after,    pieces,  flags };
    int part = (int)(BLOCK % PARTS);
    window w = window_of(&r, first + BLOCK / PARTS);
    norms own = { { point(0, 0), point(0, 0), point(0, 0) } };
    w.there =
        range_of((int64)part * POINTS / PARTS, (int64)(part + 1) * POINTS / PARTS, 0);
    x += beside(&r, &w, GROUPED_X);
    x_factor += beside(&r, &w, GROUPED_X_FACTOR);
    ROLL for (int j = THREAD; j < w.there.count; j += AT_ONCE * THREADS)
    {
        C v[MOST_RADIX];
        fetch_points(&r, &w, x, x_factor, w.there.from + j, THREADS, AT_ONCE, v);
        add(v, 0, &own.of[0]);
        add(v, UP, &own.of[1]);
        add(v, DOWN, &own.of[2]);
    }
    all[THREAD] = own;
    BARRIER();
    int which = THREAD / FOLDS;
    if (which < 3) {
        C squares = point(0, 0);
        for (int i = THREAD % FOLDS; i < THREADS; i += FOLDS)
            squares = sum(squares, all[i].of[which]);
        all[THREAD % FOLDS].of[which] = squares;
    }
    BARRIER();
    norms *to = (norms *)(points + items * POINTS) + BLOCK;
    if (THREAD < 3)
        to->of[THREAD] = all_squares(all, FOLDS, THREAD);
}
