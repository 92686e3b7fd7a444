/* Random chains, and the product that a plan must make with one. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_CHAINS_H
#define TEST_SUPPORT_CHAINS_H

#include "support/oracle.h"

#include "danaus/ks.h"

/* All element types; TEST_DTYPES of them. */
#define TEST_DTYPES 6
extern const danaus_dtype test_dtypes[TEST_DTYPES];

/* A chain as arrays: what the library gets and what the oracle reads. */
typedef struct random_chain {
    int count;
    danaus_pattern p[DANAUS_MAX_FACTORS];
    danaus_dtype dtype;
    array w[DANAUS_MAX_FACTORS];
    array bias; /* count 0: none */
    int64_t rows, cols;
    danaus_chain *chain;
} random_chain;

/* Composable patterns whose sizes are at most about `limit`. */
void random_patterns(rng *r, int count, int64_t limit, danaus_pattern *p);

random_chain chain_random(
    rng *r, const danaus_pattern *p, int count, danaus_dtype dtype, int bias);
void chain_free(random_chain *c);

/* One of the activations, or none; none for complex types. */
danaus_activation random_activation(rng *r, danaus_dtype dtype);

/* One product to make: sizes by the adjoint flag of the description. */
int64_t inputs_of(const random_chain *c, int adjoint);
int64_t outputs_of(const random_chain *c, int adjoint);

/* Plan, pack and execute with this description; x has inputs x batch elements. The
   caller frees the result. */
array multiply(
    danaus_device *device, const random_chain *c, const danaus_ks_desc *desc,
    int64_t batch, const array *x);

/* What that must give; the description says layout, type and adjoint. */
signal multiply_exactly(
    const random_chain *c, const danaus_ks_desc *desc, int64_t batch, const array *x);

/* Random x, both of the above, and the comparison. */
void check_product(
    rng *r, danaus_device *device, const random_chain *c, const danaus_ks_desc *desc,
    int64_t batch);

/* Gradients asked of the library, given x and dy; every member exists but dbias of
   adjoint plans. */
typedef struct gradients {
    int count;
    array dx, dw[DANAUS_MAX_FACTORS], dbias;
    int rounded; /* dw and dbias are of the plan's type */
} gradients;

gradients gradients_make(
    const random_chain *c, const danaus_ks_desc *desc, int64_t batch);
void gradients_free(gradients *g);
void gradients_run(
    danaus_device *device, const random_chain *c, const danaus_ks_desc *desc,
    int64_t batch, const array *x, const array *dy, gradients *g);

/* Random x and dy, gradients, and the comparison with the oracle. */
void check_gradients(
    rng *r, danaus_device *device, const random_chain *c, const danaus_ks_desc *desc,
    int64_t batch);

/* "c64 first adjoint batch 7: (1,2,3,4) (..)": where a test is, for messages. */
const char *name_of_case(
    const random_chain *c, const danaus_ks_desc *desc, int64_t batch);

#endif
