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

/* Adds results and bounds to those of a case, which are zeros. */
void conv_exactly_planes(const conv_case *c, const array *dy, conv_exact *x);

#endif
