/* Random Hyena operators, and what they and their gradients must be: plain loops of f64 over
   the definition in danaus/conv.h, in which every number carries a bound on what a library
   may err that sums in the type of sums and stores z, v and dz in that of u.

   The bounds. A sum of n products errs by gamma_n = n u / (1 - n u) of the sum of magnitudes;
   a product of two by u; storing by a unit of the type; what was wrong before passes through
   magnitudes. A transform adds what support/exact.h says:

       y of k and p     (2 t + 8 u) |k| |p| + (t + 8 u) |k|_1 |p|,     t = 5 u log2 n,
       dk               for every row (2 t + 8 u + rows u) |dc| |p| + t sqrt(length) |dc| |p|. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_OPERATOR_H
#define TEST_SUPPORT_OPERATOR_H

#include "support/element.h"
#include "support/rng.h"

#include "danaus/conv.h"

typedef struct operator_case {
    danaus_hyena_desc desc;  /* every field is set */
    int64_t batch;           /* or how many packed sequences: */
    const int64_t *offsets;  /* of these, which are the caller's, or NULL */
    array u, taps, bias, dy; /* bias: data may be NULL */
    array k, skip;           /* [order - 1][filters]...; skip likewise */
} operator_case;

/* Everything random but the description; accurate unless it says otherwise. */
operator_case operator_random(rng *r, const danaus_hyena_desc *desc, int64_t batch);
operator_case operator_random_packed(
    rng *r, const danaus_hyena_desc *desc, int64_t sequences, const int64_t *offsets);
/* Sequence i alone, with filters of the case's. */
operator_case operator_sequence(const operator_case *c, int64_t i);
void operator_sequence_free(operator_case *sequence);
void operator_free(operator_case *c);

typedef enum operator_name {
    OPERATOR_Y,
    OPERATOR_DU,
    OPERATOR_DTAPS,
    OPERATOR_DBIAS,
    OPERATOR_DK,
    OPERATOR_DSKIP,
    OPERATOR_RESULTS
} operator_name;

/* Results, NaN before and between guards; data NULL where the case has no such operand. */
typedef struct operator_outcome {
    array of[OPERATOR_RESULTS];
} operator_outcome;

void operator_outcome_free(operator_outcome *o);
int operator_outcome_same(const operator_outcome *a, const operator_outcome *b);

/* y and all gradients by a device; fails the test when a call fails. */
operator_outcome operator_compute(danaus_device *device, const operator_case *c);

/* Fails the test, naming the first wrong number. */
void operator_expect(const operator_case *c, const operator_outcome *o);

/* The error of each result relative to what it must be, in norm. */
void operator_errors(
    const operator_case *c, const operator_outcome *o, double errors[OPERATOR_RESULTS]);

#endif
