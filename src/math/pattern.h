/* Algebra of patterns (a, b, c, d): sizes, products, offsets of weights. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MATH_PATTERN_H
#define DN_MATH_PATTERN_H

#include "danaus/ks.h"

#include <inttypes.h>

/* How sentences write a pattern: with printf's formats. */
#define PATTERN       "(%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ")"
#define ENTRIES_OF(p) (p).a, (p).b, (p).c, (p).d

/* For patterns that danaus_patterns_check() has accepted. */
int64_t dn_pattern_rows(danaus_pattern p);           /* a b d */
int64_t dn_pattern_cols(danaus_pattern p);           /* a c d */
int64_t dn_pattern_weights(danaus_pattern p);        /* a b c d */
danaus_pattern dn_pattern_adjoint(danaus_pattern p); /* (a, c, b, d) */
int dn_pattern_equal(danaus_pattern p, danaus_pattern q);

/* A pattern that holds every product of a p-factor and a q-factor:
   (g, M/(g h), N/(g h), h) with g = gcd(a1, a2), h = gcd(d1, d2). When the pair
   is chainable (a1 | a2, d2 | d1, a2 | a1 c1) it is exactly their product
   (a1, b1 d1/d2, a2 c2/a1, d2). */
danaus_pattern dn_pattern_product(danaus_pattern p, danaus_pattern q);

#endif
