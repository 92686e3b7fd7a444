/* The search for chains of few parameters. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_FACTOR_FIT_H
#define DN_FACTOR_FIT_H

#include "danaus/factorize.h"

/* The chain of `order` factors and block rank `rank` with the fewest weights;
   *found says whether there is one. Without the monotone rule steps need only
   shrink one of the sizes. */
danaus_status dn_patterns_cheapest(
    int64_t rows, int64_t cols, int order, int64_t rank, int monotone,
    danaus_pattern *patterns, int *found);

/* Share of the energy of an m x n Gaussian matrix in its `rank` largest singular
   values: the law of Marchenko and Pastur. */
double dn_null_energy(int64_t m, int64_t n, int64_t rank);

#endif
