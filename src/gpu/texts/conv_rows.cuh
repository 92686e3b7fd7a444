/* Windows of rows (conv_window.cuh) as polynomials, z[j] = x[j] + i x[POINTS + j]: where
   transforms begin and end. */
// SPDX-License-Identifier: Apache-2.0

#include "conv_window.cuh"

/* Are numbers j + q step, q < count, all in a range that no row's end cuts? */
FN int are_inside(const rows *r, range in, int j, int step, int count)
{
    int wraps = !HALF && !PAIR && r->flags & PERIODIC;
    return !wraps && is_in(in, j) && is_in(in, j + (count - 1) * step);
}

/* Numbers j + q step, q < count, of a window, without branches between them: what is not
   there is read where the first one that is there lies. */
FN void read_numbers(
    const rows *r, const window *w, const X *x, int j, int step, int count, X *to)
{
    const X *row = x + w->base, *from = row + j;
    if (are_inside(r, w->there, j, step, count)) {
        UNROLL for (int q = 0; q < MOST_RADIX; q++)
        {
            if (q < count)
                to[q] = from[q * step];
        }
        return;
    }
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q >= count)
            continue;
        int is_there = is_in(w->there, j + q * step);
        int at = place_in_row(r, w, is_there ? j + q * step : w->there.from);
        X value = w->there.count ? row[at] : 0;
        to[q] = is_there ? value : 0;
    }
}

/* Times those of `factor` if that is not NULL. */
FN void fetch_numbers(
    const rows *r, const window *w, const X *x, const X *factor, int j, int step,
    int count, S *to)
{
    X raw[MOST_RADIX], by[MOST_RADIX];
    read_numbers(r, w, x, j, step, count, raw);
    if (factor)
        read_numbers(r, w, factor, j, step, count, by);
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q < count)
            to[q] = factor ? load(raw[q]) * load(by[q]) : load(raw[q]);
    }
}

FN void write_numbers(
    const window *w, const S *from, int j, int step, int count, X *y, const X *factor)
{
    X *to = y + w->base + j;
    const X *by = factor ? factor + w->base + j : y;
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q < count && is_in(w->made, j + q * step))
            to[q * step] = store(factor ? from[q] * load(by[q * step]) : from[q]);
    }
}

FN void put_numbers(
    const rows *r, const window *w, const S *from, int j, int step, int count, X *y,
    const X *factor)
{
    X *to = y + w->base + j;
    if (factor || !are_inside(r, w->made, j, step, count)) {
        write_numbers(w, from, j, step, count, y, factor);
        return;
    }
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q < count)
            to[q * step] = store(from[q]);
    }
}

/* Points j + q step. Where a pair has one row, it is read twice. */
FN void fetch_points(
    const rows *r, const window *w, const X *x, const X *factor, int j, int step,
    int count, C *v)
{
    S re[MOST_RADIX], im[MOST_RADIX];
    fetch_numbers(r, w, x, factor, j, step, count, re);
    if (PAIR)
        fetch_numbers(
            r, w, x + w->other, factor ? factor + w->other : 0, j, step, count, im);
    else if (!HALF)
        fetch_numbers(r, w, x, factor, POINTS + j, step, count, im);
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q < count)
            v[q] = point(re[q], HALF || (PAIR && !w->other) ? 0 : im[q]);
    }
}

FN void put_points(
    const rows *r, const window *w, const C *v, int j, int step, int count, X *y,
    const X *factor)
{
    S re[MOST_RADIX], im[MOST_RADIX];
    S beyond = r->flags & ADJOINT ? -1 : 1; /* of what a row folds */
    beyond = HALF && r->flags & FOLD ? beyond : 0;
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q < count) {
            re[q] = beyond != 0 ? v[q].re + beyond * v[q].im : v[q].re;
            im[q] = v[q].im;
        }
    }
    put_numbers(r, w, re, j, step, count, y, factor);
    if (PAIR && w->other)
        put_numbers(
            r, w, im, j, step, count, y + w->other, factor ? factor + w->other : 0);
    if (!HALF && !PAIR)
        put_numbers(r, w, im, POINTS + j, step, count, y, factor);
}
