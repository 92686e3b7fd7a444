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

weights_view dn_chain_view(const danaus_chain *chain, int factor);

/* The pattern that holds the product of factors [from, to). */
danaus_pattern dn_chain_product_pattern(
    const danaus_pattern *patterns, int from, int to);

/* Multiplies factors [from, to) out, in f64 or c128: *product is a new array
   w[a][b][c][d] of dn_chain_product_pattern(), to be freed by the caller. */
danaus_status dn_chain_product(
    const danaus_chain *chain, int from, int to, double **product);

#endif
