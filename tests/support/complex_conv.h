/* Convolutions and correlations of complex or real numbers by their definition in danaus/conv.h:
   y, and gradients of a loss whose gradient at y is dy, each with a bound. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_COMPLEX_CONV_H
#define TEST_SUPPORT_COMPLEX_CONV_H

#include "support/conv.h"

/* Exact results of a case, and what each may err; NULL: the case has none. */
typedef struct complex_exact {
    value *v[CONV_RESULTS];
    double *e[CONV_RESULTS];
} complex_exact;

complex_exact complex_exactly(const conv_case *c, const array *dy);
void complex_exact_free(complex_exact *x);

/* Fails the test, naming the first wrong number, unless all are within e. */
void complex_exact_expect(
    const conv_case *c, const conv_outcome *o, const complex_exact *x);

#endif
