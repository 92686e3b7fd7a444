/* The inside of a chain, for the files of this folder. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_KS_CHAIN_H
#define DN_KS_CHAIN_H

#include "backend/backend.h"
#include "danaus/ks.h"

struct danaus_chain {
    int count;
    danaus_dtype dtype;
    danaus_pattern patterns[DANAUS_MAX_FACTORS];
    void *weights[DANAUS_MAX_FACTORS];
    void *bias; /* or NULL */
};

/* Numbers of a chain, wherever they lie: w[a][b][c][d] of each factor, and a bias. */
typedef struct chain_numbers {
    const danaus_pattern *patterns;
    danaus_dtype dtype;
    const void *const *w;
    const void *bias;
} chain_numbers;

chain_numbers dn_chain_numbers(const danaus_chain *chain);

/* Multiplies factors [from, to) out, in f64 or c128: *product is a new array
   w[a][b][c][d] of dn_patterns_product(), to be freed by the caller. */
danaus_status dn_chain_product(
    const chain_numbers *n, int from, int to, double **product);

#endif
