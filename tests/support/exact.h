/* Convolutions and all their gradients in f64 by means of this file's own, each number with a
   bound on what a library that transforms in the type of sums may err: filters of few taps
   are summed as in the definition, others by a transform of radix 2.

   The bounds. With t = 5 u log2 n as in support/conv.h, k a filter with its skip, p = u gate_in
   and dc = dy gate_out of a row, and |.| Euclidean norms:
   - y and dgate_out err by (2 t + 8 u) |k| |p| before and by (t + 8 u) K |p| on the way back,
     where K is the largest value of k's spectrum, at most the sum of |k[t]|, and at most
     sqrt(2) times the largest of those at 2 (taps + taps behind) frequencies;
   - du and dgate_in by the same with dc in place of p;
   - gradients of filters by (2 t + 8 u) |dc| |p| for each row and u |dc| |p| for each that is
     added, and by t R on the way back: R is the norm of the sums of all lags, at most sqrt(2)
     more where a transform folds them; cut into windows it is at most sqrt(length) |dc| |p|.
   The sums and transforms here err likewise with u = 2^-53. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_EXACT_H
#define TEST_SUPPORT_EXACT_H

#include "support/conv.h"

typedef struct conv_exact {
    int64_t count[CONV_RESULTS];
    double *v[CONV_RESULTS], *e[CONV_RESULTS]; /* NULL: the case has none */
} conv_exact;

/* The exact results of a case whose spectra are not sparse. */
conv_exact conv_exactly(const conv_case *c, const array *dy);
void conv_exact_free(conv_exact *x);

/* Fails the test, naming the first wrong number, unless all are within e. */
void conv_exact_expect(
    const conv_case *c, const conv_outcome *o, const conv_exact *exact);

/* The error of an array, and what e allows, relative to all numbers, in norm. */
double conv_exact_error(const conv_exact *x, conv_name name, const array *is);
double conv_exact_doubt(const conv_exact *x, conv_name name);

#endif
