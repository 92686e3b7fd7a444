/* Taps of filters as windows of 2 POINTS numbers mod Z^(2 POINTS) + 1, each tap at its lag, and
   the way back for gradients: as dn_conv_lay_filter() and dn_conv_take_filter() do it
   (conv/taps.c). Numbers of windows are the taps divided by POINTS. Complex taps are two windows,
   of their real parts and, times i, of their imaginary ones. */
// SPDX-License-Identifier: Apache-2.0

/* A filter and a reverse filter of `taps` taps each, of which the window has `positive` and
   `negative`; skip is one tap more at lag 0. All may be NULL. */
typedef struct taps {
    const GLOBAL void *k, *k_reverse, *skip; /* of all filters, of this type (numbers.cuh) */
    GLOBAL S *dk, *dk_reverse, *dskip;       /* of this one */
    int type, is_periodic;                   /* taps share lags, which are mod `length` */
    int is_folded;                           /* lags beyond POINTS change the sign */
    int is_more;                             /* gradients are added */
    int64 filter, taps, length, positive, negative;
    int part; /* 1: imaginary */
} taps;

/* Where tap s, or its part, is among numbers of S. */
FN int64 place_of_tap(const taps *t, int64 s) { return IS_COMPLEX ? 2 * s + t->part : s; }

FN int is_tap(int s, int there) { return (unsigned)s < (unsigned)there; }

/* True if the second half of the window has no taps, as most often. */
FN int is_half(const taps *t)
{
    return !t->negative && (t->is_periodic ? t->length : t->positive) <= POINTS;
}

#if PLANE_PITCH
/* The first tap of number j of the window, or -1. */
FN int first_tap(const taps *t, int j)
{
    int lag = j < t->positive ? j : j - 2 * POINTS, flat = lag + (int)t->negative;
    int row = flat / PLANE_PITCH, column = flat - row * PLANE_PITCH;
    int is_there = flat >= 0 && row < TAP_ROWS && column < TAP_COLUMNS;
    return is_there ? (FIRST_DOWN + row) * TAPS_WIDTH + FIRST_ACROSS + column : -1;
}
#endif

#if LOAD == 3
#    ifdef TYPE_f64
#        define OWN_TYPE F64
#    else
#        define OWN_TYPE F32
#    endif

FN S tap_at(const taps *t, const GLOBAL void *k, int64 s)
{
    return number_at(k, t->type, place_of_tap(t, s), 0);
}

/* Adds `sign` times taps j + q step, q < count, of those from `first` on, to numbers, where they
   are among the next `there`: without branches between the loads. */
FN void add_taps(
    const taps *t, const GLOBAL void *k, int64 first, int there, int j, int step, int count,
    S sign, S *to)
{
    int64 from = t->filter * t->taps + first;
    const GLOBAL S *own = (const GLOBAL S *)k + place_of_tap(t, from);
    S found[MOST_RADIX];
    UNROLL for (int q = 0; q < MOST_RADIX && t->type == OWN_TYPE; q++)
    {
        if (q < count)
            found[q] = own[(1 + IS_COMPLEX) * (is_tap(j + q * step, there) ? j + q * step : 0)];
    }
    UNROLL for (int q = 0; q < MOST_RADIX && t->type != OWN_TYPE; q++)
    {
        if (q < count)
            found[q] = tap_at(
                t, k, from + (is_tap(j + q * step, there) ? j + q * step : 0));
    }
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q < count)
            to[q] += is_tap(j + q * step, there) ? sign * found[q] : 0;
    }
}

#    if PLANE_PITCH
/* The sum of taps that number j of the window has, all from tap `first` on, and of skip. */
FN S taps_at(const taps *t, int j, int first)
{
    int end = t->is_periodic ? TAPS_HEIGHT * TAPS_WIDTH : first + 1;
    S all = 0;
    ROLL for (int row = first; first >= 0 && row < end; row += HEIGHT * TAPS_WIDTH)
    {
        int last = t->is_periodic ? row - row % TAPS_WIDTH + TAPS_WIDTH : row + 1;
        for (int s = row; s < last; s += WIDTH)
            all += tap_at(t, t->k, t->filter * t->taps + s);
    }
    if (t->skip && j == HERE)
        all += tap_at(t, t->skip, t->filter);
    return j >= t->positive ? -all : all;
}

/* Numbers j + q step, q < count, of the window, times POINTS. */
FN void lay_numbers(const taps *t, int j, int step, int count, S *to)
{
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q < count)
            to[q] = taps_at(t, j + q * step, first_tap(t, j + q * step));
    }
}
#    else
/* Numbers j + q step, q < count, of the window, times POINTS. */
FN void lay_numbers(const taps *t, int j, int step, int count, S *to)
{
    int64 end = t->is_periodic ? t->taps : t->positive;
    int64 each = t->is_periodic ? t->length : t->positive;
    UNROLL for (int q = 0; q < MOST_RADIX; q++) to[q] = 0;
    ROLL for (int64 first = 0; first < end; first += each)
    {
        int64 there = end - first < each ? end - first : each;
        add_taps(t, t->k, first, (int)there, j, step, count, 1, to);
    }
    if (t->negative)
        add_taps(
            t, t->k_reverse, 0, (int)t->negative, 2 * POINTS - 1 - j, -step, count, -1, to);
}
#    endif

/* Points j + q step, q < count, of the window of a part. */
FN void fetch_part(const taps *t, int j, int step, int count, C *v)
{
    S re[MOST_RADIX], im[MOST_RADIX], scale = (S)1 / (S)POINTS;
    lay_numbers(t, j, step, count, re);
    if (!is_half(t))
        lay_numbers(t, POINTS + j, step, count, im);
    if (j == 0 && t->skip && !PLANE_PITCH)
        re[0] += tap_at(t, t->skip, t->filter);
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q < count)
            v[q] = point(scale * re[q], is_half(t) ? 0 : scale * im[q]);
    }
}

FN void fetch_taps(const taps *t, int j, int step, int count, C *v)
{
    taps other = *t;
    C im[MOST_RADIX];
    fetch_part(t, j, step, count, v);
    if (!IS_COMPLEX)
        return;
    other.part = 1;
    fetch_part(&other, j, step, count, im);
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q < count)
            v[q] = sum(v[q], times_i(im[q]));
    }
}

#else
FN void fetch_taps(const taps *t, int j, int step, int count, C *v) {}
#endif

/* To tap s of gradients. */
FN void put_number(const taps *t, GLOBAL S *to, int64 s, S value)
{
    to += place_of_tap(t, s);
    *to = t->is_more ? *to + value : value;
}

#if PLANE_PITCH
/* A number to all taps that have it, from tap `first` on. */
FN void put_taps_at(const taps *t, int first, S value)
{
    int end = t->is_periodic ? TAPS_HEIGHT * TAPS_WIDTH : first + 1;
    ROLL for (int row = first; first >= 0 && row < end; row += HEIGHT * TAPS_WIDTH)
    {
        int last = t->is_periodic ? row - row % TAPS_WIDTH + TAPS_WIDTH : row + 1;
        for (int s = row; s < last; s += WIDTH)
            put_number(t, t->dk, s, value);
    }
}

/* Numbers j + q step, q < count, of the window to the taps of their lags. */
FN void take_numbers(const taps *t, int j, int step, int count, const S *v)
{
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        int at = j + q * step;
        if (q >= count)
            continue;
        if (t->dk)
            put_taps_at(t, first_tap(t, at), at >= t->positive ? -v[q] : v[q]);
        if (t->dskip && at == HERE)
            put_number(t, t->dskip, 0, v[q]);
    }
}

/* True if no window has anything for this tap. */
FN int is_out(const taps *t, int64 s)
{
    int row = (int)s / TAPS_WIDTH - FIRST_DOWN, column = (int)s % TAPS_WIDTH - FIRST_ACROSS;
    int is_inside = row >= 0 && row < TAP_ROWS && column >= 0 && column < TAP_COLUMNS;
    return !t->is_periodic && !is_inside;
}
#else
/* `sign` times numbers to taps first + j + q step, q < count, where they are among the first
   `there` of these. */
FN void put_some(
    const taps *t, GLOBAL S *to, int64 first, int there, int j, int step, int count, S sign,
    const S *v)
{
    to += place_of_tap(t, first);
    UNROLL for (int q = 0; q < MOST_RADIX && !t->is_more; q++)
    {
        if (q < count && is_tap(j + q * step, there))
            to[(1 + IS_COMPLEX) * (j + q * step)] = sign * v[q];
    }
    UNROLL for (int q = 0; q < MOST_RADIX && t->is_more; q++)
    {
        if (q < count && is_tap(j + q * step, there))
            to[(1 + IS_COMPLEX) * (j + q * step)] += sign * v[q];
    }
}

/* Numbers j + q step, q < count, of the window to the taps of their lags. */
FN void take_numbers(const taps *t, int j, int step, int count, const S *v)
{
    int64 end = t->is_periodic ? t->taps : t->positive;
    int64 each = t->is_periodic ? t->length : t->positive;
    ROLL for (int64 first = 0; t->dk && first < end; first += each)
    {
        int64 there = end - first < each ? end - first : each;
        put_some(t, t->dk, first, (int)there, j, step, count, 1, v);
    }
    if (t->dk_reverse)
        put_some(
            t, t->dk_reverse, 0, (int)t->negative, 2 * POINTS - 1 - j, -step, count, -1, v);
    if (t->dskip && j == 0)
        put_some(t, t->dskip, 0, 1, 0, 1, 1, 1, v);
}

FN int is_out(const taps *t, int64 s) { return !t->is_periodic && s >= t->positive; }
#endif

FN void put_part(const taps *t, const C *v, int j, int step, int count)
{
    S re[MOST_RADIX], im[MOST_RADIX], scale = (S)1 / (S)POINTS;
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q < count) {
            re[q] = scale * (t->is_folded ? v[q].re - v[q].im : v[q].re);
            im[q] = scale * v[q].im;
        }
    }
    take_numbers(t, j, step, count, re);
    if (!t->is_folded && !is_half(t))
        take_numbers(t, POINTS + j, step, count, im);
}

FN void put_taps(const taps *t, const C *v, int j, int step, int count)
{
    taps other = *t;
    C im[MOST_RADIX];
    put_part(t, v, j, step, count);
    if (!IS_COMPLEX)
        return;
    other.part = 1;
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q < count)
            im[q] = point(v[q].im, -v[q].re);
    }
    put_part(&other, im, j, step, count);
}

/* Taps that no window reaches get no gradient. Threads share them. */
FN void clear_rest(const taps *t, int thread, int threads)
{
    for (int64 s = thread; !t->is_more && s < t->taps; s += threads) {
        int64 from = (1 + IS_COMPLEX) * s;
        for (int64 i = from; i <= from + IS_COMPLEX; i++) {
            if (t->dk && is_out(t, s))
                t->dk[i] = 0;
            if (t->dk_reverse && s >= t->negative)
                t->dk_reverse[i] = 0;
        }
    }
}
