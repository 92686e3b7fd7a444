/* Plain loops over places of rows or planes and of filters, in complex f64. The bounds are those
   of support/conv.h and support/planes.c with magnitudes of complex numbers; a product of two
   complex numbers errs by at most 4 u, and there are three of them. */
// SPDX-License-Identifier: Apache-2.0
#include "support/complex_conv.h"

#include "support/planes.h"
#include "support/test.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static value plus(value a, value b) { return (value){ a.re + b.re, a.im + b.im }; }

static value conj_of(value a) { return (value){ a.re, -a.im }; }

static value product(value a, value b)
{
    return (value){ a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re };
}

static void add_product(value *sum, value a, value b)
{
    *sum = plus(*sum, product(a, b));
}

static value at(const array *a, int64_t index, double otherwise)
{
    return a->data ? element_get(a->dtype, a->data, index) : (value){ otherwise, 0 };
}

/* One filter, one row of its channel, and what becomes of them. */
typedef struct row {
    value *k, *k_reverse, *dk, *dk_reverse, *p, *dc, *c, *dp;
    value skip, dskip;
    double k1, p2, d2; /* norms */
    double pd, rest;   /* sums over rows of |dc| |p|, and of that times sqrt(numbers) */
} row;

static void read_filter(const conv_case *c, const conv_sizes *z, int64_t f, row *a)
{
    a->skip = at(&c->skip, f, 0);
    a->dskip = (value){ 0, 0 };
    a->k1 = magnitude_of(a->skip);
    a->pd = a->rest = 0;
    for (int64_t s = 0; s < z->taps; s++) {
        a->k[s] = at(&c->k, f * z->taps + s, 0);
        a->k_reverse[s] = at(&c->k_reverse, f * z->taps + s, 0);
        a->dk[s] = a->dk_reverse[s] = (value){ 0, 0 };
        a->k1 += magnitude_of(a->k[s]) + magnitude_of(a->k_reverse[s]);
    }
}

static double square(value a) { return a.re * a.re + a.im * a.im; }

static void read_row(
    const conv_case *c, const conv_sizes *z, int64_t number, const array *dy, row *a)
{
    a->p2 = a->d2 = 0;
    for (int64_t t = 0; t < z->numbers; t++) {
        int64_t i = number * z->numbers + t;
        a->p[t] = product(at(&c->u, i, 0), at(&c->gate_in, i, 1));
        a->dc[t] = product(at(dy, i, 0), conj_of(at(&c->gate_out, i, 1)));
        a->p2 += square(a->p[t]);
        a->d2 += square(a->dc[t]);
        a->c[t] = a->dp[t] = (value){ 0, 0 };
    }
    a->p2 = sqrt(a->p2);
    a->d2 = sqrt(a->d2);
    a->pd += a->p2 * a->d2;
    a->rest += a->p2 * a->d2 * sqrt((double)(z->height * (z->width + z->taps_width)));
}

/* What a tap does that meets number `from` at t, and its gradient. */
static void add_tap(int correlate, row *a, value k, int64_t t, int64_t from, value *dk)
{
    if (correlate) {
        add_product(&a->c[from], conj_of(k), a->p[t]);
        add_product(&a->dp[t], k, a->dc[from]);
        add_product(dk, a->p[t], conj_of(a->dc[from]));
    } else {
        add_product(&a->c[t], k, a->p[from]);
        add_product(&a->dp[from], conj_of(k), a->dc[t]);
        add_product(dk, a->dc[t], conj_of(a->p[from]));
    }
}

static void sum_row(const conv_case *c, const conv_sizes *z, row *a)
{
    int correlate = c->desc.correlate != 0;
    int both = c->desc.kind == DANAUS_BIDIRECTIONAL;
    for (int64_t t = 0; t < z->numbers; t++) {
        add_tap(correlate, a, a->skip, t, t, &a->dskip);
        for (int64_t s = 0; s < z->taps; s++) {
            int64_t from = conv_meets(c, z, t, s);
            int64_t behind = conv_number_at(c, z, 0, t + 1 + s); /* of rows */
            if (from >= 0)
                add_tap(correlate, a, a->k[s], t, from, &a->dk[s]);
            if (both && behind >= 0)
                add_tap(correlate, a, a->k_reverse[s], t, behind, &a->dk_reverse[s]);
        }
    }
}

static void put(complex_exact *x, conv_name name, int64_t i, value v, double e)
{
    if (x->v[name]) {
        x->v[name][i] = v;
        x->e[name][i] = e;
    }
}

static void put_row(
    const conv_case *c, const conv_sizes *z, int64_t number, const array *dy,
    const row *a, complex_exact *x)
{
    double t5 = conv_flat_error(c, z), u = 12 * precision_of(c->desc.dtype).sum_unit;
    double each = (3 * t5 + 2 * u) * a->k1;
    for (int64_t t = 0; t < z->numbers; t++) {
        int64_t i = number * z->numbers + t;
        value out = at(&c->gate_out, i, 1), in = at(&c->gate_in, i, 1);
        value v = at(&c->u, i, 0), d = at(dy, i, 0);
        put(x, CONV_Y, i, product(out, a->c[t]), magnitude_of(out) * each * a->p2);
        put(x, CONV_DGATE_OUT, i, product(d, conj_of(a->c[t])),
            magnitude_of(d) * each * a->p2);
        put(x, CONV_DU, i, product(conj_of(in), a->dp[t]),
            magnitude_of(in) * each * a->d2);
        put(x, CONV_DGATE_IN, i, product(conj_of(v), a->dp[t]),
            magnitude_of(v) * each * a->d2);
    }
}

static void put_filter(
    const conv_case *c, const conv_sizes *z, int64_t f, double rows, const row *a,
    complex_exact *x)
{
    double t5 = conv_flat_error(c, z), u = precision_of(c->desc.dtype).sum_unit;
    double error = (2 * t5 + (12 + rows) * u) * a->pd + t5 * a->rest;
    for (int64_t s = 0; s < z->taps; s++) {
        put(x, CONV_DK, f * z->taps + s, a->dk[s], error);
        put(x, CONV_DK_REVERSE, f * z->taps + s, a->dk_reverse[s], error);
    }
    put(x, CONV_DSKIP, f, a->dskip, error);
}

static void compute(const conv_case *c, const array *dy, complex_exact *x, row *a)
{
    conv_sizes z = conv_sizes_of(c);
    int64_t group = c->desc.channels / c->desc.filters;
    for (int64_t f = 0; f < c->desc.filters; f++) {
        read_filter(c, &z, f, a);
        for (int64_t i = 0; i < conv_rows(c); i++) {
            if (i % c->desc.channels / group != f)
                continue;
            read_row(c, &z, i, dy, a);
            sum_row(c, &z, a);
            put_row(c, &z, i, dy, a, x);
        }
        put_filter(c, &z, f, (double)(c->batch * group), a, x);
    }
}

complex_exact complex_exactly(const conv_case *c, const array *dy)
{
    const array *all[CONV_RESULTS] = { &c->u, &c->u,         &c->gate_in, &c->gate_out,
                                       &c->k, &c->k_reverse, &c->skip };
    complex_exact x = { 0 };
    conv_sizes z = conv_sizes_of(c);
    for (int n = 0; n < CONV_RESULTS; n++)
        if (all[n]->data) {
            x.v[n] = calloc((size_t)all[n]->count, sizeof **x.v);
            x.e[n] = calloc((size_t)all[n]->count, sizeof **x.e);
            assert_true(x.v[n] && x.e[n]);
        }
    value *memory = calloc((size_t)(4 * (z.numbers + z.taps)), sizeof *memory);
    assert_non_null(memory);
    row a = { .k = memory };
    value **parts[] = { &a.k_reverse, &a.dk, &a.dk_reverse, &a.p, &a.dc, &a.c, &a.dp };
    for (int i = 0; i < 7; i++)
        *parts[i] =
            memory + (i < 3 ? (i + 1) * z.taps : 4 * z.taps + (i - 3) * z.numbers);
    compute(c, dy, &x, &a);
    free(memory);
    return x;
}

void complex_exact_free(complex_exact *x)
{
    for (int n = 0; n < CONV_RESULTS; n++) {
        free(x->v[n]);
        free(x->e[n]);
    }
}

void complex_exact_expect(
    const conv_case *c, const conv_outcome *o, const complex_exact *x)
{
    static const char *const names[] = { "y",  "du",         "dgate_in", "dgate_out",
                                         "dk", "dk_reverse", "dskip" };
    const danaus_conv_desc *d = &c->desc;
    for (int n = 0; n < CONV_RESULTS; n++)
        for (int64_t i = 0; i < o->of[n].count; i++) {
            precision f = precision_of(o->of[n].dtype);
            value is = element_get(o->of[n].dtype, o->of[n].data, i), v = x->v[n][i];
            double off = hypot(is.re - v.re, is.im - v.im);
            double e =
                x->e[n][i] * (1 + f.unit) + f.unit * magnitude_of(v) + 2 * f.tiny;
            if (!(off <= e))
                fail_msg(
                    "kind %d, correlate %d, %s, %" PRId64 " x %" PRId64
                    " x %d x %" PRId64 ", %" PRId64 " filters of %d x %" PRId64
                    " around (%d, %d): %s[%" PRId64
                    "] is %.9g %+.9g i, not %.9g %+.9g i, by %.2g, not %.2g",
                    d->kind, d->correlate, danaus_dtype_name(d->dtype), c->batch,
                    d->channels, d->height, d->length, d->filters, d->filter_height,
                    d->filter_length, d->centre[0], d->centre[1], names[n], i, is.re,
                    is.im, v.re, v.im, off, e);
        }
}
