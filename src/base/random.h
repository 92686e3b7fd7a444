/* Pseudo-random bits: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_RANDOM_H
#define DN_BASE_RANDOM_H

#include <stdint.h>

/* The next 64 bits. Any state is a beginning. */
static inline uint64_t dn_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#endif
