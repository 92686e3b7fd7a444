/* A single product with an operator, whose plan is made for it and released after it; and the
   operator's dense matrix. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/operator.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <string.h>

/* ---- one product ---- */

static danaus_status apply(
    danaus_device *device, danaus_operator_plan *plan, int64_t batch, size_t in,
    size_t out, const void *x, void *y)
{
    void *dx = NULL, *dy = NULL;
    danaus_status status = danaus_alloc(device, in, &dx);
    if (status == DANAUS_OK)
        status = danaus_alloc(device, out, &dy);
    if (status == DANAUS_OK)
        status = danaus_upload(device, dx, x, in);
    if (status == DANAUS_OK)
        status = danaus_operator_execute(plan, device, batch, dx, dy);
    if (status == DANAUS_OK)
        status = danaus_device_sync(device);
    if (status == DANAUS_OK)
        status = danaus_download(device, y, dy, out);
    danaus_free(device, dx);
    danaus_free(device, dy);
    return status;
}

danaus_status danaus_operator_apply(
    danaus_device *device, const danaus_operator *made, int adjoint,
    danaus_layout layout, int64_t batch, const void *x, void *y)
{
    if (!device || !made || (batch && (!x || !y)))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a device, an operator, x and y are needed");
    int64_t rows = danaus_operator_rows(made), cols = danaus_operator_cols(made),
            size = dn_size_of(made->dtype), n;
    if (batch < 0 || dn_mul_overflows(MAX(rows, cols), batch, &n) ||
        dn_mul_overflows(n, size, &n))
        return dn_fail(DANAUS_ERR_SHAPE, "a batch of %" PRId64, batch);
    danaus_ks_desc desc = {
        .layout = layout, .adjoint = adjoint, .batch = batch, .keep_factors = 1
    };
    danaus_operator_plan *plan;
    TRY(danaus_operator_plan_create(device, made, &desc, &plan));
    size_t in = (size_t)((adjoint ? rows : cols) * batch * size),
           out = (size_t)((adjoint ? cols : rows) * batch * size);
    danaus_status status = apply(device, plan, batch, in, out, x, y);
    danaus_operator_plan_destroy(plan);
    return status;
}

/* ---- the dense matrix ---- */

enum { PANEL = 32 }; /* columns of A that are made together */

/* Panels of columns in f64 or c128, row after row: the inputs of a step, its outputs, the
   numbers that pass by, and the sum of terms. */
typedef struct panels {
    int64_t width; /* doubles in a row */
    double *v, *u, *aside, *sum;
} panels;

/* u = S_i v. */
static void reorder(const danaus_operator *o, int i, panels *p)
{
    size_t row = (size_t)p->width * sizeof(double);
    for (int64_t at = 0; at < o->lengths[i]; at++) {
        int64_t place = o->orders[i][at];
        double *to = p->u + at * p->width;
        if (place < 0)
            memset(to, 0, row);
        else
            memcpy(to, p->v + place * p->width, row);
    }
}

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

static void exchange(panels *p)
{
    double *u = p->u;
    p->u = p->v;
    p->v = u;
}

/* v = (K_i + I) u; u is lost. */
static void multiply_chain(const danaus_operator *o, int i, panels *p)
{
    const danaus_chain *chain = o->chains[i];
    int64_t width = p->width, passing = dn_operator_passing(o, i) * width;
    size_t bytes = (size_t)passing * sizeof(double);
    int parts = (int)(width / PANEL);
    memcpy(p->aside, p->u + danaus_chain_cols(chain) * width, bytes);
    for (int l = danaus_chain_count(chain) - 1; l >= 0; l--) {
        multiply_factor(chain, l, parts, p->u, p->v);
        exchange(p);
    }
    exchange(p);
    memcpy(p->v + danaus_chain_rows(chain) * width, p->aside, bytes);
}

/* sum += columns first .. first + PANEL of a term. */
static void add_term(const danaus_operator *o, int64_t first, panels *p)
{
    int64_t cols = danaus_operator_cols(o), parts = p->width / PANEL;
    memset(p->v, 0, (size_t)(cols * p->width) * sizeof(double));
    for (int64_t s = 0; s < PANEL && first + s < cols; s++)
        p->v[(first + s) * p->width + s * parts] = 1;
    for (int i = o->count - 1; i >= 0; i--) {
        reorder(o, i + 1, p);
        multiply_chain(o, i, p);
    }
    reorder(o, 0, p);
    for (int64_t x = 0; x < danaus_operator_rows(o) * p->width; x++)
        p->sum[x] += p->u[x];
}

static void make_dense(const danaus_operator *o, panels *p, void *dense)
{
    int64_t rows = danaus_operator_rows(o), cols = danaus_operator_cols(o);
    danaus_dtype wide = dn_is_complex(o->dtype) ? DANAUS_C128 : DANAUS_F64;
    for (int64_t first = 0; first < cols; first += PANEL) {
        memset(p->sum, 0, (size_t)(rows * p->width) * sizeof(double));
        for (int i = 0; i < danaus_operator_terms(o); i++)
            add_term(danaus_operator_term(o, i), first, p);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t s = 0; s < PANEL && first + s < cols; s++) {
                double value[2];
                dn_load(wide, p->sum, r * PANEL + s, value);
                dn_store(o->dtype, dense, r * cols + first + s, value);
            }
    }
}

/* Bytes for the longest array between two steps, or two factors. */
static danaus_status panel_bytes(const danaus_operator *o, int64_t width, size_t *bytes)
{
    int64_t most = 0, all;
    for (int t = 0; t < danaus_operator_terms(o); t++) {
        const danaus_operator *term = danaus_operator_term(o, t);
        for (int i = 0; i <= term->count; i++)
            most = MAX(most, MAX(term->lengths[i], term->sources[i]));
    }
    for (int i = 0; i < o->count; i++)
        for (int l = 0; l < danaus_chain_count(o->chains[i]); l++)
            most = MAX(most, dn_pattern_rows(danaus_chain_pattern(o->chains[i], l)));
    if (dn_mul_overflows(most, width * (int64_t)sizeof(double), &all))
        return dn_fail(DANAUS_ERR_SHAPE, "columns of %" PRId64 " numbers", most);
    *bytes = (size_t)all;
    return DANAUS_OK;
}

danaus_status danaus_operator_to_dense(const danaus_operator *made, void *dense)
{
    if (!made || !dense)
        return dn_fail(DANAUS_ERR_ARGUMENT, "an operator and a place for A are needed");
    panels p = { .width = PANEL * (dn_is_complex(made->dtype) ? 2 : 1) };
    size_t bytes = 0;
    TRY(panel_bytes(made, p.width, &bytes));
    p.v = dn_alloc(bytes);
    p.u = dn_alloc(bytes);
    p.aside = dn_alloc(bytes);
    p.sum = dn_alloc(bytes);
    danaus_status status = DANAUS_OK;
    if (p.v && p.u && p.aside && p.sum)
        make_dense(made, &p, dense);
    else
        status = dn_fail_memory(bytes, "columns of a matrix");
    dn_free(p.sum);
    dn_free(p.aside);
    dn_free(p.v);
    dn_free(p.u);
    return status;
}
