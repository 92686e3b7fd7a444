/* Windows of rows (conv_window.cuh) as polynomials, z[j] = x[j] + i x[POINTS + j] or, of complex
   numbers, x[j]: where transforms begin and end. */
// SPDX-License-Identifier: Apache-2.0

#include "conv_window.cuh"

/* True if numbers j + q step, q < count, are all in the range and no row ends between them. */
FN int are_inside(const rows *r, range in, int j, int step, int count)
{
    int wraps = PLANE_PITCH || (!HALF && !PAIR && r->flags & PERIODIC);
    return !wraps && is_in(in, j) && is_in(in, j + (count - 1) * step);
}

/* A number as the transform has it, S or C. */
#if IS_COMPLEX
typedef C number;
FN number zero_number(void) { return point(0, 0); }
FN number loaded(X x) { return x; }
FN X stored(number a) { return a; }
/* a f, either of them conjugated. */
FN number by_factor(number a, number f, int conjugate_a, int conjugate_f)
{
    a.im = conjugate_a ? -a.im : a.im;
    f.im = conjugate_f ? -f.im : f.im;
    return times(a, f);
}
#else
typedef S number;
FN X zero_number(void) { return 0; }
FN number loaded(X x) { return load(x); }
FN X stored(number a) { return store(a); }
FN number by_factor(number a, number f, int conjugate_a, int conjugate_f) { return a * f; }
#endif

/* Reads numbers j + q step, q < count, of a window, without branches between the loads. Numbers
   outside of the range `in` are zero; their loads read the place of the first number inside. */
FN void read_numbers(
    const rows *r, const window *w, range in, const GLOBAL X *x, int j, int step,
    int count, X *to)
{
    const GLOBAL X *row = x + w->base, *from = row + j;
    if (are_inside(r, in, j, step, count)) {
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
        int is_there = is_in(in, j + q * step);
        int at = place_in_row(r, w, is_there ? j + q * step : in.from);
        if (PLANE_PITCH) {
            at = place_in_memory(r, w, in, j + q * step);
            is_there = at >= 0;
            at = is_there ? at : 0;
        }
        X value = in.count ? row[at] : zero_number();
        to[q] = is_there ? value : zero_number();
    }
}

/* Times those of `factor` if that is not NULL. */
FN void fetch_numbers(
    const rows *r, const window *w, const GLOBAL X *x, const GLOBAL X *factor, int j,
    int step, int count, number *to)
{
    X raw[MOST_RADIX], by[MOST_RADIX];
    read_numbers(r, w, w->there, x, j, step, count, raw);
    if (factor)
        read_numbers(r, w, w->there, factor, j, step, count, by);
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q < count)
            to[q] = factor ? by_factor(
                                 loaded(raw[q]), loaded(by[q]), 0, r->flags & CONJUGATE_X)
                           : loaded(raw[q]);
    }
}

/* Numbers of a thread that others, read together, meet before they are stored. */
#define AT_ONCE (32 / (int)sizeof(number))

/* Numbers, times those of `factor` if that is not NULL, to result number s. */
FN void put_numbers(
    const rows *r, const window *w, const number *from, int j, int step, int count, int s,
    GLOBAL X *y, const GLOBAL X *factor)
{
    GLOBAL X *to = y + w->base + (PLANE_PITCH ? 0 : j);
    int are_all = are_inside(r, w->made, j, step, count);
    UNROLL for (int first = 0; first < MOST_RADIX; first += AT_ONCE)
    {
        X by[MOST_RADIX];
        int some = count - first < AT_ONCE ? count - first : AT_ONCE;
        if (factor && some > 0)
            read_numbers(r, w, w->made, factor, j + first * step, step, some, by);
        UNROLL for (int q = 0; q < AT_ONCE; q++)
        {
            int at = first + q;
            if (at >= count || !(are_all || is_in(w->made, j + at * step)))
                continue;
            int place = PLANE_PITCH ? place_in_memory(r, w, w->made, j + at * step) : at * step;
            if (place >= 0)
                to[place] = stored(
                    factor ? by_factor(
                                 from[at], loaded(by[q]), r->flags & CONJUGATE_Y(s),
                                 r->flags & CONJUGATE_Y_FACTOR(s))
                           : from[at]);
        }
    }
}

#if IS_COMPLEX
FN void fetch_points(
    const rows *r, const window *w, const GLOBAL X *x, const GLOBAL X *factor, int j,
    int step, int count, C *v)
{
    fetch_numbers(r, w, x, factor, j, step, count, v);
}

FN void put_points(
    const rows *r, const window *w, const C *v, int j, int step, int count, int s,
    GLOBAL X *y, const GLOBAL X *factor)
{
    put_numbers(r, w, v, j, step, count, s, y, factor);
}
#else
/* Points j + q step. Where a pair has one row, it is read twice. */
FN void fetch_points(
    const rows *r, const window *w, const GLOBAL X *x, const GLOBAL X *factor, int j,
    int step, int count, C *v)
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
    const rows *r, const window *w, const C *v, int j, int step, int count, int s,
    GLOBAL X *y, const GLOBAL X *factor)
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
    put_numbers(r, w, re, j, step, count, s, y, factor);
    if (PAIR && w->other)
        put_numbers(
            r, w, im, j, step, count, s, y + w->other, factor ? factor + w->other : 0);
    if (!HALF && !PAIR)
        put_numbers(r, w, im, POINTS + j, step, count, s, y, factor);
}
#endif
