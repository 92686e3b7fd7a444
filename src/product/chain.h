/* The inside of a chain, for the files of this folder. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_PRODUCT_CHAIN_H
#define DN_PRODUCT_CHAIN_H

#include "danaus/ks.h"
#include "device/backend.h"

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

/* Refuses a chain whose weights take more memory than this process can get. */
danaus_status dn_chain_check_room(
    const danaus_pattern *patterns, int count, danaus_dtype dtype);

chain_numbers dn_chain_numbers(const danaus_chain *chain);

/* The most bytes that dn_chain_product() holds at once, its result included. */
double dn_chain_product_bytes(
    const danaus_pattern *patterns, int from, int to, danaus_dtype dtype);

/* Multiplies factors [from, to) out, in f64 or c128: *product is a new array
   w[a][b][c][d] of dn_patterns_product(), to be freed by the caller. */
danaus_status dn_chain_product(
    const chain_numbers *n, int from, int to, double **product);

/* The same, but fails unless the chain's type can store the product, as dn_check_stored() says.
   Infinite numbers and NaN are refused only if all factors are finite. */
danaus_status dn_chain_product_held(
    const chain_numbers *n, int from, int to, int refused, const char *name,
    double **product);

#endif
