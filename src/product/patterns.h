/* Chains of patterns: direction, rank, redundancy, lattice chains. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_PRODUCT_PATTERNS_H
#define DN_PRODUCT_PATTERNS_H

#include "danaus/factorize.h"

/* Block rank a1 c1 / a2 = b2 d2 / d1 of a chainable pair. */
int64_t dn_pair_rank(danaus_pattern p, danaus_pattern q);

/* True if every factor of pattern p * q is the product of a p-factor and a q-factor. */
int dn_pair_redundant(danaus_pattern p, danaus_pattern q);

/* The patterns of W transposed; the two arrays do not overlap. */
void dn_patterns_transpose(
    const danaus_pattern *patterns, int count, danaus_pattern *transposed);

/* The pattern that holds the product K_1 .. K_count. */
danaus_pattern dn_patterns_product(const danaus_pattern *patterns, int count);

/* Checks the chain and says whether it, or only its transpose, is chainable. */
danaus_status dn_patterns_direction(
    const danaus_pattern *patterns, int count, int *transposed);

/* The lattice chain of row radices q, column radices p and order - 1 block ranks
   (NULL: all `rank`). */
danaus_status dn_patterns_lattice(
    int order, const int64_t *q, const int64_t *p, const int64_t *ranks, int64_t rank,
    danaus_pattern *patterns);

/* The numbers that danaus_chain_reduce() leaves free; 0 for no chain to factorise. */
int64_t dn_patterns_freedom(const danaus_pattern *patterns, int count);

/* Copies a chain into the caller's array, if it fits. */
danaus_status dn_patterns_deliver(
    const danaus_pattern *made, int made_count, danaus_pattern *patterns, int capacity,
    int *count);

#endif
