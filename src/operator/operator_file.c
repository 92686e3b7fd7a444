/* Files of operators.

   "danaus chain 2" is one operator: factor.0, factor.1, ... as in a chain file, and order.l,
   places as f64, to the left of factor l; behind the last of L factors order.L. The orders
   say where one chain ends and the next begins. The metadata "danaus cols" is the number of
   inputs.

   "danaus chain 3" is a sum: the same for each term t, with term.t. before the names, and perhaps
   a bias. A term that is a chain alone has no orders. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/operator.h"

#include "base/mem.h"
#include "base/status.h"
#include "io/file.h"
#include "product/chain.h"
#include "product/chain_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORDER "order."
#define TERM  "term."
#define COLS  "danaus cols"

/* ---- loading ---- */

/* The parts of an operator, until it is made. */
typedef struct parts {
    int count;
    danaus_chain *chains[DANAUS_MAX_FACTORS];
    int64_t *orders[DANAUS_MAX_FACTORS + 1], lengths[DANAUS_MAX_FACTORS + 1];
    int64_t cols;
} parts;

static danaus_status read_order(
    const danaus_file *file, const char *name, int64_t **order, int64_t *length)
{
    danaus_tensor t;
    TRY(danaus_file_find(file, name, &t));
    if (t.dtype != DANAUS_F64 || t.ndim != 1 || t.shape[0] < 1)
        return dn_fail(DANAUS_ERR_FORMAT, "%s is no f64 array of places", name);
    const double *places = t.data;
    *length = t.shape[0];
    *order = dn_alloc((size_t)*length * sizeof **order);
    if (!*order)
        return dn_fail_memory((size_t)*length * sizeof **order, "an order");
    for (int64_t p = 0; p < *length; p++) {
        if (!(places[p] >= -1 && places[p] < 0x1p53) || places[p] != floor(places[p]))
            return dn_fail(
                DANAUS_ERR_FORMAT, "entry %" PRId64 " of %s is %g, which is no place",
                p, name, places[p]);
        (*order)[p] = (int64_t)places[p];
    }
    return DANAUS_OK;
}

static danaus_status read_cols(const danaus_file *file, int64_t *cols)
{
    const char *text = danaus_file_metadata(file, COLS);
    size_t digits = text ? strspn(text, "0123456789") : 0;
    if (!digits || digits > 15 || text[digits])
        return dn_fail(DANAUS_ERR_FORMAT, "the metadata do not give \"" COLS "\"");
    *cols = strtoll(text, NULL, 10);
    return DANAUS_OK;
}

/* The factors from `from` to the next order, or to the end, as a chain, and that order. */
static danaus_status read_chain(
    const danaus_file *file, const char *prefix, const chain_view *view, int *from,
    parts *p)
{
    char name[DN_MOST_NAME];
    int to = *from;
    do
        snprintf(name, sizeof name, "%s" ORDER "%d", prefix, ++to);
    while (to < view->count && !dn_has_tensor(file, name));
    TRY(danaus_patterns_check(view->patterns + *from, to - *from));
    TRY(dn_chain_of_view(view, *from, to, &p->chains[p->count]));
    p->count++;
    *from = to;
    if (dn_has_tensor(file, name))
        return read_order(file, name, &p->orders[p->count], &p->lengths[p->count]);
    return *prefix && !p->orders[0] ? DANAUS_OK
                                    : dn_fail(DANAUS_ERR_FORMAT, "%s is missing", name);
}

/* The chains and orders whose names have the prefix. */
static danaus_status read_parts(const danaus_file *file, const char *prefix, parts *p)
{
    chain_view view = { 0 };
    char name[DN_MOST_NAME];
    snprintf(name, sizeof name, "%s" ORDER "0", prefix);
    TRY(dn_view_factors(file, prefix, &view));
    TRY(read_cols(file, &p->cols));
    if (!*prefix || dn_has_tensor(file, name))
        TRY(read_order(file, name, &p->orders[0], &p->lengths[0]));
    for (int from = 0; from < view.count;)
        TRY(read_chain(file, prefix, &view, &from, p));
    return DANAUS_OK;
}

static danaus_status make(const parts *p, danaus_operator **made)
{
    int none = p->orders[0] == NULL;
    for (int i = 1; i <= p->count; i++)
        if ((p->orders[i] == NULL) != none)
            return dn_fail(
                DANAUS_ERR_FORMAT, "a term has an order and not those of its ends");
    return danaus_operator_create(
        p->chains, p->count, none ? NULL : (const int64_t *const *)p->orders,
        p->lengths, p->cols, made);
}

static danaus_status read_operator(
    const danaus_file *file, const char *prefix, danaus_operator **made)
{
    parts p = { 0 };
    danaus_status status = read_parts(file, prefix, &p);
    if (status == DANAUS_OK)
        status = make(&p, made);
    for (int i = 0; i <= p.count; i++) {
        dn_free(p.orders[i]);
        if (status != DANAUS_OK && i < p.count)
            danaus_chain_destroy(p.chains[i]);
    }
    return status;
}

/* Terms count from 0 without gaps: there are as many as names of a first factor. */
static danaus_status count_terms(const danaus_file *file, int *count)
{
    const char *name;
    *count = 0;
    for (int i = 0; (name = dn_file_name(file, i)); i++) {
        size_t digits = strncmp(name, TERM, strlen(TERM))
                            ? 0
                            : strspn(name + strlen(TERM), "0123456789");
        *count += digits && !strcmp(name + strlen(TERM) + digits, "." DN_FACTOR "0");
    }
    if (*count >= 1 && *count <= DANAUS_MAX_FACTORS)
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_FORMAT, "a sum of %d terms: it has 1 to %d", *count,
        DANAUS_MAX_FACTORS);
}

static danaus_status read_bias(const danaus_file *file, danaus_operator *made)
{
    chain_view view = { .dtype = made->dtype };
    TRY(dn_view_bias(file, danaus_operator_rows(made), &view));
    return view.bias ? danaus_operator_set_bias(made, view.bias) : DANAUS_OK;
}

static danaus_status read_sum(const danaus_file *file, danaus_operator **made)
{
    danaus_operator *terms[DANAUS_MAX_FACTORS] = { 0 }, *sum = NULL;
    int count;
    TRY(count_terms(file, &count));
    danaus_status status = DANAUS_OK;
    for (int i = 0; i < count && status == DANAUS_OK; i++) {
        char prefix[DN_MOST_NAME];
        snprintf(prefix, sizeof prefix, TERM "%d.", i);
        status = read_operator(file, prefix, &terms[i]);
    }
    if (status == DANAUS_OK)
        status = danaus_operator_add(terms, count, &sum);
    for (int i = 0; i < count && status != DANAUS_OK; i++)
        danaus_operator_destroy(terms[i]);
    TRY(status);
    status = read_bias(file, sum);
    if (status == DANAUS_OK)
        *made = sum;
    else
        danaus_operator_destroy(sum);
    return status;
}

static int has_format(const danaus_file *file, const char *wanted)
{
    const char *format = danaus_file_metadata(file, DN_CHAIN_FORMAT_KEY);
    return format && !strcmp(format, wanted);
}

/* A plain chain file, whose bias is the operator's. */
static danaus_status read_chain_file(const char *path, danaus_operator **made)
{
    danaus_chain *chain;
    TRY(danaus_chain_load(path, &chain));
    void *bias = chain->bias;
    chain->bias = NULL;
    danaus_status status =
        dn_operator_of_chain(chain, NULL, 0, NULL, 0, danaus_chain_cols(chain), made);
    if (status == DANAUS_OK)
        (*made)->bias = bias;
    else
        dn_free(bias);
    return status;
}

danaus_status danaus_operator_load(const char *path, danaus_operator **made)
{
    if (!path || !made)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a path and a place for the operator are needed");
    danaus_file *file;
    TRY(danaus_file_open(path, &file));
    int one = has_format(file, DN_OPERATOR_FORMAT),
        sum = has_format(file, DN_SUM_FORMAT);
    danaus_status status = one   ? read_operator(file, "", made)
                           : sum ? read_sum(file, made)
                                 : DANAUS_OK;
    danaus_file_close(file);
    if (!one && !sum)
        return read_chain_file(path, made);
    return status == DANAUS_OK ? status : dn_fail_in(status, path);
}

/* ---- saving ---- */

/* Tensors of a file with their names: factors, perhaps a bias, and orders, whose data are
   memory of their own. */
typedef struct tensors {
    int count, orders;
    danaus_tensor *at;
    char (*names)[DN_MOST_NAME];
} tensors;

static void add_factors(const danaus_operator *o, const char *prefix, tensors *t)
{
    int number = 0;
    for (int i = 0; i < o->count; i++)
        for (int l = 0; l < danaus_chain_count(o->chains[i]); l++, t->count++)
            t->at[t->count] =
                dn_factor_tensor(o->chains[i], l, prefix, number++, t->names[t->count]);
}

/* Order i as places in f64. */
static danaus_status add_order(
    const danaus_operator *o, int i, const char *prefix, int number, tensors *t)
{
    size_t bytes = (size_t)o->lengths[i] * sizeof(double);
    double *places = dn_alloc(bytes);
    int at = t->count + t->orders;
    if (!places)
        return dn_fail_memory(bytes, "an order");
    for (int64_t p = 0; p < o->lengths[i]; p++)
        places[p] = (double)o->orders[i][p];
    snprintf(t->names[at], DN_MOST_NAME, "%s" ORDER "%d", prefix, number);
    t->at[at] = (danaus_tensor){ .name = t->names[at],
                                 .data = places,
                                 .dtype = DANAUS_F64,
                                 .ndim = 1,
                                 .shape = { o->lengths[i] } };
    t->orders++;
    return DANAUS_OK;
}

static danaus_status add_orders(
    const danaus_operator *o, const char *prefix, tensors *t)
{
    int number = 0;
    for (int i = 0; i <= o->count; i++) {
        TRY(add_order(o, i, prefix, number, t));
        number += i < o->count ? danaus_chain_count(o->chains[i]) : 0;
    }
    return DANAUS_OK;
}

static void add_bias(const danaus_operator *o, tensors *t)
{
    if (o->bias)
        t->at[t->count++] = dn_bias_tensor(o->bias, o->dtype, danaus_operator_rows(o));
}

static danaus_status describe_sum(const danaus_operator *o, tensors *t)
{
    char prefix[DN_MOST_NAME];
    for (int i = 0; i < danaus_operator_terms(o); i++) {
        snprintf(prefix, sizeof prefix, TERM "%d.", i);
        add_factors(danaus_operator_term(o, i), prefix, t);
    }
    add_bias(o, t);
    for (int i = 0; i < danaus_operator_terms(o); i++) {
        const danaus_operator *term = danaus_operator_term(o, i);
        snprintf(prefix, sizeof prefix, TERM "%d.", i);
        if (!dn_operator_is_chain(term))
            TRY(add_orders(term, prefix, t));
    }
    return DANAUS_OK;
}

/* Into a file of the format that is enough for it, which is returned. */
static danaus_status describe(const danaus_operator *o, tensors *t, const char **format)
{
    int chain = dn_operator_is_chain(o);
    *format = chain ? DN_CHAIN_FORMAT : DN_OPERATOR_FORMAT;
    if (o->terms || (o->bias && !chain)) {
        *format = DN_SUM_FORMAT;
        return describe_sum(o, t);
    }
    add_factors(o, "", t);
    add_bias(o, t);
    return chain ? DANAUS_OK : add_orders(o, "", t);
}

/* Room for all tensors. */
static danaus_status make_room(const danaus_operator *o, tensors *t)
{
    size_t room = (size_t)(o->count + danaus_operator_terms(o) + 1);
    for (int i = 0; i < o->count; i++)
        room += (size_t)danaus_chain_count(o->chains[i]);
    t->at = dn_calloc(room, sizeof *t->at);
    t->names = dn_calloc(room, sizeof *t->names);
    return t->at && t->names ? DANAUS_OK : dn_fail_memory(room, "names of tensors");
}

danaus_status danaus_operator_save(const danaus_operator *made, const char *path)
{
    if (!made || !path)
        return dn_fail(DANAUS_ERR_ARGUMENT, "an operator and a path are needed");
    char cols[32];
    snprintf(cols, sizeof cols, "%" PRId64, danaus_operator_cols(made));
    const char *metadata[] = { DN_CHAIN_FORMAT_KEY, NULL, COLS, cols };
    tensors t = { 0 };
    danaus_status status = make_room(made, &t);
    if (status == DANAUS_OK)
        status = describe(made, &t, &metadata[1]);
    if (status == DANAUS_OK)
        status = danaus_file_write_safetensors(
            path, t.at, t.count + t.orders, metadata,
            dn_operator_is_chain(made) ? 1 : 2);
    for (int i = 0; i < t.orders; i++)
        dn_free((void *)t.at[t.count + i].data);
    dn_free(t.names);
    dn_free(t.at);
    return status;
}
