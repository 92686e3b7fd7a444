/* Random numbers that depend on nothing but a seed: splitmix64. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_RNG_H
#define TEST_SUPPORT_RNG_H

#include <stdint.h>

typedef struct rng {
    uint64_t state; /* any value is a good seed */
} rng;

uint64_t rng_next(rng *r);
int64_t rng_int(rng *r, int64_t low, int64_t high); /* both ends included */
double rng_unit(rng *r);                            /* in [0, 1) */
double rng_sign(rng *r);                            /* in [-1, 1) */

#endif
