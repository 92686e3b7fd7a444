/* Complex numbers, and the work of a pass on the R points of one column.

   A pass of radix R splits blocks mod Z^(R m) - c^R into R blocks mod Z^m - c w^p,
   w = e^(2 pi i / R), p < R: docs/conv.md (3), (4). Radices 2 to 16 are layers of radix 2.
   The constant of an odd group is i times that of the even group before it. So a block has
   the constants

       2: c    4: c^2, c    8: c^4, c^2, c, c w8
       16: c^8, c^4, c^2, c^2 w8, c, c w8, c w16, c w16^3

   and for odd radices c, ..., c^(R-1). Even radices store only the constants without a turn w8
   or w16: c^8, c^4, c^2, c or the last of these. */
// SPDX-License-Identifier: Apache-2.0

typedef struct ALIGNED(2 * sizeof(S)) {
    S re, im;
} C;

/* Numbers of rows and taps of filters are complex; texts then are of the type of their parts. */
#ifndef IS_COMPLEX
#    define IS_COMPLEX 0
#endif
#if IS_COMPLEX
#    define X C
#endif

#define MOST_RADIX 16
/* The number of stored constants of a block, which is even. */
#define CONSTANTS(radix) ((radix) % 2 ? (radix)-1 : (radix) > 4 ? 4 : 2)

FN C point(S re, S im)
{
    C z = { re, im };
    return z;
}
FN C sum(C a, C b) { return point(a.re + b.re, a.im + b.im); }
FN C difference(C a, C b) { return point(a.re - b.re, a.im - b.im); }
FN C times_i(C a) { return point(-a.im, a.re); }
FN C times(C a, C b)
{
    return point(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}
FN C times_conjugate(C a, C b)
{
    return point(a.re * b.re + a.im * b.im, a.im * b.re - a.re * b.im);
}

/* ---- layers of radix 2 ---- */

#define W8    ((S)0.70710678118654752440) /* cos of an eighth of a turn */
#define W16   ((S)0.92387953251128675613) /* cos and sin of a sixteenth */
#define W16_S ((S)0.38268343236508977173)

FN C eighth(C c) { return point(W8 * (c.re - c.im), W8 * (c.re + c.im)); }

/* All constants of a block from the stored ones. */
FN void turn_constants(C *k, int radix)
{
    if (radix == 8)
        k[3] = eighth(k[2]);
    if (radix == 16) {
        C c = k[3];
        k[3] = eighth(k[2]);
        k[4] = c;
        k[5] = eighth(c);
        k[6] = times(c, point(W16, W16_S));
        k[7] = times(c, point(W16_S, W16));
    }
}

/* a + c b, a - c b */
FN void split(C *a, C *b, C c)
{
    C s = *a;
    s.re += c.re * b->re;
    s.im += c.re * b->im;
    s.re -= c.im * b->im;
    s.im += c.im * b->re;
    b->re = FMA((S)2, a->re, -s.re);
    b->im = FMA((S)2, a->im, -s.im);
    *a = s;
}

/* The way back, times 2: a + b, (a - b) / c, where |c| = 1. */
FN void join(C *a, C *b, C c)
{
    C d = difference(*a, *b);
    *a = sum(*a, *b);
    *b = times_conjugate(d, c);
}

/* Pairs `apart` from each other in v[radix]. */
FN void layer(C *v, const C *k, int radix, int apart, int back)
{
    UNROLL for (int b = 0; b < MOST_RADIX / 2; b++)
    {
        int group = b / apart, at = 2 * apart * group + b % apart;
        if (b >= radix / 2)
            continue;
        C c = k[radix / (4 * apart) + group / 2];
        c = group % 2 ? times_i(c) : c;
        if (back)
            join(&v[at], &v[at + apart], c);
        else
            split(&v[at], &v[at + apart], c);
    }
}

/* ---- odd radices ---- */

/* w^n for 0 < n < R / 2. */
FN C half_root(int n, int radix)
{
    if (radix == 3)
        return point(-0.5, 0.86602540378443864676);
    if (radix == 5)
        return n == 1 ? point(0.30901699437494742410, 0.95105651629515357212)
                      : point(-0.80901699437494742410, 0.58778525229247312917);
    return n == 1   ? point(0.62348980185873353053, 0.78183148246802980871)
           : n == 2 ? point(-0.22252093395631440429, 0.97492791218182360702)
                    : point(-0.90096886790241912624, 0.43388373911755812048);
}

/* w^n for n that are no multiples of R, which is prime. */
FN C root(int n, int radix)
{
    int rest = n % radix;
    C w = half_root(2 * rest < radix ? rest : radix - rest, radix);
    return 2 * rest < radix ? w : point(w.re, -w.im);
}

/* v[p] = sum over q of w^(p q) v[q], or w^(-p q): outputs p and R - p share their sums. */
FN void odd_transform(C *v, int radix, int back)
{
    C plus[MOST_RADIX / 2], minus[MOST_RADIX / 2], first = v[0];
    UNROLL for (int q = 1; q < MOST_RADIX / 2; q++)
    {
        if (2 * q >= radix)
            continue;
        plus[q] = sum(v[q], v[radix - q]);
        minus[q] = difference(v[q], v[radix - q]);
        v[0] = sum(v[0], plus[q]);
    }
    UNROLL for (int p = 1; p < MOST_RADIX / 2; p++)
    {
        C even = first, odd = point(0, 0);
        if (2 * p >= radix)
            continue;
        UNROLL for (int q = 1; q < MOST_RADIX / 2; q++)
        {
            if (2 * q >= radix)
                continue;
            C w = root(p * q, radix);
            even = sum(even, point(w.re * plus[q].re, w.re * plus[q].im));
            odd = sum(odd, point(w.im * minus[q].re, w.im * minus[q].im));
        }
        odd = back ? point(-odd.re, -odd.im) : odd;
        v[p] = sum(even, times_i(odd));
        v[radix - p] = difference(even, times_i(odd));
    }
}

FN void odd_turns(C *v, const C *k, int radix, int back)
{
    UNROLL for (int q = 1; q < MOST_RADIX / 2; q++)
    {
        if (q < radix)
            v[q] = back ? times_conjugate(v[q], k[q - 1]) : times(v[q], k[q - 1]);
    }
}

/* ---- a pass ---- */

/* Child p of a block is v[child(radix, p)]. */
FN int child(int radix, int p)
{
    int reversed = (p & 1) << 3 | (p & 2) << 1 | (p & 4) >> 1 | (p & 8) >> 3;
    return radix % 2 ? p : reversed / (16 / radix);
}

FN void evaluate(C *v, const C *k, int radix)
{
    if (radix % 2) {
        odd_turns(v, k, radix, 0);
        odd_transform(v, radix, 0);
        return;
    }
    if (radix >= 16)
        layer(v, k, radix, 8, 0);
    if (radix >= 8)
        layer(v, k, radix, 4, 0);
    if (radix >= 4)
        layer(v, k, radix, 2, 0);
    layer(v, k, radix, 1, 0);
}

/* The way back, times R. */
FN void interpolate(C *v, const C *k, int radix)
{
    if (radix % 2) {
        odd_transform(v, radix, 1);
        odd_turns(v, k, radix, 1);
        return;
    }
    layer(v, k, radix, 1, 1);
    if (radix >= 4)
        layer(v, k, radix, 2, 1);
    if (radix >= 8)
        layer(v, k, radix, 4, 1);
    if (radix >= 16)
        layer(v, k, radix, 8, 1);
}
