/* Operators: chains with orders of numbers between them, on the host. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/operator.h"

#include "danaus/algebra.h"

#include "base/mem.h"
#include "base/status.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

static danaus_status check_chains(danaus_chain *const *chains, int count)
{
    if (count < 1 || count > DANAUS_MAX_FACTORS)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "%d chains: an operator has 1 to %d", count,
            DANAUS_MAX_FACTORS);
    int factors = 0;
    for (int i = 0; i < count; i++) {
        if (!chains[i])
            return dn_fail(DANAUS_ERR_ARGUMENT, "chain %d is missing", i);
        if (danaus_chain_dtype(chains[i]) != danaus_chain_dtype(chains[0]))
            return dn_fail(
                DANAUS_ERR_ARGUMENT, "chain %d is %s and chain 0 is %s", i,
                danaus_dtype_name(danaus_chain_dtype(chains[i])),
                danaus_dtype_name(danaus_chain_dtype(chains[0])));
        if (danaus_chain_bias(chains[i]))
            return dn_fail(
                DANAUS_ERR_UNSUPPORTED, "chain %d has a bias: an operator has none", i);
        factors += danaus_chain_count(chains[i]);
    }
    if (factors > DANAUS_MAX_FACTORS)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "%d factors: the chains of an operator have %d",
            factors, DANAUS_MAX_FACTORS);
    return DANAUS_OK;
}

static danaus_status check_order(
    const int64_t *order, int i, int64_t length, int64_t source)
{
    if (length < 1 || length > INT64_MAX / 64)
        return dn_fail(DANAUS_ERR_SHAPE, "order %d has %" PRId64 " entries", i, length);
    for (int64_t p = 0; order && p < length; p++)
        if (order[p] < -1 || order[p] >= source)
            return dn_fail(
                DANAUS_ERR_ARGUMENT,
                "entry %" PRId64 " of order %d is %" PRId64
                ", which is no place among %" PRId64,
                p, i, order[p], source);
    return DANAUS_OK;
}

static int ascending(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

/* Nonzero if a place comes twice. The order is sorted. */
static int has_repeats(int64_t *order, int64_t length)
{
    qsort(order, (size_t)length, sizeof *order, ascending);
    for (int64_t p = 1; p < length; p++)
        if (order[p] >= 0 && order[p] == order[p - 1])
            return 1;
    return 0;
}

/* A copy of an order that comes from outside, or that of all places. */
static danaus_status copy_order(danaus_operator *o, int i, const int64_t *order)
{
    size_t bytes = (size_t)o->lengths[i] * sizeof *order;
    o->orders[i] = dn_alloc(bytes);
    int64_t *sorted = order ? dn_alloc(bytes) : NULL;
    danaus_status status = o->orders[i] && (sorted || !order)
                               ? DANAUS_OK
                               : dn_fail_memory(bytes, "an order");
    for (int64_t p = 0; status == DANAUS_OK && p < o->lengths[i]; p++)
        o->orders[i][p] = order ? order[p] : p;
    if (status == DANAUS_OK && order) {
        memcpy(sorted, order, bytes);
        o->repeats[i] = has_repeats(sorted, o->lengths[i]);
    }
    dn_free(sorted);
    return status;
}

/* From the inputs to the outputs: what each order picks from, and how much. */
static danaus_status take_orders(
    danaus_operator *o, const int64_t *const *orders, const int64_t *lengths)
{
    for (int i = o->count; i >= 0; i--) {
        const int64_t *order = orders ? orders[i] : NULL;
        o->lengths[i] = order ? lengths[i] : o->sources[i];
        TRY(check_order(order, i, o->lengths[i], o->sources[i]));
        if (i > 0) {
            int64_t passing = dn_operator_passing(o, i - 1),
                    rows = danaus_chain_rows(o->chains[i - 1]);
            if (passing < 0)
                return dn_fail(
                    DANAUS_ERR_SHAPE,
                    "chain %d takes %" PRId64 " numbers and gets %" PRId64, i - 1,
                    danaus_chain_cols(o->chains[i - 1]), o->lengths[i]);
            if (__builtin_add_overflow(rows, passing, &o->sources[i - 1]))
                return dn_fail(DANAUS_ERR_SHAPE, "chain %d gives too many", i - 1);
        }
        TRY(copy_order(o, i, order));
    }
    return DANAUS_OK;
}

danaus_status danaus_operator_create(
    danaus_chain *const *chains, int count, const int64_t *const *orders,
    const int64_t *lengths, int64_t cols, danaus_operator **made)
{
    if (!chains || !made || (orders && !lengths))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "chains, lengths of orders and a place are needed");
    TRY(check_chains(chains, count));
    danaus_operator *o = dn_calloc(1, sizeof *o);
    if (!o)
        return dn_fail_memory(sizeof *o, "an operator");
    o->count = count;
    o->dtype = danaus_chain_dtype(chains[0]);
    o->sources[count] = cols;
    memcpy(o->chains, chains, (size_t)count * sizeof *chains);
    danaus_status status =
        cols < 1 ? dn_fail(DANAUS_ERR_SHAPE, "an operator of %" PRId64 " inputs", cols)
                 : take_orders(o, orders, lengths);
    if (status != DANAUS_OK) {
        memset(o->chains, 0, sizeof o->chains);
        danaus_operator_destroy(o);
        return status;
    }
    *made = o;
    return DANAUS_OK;
}

void danaus_operator_destroy(danaus_operator *made)
{
    if (!made)
        return;
    for (int i = 0; i < made->terms; i++)
        danaus_operator_destroy(made->term[i]);
    for (int i = 0; i < made->count && !made->terms; i++)
        danaus_chain_destroy(made->chains[i]);
    for (int i = 0; i <= made->count; i++)
        dn_free(made->orders[i]);
    dn_free(made->bias);
    dn_free(made);
}

danaus_status dn_operator_of_chain(
    danaus_chain *chain, const int64_t *outputs, int64_t rows, const int64_t *inputs,
    int64_t length, int64_t cols, danaus_operator **made)
{
    const int64_t *orders[2] = { outputs, inputs }, lengths[2] = { rows, length };
    danaus_status status =
        danaus_operator_create(&chain, 1, orders, lengths, cols, made);
    if (status != DANAUS_OK)
        danaus_chain_destroy(chain);
    return status;
}

/* ---- what it is ---- */

int64_t danaus_operator_rows(const danaus_operator *made)
{
    return made ? made->lengths[0] : 0;
}

int64_t danaus_operator_cols(const danaus_operator *made)
{
    return made ? made->sources[made->count] : 0;
}

int danaus_operator_count(const danaus_operator *made)
{
    return made ? made->count : 0;
}

danaus_dtype danaus_operator_dtype(const danaus_operator *made)
{
    return made ? made->dtype : (danaus_dtype)0;
}

int64_t danaus_operator_parameters(const danaus_operator *made)
{
    int64_t sum = 0;
    for (int i = 0; i < danaus_operator_count(made); i++)
        sum += danaus_chain_parameters(made->chains[i]);
    return sum;
}

const danaus_chain *danaus_operator_chain(const danaus_operator *made, int chain)
{
    return chain >= 0 && chain < danaus_operator_count(made) ? made->chains[chain]
                                                             : NULL;
}

const int64_t *danaus_operator_order(
    const danaus_operator *made, int order, int64_t *length)
{
    if (!made || made->terms || order < 0 || order > made->count)
        return NULL;
    if (length)
        *length = made->lengths[order];
    return made->orders[order];
}

int64_t dn_operator_passing(const danaus_operator *made, int i)
{
    return made->lengths[i + 1] - danaus_chain_cols(made->chains[i]);
}

int dn_operator_natural(const danaus_operator *made, int i)
{
    if (made->lengths[i] != made->sources[i])
        return 0;
    for (int64_t p = 0; p < made->lengths[i]; p++)
        if (made->orders[i][p] != p)
            return 0;
    return 1;
}

int dn_operator_is_chain(const danaus_operator *made)
{
    return !made->terms && made->count == 1 && dn_operator_natural(made, 0) &&
           dn_operator_natural(made, 1);
}

/* ---- the adjoint ---- */

/* The place to which an order brings each of its sources; -1: to none. */
static int64_t *turned_order(const danaus_operator *o, int i)
{
    int64_t *to = dn_alloc((size_t)o->sources[i] * sizeof *to);
    for (int64_t x = 0; to && x < o->sources[i]; x++)
        to[x] = -1;
    for (int64_t p = 0; to && p < o->lengths[i]; p++)
        if (o->orders[i][p] >= 0)
            to[o->orders[i][p]] = p;
    return to;
}

danaus_status dn_operator_adjoint(const danaus_operator *from, danaus_operator **made)
{
    danaus_chain *chain;
    TRY(danaus_chain_transpose(from->chains[0], 1, &chain));
    int64_t *outputs = turned_order(from, 1), *inputs = turned_order(from, 0);
    danaus_status status;
    if (outputs && inputs) {
        status = dn_operator_of_chain(
            chain, outputs, from->sources[1], inputs, from->sources[0],
            from->lengths[0], made);
    } else {
        danaus_chain_destroy(chain);
        status = dn_fail(DANAUS_ERR_MEMORY, "no memory for an order");
    }
    dn_free(outputs);
    dn_free(inputs);
    return status;
}
