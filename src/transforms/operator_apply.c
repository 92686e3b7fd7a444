/* Products with operators, of arrays on the host: orders here, chains on a device. */
// SPDX-License-Identifier: Apache-2.0
#include "transforms/operator.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <string.h>

/* ---- arrays and orders ---- */

/* Number p of column s lies at p * next + s * across. */
typedef struct columns {
    char *at;
    int64_t next, across;
} columns;

typedef struct product {
    danaus_device *device;
    const danaus_operator *made;
    int adjoint;
    int64_t batch;
    size_t size;   /* of an element */
    columns v, u;  /* numbers before a step and behind it, batch last */
    void *dx, *dy; /* memory of the device for a chain */
} product;

static char *number_at(const product *p, columns c, int64_t place, int64_t column)
{
    return c.at + (size_t)(place * c.next + column * c.across) * p->size;
}

/* to[at] = from[place], for all columns; place -1 gives zeros. */
static void move(const product *p, columns to, int64_t at, columns from, int64_t place)
{
    if (to.across == 1 && (from.across == 1 || place < 0)) {
        size_t bytes = (size_t)p->batch * p->size;
        if (place < 0)
            memset(number_at(p, to, at, 0), 0, bytes);
        else
            memcpy(number_at(p, to, at, 0), number_at(p, from, place, 0), bytes);
        return;
    }
    for (int64_t s = 0; s < p->batch; s++)
        if (place < 0)
            memset(number_at(p, to, at, s), 0, p->size);
        else
            memcpy(number_at(p, to, at, s), number_at(p, from, place, s), p->size);
}

static void add(const product *p, columns to, int64_t at, columns from, int64_t place)
{
    danaus_dtype dtype = p->made->dtype;
    for (int64_t s = 0; s < p->batch; s++) {
        double sum[2], more[2];
        dn_load(dtype, number_at(p, to, at, s), 0, sum);
        dn_load(dtype, number_at(p, from, place, s), 0, more);
        sum[0] += more[0];
        sum[1] += more[1];
        dn_store(dtype, number_at(p, to, at, s), 0, sum);
    }
}

/* to = S_i from, or S_i^T from. */
static void reorder(const product *p, int i, columns from, columns to)
{
    const danaus_operator *o = p->made;
    const int64_t *order = o->orders[i];
    if (!p->adjoint) {
        for (int64_t at = 0; at < o->lengths[i]; at++)
            move(p, to, at, from, order[at]);
        return;
    }
    for (int64_t at = 0; at < o->sources[i]; at++)
        move(p, to, at, from, -1);
    for (int64_t at = 0; at < o->lengths[i]; at++)
        if (order[at] >= 0 && o->repeats[i])
            add(p, to, order[at], from, at);
        else if (order[at] >= 0)
            move(p, to, order[at], from, at);
}

/* ---- chains ---- */

static danaus_status multiply(
    const product *p, danaus_ks_plan *plan, const danaus_chain *chain, size_t in,
    size_t out)
{
    danaus_ks_weights *weights;
    TRY(danaus_ks_weights_create(plan, p->device, chain, &weights));
    danaus_status status = danaus_upload(p->device, p->dx, p->u.at, in);
    if (status == DANAUS_OK)
        status = danaus_ks_execute(plan, p->device, weights, p->batch, p->dx, p->dy);
    if (status == DANAUS_OK)
        status = danaus_device_sync(p->device);
    if (status == DANAUS_OK)
        status = danaus_download(p->device, p->v.at, p->dy, out);
    danaus_ks_weights_destroy(weights);
    return status;
}

/* v = (K_i + I) u, or its adjoint. */
static danaus_status run_chain(const product *p, int i)
{
    const danaus_chain *chain = p->made->chains[i];
    danaus_ks_desc desc = { .layout = DANAUS_BATCH_LAST,
                            .dtype = p->made->dtype,
                            .adjoint = p->adjoint,
                            .batch = p->batch,
                            .keep_factors = 1 };
    danaus_pattern patterns[DANAUS_MAX_FACTORS];
    int count = danaus_chain_count(chain);
    for (int l = 0; l < count; l++)
        patterns[l] = danaus_chain_pattern(chain, l);
    danaus_ks_plan *plan;
    TRY(danaus_ks_plan_create(p->device, patterns, count, &desc, &plan));
    size_t column = (size_t)p->batch * p->size,
           cols = (size_t)danaus_chain_cols(chain) * column,
           rows = (size_t)danaus_chain_rows(chain) * column,
           in = p->adjoint ? rows : cols, out = p->adjoint ? cols : rows;
    danaus_status status = multiply(p, plan, chain, in, out);
    memcpy(
        p->v.at + out, p->u.at + in, (size_t)dn_operator_passing(p->made, i) * column);
    danaus_ks_plan_destroy(plan);
    return status;
}

static danaus_status run(const product *p, columns x, columns y)
{
    int count = p->made->count;
    for (int step = 0; step < count; step++) {
        int i = p->adjoint ? step : count - 1 - step;
        reorder(p, p->adjoint ? i : i + 1, step ? p->v : x, p->u);
        TRY(run_chain(p, i));
    }
    reorder(p, p->adjoint ? count : 0, p->v, y);
    return DANAUS_OK;
}

/* Bytes for the longest array between two steps, or two factors. */
static danaus_status bytes_of(const product *p, size_t *bytes)
{
    int64_t most = 0, all;
    for (int i = 0; i <= p->made->count; i++) {
        most = MAX(most, MAX(p->made->lengths[i], p->made->sources[i]));
        for (int l = 0; l < danaus_chain_count(danaus_operator_chain(p->made, i)); l++)
            most =
                MAX(most, dn_pattern_rows(danaus_chain_pattern(p->made->chains[i], l)));
    }
    if (p->batch < 0 || dn_mul_overflows(most, p->batch, &all) ||
        dn_mul_overflows(all, (int64_t)p->size, &all))
        return dn_fail(DANAUS_ERR_SHAPE, "a batch of %" PRId64, p->batch);
    *bytes = (size_t)all;
    return DANAUS_OK;
}

danaus_status danaus_operator_apply(
    danaus_device *device, const danaus_operator *made, int adjoint,
    danaus_layout layout, int64_t batch, const void *x, void *y)
{
    if (!device || !made || (batch && (!x || !y)))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a device, an operator, x and y are needed");
    if (layout != DANAUS_BATCH_FIRST && layout != DANAUS_BATCH_LAST)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no layout", (int)layout);
    product p = { .device = device, .made = made, .adjoint = adjoint, .batch = batch };
    p.size = danaus_dtype_size(made->dtype);
    size_t bytes;
    TRY(bytes_of(&p, &bytes));
    if (!batch)
        return DANAUS_OK;
    int64_t in = adjoint ? made->lengths[0] : made->sources[made->count],
            out = adjoint ? made->sources[made->count] : made->lengths[0];
    int last = layout == DANAUS_BATCH_LAST;
    columns from = { (char *)x, last ? batch : 1, last ? 1 : in },
            to = { y, last ? batch : 1, last ? 1 : out };
    p.v = (columns){ dn_alloc(bytes), batch, 1 };
    p.u = (columns){ dn_alloc(bytes), batch, 1 };
    danaus_status status =
        p.v.at && p.u.at ? DANAUS_OK : dn_fail_memory(bytes, "numbers between orders");
    if (status == DANAUS_OK)
        status = danaus_alloc(device, bytes, &p.dx);
    if (status == DANAUS_OK)
        status = danaus_alloc(device, bytes, &p.dy);
    if (status == DANAUS_OK)
        status = run(&p, from, to);
    danaus_free(device, p.dx);
    danaus_free(device, p.dy);
    dn_free(p.v.at);
    dn_free(p.u.at);
    return status;
}

/* ---- the dense matrix ---- */

enum { PANEL = 32 }; /* columns of A that are made together */

/* to = K from of one factor, for a panel of f64 or c128. */
static void multiply_factor(
    const danaus_chain *chain, int l, int parts, const double *from, double *to)
{
    danaus_pattern p = danaus_chain_pattern(chain, l);
    const void *w = danaus_chain_weights_const(chain, l);
    int64_t width = PANEL * parts, at = 0;
    memset(to, 0, (size_t)(p.a * p.b * p.d * width) * sizeof *to);
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t k = 0; k < p.c; k++)
                for (int64_t j = 0; j < p.d; j++) {
                    const double *x = from + ((i * p.c + k) * p.d + j) * width;
                    double *y = to + ((i * p.b + r) * p.d + j) * width, z[2];
                    dn_load(danaus_chain_dtype(chain), w, at++, z);
                    for (int64_t s = 0; s < width; s += parts) {
                        y[s] += z[0] * x[s];
                        if (parts == 2) {
                            y[s] -= z[1] * x[s + 1];
                            y[s + 1] += z[0] * x[s + 1] + z[1] * x[s];
                        }
                    }
                }
}

/* v = (K_i + I) u; u is lost, and what passes by waits in dx. */
static void multiply_chain(product *p, int i, int parts)
{
    const danaus_chain *chain = p->made->chains[i];
    size_t column = PANEL * p->size,
           passing = (size_t)dn_operator_passing(p->made, i) * column;
    memcpy(p->dx, p->u.at + (size_t)danaus_chain_cols(chain) * column, passing);
    for (int l = danaus_chain_count(chain) - 1; l >= 0; l--) {
        multiply_factor(chain, l, parts, (double *)p->u.at, (double *)p->v.at);
        columns turned = p->u;
        p->u = p->v;
        p->v = turned;
    }
    columns turned = p->u;
    p->u = p->v;
    p->v = turned;
    memcpy(p->v.at + (size_t)danaus_chain_rows(chain) * column, p->dx, passing);
}

/* Columns first .. first + PANEL of A into v. */
static void make_panel(product *p, int64_t first, int parts)
{
    const danaus_operator *o = p->made;
    int64_t cols = o->sources[o->count];
    memset(p->v.at, 0, (size_t)(cols * PANEL) * p->size);
    for (int64_t s = 0; s < PANEL && first + s < cols; s++)
        *(double *)number_at(p, p->v, first + s, s) = 1;
    for (int i = o->count - 1; i >= 0; i--) {
        reorder(p, i + 1, p->v, p->u);
        multiply_chain(p, i, parts);
    }
    reorder(p, 0, p->v, p->u);
}

static void make_dense(product *p, int parts, void *dense)
{
    int64_t rows = danaus_operator_rows(p->made), cols = danaus_operator_cols(p->made);
    danaus_dtype wide = parts == 2 ? DANAUS_C128 : DANAUS_F64;
    for (int64_t first = 0; first < cols; first += PANEL) {
        make_panel(p, first, parts);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t s = 0; s < PANEL && first + s < cols; s++) {
                double value[2];
                dn_load(wide, number_at(p, p->u, r, s), 0, value);
                dn_store(p->made->dtype, dense, r * cols + first + s, value);
            }
    }
}

danaus_status danaus_operator_to_dense(const danaus_operator *made, void *dense)
{
    if (!made || !dense)
        return dn_fail(DANAUS_ERR_ARGUMENT, "an operator and a place for A are needed");
    int parts = dn_is_complex(made->dtype) ? 2 : 1;
    product p = { .made = made, .batch = PANEL };
    p.size = (size_t)parts * sizeof(double);
    size_t bytes;
    TRY(bytes_of(&p, &bytes));
    p.v = (columns){ dn_alloc(bytes), PANEL, 1 };
    p.u = (columns){ dn_alloc(bytes), PANEL, 1 };
    p.dx = dn_alloc(bytes);
    danaus_status status = DANAUS_OK;
    if (p.v.at && p.u.at && p.dx)
        make_dense(&p, parts, dense);
    else
        status = dn_fail_memory(bytes, "columns of a matrix");
    dn_free(p.v.at);
    dn_free(p.u.at);
    dn_free(p.dx);
    return status;
}
