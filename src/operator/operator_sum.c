/* Sums of operators, and their biases. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/operator.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"

#include <inttypes.h>
#include <string.h>

static danaus_status check_term(
    const danaus_operator *first, const danaus_operator *t, int i)
{
    if (!t)
        return dn_fail(DANAUS_ERR_ARGUMENT, "term %d is missing", i);
    if (t->dtype != first->dtype)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "term %d is %s and term 0 is %s", i,
            danaus_dtype_name(t->dtype), danaus_dtype_name(first->dtype));
    int64_t rows = danaus_operator_rows(t), cols = danaus_operator_cols(t);
    if (rows != danaus_operator_rows(first) || cols != danaus_operator_cols(first))
        return dn_fail(
            DANAUS_ERR_SHAPE,
            "term %d is %" PRId64 " x %" PRId64 " and term 0 is %" PRId64 " x %" PRId64,
            i, rows, cols, danaus_operator_rows(first), danaus_operator_cols(first));
    return DANAUS_OK;
}

static danaus_status check_terms(danaus_operator *const *terms, int count)
{
    int chains = 0;
    if (!terms || count < 1)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a sum of %d terms", count);
    for (int i = 0; i < count; i++) {
        TRY(check_term(terms[0], terms[i], i));
        for (int before = 0; before < i; before++)
            if (terms[before] == terms[i])
                return dn_fail(
                    DANAUS_ERR_ARGUMENT, "term %d is term %d: a sum owns its terms", i,
                    before);
        chains += terms[i]->count;
    }
    if (chains > DANAUS_MAX_FACTORS)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "%d chains: the terms of a sum have %d", chains,
            DANAUS_MAX_FACTORS);
    return DANAUS_OK;
}

/* bias += more. */
static void add_bias(danaus_operator *sum, const void *more)
{
    for (int64_t p = 0; more && p < danaus_operator_rows(sum); p++) {
        double a[2], b[2];
        dn_load(sum->dtype, sum->bias, p, a);
        dn_load(sum->dtype, more, p, b);
        a[0] += b[0];
        a[1] += b[1];
        dn_store(sum->dtype, sum->bias, p, a);
    }
}

static danaus_status add_biases(
    danaus_operator *sum, danaus_operator *const *terms, int count)
{
    int some = 0;
    size_t size = danaus_dtype_size(sum->dtype);
    for (int i = 0; i < count; i++)
        some |= terms[i]->bias != NULL;
    if (!some)
        return DANAUS_OK;
    sum->bias = dn_calloc((size_t)danaus_operator_rows(sum), size);
    if (!sum->bias)
        return dn_fail_memory((size_t)danaus_operator_rows(sum) * size, "a bias");
    for (int i = 0; i < count; i++)
        add_bias(sum, terms[i]->bias);
    return DANAUS_OK;
}

/* Takes a term over; its bias is in the bias of the sum already. */
static void take_term(danaus_operator *sum, danaus_operator *t)
{
    dn_free(t->bias);
    t->bias = NULL;
    sum->term[sum->terms++] = t;
    for (int i = 0; i < t->count; i++)
        sum->chains[sum->count++] = t->chains[i];
}

/* Replaces terms that are sums by their terms, and destroys the sums. */
static void take_terms(danaus_operator *sum, danaus_operator *const *terms, int count)
{
    for (int i = 0; i < count; i++) {
        danaus_operator *t = terms[i];
        if (!t->terms) {
            take_term(sum, t);
            continue;
        }
        for (int n = 0; n < t->terms; n++)
            take_term(sum, t->term[n]);
        t->terms = t->count = 0;
        danaus_operator_destroy(t);
    }
}

danaus_status danaus_operator_add(
    danaus_operator *const *terms, int count, danaus_operator **sum)
{
    TRY(check_terms(terms, count));
    if (!sum)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a place for the sum is needed");
    if (count == 1) {
        *sum = terms[0];
        return DANAUS_OK;
    }
    danaus_operator *made = dn_calloc(1, sizeof *made);
    if (!made)
        return dn_fail_memory(sizeof *made, "a sum");
    made->dtype = terms[0]->dtype;
    made->lengths[0] = danaus_operator_rows(terms[0]);
    int64_t cols = danaus_operator_cols(terms[0]);
    danaus_status status = add_biases(made, terms, count);
    if (status != DANAUS_OK) {
        danaus_operator_destroy(made);
        return status;
    }
    take_terms(made, terms, count);
    made->sources[made->count] = cols;
    *sum = made;
    return DANAUS_OK;
}

int danaus_operator_terms(const danaus_operator *made)
{
    return !made ? 0 : made->terms ? made->terms : 1;
}

const danaus_operator *danaus_operator_term(const danaus_operator *made, int term)
{
    if (term < 0 || term >= danaus_operator_terms(made))
        return NULL;
    return made->terms ? made->term[term] : made;
}

const void *danaus_operator_bias(const danaus_operator *made)
{
    return made ? made->bias : NULL;
}

danaus_status danaus_operator_set_bias(danaus_operator *made, const void *bias)
{
    if (!made)
        return dn_fail(DANAUS_ERR_ARGUMENT, "an operator is needed");
    size_t bytes = (size_t)danaus_operator_rows(made) * danaus_dtype_size(made->dtype);
    void *copy = bias ? dn_alloc(bytes) : NULL;
    if (bias && !copy)
        return dn_fail_memory(bytes, "a bias");
    if (bias)
        memcpy(copy, bias, bytes);
    dn_free(made->bias);
    made->bias = copy;
    return DANAUS_OK;
}
