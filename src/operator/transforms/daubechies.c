/* Daubechies' filters, by spectral factorisation.

   h(z) = sqrt(2) ((1 + z)/2)^K q(z), where q has q(1) = 1, all its K - 1 zeros 1/z_k outside
   the unit circle and, on it, |q|^2 = P(sin^2(w/2)), P(y) = sum over k < K of binomial(K-1+k,
   k) y^k. Each zero y_k of P gives 2 - 4 y = z + 1/z and one z_k within the circle, and
       h(z) = sqrt(2) product of (1 + z)/2 and of (1 - z_k z) / (1 - z_k),
   multiplied alternately, so that no partial product is large. Aberth's iteration finds all y_k
   at once. With mantissas of 64 bits the filters for K up to 20 have errors of 3e-18.

   Sources: Daubechies, Ten lectures on wavelets, SIAM 1992, section 6.1; Aberth, Iteration
   methods for finding all zeros of a polynomial simultaneously, Math. Comp. 27 (1973). */
// SPDX-License-Identifier: Apache-2.0
#include "danaus/transforms.h"

#include "base/status.h"

#include <float.h>
#include <math.h>

enum { MOST = DANAUS_MOST_MOMENTS, ITERATIONS = 60 };

/* A complex number of more bits than f64, where the machine has them. */
typedef struct wide_number {
    long double re, im;
} wide_number;

static wide_number plus(wide_number x, wide_number y)
{
    return (wide_number){ x.re + y.re, x.im + y.im };
}
static wide_number minus(wide_number x, wide_number y)
{
    return (wide_number){ x.re - y.re, x.im - y.im };
}

static wide_number times(wide_number x, wide_number y)
{
    return (wide_number){ x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re };
}

static wide_number over(wide_number x, wide_number y)
{
    long double size = y.re * y.re + y.im * y.im;
    wide_number z = times(x, (wide_number){ y.re, -y.im });
    return (wide_number){ z.re / size, z.im / size };
}

static wide_number square_root(wide_number x)
{
    long double size = hypotl(x.re, x.im), large = sqrtl((size + fabsl(x.re)) / 2),
                small = large > 0 ? x.im / (2 * large) : 0;
    if (x.re >= 0)
        return (wide_number){ large, small };
    return (wide_number){ fabsl(small), x.im < 0 ? -large : large };
}

/* P(y) / P'(y), by Horner's rule. */
static wide_number newton_step(const long double *p, int degree, wide_number y)
{
    wide_number value = { p[degree], 0 }, slope = { 0, 0 };
    for (int k = degree - 1; k >= 0; k--) {
        slope = plus(times(slope, y), value);
        value = plus(times(value, y), (wide_number){ p[k], 0 });
    }
    return over(value, slope);
}

/* The zeros of P. */
static void find_zeros(int moments, wide_number *y)
{
    int degree = moments - 1;
    long double p[MOST] = { 1 }, change = 1;
    for (int k = 1; k <= degree; k++)
        p[k] = p[k - 1] * (long double)(degree + k) / (long double)k;
    for (int k = 0; k < degree; k++) {
        long double angle = 6.2831853L * ((long double)k + 0.25L) / (long double)degree;
        y[k] = (wide_number){ 0.5L * cosl(angle), 0.5L * sinl(angle) };
    }
    for (int step = 0; step < ITERATIONS && change > 4 * LDBL_EPSILON; step++) {
        change = 0;
        for (int k = 0; k < degree; k++) {
            wide_number newton = newton_step(p, degree, y[k]), pull = { 0, 0 };
            for (int x = 0; x < degree; x++)
                if (x != k)
                    pull = plus(pull, over((wide_number){ 1, 0 }, minus(y[k], y[x])));
            wide_number less = minus((wide_number){ 1, 0 }, times(newton, pull));
            wide_number move = over(newton, less);
            y[k] = minus(y[k], move);
            change = fmaxl(change, hypotl(move.re, move.im));
        }
    }
}

/* The z within the unit circle of 2 - 4 y = z + 1/z. */
static wide_number within_circle(wide_number y)
{
    wide_number t = { 1 - 2 * y.re, -2 * y.im }, one = { 1, 0 };
    wide_number root = square_root(minus(times(t, t), one));
    wide_number one_way = plus(t, root), other = minus(t, root);
    long double size = hypotl(one_way.re, one_way.im);
    return over(one, size > hypotl(other.re, other.im) ? one_way : other);
}

/* h of degree `degree` becomes h (first + second z). */
static void extend(wide_number *h, int degree, wide_number first, wide_number second)
{
    h[degree + 1] = times(h[degree], second);
    for (int m = degree; m > 0; m--)
        h[m] = plus(times(h[m], first), times(h[m - 1], second));
    h[0] = times(h[0], first);
}

danaus_status danaus_wavelet_filter(int moments, double *h)
{
    if (!h)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a place for a filter is needed");
    if (moments < 1 || moments > MOST)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "Daubechies' wavelets have 1 to %d vanishing moments here, not %d", MOST,
            moments);
    wide_number y[MOST], product[2 * MOST] = { { sqrtl(2), 0 } }, half = { 0.5L, 0 };
    find_zeros(moments, y);
    int degree = 0;
    for (int k = 0; k < moments; k++) {
        extend(product, degree++, half, half);
        if (k == moments - 1)
            break;
        wide_number z = within_circle(y[k]), less = minus((wide_number){ 1, 0 }, z);
        extend(
            product, degree++, over((wide_number){ 1, 0 }, less),
            over((wide_number){ -z.re, -z.im }, less));
    }
    for (int m = 0; m < 2 * moments; m++)
        h[m] = (double)product[m].re;
    return DANAUS_OK;
}
