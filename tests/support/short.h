/* Random convolutions of few taps. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_SHORT_H
#define TEST_SUPPORT_SHORT_H

#include "support/element.h"
#include "support/rng.h"

#include "danaus/conv.h"

typedef struct short_case {
    danaus_short_desc desc; /* dtype is set */
    int64_t batch;
    array k, bias, u; /* bias: data may be NULL */
} short_case;

/* A random case of any type and layout; the rounds take turns with many channels, long rows
   and many taps. */
short_case short_random(rng *r, int round);
/* Every small size, in both layouts, centred and not; types take turns. */
#define SHORT_SMALL (17 * 9 * 6 * 2 * 2 * 2)
short_case short_small(rng *r, int number);
void short_free(short_case *c);

/* An array where the device can reach it: aligned as allocations are, or to one element
   alone. */
typedef struct short_operand {
    const array *a;
    void *at;
    int aligned;
} short_operand;

short_operand short_put(danaus_device *device, const array *a, int aligned);
void short_take(danaus_device *device, const short_operand *o);

/* Where u[b][h][t] lies in memory. */
int64_t short_place(const short_case *c, int64_t b, int64_t h, int64_t t);

/* The number of u that y[t] sees first. */
int64_t short_shift(const short_case *c);

/* The case with channels where they were not, and `from`, like u, in that order. */
short_case short_turned(const short_case *c, const array *from, array *to);

#endif
