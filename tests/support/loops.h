/* Parts of models as plain loops of f64 over the arrays of a file, which share no code with the
   library. What rounding in f32 does is noise as in named.h; noise: or NULL. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_LOOPS_H
#define TEST_SUPPORT_LOOPS_H

#include "support/filter.h"

/* y = W x + bias, W of g blocks [g][rows / g][cols / g]. */
void loops_linear(
    const named_arrays *arrays, const char *place, int64_t rows, int64_t cols,
    const double *x, double *y, rng *noise);

/* y may be x. */
void loops_norm(
    const named_arrays *arrays, const char *place, int64_t width, double epsilon,
    const double *x, double *y, rng *noise);

/* r += more. */
void loops_add(int64_t n, double *r, const double *more, rng *noise);

/* Causal filters of few taps: c[channels][length] of rows p. */
void loops_taps(
    const named_arrays *arrays, const char *place, int64_t channels, int64_t taps,
    int64_t length, const double *p, double *c, rng *noise);

/* y[t] = skip x[t] + sum over s <= t of k[t - s] x[s] + sum over s > t of r[s - t - 1] x[s]
   for a channel; r: or NULL. k and r have `taps` values, others are 0. Transforms spread what
   rounding does over the row. */
void loops_convolve(
    int64_t length, int64_t taps, const double *k, const double *r, double skip,
    const double *x, double *y, rng *noise);

typedef struct loops_filters {
    int64_t length;
    const double *k;            /* [channels][length] */
    const danaus_tensor *skips; /* [channels] */
} loops_filters;

/* Hyena's gates and long convolutions: v[width][length], which is behind `order` groups of
   planes, is mixed in place. */
void loops_gates(
    int64_t width, int64_t order, const loops_filters *f, int64_t length,
    double *planes, rng *noise);

typedef struct loops_m2 {
    int64_t width;
    int residual, bidirectional;
    const small_filter *filter;
} loops_m2;

/* The mixer of Monarch Mixers: rows u become W_out (x2 (k (*) (x1 v)) + k' (*) u). */
void loops_m2_mix(
    const named_arrays *arrays, const char *place, const loops_m2 *m, int64_t length,
    double *u, rng *noise);

#endif
