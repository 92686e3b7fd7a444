/* The top eigenpair of a symmetric tridiagonal matrix T.

   Value: Laguerre's iteration for det(x I - T). It starts above all eigenvalues and falls
   monotonically to the largest one, with order three. With the pivots
       d_0 = x - alpha_0,   d_i = x - alpha_i - beta_{i-1}^2 / d_{i-1},
   the determinant is their product, so that its logarithmic derivatives are
       S1 = sum d_i' / d_i,   S2 = sum (d_i' / d_i)^2 - d_i'' / d_i.
   Vector: pivots from both ends meet where the twisted pivot is smallest. */
// SPDX-License-Identifier: Apache-2.0
#include "math/tridiagonal.h"

#include <float.h>
#include <math.h>

/* A bound of Gershgorin's. */
static double above_all(int n, const double *alpha, const double *beta)
{
    double bound = -INFINITY;
    for (int i = 0; i < n; i++) {
        double radius = (i ? beta[i - 1] : 0) + (i + 1 < n ? beta[i] : 0);
        bound = fmax(bound, alpha[i] + radius);
    }
    return bound;
}

/* Laguerre's step down from x; 0 when x has come too close for the pivots. */
static double step_down(int n, const double *alpha, const double *beta, double x)
{
    double d = x - alpha[0], d1 = 1, d2 = 0, s1 = 0, s2 = 0;
    for (int i = 0;; i++) {
        if (!(d > 0))
            return 0;
        double r = d1 / d;
        s1 += r;
        s2 += r * r - d2 / d;
        if (i + 1 == n)
            break;
        double q = beta[i] / d * (beta[i] / d);
        d2 = q * (d2 - 2 * d1 * r);
        d1 = 1 + q * d1;
        d = x - alpha[i + 1] - q * d;
    }
    double under = (n - 1) * (n * s2 - s1 * s1);
    return n / (s1 + sqrt(fmax(under, 0)));
}

static double top_value(int n, const double *alpha, const double *beta)
{
    double x = above_all(n, alpha, beta);
    for (int steps = 0; steps < 60; steps++) {
        double step = step_down(n, alpha, beta, x);
        if (!(step > 2 * DBL_EPSILON * fabs(x)))
            break;
        x -= step;
    }
    return x;
}

/* x - alpha - beta^2 / before, but never zero. */
static double pivot(double x, double alpha, double beta, double before)
{
    double d = x - alpha - beta * beta / before;
    double tiny = DBL_EPSILON * DBL_EPSILON * fabs(x) + DBL_MIN;
    return fabs(d) > tiny ? d : tiny;
}

double dn_tridiagonal_top(
    int n, const double *alpha, const double *beta, double *vector, double *scratch)
{
    double *down = scratch, *up = scratch + n, x = top_value(n, alpha, beta);
    double best = INFINITY;
    int twist = 0;
    for (int i = 0; i < n; i++)
        down[i] = pivot(x, alpha[i], i ? beta[i - 1] : 0, i ? down[i - 1] : 1);
    for (int i = n - 1; i >= 0; i--)
        up[i] = pivot(x, alpha[i], i + 1 < n ? beta[i] : 0, i + 1 < n ? up[i + 1] : 1);
    for (int i = 0; i < n; i++) {
        double twisted = fabs(down[i] + up[i] - (x - alpha[i]));
        twist = twisted < best ? i : twist;
        best = fmin(twisted, best);
    }
    double sum = 1;
    vector[twist] = 1;
    for (int i = twist - 1; i >= 0; i--)
        vector[i] = vector[i + 1] * beta[i] / down[i];
    for (int i = twist + 1; i < n; i++)
        vector[i] = vector[i - 1] * beta[i - 1] / up[i];
    for (int i = 0; i < n; i++)
        sum += i == twist ? 0 : vector[i] * vector[i];
    for (int i = 0; i < n; i++)
        vector[i] /= sqrt(sum);
    return x;
}
