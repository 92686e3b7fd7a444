/* Convolutions of planes, and of rows whose filters have a centre, by their definition: y, and
   gradients of a loss whose gradient at y is dy, each number with a bound. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_PLANES_H
#define TEST_SUPPORT_PLANES_H

#include "support/exact.h"

/* True if a description is of such a convolution. */
int conv_has_planes(const danaus_conv_desc *desc);

/* Makes a random description one of planes with at most `most` rows, or of centred rows. */
void conv_make_planes(rng *r, danaus_conv_desc *desc, int64_t most);

/* Sizes of a case: of planes, or of rows as planes of height 1, and of filters. */
typedef struct conv_sizes {
    int64_t height, width, taps_height, taps_width, numbers, taps;
} conv_sizes;

conv_sizes conv_sizes_of(const conv_case *c);

/* The number that a place (down, across) is, or -1; circular planes repeat. */
int64_t conv_number_at(
    const conv_case *c, const conv_sizes *z, int64_t down, int64_t across);

/* The number that tap s meets at t, or -1. */
int64_t conv_meets(const conv_case *c, const conv_sizes *z, int64_t t, int64_t s);

/* t of support/exact.h, of transforms of flat rows, with sums of f64 beside. */
double conv_flat_error(const conv_case *c, const conv_sizes *z);

/* Adds results and bounds to those of a case, which are zeros. */
void conv_exactly_planes(const conv_case *c, const array *dy, conv_exact *x);

#endif
