/* splitmix64 (Steele, Lea, Flood 2014). */
// SPDX-License-Identifier: Apache-2.0
#include "support/rng.h"

uint64_t rng_next(rng *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t rng_int(rng *r, int64_t low, int64_t high)
{
    return low + (int64_t)(rng_next(r) % (uint64_t)(high - low + 1));
}

double rng_unit(rng *r) { return (double)(rng_next(r) >> 11) * 0x1p-53; }

double rng_sign(rng *r) { return 2 * rng_unit(r) - 1; }
