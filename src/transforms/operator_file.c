/* Files of operators, "danaus chain 2": factor.0, factor.1, ... as in a chain file, and
   order.l, places as f64, to the left of factor l; behind the last of L factors order.L. The
   orders say where one chain ends and the next begins. The metadata "danaus cols" is the
   number of inputs. */
// SPDX-License-Identifier: Apache-2.0
#include "transforms/operator.h"

#include "base/mem.h"
#include "base/status.h"
#include "ks/chain_file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORDER "order."
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

/* The factors from `from` to the next order, as a chain, and that order. */
static danaus_status read_chain(
    const danaus_file *file, const chain_view *view, int *from, parts *p)
{
    char name[32];
    int to = *from;
    do
        snprintf(name, sizeof name, ORDER "%d", ++to);
    while (to < view->count && !dn_has_tensor(file, name));
    TRY(danaus_patterns_check(view->patterns + *from, to - *from));
    TRY(dn_chain_of_view(view, *from, to, &p->chains[p->count]));
    p->count++;
    *from = to;
    if (!dn_has_tensor(file, name))
        return dn_fail(DANAUS_ERR_FORMAT, "%s is missing", name);
    return read_order(file, name, &p->orders[p->count], &p->lengths[p->count]);
}

static danaus_status read_parts(const danaus_file *file, parts *p)
{
    chain_view view = { 0 };
    TRY(dn_view_factors(file, &view));
    TRY(read_cols(file, &p->cols));
    TRY(read_order(file, ORDER "0", &p->orders[0], &p->lengths[0]));
    for (int from = 0; from < view.count;)
        TRY(read_chain(file, &view, &from, p));
    return DANAUS_OK;
}

static int is_operator(const danaus_file *file)
{
    const char *format = danaus_file_metadata(file, DN_CHAIN_FORMAT_KEY);
    return format && !strcmp(format, DN_OPERATOR_FORMAT);
}

/* A plain chain file. */
static danaus_status read_chain_file(const char *path, parts *p)
{
    TRY(danaus_chain_load(path, &p->chains[0]));
    p->count = 1;
    p->cols = danaus_chain_cols(p->chains[0]);
    return DANAUS_OK;
}

danaus_status danaus_operator_load(const char *path, danaus_operator **made)
{
    if (!path || !made)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a path and a place for the operator are needed");
    danaus_file *file;
    parts p = { 0 };
    TRY(danaus_file_open(path, &file));
    int ours = is_operator(file);
    danaus_status status = ours ? read_parts(file, &p) : DANAUS_OK;
    danaus_file_close(file);
    if (status == DANAUS_OK && !ours)
        status = read_chain_file(path, &p);
    if (status == DANAUS_OK)
        status = danaus_operator_create(
            p.chains, p.count, ours ? (const int64_t *const *)p.orders : NULL,
            p.lengths, p.cols, made);
    for (int i = 0; i <= p.count; i++) {
        dn_free(p.orders[i]);
        if (status != DANAUS_OK && i < p.count)
            danaus_chain_destroy(p.chains[i]);
    }
    return status == DANAUS_OK || !ours ? status : dn_fail_in(status, path);
}

/* ---- saving ---- */

/* Order i as places in f64. */
static danaus_status order_tensor(
    const danaus_operator *o, int i, int number, char *name, danaus_tensor *t)
{
    size_t bytes = (size_t)o->lengths[i] * sizeof(double);
    double *places = dn_alloc(bytes);
    if (!places)
        return dn_fail_memory(bytes, "an order");
    for (int64_t p = 0; p < o->lengths[i]; p++)
        places[p] = (double)o->orders[i][p];
    snprintf(name, 32, ORDER "%d", number);
    *t = (danaus_tensor){ .name = name,
                          .data = places,
                          .dtype = DANAUS_F64,
                          .ndim = 1,
                          .shape = { o->lengths[i] } };
    return DANAUS_OK;
}

typedef struct tensors {
    int factors, orders; /* the factors come first */
    danaus_tensor at[2 * DANAUS_MAX_FACTORS + 1];
    char names[2 * DANAUS_MAX_FACTORS + 1][32];
} tensors;

static danaus_status describe(const danaus_operator *o, tensors *t)
{
    for (int i = 0; i < o->count; i++)
        for (int l = 0; l < danaus_chain_count(o->chains[i]); l++, t->factors++)
            t->at[t->factors] =
                dn_factor_tensor(o->chains[i], l, t->factors, t->names[t->factors]);
    int number = 0;
    for (int i = 0; i <= o->count; i++) {
        int at = t->factors + t->orders;
        TRY(order_tensor(o, i, number, t->names[at], &t->at[at]));
        t->orders++;
        number += i < o->count ? danaus_chain_count(o->chains[i]) : 0;
    }
    return DANAUS_OK;
}

danaus_status danaus_operator_save(const danaus_operator *made, const char *path)
{
    if (!made || !path)
        return dn_fail(DANAUS_ERR_ARGUMENT, "an operator and a path are needed");
    if (made->count == 1 && dn_operator_natural(made, 0) &&
        dn_operator_natural(made, 1))
        return danaus_chain_save(made->chains[0], path);
    char cols[32];
    snprintf(cols, sizeof cols, "%" PRId64, danaus_operator_cols(made));
    const char *const metadata[] = { DN_CHAIN_FORMAT_KEY, DN_OPERATOR_FORMAT, COLS,
                                     cols };
    tensors *t = dn_calloc(1, sizeof *t);
    if (!t)
        return dn_fail_memory(sizeof *t, "names of tensors");
    danaus_status status = describe(made, t);
    if (status == DANAUS_OK)
        status = danaus_file_write_safetensors(
            path, t->at, t->factors + t->orders, metadata, 2);
    for (int i = 0; i < t->orders; i++)
        dn_free((void *)t->at[t->factors + i].data);
    dn_free(t);
    return status;
}
