/* Random chains; products and gradients of plans against the oracle. */
// SPDX-License-Identifier: Apache-2.0
#include "support/chains.h"

#include "support/device.h"
#include "support/test.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const danaus_dtype test_dtypes[TEST_DTYPES] = {
    DANAUS_F32, DANAUS_F16, DANAUS_BF16, DANAUS_F64, DANAUS_C64, DANAUS_C128,
};

/* A random divisor of n. */
static int64_t random_divisor(rng *r, int64_t n)
{
    int64_t d = rng_int(r, 1, n);
    while (n % d)
        d--;
    return d;
}

/* A random size at most `limit`, small ones as likely as large ones. */
static int64_t random_size(rng *r, int64_t limit)
{
    int64_t high = 1 + (int64_t)(rng_unit(r) * rng_unit(r) * (double)limit);
    return rng_int(r, 1, high < limit ? high : limit);
}

/* Each factor has the rows that its left neighbour needs. */
void random_patterns(rng *r, int count, int64_t limit, danaus_pattern *p)
{
    int64_t size = random_size(r, limit);
    for (int l = 0; l < count; l++) {
        int64_t a = random_divisor(r, size), d = random_divisor(r, size / a);
        int64_t c = random_size(r, limit / (a * d) + 1);
        p[l] = (danaus_pattern){ a, size / a / d, c, d };
        size = a * c * d;
    }
}

random_chain chain_random(
    rng *r, const danaus_pattern *p, int count, danaus_dtype dtype, int bias)
{
    random_chain c = { .count = count, .dtype = dtype };
    c.rows = rows_of(p[0]);
    c.cols = cols_of(p[count - 1]);
    assert_ok(danaus_chain_create(p, count, dtype, &c.chain));
    for (int l = 0; l < count; l++) {
        c.p[l] = p[l];
        c.w[l] = array_random(r, dtype, weights_of(p[l]));
        memcpy(
            danaus_chain_weights(c.chain, l), c.w[l].data,
            (size_t)c.w[l].count * danaus_dtype_size(dtype));
    }
    if (bias) {
        c.bias = array_random(r, dtype, c.rows);
        assert_ok(danaus_chain_set_bias(c.chain, c.bias.data));
    }
    return c;
}

void chain_free(random_chain *c)
{
    for (int l = 0; l < c->count; l++)
        array_free(&c->w[l]);
    array_free(&c->bias);
    danaus_chain_destroy(c->chain);
    *c = (random_chain){ 0 };
}

danaus_activation random_activation(rng *r, danaus_dtype dtype)
{
    int64_t number = rng_int(r, -4, DANAUS_GELU_TANH);
    return number < 0 || precision_of(dtype).complex ? DANAUS_ACTIVATION_NONE
                                                     : (danaus_activation)number;
}

int64_t inputs_of(const random_chain *c, int adjoint)
{
    return adjoint ? c->rows : c->cols;
}

int64_t outputs_of(const random_chain *c, int adjoint)
{
    return adjoint ? c->cols : c->rows;
}

/* What a product of this description has. */
static int64_t results_of(const random_chain *c, const danaus_ks_desc *desc)
{
    return outputs_of(c, desc->adjoint) / (desc->gated ? 2 : 1);
}

static danaus_dtype dtype_of(const danaus_ks_desc *desc)
{
    return desc->dtype ? desc->dtype : DANAUS_F32;
}

/* residual: NULL for plans without one; in_place: it is where y will be. */
static array multiply_and_add(
    danaus_device *device, const random_chain *c, const danaus_ks_desc *desc,
    int64_t batch, const array *x, const array *residual, int in_place)
{
    danaus_ks_plan *plan = NULL;
    danaus_ks_weights *weights = NULL;
    array y = array_make(dtype_of(desc), results_of(c, desc) * batch);
    if (in_place)
        memcpy(y.data, residual->data, (size_t)y.count * danaus_dtype_size(y.dtype));
    assert_ok(danaus_ks_plan_create(device, c->p, c->count, desc, &plan));
    assert_ok(danaus_ks_weights_create(plan, device, c->chain, &weights));
    void *dx = to_device(device, x), *dy = to_device(device, &y);
    void *apart = residual ? to_device(device, residual) : NULL;
    if (residual)
        assert_ok(danaus_ks_execute_residual(
            plan, device, weights, batch, dx, in_place ? dy : apart, dy));
    else
        assert_ok(danaus_ks_execute(plan, device, weights, batch, dx, dy));
    from_device(device, &y, dy);
    from_device(device, x, dx);
    if (residual)
        from_device(device, residual, apart);
    danaus_ks_weights_destroy(weights);
    danaus_ks_plan_destroy(plan);
    return y;
}

array multiply(
    danaus_device *device, const random_chain *c, const danaus_ks_desc *desc,
    int64_t batch, const array *x)
{
    return multiply_and_add(device, c, desc, batch, x, NULL, 0);
}

/* K_to+1 ... K_from x, going down from factor `from`; adjoint: K_to-1^H ... K_from^H x,
   going up. Every step may store in the type between factors, and so may weights that
   are of another type or multiplied out. */
static signal run_factors(
    const random_chain *c, int from, int to, int adjoint, const signal *x,
    danaus_dtype dtype)
{
    signal y = signal_copy(x);
    for (int l = from; l != to; l += adjoint ? 1 : -1) {
        signal next = signal_times(c->p[l], &c->w[l], adjoint, &y, dtype);
        if (c->dtype != dtype || c->count > 1)
            signal_round_weights(&next, c->p[l], adjoint, &y, type_between(dtype));
        signal_round(&next, type_between(dtype));
        signal_free(&y);
        y = next;
    }
    return y;
}

/* A library may add a bias that is not of the plan's type after rounding it to that. */
static void round_bias(signal *y, const array *bias, danaus_dtype dtype)
{
    double unit = bias->dtype == dtype ? 0 : precision_of(type_between(dtype)).unit;
    for (int64_t i = 0; i < y->size * y->batch; i++) {
        value v = element_get(bias->dtype, bias->data, i / y->batch);
        y->e[i] += unit * magnitude_of(v);
    }
}

static signal multiply_and_add_exactly(
    const random_chain *c, const danaus_ks_desc *desc, int64_t batch, const array *x,
    const array *residual)
{
    danaus_dtype dtype = dtype_of(desc);
    signal in = signal_read(x, desc->layout, inputs_of(c, desc->adjoint), batch);
    signal y = desc->adjoint ? run_factors(c, 0, c->count, 1, &in, dtype)
                             : run_factors(c, c->count - 1, -1, 0, &in, dtype);
    if (desc->scale != 0)
        signal_scale(&y, desc->scale, dtype);
    signal_free(&in);
    if (c->bias.count && !desc->adjoint) {
        signal_add_bias(&y, &c->bias, dtype);
        round_bias(&y, &c->bias, dtype);
    }
    if (desc->gated) {
        signal made = signal_gate(&y, desc->activation, dtype);
        signal_free(&y);
        return made;
    }
    if (desc->activation)
        signal_round(&y, type_between(dtype));
    signal_activate(&y, desc->activation, dtype);
    if (residual && !desc->activation)
        signal_begin_with(
            &y, residual, desc->layout, dtype, inputs_of(c, desc->adjoint));
    if (residual)
        signal_add_residual(&y, residual, desc->layout, dtype);
    signal_round(&y, dtype);
    return y;
}

signal multiply_exactly(
    const random_chain *c, const danaus_ks_desc *desc, int64_t batch, const array *x)
{
    return multiply_and_add_exactly(c, desc, batch, x, NULL);
}

const char *name_of_case(
    const random_chain *c, const danaus_ks_desc *desc, int64_t batch)
{
    static char text[1024];
    int used = snprintf(
        text, sizeof text, "%s %s%s%s%s activation %d scale %g%s%s batch %" PRId64 ":",
        danaus_dtype_name(dtype_of(desc)),
        desc->layout == DANAUS_BATCH_LAST ? "last" : "first",
        desc->adjoint ? " adjoint" : "", desc->keep_factors ? " keep" : "",
        c->bias.count ? " bias" : "", (int)desc->activation, desc->scale,
        desc->residual ? " residual" : "", desc->gated ? " gated" : "", batch);
    for (int l = 0; l < c->count && used < (int)sizeof text - 100; l++)
        used += snprintf(
            text + used, sizeof text - (size_t)used,
            " %" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64, c->p[l].a, c->p[l].b,
            c->p[l].c, c->p[l].d);
    return text;
}

void check_product(
    rng *r, danaus_device *device, const random_chain *c, const danaus_ks_desc *desc,
    int64_t batch)
{
    array x = array_random(r, dtype_of(desc), inputs_of(c, desc->adjoint) * batch);
    array residual = { 0 }, *added = desc->residual ? &residual : NULL;
    if (added)
        residual =
            array_random(r, dtype_of(desc), outputs_of(c, desc->adjoint) * batch);
    int in_place = added && rng_next(r) % 2;
    array y = multiply_and_add(device, c, desc, batch, &x, added, in_place);
    signal expected = multiply_and_add_exactly(c, desc, batch, &x, added);
    expect_signal(&y, desc->layout, &expected, name_of_case(c, desc, batch));
    signal_free(&expected);
    array_free(&x);
    array_free(&y);
    array_free(&residual);
}

gradients gradients_make(
    const random_chain *c, const danaus_ks_desc *desc, int64_t batch)
{
    danaus_dtype dtype = dtype_of(desc), sums = sum_type(dtype);
    gradients g = { .count = c->count };
    g.dx = array_make(dtype, inputs_of(c, desc->adjoint) * batch);
    for (int l = 0; l < c->count; l++)
        g.dw[l] = array_make(sums, weights_of(c->p[l]));
    if (!desc->adjoint)
        g.dbias = array_make(sums, c->rows);
    return g;
}

void gradients_free(gradients *g)
{
    for (int l = 0; l < g->count; l++)
        array_free(&g->dw[l]);
    array_free(&g->dx);
    array_free(&g->dbias);
}

void gradients_run(
    danaus_device *device, const random_chain *c, const danaus_ks_desc *desc,
    int64_t batch, const array *x, const array *dy, gradients *g)
{
    danaus_ks_plan *plan = NULL;
    danaus_ks_weights *weights = NULL;
    void *dw[DANAUS_MAX_FACTORS],
        *on[] = { to_device(device, x), to_device(device, dy) };
    for (int l = 0; l < c->count; l++)
        dw[l] = to_device(device, &g->dw[l]);
    danaus_ks_gradients wanted = { .dx = to_device(device, &g->dx),
                                   .dw = dw,
                                   .dbias = to_device(device, &g->dbias),
                                   .rounded = g->rounded };
    assert_ok(danaus_ks_plan_create(device, c->p, c->count, desc, &plan));
    assert_ok(danaus_ks_weights_create(plan, device, c->chain, &weights));
    assert_ok(danaus_ks_gradient(plan, device, weights, batch, on[0], on[1], &wanted));
    from_device(device, x, on[0]);
    from_device(device, dy, on[1]);
    from_device(device, &g->dx, wanted.dx);
    from_device(device, &g->dbias, wanted.dbias);
    for (int l = 0; l < c->count; l++)
        from_device(device, &g->dw[l], dw[l]);
    danaus_ks_weights_destroy(weights);
    danaus_ks_plan_destroy(plan);
}

/* dw of factor l from what enters it and what comes back to it. For y = K^H x the
   two change places: dw[r][k] = x[r] conj(dy[k]). */
static void check_dw(
    const random_chain *c, int l, const danaus_ks_desc *desc, const signal *x,
    const signal *dy, const gradients *g)
{
    danaus_dtype dtype = dtype_of(desc);
    signal in = desc->adjoint ? run_factors(c, 0, l, 1, x, dtype)
                              : run_factors(c, c->count - 1, l, 0, x, dtype);
    signal back = desc->adjoint ? run_factors(c, c->count - 1, l, 0, dy, dtype)
                                : run_factors(c, 0, l, 1, dy, dtype);
    signal dw = desc->adjoint ? signal_dw(c->p[l], &back, &in, dtype)
                              : signal_dw(c->p[l], &in, &back, dtype);
    signal_round(&dw, sum_type(dtype));
    char what[1100];
    snprintf(what, sizeof what, "dw %d, %s", l, name_of_case(c, desc, x->batch));
    expect_signal(&g->dw[l], DANAUS_BATCH_LAST, &dw, what);
    signal_free(&in);
    signal_free(&back);
    signal_free(&dw);
}

static void check_dx_dbias(
    const random_chain *c, const danaus_ks_desc *desc, const signal *dy,
    const gradients *g)
{
    danaus_dtype dtype = dtype_of(desc);
    signal dx = desc->adjoint ? run_factors(c, c->count - 1, -1, 0, dy, dtype)
                              : run_factors(c, 0, c->count, 1, dy, dtype);
    signal_round(&dx, dtype);
    char what[1100];
    snprintf(what, sizeof what, "dx, %s", name_of_case(c, desc, dy->batch));
    expect_signal(&g->dx, desc->layout, &dx, what);
    signal_free(&dx);
    if (desc->adjoint)
        return;
    signal dbias = signal_dbias(dy, dtype);
    signal_round(&dbias, sum_type(dtype));
    snprintf(what, sizeof what, "dbias, %s", name_of_case(c, desc, dy->batch));
    expect_signal(&g->dbias, DANAUS_BATCH_LAST, &dbias, what);
    signal_free(&dbias);
}

void check_gradients(
    rng *r, danaus_device *device, const random_chain *c, const danaus_ks_desc *desc,
    int64_t batch)
{
    danaus_dtype dtype = dtype_of(desc);
    array x = array_random(r, dtype, inputs_of(c, desc->adjoint) * batch);
    array dy = array_random(r, dtype, outputs_of(c, desc->adjoint) * batch);
    gradients g = gradients_make(c, desc, batch);
    gradients_run(device, c, desc, batch, &x, &dy, &g);
    signal in = signal_read(&x, desc->layout, inputs_of(c, desc->adjoint), batch);
    signal back = signal_read(&dy, desc->layout, outputs_of(c, desc->adjoint), batch);
    for (int l = 0; l < c->count; l++)
        check_dw(c, l, desc, &in, &back, &g);
    check_dx_dbias(c, desc, &back, &g);
    signal_free(&in);
    signal_free(&back);
    gradients_free(&g);
    array_free(&x);
    array_free(&dy);
}
