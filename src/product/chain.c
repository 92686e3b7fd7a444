/* Chains: patterns and weights on the host. */
// SPDX-License-Identifier: Apache-2.0
#include "product/chain.h"
#include "product/patterns.h"

#include "base/dtype.h"
#include "base/holds.h"
#include "base/mem.h"
#include "base/quota.h"
#include "base/status.h"
#include "math/pattern.h"

#include <string.h>

danaus_status dn_chain_check_room(
    const danaus_pattern *patterns, int count, danaus_dtype dtype)
{
    double bytes = 0;
    for (int i = 0; i < count; i++)
        bytes +=
            (double)dn_pattern_weights(patterns[i]) * (double)danaus_dtype_size(dtype);
    return dn_check_room(bytes, "the weights of a chain");
}

danaus_status danaus_chain_create(
    const danaus_pattern *patterns, int count, danaus_dtype dtype, danaus_chain **chain)
{
    TRY(danaus_patterns_check(patterns, count));
    TRY(dn_check_computed(dtype));
    if (!chain)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a place for the chain is needed");
    TRY(dn_chain_check_room(patterns, count, dtype));
    danaus_chain *c = dn_calloc(1, sizeof *c);
    if (!c)
        return dn_fail_memory(sizeof *c, "a chain");
    c->count = count;
    c->dtype = dtype;
    memcpy(c->patterns, patterns, (size_t)count * sizeof *patterns);
    for (int i = 0; i < count; i++) {
        size_t weights = (size_t)dn_pattern_weights(patterns[i]);
        c->weights[i] = dn_calloc(weights, danaus_dtype_size(dtype));
        if (!c->weights[i]) {
            danaus_chain_destroy(c);
            return dn_fail_memory(weights * danaus_dtype_size(dtype), "weights");
        }
    }
    *chain = c;
    return DANAUS_OK;
}

void danaus_chain_destroy(danaus_chain *chain)
{
    if (!chain)
        return;
    for (int i = 0; i < chain->count; i++)
        dn_free(chain->weights[i]);
    dn_free(chain->bias);
    dn_free(chain);
}

int danaus_chain_count(const danaus_chain *chain) { return chain ? chain->count : 0; }

danaus_dtype danaus_chain_dtype(const danaus_chain *chain)
{
    return chain ? chain->dtype : (danaus_dtype)0;
}

int64_t danaus_chain_rows(const danaus_chain *chain)
{
    return chain ? dn_pattern_rows(chain->patterns[0]) : 0;
}

int64_t danaus_chain_cols(const danaus_chain *chain)
{
    return chain ? dn_pattern_cols(chain->patterns[chain->count - 1]) : 0;
}

int64_t danaus_chain_parameters(const danaus_chain *chain)
{
    int64_t sum = 0;
    for (int i = 0; i < danaus_chain_count(chain); i++)
        sum += dn_pattern_weights(chain->patterns[i]);
    return sum;
}

static int has_factor(const danaus_chain *chain, int factor)
{
    return factor >= 0 && factor < danaus_chain_count(chain);
}

danaus_pattern danaus_chain_pattern(const danaus_chain *chain, int factor)
{
    return has_factor(chain, factor) ? chain->patterns[factor] : (danaus_pattern){ 0 };
}

void *danaus_chain_weights(danaus_chain *chain, int factor)
{
    return has_factor(chain, factor) ? chain->weights[factor] : NULL;
}

const void *danaus_chain_weights_const(const danaus_chain *chain, int factor)
{
    return has_factor(chain, factor) ? chain->weights[factor] : NULL;
}

const void *danaus_chain_bias(const danaus_chain *chain)
{
    return chain ? chain->bias : NULL;
}

danaus_status danaus_chain_set_bias(danaus_chain *chain, const void *bias)
{
    if (!chain)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a chain is needed");
    size_t bytes = (size_t)danaus_chain_rows(chain) * danaus_dtype_size(chain->dtype);
    void *copy = bias ? dn_alloc(bytes) : NULL;
    if (bias && !copy)
        return dn_fail_memory(bytes, "a bias");
    if (bias)
        memcpy(copy, bias, bytes);
    dn_free(chain->bias);
    chain->bias = copy;
    return DANAUS_OK;
}

chain_numbers dn_chain_numbers(const danaus_chain *chain)
{
    return (chain_numbers){ chain->patterns, chain->dtype,
                            (const void *const *)chain->weights, chain->bias };
}

danaus_status danaus_chain_to_dense(const danaus_chain *chain, void *dense)
{
    if (!chain || !dense)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a chain and a place for W are needed");
    double *product;
    chain_numbers n = dn_chain_numbers(chain);
    danaus_pattern p = dn_patterns_product(chain->patterns, chain->count);
    danaus_dtype wide = dn_is_complex(chain->dtype) ? DANAUS_C128 : DANAUS_F64;
    int64_t cols = dn_pattern_cols(p), rows = dn_pattern_rows(p);
    TRY(dn_check_room(
        dn_chain_product_bytes(chain->patterns, 0, chain->count, chain->dtype) +
            (double)rows * (double)cols * (double)danaus_dtype_size(chain->dtype),
        "a dense matrix and the products of factors"));
    TRY(dn_chain_product_held(&n, 0, chain->count, DN_STORED_ZERO, "W", &product));
    memset(dense, 0, (size_t)(rows * cols) * danaus_dtype_size(chain->dtype));
    int64_t at = 0;
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t k = 0; k < p.c; k++)
                for (int64_t j = 0; j < p.d; j++) {
                    int64_t row = (i * p.b + r) * p.d + j,
                            col = (i * p.c + k) * p.d + j;
                    double value[2];
                    dn_load(wide, product, at++, value);
                    dn_store(chain->dtype, dense, row * cols + col, value);
                }
    dn_free(product);
    return DANAUS_OK;
}
