/* Two factors in one step: y = K (L x). */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_PAIRS_H
#define TEST_SUPPORT_PAIRS_H

#include "support/oracle.h"

#include "device/backend.h"

/* Random numbers for a problem with an inner factor, batch-first. */
typedef struct pair_case {
    problem p;
    array l, w, x, bias, residual; /* count 0: none */
    danaus_activation activation;
} pair_case;

pair_case pair_random(rng *r, const problem *p);
void pair_free(pair_case *c);

/* The row packs both factors' weights into memory of the host. */
void pair_pack(const pair_case *c, const kernel *k, void *packed);

/* Fails the test unless y is right for the row. */
void pair_expect(const pair_case *c, const kernel *k, const array *y);

#endif
