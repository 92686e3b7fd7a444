/* Many chains to one: the call, and products. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/algebra/combine.h"

#include "product/chain.h"
#include "base/status.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <string.h>

static danaus_status check_terms(const terms *t)
{
    if (!t->chain || t->count < 1)
        return dn_fail(DANAUS_ERR_ARGUMENT, "one chain or more are needed");
    for (int s = 0; s < t->count; s++) {
        if (!t->chain[s])
            return dn_fail(DANAUS_ERR_ARGUMENT, "chain %d is missing", s);
        if (t->chain[s]->dtype != t->chain[0]->dtype)
            return dn_fail(
                DANAUS_ERR_ARGUMENT, "chain %d is %s and chain 0 is %s: convert one", s,
                danaus_dtype_name(t->chain[s]->dtype),
                danaus_dtype_name(t->chain[0]->dtype));
    }
    return DANAUS_OK;
}

static danaus_status check_product(const terms *t)
{
    int64_t count = 0;
    for (int s = 0; s < t->count; s++) {
        count += t->chain[s]->count;
        int64_t rows = danaus_chain_rows(t->chain[s]);
        int64_t cols = s ? danaus_chain_cols(t->chain[s - 1]) : rows;
        if (cols != rows)
            return dn_fail(
                DANAUS_ERR_SHAPE,
                "chain %d has %" PRId64 " columns but chain %d has %" PRId64 " rows",
                s - 1, cols, s, rows);
    }
    if (count > DANAUS_MAX_FACTORS)
        return dn_fail(
            DANAUS_ERR_SHAPE,
            "the product would have %" PRId64 " factors, more than %d", count,
            DANAUS_MAX_FACTORS);
    return DANAUS_OK;
}

static danaus_status multiply(const terms *t, danaus_chain **product)
{
    TRY(check_product(t));
    danaus_pattern p[DANAUS_MAX_FACTORS];
    const void *w[DANAUS_MAX_FACTORS];
    int count = 0;
    for (int s = 0; s < t->count; s++)
        for (int l = 0; l < t->chain[s]->count; l++, count++) {
            p[count] = t->chain[s]->patterns[l];
            w[count] = t->chain[s]->weights[l];
        }
    danaus_chain *made;
    TRY(danaus_chain_create(p, count, t->dtype, &made));
    for (int l = 0; l < count; l++)
        memcpy(
            made->weights[l], w[l],
            (size_t)dn_pattern_weights(p[l]) * danaus_dtype_size(t->dtype));
    *product = made;
    return DANAUS_OK;
}

danaus_status danaus_chain_combine(
    danaus_combination how, const danaus_chain *const *chains, int count,
    danaus_chain **combined)
{
    terms t = { .chain = chains, .count = count };
    TRY(check_terms(&t));
    t.dtype = chains[0]->dtype;
    if (!combined)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a place for the chain is needed");
    switch (how) {
    case DANAUS_PRODUCT: return multiply(&t, combined);
    case DANAUS_SUM:
    case DANAUS_HSTACK:
    case DANAUS_VSTACK:
    case DANAUS_BLOCK_DIAGONAL: return dn_join(how, &t, combined);
    case DANAUS_KRONECKER: return dn_kronecker(&t, combined);
    }
    return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no combination", (int)how);
}
