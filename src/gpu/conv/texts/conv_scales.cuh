/* Pairs of rows of any magnitude (docs/conv.md, 'Pairs'). Each row is multiplied by a power of
   two, and its results by the inverse, so that the norms of both rows are within a factor of
   two. Where they are so already, both exponents are 0 and nothing is multiplied.

   SCALED 0: pairs are not scaled   1: the first pass finds the exponents, and runs again if they
   are not 0   2: they follow from sums of squares in memory (conv_norms.cu) */
// SPDX-License-Identifier: Apache-2.0

#ifndef SCALED
#    define SCALED 0
#endif

/* Exponents of rows that count as zero for the other row of the pair: rows of zeros, and rows
   with numbers that are not finite, all of whose results are then not finite. */
#define EMPTY   1000
#define INVALID 1001

/* Sums of squares are computed without scaling. If they are not between LEAST and MOST, they
   are computed again of numbers times 2^DOWN or 2^UP, and are then in this range unless a row
   is empty or invalid. */
#define LEAST 0x1p-100f
#define MOST  0x1p+120f
#define DOWN  -80
#define UP    105

FN S power(int e) { return UNBITS((unsigned)(e + 127) << 23); }

/* s times 2^e, by two factors that the type can hold; only tiny results are rounded. */
FN S raised(S s, int e) { return s * power(e / 2) * power(e - e / 2); }

FN int is_between(S squares) { return squares > LEAST && squares < MOST; }

/* The exponent that brings the norm of a row to 1 to 2, or one to try, from the sum of squares
   of the row with exponent e. */
FN int next_exponent(int e, S squares)
{
    if (e >= EMPTY)
        return e;
    if (is_between(squares))
        return e - (((int)(BITS(squares) >> 23) - 127) >> 1);
    if (squares <= LEAST)
        return e ? EMPTY : UP;
    return e ? INVALID : DOWN;
}

/* True if the norms of two rows, as they are, are within a factor of two. */
FN int are_alike(C squares)
{
    return is_between(squares.re) && is_between(squares.im) &&
           squares.re <= 4 * squares.im && squares.im <= 4 * squares.re;
}

/* Points of rows with these exponents. */
FN void raise_points(const int e[2], int count, C *v)
{
    if (!(e[0] | e[1]))
        return;
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q >= count)
            continue;
        v[q].re = e[0] >= EMPTY ? 0 : raised(v[q].re, e[0]);
        v[q].im = e[1] >= EMPTY ? 0 : raised(v[q].im, e[1]);
    }
}

FN S lowered(S s, int e)
{
    if (e >= EMPTY)
        return s * (e == EMPTY ? 0 : UNBITS(0x7fc00000u));
    return raised(s, -e);
}

FN void lower_points(const int e[2], int count, C *v)
{
    if (!(e[0] | e[1]))
        return;
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q < count)
            v[q] = point(lowered(v[q].re, e[0]), lowered(v[q].im, e[1]));
    }
}

FN void add_squares(const C *v, int count, C *squares)
{
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q < count) {
            squares->re += v[q].re * v[q].re;
            squares->im += v[q].im * v[q].im;
        }
    }
}

/* ---- sums in memory ---- */

/* Parts of a window have sums of squares of numbers as they are, times 2^UP and 2^DOWN. */
typedef struct norms {
    C of[3];
} norms;

/* Adds all parts of a window in their order, without branches: the loads are in flight
   together. */
FN C all_squares(const GLOBAL norms *parts, int count, int which)
{
    C squares = point(0, 0);
    UNROLL for (int i = 0; i < count; i++) squares = sum(squares, parts[i].of[which]);
    return squares;
}

FN void find_exponents(const GLOBAL norms *parts, int count, int e[2])
{
    C squares = all_squares(parts, count, 0);
    e[0] = e[1] = 0;
    if (are_alike(squares))
        return;
    e[0] = next_exponent(0, squares.re);
    e[1] = next_exponent(0, squares.im);
    ROLL for (int which = 1; which < 3; which++)
    {
        int tried = which == 1 ? UP : DOWN;
        squares = all_squares(parts, count, which);
        e[0] = e[0] == tried ? next_exponent(tried, squares.re) : e[0];
        e[1] = e[1] == tried ? next_exponent(tried, squares.im) : e[1];
    }
}
