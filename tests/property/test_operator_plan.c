/* Plans of operators on a device, against the matrices that they are: sums of terms, orders,
   both layouts, all types, adjoints, and the gradients of each.

   Bounds. Every number goes through at most so many roundings as `roundings` counts: the terms
   of each factor's sums, its weights and what is stored behind it; and the sums of terms,
   bias, repeats and columns. Each is relative to a sum of absolute values, which is that of
   the product of absolute matrices; numbers that are too small for the type are
   covered by the 1 that is added to each. */
// SPDX-License-Identifier: Apache-2.0
#include "support/test.h"

#include "device/backend.h"
#include "operator/operator_plan.h"
#include "support/device.h"
#include "support/operators.h"

#include <complex.h>
#undef complex
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PERMUTED  64  /* numbers at most */
#define MOST_ROWS 500 /* of the table */

static danaus_device *device;

static const danaus_dtype types[] = { DANAUS_F32,  DANAUS_F64, DANAUS_C64,
                                      DANAUS_C128, DANAUS_F16, DANAUS_BF16 };

/* ---- what is expected ---- */

/* A term whose weights are the moduli of another one's, and, of factor l of chain i unless
   i < 0, all zero but number `at`, which is 1. */
static danaus_operator *like(
    const danaus_operator *term, int moduli, int chain, int l, int64_t at)
{
    danaus_chain *chains[DANAUS_MAX_FACTORS];
    const int64_t *orders[DANAUS_MAX_FACTORS + 1];
    int64_t lengths[DANAUS_MAX_FACTORS + 1];
    int count = danaus_operator_count(term);
    for (int i = 0; i <= count; i++)
        orders[i] = danaus_operator_order(term, i, &lengths[i]);
    for (int i = 0; i < count; i++) {
        const danaus_chain *from = danaus_operator_chain(term, i);
        assert_ok(danaus_chain_convert(from, DANAUS_C128, &chains[i]));
        for (int f = 0; f < danaus_chain_count(from); f++) {
            danaus_pattern p = danaus_chain_pattern(from, f);
            number *w = danaus_chain_weights(chains[i], f);
            for (int64_t x = 0; x < p.a * p.b * p.c * p.d; x++) {
                w[x] = moduli ? cabs(w[x]) : w[x];
                if (i == chain && f == l)
                    w[x] = x == at;
            }
        }
    }
    danaus_operator *made;
    assert_ok(danaus_operator_create(
        chains, count, orders, lengths, danaus_operator_cols(term), &made));
    return made;
}

/* The sum of moduli. */
static matrix modulus_matrix(const danaus_operator *made)
{
    matrix sum = matrix_make(danaus_operator_rows(made), danaus_operator_cols(made));
    for (int i = 0; i < danaus_operator_terms(made); i++) {
        danaus_operator *term = like(danaus_operator_term(made, i), 1, -1, 0, 0);
        matrix more = operator_matrix(term);
        matrix_add(&sum, 1, more);
        matrix_free(&more);
        danaus_operator_destroy(term);
    }
    return sum;
}

static double roundings(const danaus_operator *made)
{
    double sum = 8;
    for (int i = 0; i < danaus_operator_count(made); i++) {
        const danaus_chain *chain = danaus_operator_chain(made, i);
        for (int l = 0; l < danaus_chain_count(chain); l++) {
            danaus_pattern p = danaus_chain_pattern(chain, l);
            sum += 2 * (double)(p.b + p.c) + 6;
        }
    }
    for (int i = 0; i < danaus_operator_terms(made); i++)
        for (int n = 0; n <= danaus_operator_count(danaus_operator_term(made, i));
             n++) {
            int64_t length;
            danaus_operator_order(danaus_operator_term(made, i), n, &length);
            sum += (double)length + 1;
        }
    return sum;
}

static matrix conjugated(matrix a)
{
    matrix t = matrix_transposed(a);
    for (int64_t x = 0; x < t.rows * t.cols; x++)
        t.at[x] = conj(t.at[x]);
    return t;
}

static void turn(matrix *a, int adjoint)
{
    if (!adjoint)
        return;
    matrix t = conjugated(*a);
    matrix_free(a);
    *a = t;
}

/* ---- arrays ---- */

/* Columns in a layout, where the device has them. */
typedef struct operand {
    array host;
    void *there;
    int64_t rows, batch;
    danaus_layout layout;
} operand;

static int64_t place(const operand *o, int64_t row, int64_t s)
{
    return o->layout == DANAUS_BATCH_LAST ? row * o->batch + s : s * o->rows + row;
}

static operand operand_of(
    rng *r, danaus_dtype dtype, danaus_layout layout, int64_t rows, int64_t batch)
{
    operand o = { .rows = rows, .batch = batch, .layout = layout };
    o.host = r ? array_random(r, dtype, rows * batch) : array_make(dtype, rows * batch);
    o.there = to_device(device, &o.host);
    return o;
}

static matrix values_of(const operand *o)
{
    matrix m = matrix_make(o->rows, o->batch);
    for (int64_t k = 0; k < o->rows; k++)
        for (int64_t s = 0; s < o->batch; s++) {
            value v = element_get(o->host.dtype, o->host.data, place(o, k, s));
            m.at[k * o->batch + s] = CMPLX(v.re, v.im);
        }
    return m;
}

static void take(operand *o)
{
    from_device(device, &o->host, o->there);
    array_expect_guards(&o->host);
}

static void drop(operand *o)
{
    from_device(device, &o->host, o->there);
    array_free(&o->host);
}

static void absolute(matrix *m, double more)
{
    for (int64_t x = 0; x < m->rows * m->cols; x++)
        m->at[x] = cabs(m->at[x]) + more;
}

/* ---- a case ---- */

typedef struct scene {
    rng r;
    danaus_dtype dtype; /* of the plan */
    danaus_operator *made;
    danaus_ks_desc desc;
    danaus_operator_plan *plan;
    int64_t takes, gives, batch;
    matrix a, size; /* what it multiplies by, and its moduli */
} scene;

static danaus_dtype other_type(danaus_dtype dtype)
{
    switch (dtype) {
    case DANAUS_F32: return DANAUS_F64;
    case DANAUS_C64: return DANAUS_C128;
    case DANAUS_C128: return DANAUS_C64;
    default: return DANAUS_F32;
    }
}

/* The matrix that is multiplied by, as weights are now. */
static void know_matrix(scene *c)
{
    c->a = operator_matrix(c->made);
    c->size = modulus_matrix(c->made);
    turn(&c->a, c->desc.adjoint);
    turn(&c->size, c->desc.adjoint);
}

static void forget_matrix(scene *c)
{
    matrix_free(&c->a);
    matrix_free(&c->size);
}

static scene open_scene(uint64_t seed, int gradients)
{
    scene c = { .r = { seed }, .dtype = types[seed % 6] };
    rng *r = &c.r;
    danaus_dtype own = rng_int(r, 0, 2) ? c.dtype : other_type(c.dtype);
    int64_t rows = rng_int(r, 1, 12), cols = rng_int(r, 1, 12);
    c.made = random_sum(r, own, rows, cols);
    c.desc = (danaus_ks_desc){ .dtype = own == c.dtype ? 0 : c.dtype,
                               .layout = (danaus_layout)rng_int(r, 0, 1),
                               .adjoint = (int)rng_int(r, 0, 1),
                               .keep_factors = (int)rng_int(r, 0, 1),
                               .gradients = gradients };
    int real = !precision_of(c.dtype).complex;
    if (!gradients && real && rng_int(r, 0, 1))
        c.desc.activation = DANAUS_RELU;
    c.takes = c.desc.adjoint ? rows : cols;
    c.gives = c.desc.adjoint ? cols : rows;
    c.batch = rng_int(r, 0, 3) ? rng_int(r, 1, 20) : rng_int(r, 150, 400);
    know_matrix(&c);
    assert_ok(danaus_operator_plan_create(device, c.made, &c.desc, &c.plan));
    return c;
}

static void close_scene(scene *c)
{
    danaus_operator_plan_destroy(c->plan);
    danaus_operator_destroy(c->made);
    forget_matrix(c);
}

static double unit_of(const scene *c)
{
    precision p = precision_of(c->dtype);
    return 2 * fmax(p.unit, p.sum_unit) + p.tiny;
}

static number bias_at(const scene *c, int64_t k)
{
    const void *bias = danaus_operator_bias(c->made);
    if (!bias || c->desc.adjoint)
        return 0;
    value v = element_get(danaus_operator_dtype(c->made), bias, k);
    return CMPLX(v.re, v.im);
}

/* Every number of `found` is within the bound of what a x is, for sizes of |a| and |x|. */
static void check_product(const scene *c, const operand *x, const operand *y)
{
    matrix v = values_of(x), found = values_of(y), exact = matrix_times(c->a, v);
    absolute(&v, 1);
    matrix most = matrix_times(c->size, v);
    double unit = roundings(c->made) * unit_of(c);
    for (int64_t k = 0; k < y->rows; k++)
        for (int64_t s = 0; s < y->batch; s++) {
            int64_t at = k * y->batch + s;
            number wanted = exact.at[at] + bias_at(c, k);
            if (c->desc.activation)
                wanted = fmax(creal(wanted), 0);
            double bound = unit * (creal(most.at[at]) + cabs(bias_at(c, k)) + 1);
            double error = cabs(found.at[at] - wanted);
            if (!(error <= bound))
                fail_msg(
                    "number %d of column %d: %g is more than %g", (int)k, (int)s, error,
                    bound);
        }
    matrix_free(&v);
    matrix_free(&found);
    matrix_free(&exact);
    matrix_free(&most);
}

/* Its product, and its end. */
static void run_scene(scene *c)
{
    operand x = operand_of(&c->r, c->dtype, c->desc.layout, c->takes, c->batch),
            y = operand_of(NULL, c->dtype, c->desc.layout, c->gives, c->batch);
    assert_ok(danaus_operator_execute(c->plan, device, c->batch, x.there, y.there));
    take(&y);
    check_product(c, &x, &y);
    drop(&x);
    array_free(&y.host);
    close_scene(c);
}

static void products_are_those_of_the_matrix(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (uint64_t)rounds_of(240); seed++) {
        scene c = open_scene(seed, 0);
        run_scene(&c);
    }
}

static danaus_operator *one_factor(rng *r, danaus_dtype dtype, danaus_pattern p)
{
    danaus_chain *chain = NULL;
    danaus_operator *made = NULL;
    assert_ok(danaus_chain_create(&p, 1, dtype, &chain));
    for (int64_t n = 0; n < p.a * p.b * p.c * p.d; n++)
        element_put(dtype, danaus_chain_weights(chain, 0), n, element_random(r, dtype));
    assert_ok(danaus_operator_create(&chain, 1, NULL, NULL, p.a * p.c * p.d, &made));
    return made;
}

/* Terms whose last steps are along lines, in vectors of lanes, some of which add to what is
   there. */
static void terms_of_whole_vectors_are_added(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (uint64_t)rounds_of(24); seed++) {
        scene c = {
            .r = { seed }, .dtype = types[seed % 2], .takes = 192, .gives = 192
        };
        danaus_operator *terms[] = {
            one_factor(&c.r, c.dtype, (danaus_pattern){ 2, 3, 3, 32 }),
            one_factor(&c.r, c.dtype, (danaus_pattern){ 1, 12, 12, 16 }),
        };
        c.desc.activation = seed % 4 / 2 ? DANAUS_RELU : DANAUS_ACTIVATION_NONE;
        c.batch = rng_int(&c.r, 1, 12);
        assert_ok(danaus_operator_add(terms, 2, &c.made));
        know_matrix(&c);
        assert_ok(danaus_operator_plan_create(device, c.made, &c.desc, &c.plan));
        operand x = operand_of(&c.r, c.dtype, c.desc.layout, 192, c.batch),
                y = operand_of(NULL, c.dtype, c.desc.layout, 192, c.batch);
        assert_ok(danaus_operator_execute(c.plan, device, c.batch, x.there, y.there));
        take(&y);
        check_product(&c, &x, &y);
        drop(&x);
        array_free(&y.host);
        close_scene(&c);
    }
}

static void fill_permutation(rng *r, int64_t count, int64_t *order)
{
    for (int64_t i = 0; i < count; i++)
        order[i] = i;
    for (int64_t i = 0; i < count; i++) {
        int64_t other = rng_int(r, i, count - 1), at = order[i];
        order[i] = order[other];
        order[other] = at;
    }
}

/* One factor between two permutations. */
static danaus_operator *permuted_factor(rng *r, danaus_dtype dtype, danaus_pattern p)
{
    danaus_operator *factor = one_factor(r, dtype, p), *made = NULL;
    danaus_chain *chain = NULL;
    int64_t to[PERMUTED], from[PERMUTED];
    const int64_t *orders[] = { to, from };
    const int64_t lengths[] = { p.a * p.b * p.d, p.a * p.c * p.d };
    assert_ok(danaus_chain_convert(danaus_operator_chain(factor, 0), dtype, &chain));
    fill_permutation(r, lengths[0], to);
    fill_permutation(r, lengths[1], from);
    assert_ok(danaus_operator_create(&chain, 1, orders, lengths, lengths[1], &made));
    danaus_operator_destroy(factor);
    return made;
}

/* By a table of one row, which by its estimates need not do both orders itself; whether it
   does. */
static int check_row_with_orders(const kernel *k, danaus_pattern p, uint64_t seed)
{
    scene c = { .r = { seed },
                .dtype = k->dtype,
                .takes = p.a * p.c * p.d,
                .gives = p.a * p.b * p.d };
    c.made = permuted_factor(&c.r, c.dtype, p);
    c.desc.layout = DANAUS_BATCH_LAST;
    c.batch = seed % 2 ? 200 : rng_int(&c.r, 1, 90);
    know_matrix(&c);
    device->kernels = k;
    assert_ok(danaus_operator_plan_create(device, c.made, &c.desc, &c.plan));
    int both = c.plan->stage[0].orders == (DN_READS | DN_WRITES);
    run_scene(&c);
    return both;
}

/* Each that can, alone; on an emulated GPU, where each is compiled, some. What was compiled
   is found again by the address of a row, so that each has a place of its own. */
static void rows_between_permutations_are_those_of_the_matrix(void **state)
{
    (void)state;
    static kernel tables[MOST_ROWS][2];
    int turn_of_row = 0, both = 0, share = (int)fmin(share_of_cases(), 13);
    const kernel *all = device->kernels;
    for (const kernel *k = all; k->name; k++) {
        danaus_pattern p = turn_of_row % 2 ? (danaus_pattern){ 1, 32, 24, 2 }
                                           : (danaus_pattern){ 2, 19, 21, 1 };
        problem asked = { .pattern = p,
                          .dtype = k->dtype,
                          .layout = DANAUS_BATCH_LAST,
                          .batch = 64,
                          .orders = DN_READS | DN_WRITES };
        if (!dn_fits(k, &asked) || turn_of_row++ % share)
            continue;
        assert_true(turn_of_row <= MOST_ROWS);
        tables[turn_of_row - 1][0] = *k;
        both +=
            check_row_with_orders(tables[turn_of_row - 1], p, (uint64_t)turn_of_row);
    }
    device->kernels = all;
    assert_true(both > 0 || !turn_of_row);
}

/* ---- gradients ---- */

/* sum over columns of conj(dy) (a x), and of moduli. */
static number meet(matrix a, matrix x, matrix dy)
{
    number sum = 0;
    matrix y = matrix_times(a, x);
    for (int64_t n = 0; n < y.rows * y.cols; n++)
        sum += conj(dy.at[n]) * y.at[n];
    matrix_free(&y);
    return sum;
}

/* The product is affine in one weight, or in its conjugate: its derivative is what a 1 there
   changes where the factor has no other number. */
static void check_weight(
    const scene *c, int term, int chain, int l, int64_t at, number found, matrix x,
    matrix dy)
{
    const danaus_operator *own = danaus_operator_term(c->made, term);
    danaus_operator *one = like(own, 0, chain, l, at),
                    *size = like(own, 1, chain, l, at);
    danaus_operator *none = like(own, 0, chain, l, -1);
    matrix a = operator_matrix(one), b = operator_matrix(none),
           most = operator_matrix(size);
    matrix_add(&a, -1, b);
    turn(&a, c->desc.adjoint);
    turn(&most, c->desc.adjoint);
    number wanted = meet(a, x, dy);
    wanted = c->desc.adjoint ? wanted : conj(wanted);
    matrix sx = matrix_copy(x), sy = matrix_copy(dy);
    absolute(&sx, 1);
    absolute(&sy, 1);
    double steps = 2 * roundings(c->made) + (double)c->batch;
    double bound = steps * unit_of(c) * (creal(meet(most, sx, sy)) + 1);
    if (!(cabs(found - wanted) <= bound))
        fail_msg(
            "weight %d of factor %d of chain %d of term %d: %g + %gi, not %g + %gi",
            (int)at, l, chain, term, creal(found), cimag(found), creal(wanted),
            cimag(wanted));
    matrix_free(&a);
    matrix_free(&b);
    matrix_free(&most);
    matrix_free(&sx);
    matrix_free(&sy);
    danaus_operator_destroy(one);
    danaus_operator_destroy(none);
    danaus_operator_destroy(size);
}

/* Arrays of all factors. */
typedef struct weights {
    int count;
    array host[DANAUS_MAX_FACTORS];
    void *there[DANAUS_MAX_FACTORS];
} weights;

static weights weights_for(const danaus_operator *made, danaus_dtype dtype)
{
    weights w = { 0 };
    for (int i = 0; i < danaus_operator_count(made); i++) {
        const danaus_chain *chain = danaus_operator_chain(made, i);
        for (int l = 0; l < danaus_chain_count(chain); l++, w.count++) {
            danaus_pattern p = danaus_chain_pattern(chain, l);
            w.host[w.count] = array_make(dtype, p.a * p.b * p.c * p.d);
            w.there[w.count] = to_device(device, &w.host[w.count]);
        }
    }
    return w;
}

static void check_weights(scene *c, weights *w, const operand *x, const operand *dy)
{
    matrix vx = values_of(x), vy = values_of(dy);
    int n = 0;
    for (int t = 0; t < danaus_operator_terms(c->made); t++) {
        const danaus_operator *term = danaus_operator_term(c->made, t);
        for (int i = 0; i < danaus_operator_count(term); i++)
            for (int l = 0; l < danaus_chain_count(danaus_operator_chain(term, i));
                 l++, n++) {
                from_device(device, &w->host[n], w->there[n]);
                array_expect_guards(&w->host[n]);
                int64_t at = rng_int(&c->r, 0, w->host[n].count - 1);
                value v = element_get(w->host[n].dtype, w->host[n].data, at);
                check_weight(c, t, i, l, at, CMPLX(v.re, v.im), vx, vy);
                array_free(&w->host[n]);
            }
    }
    matrix_free(&vx);
    matrix_free(&vy);
}

/* dx = W^H dy. */
static void check_back(scene *c, const operand *dy, const operand *dx)
{
    turn(&c->a, 1);
    turn(&c->size, 1);
    danaus_operator *made = c->made;
    int adjoint = c->desc.adjoint;
    c->desc.adjoint = 1; /* without a bias */
    check_product(c, dy, dx);
    c->made = made;
    c->desc.adjoint = adjoint;
}

static void check_bias(const scene *c, array *dbias, const operand *dy)
{
    matrix v = values_of(dy);
    for (int64_t k = 0; k < dy->rows; k++) {
        number sum = 0;
        double size = 0;
        for (int64_t s = 0; s < dy->batch; s++) {
            sum += v.at[k * dy->batch + s];
            size += cabs(v.at[k * dy->batch + s]);
        }
        value found = element_get(dbias->dtype, dbias->data, k);
        double error = cabs(CMPLX(found.re, found.im) - sum);
        assert_true(error <= ((double)dy->batch + 2) * unit_of(c) * (size + 1));
    }
    matrix_free(&v);
}

static void gradients_are_those_of_the_matrix(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (uint64_t)rounds_of(120); seed++) {
        scene c = open_scene(seed, 1);
        c.batch = rng_int(&c.r, 1, 20);
        danaus_layout layout = c.desc.layout;
        int rounded = (int)rng_int(&c.r, 0, 1), with_dx = (int)rng_int(&c.r, 0, 3) > 0,
            with_dw = (int)rng_int(&c.r, 0, 3) > 0;
        danaus_dtype sums = rounded ? c.dtype : sum_type(c.dtype);
        operand x = operand_of(&c.r, c.dtype, layout, c.takes, c.batch),
                dy = operand_of(&c.r, c.dtype, layout, c.gives, c.batch),
                dx = operand_of(NULL, c.dtype, layout, c.takes, c.batch);
        array dbias = array_make(sums, c.gives);
        void *dbias_there = bias_to_device(device, &dbias);
        weights w = weights_for(c.made, sums);
        danaus_ks_gradients g = { .dx = with_dx ? dx.there : NULL,
                                  .dw = with_dw ? w.there : NULL,
                                  .dbias = c.desc.adjoint ? NULL : dbias_there,
                                  .rounded = rounded };
        assert_ok(
            danaus_operator_gradient(c.plan, device, c.batch, x.there, dy.there, &g));
        take(&dx);
        bias_from_device(device, &dbias, dbias_there);
        if (!c.desc.adjoint)
            check_bias(&c, &dbias, &dy);
        if (with_dw)
            check_weights(&c, &w, &x, &dy);
        for (int n = 0; n < w.count && !with_dw; n++) {
            from_device(device, &w.host[n], w.there[n]);
            assert_true(array_untouched(&w.host[n]));
            array_free(&w.host[n]);
        }
        if (with_dx)
            check_back(&c, &dy, &dx);
        else
            assert_true(array_untouched(&dx.host));
        array_free(&dbias);
        array_free(&dx.host);
        drop(&x);
        drop(&dy);
        close_scene(&c);
    }
}

/* ---- packing again, threads, nothing to do ---- */

/* Devices multiply merged factors out in an order of their own. */
static int merges(const danaus_operator_plan *plan)
{
    char text[4096];
    danaus_operator_plan_describe(plan, text, sizeof text);
    return strstr(text, "merged") != NULL;
}

static void run_into(scene *c, danaus_operator_plan *plan, const operand *x, array *y)
{
    *y = array_make(c->dtype, c->gives * c->batch);
    void *there = to_device(device, y);
    assert_ok(danaus_operator_execute(plan, device, c->batch, x->there, there));
    from_device(device, y, there);
    array_expect_guards(y);
}

/* All weights of an operator where the device has them. */
static weights weights_of(const danaus_operator *made)
{
    danaus_dtype dtype = danaus_operator_dtype(made);
    weights w = { 0 };
    for (int i = 0; i < danaus_operator_count(made); i++) {
        const danaus_chain *chain = danaus_operator_chain(made, i);
        for (int l = 0; l < danaus_chain_count(chain); l++, w.count++) {
            danaus_pattern p = danaus_chain_pattern(chain, l);
            array *a = &w.host[w.count];
            *a = array_make(dtype, p.a * p.b * p.c * p.d);
            memcpy(
                a->data, danaus_chain_weights_const(chain, l),
                (size_t)a->count * danaus_dtype_size(dtype));
            w.there[w.count] = to_device(device, a);
        }
    }
    return w;
}

static void weights_are_packed_again(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (uint64_t)rounds_of(40); seed++) {
        scene c = open_scene(seed, 0);
        danaus_operator_plan *fresh;
        danaus_dtype own = danaus_operator_dtype(c.made);
        operand x = operand_of(&c.r, c.dtype, c.desc.layout, c.takes, c.batch);
        array first, again;
        array bias = array_random(&c.r, own, danaus_operator_rows(c.made));
        for (int i = 0; i < danaus_operator_count(c.made); i++) {
            danaus_chain *chain =
                (danaus_chain *)(uintptr_t)danaus_operator_chain(c.made, i);
            element_put(
                own, danaus_chain_weights(chain, 0), 0, element_random(&c.r, own));
        }
        assert_ok(danaus_operator_set_bias(c.made, bias.data));
        assert_ok(danaus_operator_plan_create(device, c.made, &c.desc, &fresh));
        run_into(&c, fresh, &x, &first);
        weights w = weights_of(c.made);
        void *there = bias_to_device(device, &bias);
        assert_ok(danaus_operator_plan_update(
            c.plan, device, own, (const void *const *)w.there, there));
        run_into(&c, c.plan, &x, &again);
        assert_true(merges(c.plan) || array_same(&first, &again));
        forget_matrix(&c);
        know_matrix(&c);
        operand y = { again, NULL, c.gives, c.batch, c.desc.layout };
        check_product(&c, &x, &y);
        for (int n = 0; n < w.count; n++) {
            from_device(device, &w.host[n], w.there[n]);
            array_free(&w.host[n]);
        }
        bias_from_device(device, &bias, there);
        array_free(&bias);
        array_free(&first);
        array_free(&again);
        danaus_operator_plan_destroy(fresh);
        drop(&x);
        close_scene(&c);
    }
}

static void threads_change_no_bit(void **state)
{
    (void)state;
    if (danaus_device_set_threads(device, 1) != DANAUS_OK) {
        print_message("%s\n", danaus_error_detail());
        skip();
    }
    for (uint64_t seed = 0; seed < (uint64_t)rounds_of(30); seed++) {
        scene c = open_scene(seed, 0);
        c.batch = rng_int(&c.r, 160, 300);
        operand x = operand_of(&c.r, c.dtype, c.desc.layout, c.takes, c.batch);
        array one, some;
        assert_ok(danaus_device_set_threads(device, 1));
        run_into(&c, c.plan, &x, &one);
        assert_ok(danaus_device_set_threads(device, 3));
        run_into(&c, c.plan, &x, &some);
        assert_true(array_same(&one, &some));
        array_free(&one);
        array_free(&some);
        drop(&x);
        close_scene(&c);
    }
    assert_ok(danaus_device_set_threads(device, 0));
}

static void an_empty_batch_clears_gradients(void **state)
{
    (void)state;
    scene c = open_scene(1, 1);
    weights w = weights_for(c.made, sum_type(c.dtype));
    danaus_ks_gradients g = { .dw = w.there };
    assert_ok(danaus_operator_execute(c.plan, device, 0, NULL, NULL));
    assert_ok(danaus_operator_gradient(c.plan, device, 0, NULL, NULL, &g));
    for (int n = 0; n < w.count; n++) {
        from_device(device, &w.host[n], w.there[n]);
        for (int64_t x = 0; x < w.host[n].count; x++)
            assert_true(element_get(w.host[n].dtype, w.host[n].data, x).re == 0);
        array_free(&w.host[n]);
    }
    close_scene(&c);
}

int main(int argc, char **argv)
{
    device = device_from_arguments(argc, argv);
    expect_device(device);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_those_of_the_matrix),
        cmocka_unit_test(terms_of_whole_vectors_are_added),
        cmocka_unit_test(rows_between_permutations_are_those_of_the_matrix),
        cmocka_unit_test(gradients_are_those_of_the_matrix),
        cmocka_unit_test(weights_are_packed_again),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(an_empty_batch_clears_gradients),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    danaus_device_close(device);
    return failed;
}
