/* Random packed sequences and their oracle. */
// SPDX-License-Identifier: Apache-2.0
#include "support/packed.h"

#include "support/device.h"
#include "support/test.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t columns_of(const packed_case *p) { return p->offsets[p->sequences]; }

packed_case packed_random(
    rng *r, const danaus_conv_desc *desc, int64_t sequences, const int64_t *lengths,
    int extras)
{
    packed_case p = { .sequences = sequences };
    danaus_conv_desc d = *desc;
    assert_in_range(sequences, 0, PACKED_MOST);
    for (int64_t i = 0; i < sequences; i++)
        p.offsets[i + 1] = p.offsets[i] + lengths[i];
    d.filter_length = d.filter_length ? d.filter_length : d.length;
    d.length = columns_of(&p);
    p.c = conv_random(r, &d, 1, extras);
    p.c.desc.length = desc->length;
    p.c.desc.packed = 1;
    p.dy = array_random(r, p.c.desc.dtype, p.c.u.count);
    return p;
}

void packed_free(packed_case *p)
{
    conv_free(&p->c);
    array_free(&p->dy);
}

/* ---- running ---- */

packed_plan packed_open(danaus_device *device, const packed_case *p)
{
    packed_plan made = { 0 };
    const conv_case *c = &p->c;
    assert_ok(danaus_conv_plan_create(device, &c->desc, &made.plan));
    assert_ok(danaus_spectrum_create(
        made.plan, device, c->k.data, c->k_reverse.data, c->skip.data, &made.spectrum));
    return made;
}

void packed_close(packed_plan *plan)
{
    danaus_spectrum_destroy(plan->spectrum);
    danaus_conv_plan_destroy(plan->plan);
}

#define OUTCOMES 7

static void outcomes_of(packed_outcome *o, array *to[OUTCOMES])
{
    array *all[OUTCOMES] = { &o->y,  &o->du,         &o->dgate_in, &o->dgate_out,
                             &o->dk, &o->dk_reverse, &o->dskip };
    memcpy(to, all, sizeof all);
}

packed_outcome packed_run(
    danaus_device *device, const packed_plan *plan, const packed_case *p)
{
    const conv_case *c = &p->c;
    const array *in[] = { &c->u, &c->gate_in, &c->gate_out, &p->dy };
    const array *like[OUTCOMES] = { &c->u, &c->u,         &c->gate_in, &c->gate_out,
                                    &c->k, &c->k_reverse, &c->skip };
    packed_outcome o = { 0 };
    array *out[OUTCOMES];
    void *from[4], *to[OUTCOMES];
    outcomes_of(&o, out);
    for (int i = 0; i < 4; i++)
        from[i] = to_device(device, in[i]);
    for (int i = 0; i < OUTCOMES; i++) {
        if (like[i]->data)
            *out[i] = array_make(like[i]->dtype, like[i]->count);
        to[i] = to_device(device, out[i]);
    }
    danaus_conv_gradients g = { to[1], to[2], to[3], to[4], to[5], to[6], { NULL } };
    assert_ok(danaus_conv_execute_packed(
        plan->plan, device, plan->spectrum, p->sequences, p->offsets, from[0], from[1],
        from[2], to[0]));
    danaus_status s = danaus_conv_gradient_packed(
        plan->plan, device, plan->spectrum, p->sequences, p->offsets, from[0], from[1],
        from[2], from[3], &g);
    assert_status(s, columns_of(p) ? DANAUS_OK : DANAUS_ERR_ARGUMENT);
    for (int i = 0; i < 4; i++)
        from_device(device, in[i], from[i]);
    for (int i = 0; i < OUTCOMES; i++) {
        from_device(device, out[i], to[i]);
        if (out[i]->data)
            array_expect_guards(out[i]);
    }
    return o;
}

void packed_outcome_free(packed_outcome *o)
{
    array *all[OUTCOMES];
    outcomes_of(o, all);
    for (int i = 0; i < OUTCOMES; i++)
        array_free(all[i]);
}

int packed_same(const packed_outcome *a, const packed_outcome *b)
{
    packed_outcome x = *a, y = *b;
    array *one[OUTCOMES], *two[OUTCOMES];
    int same = 1;
    outcomes_of(&x, one);
    outcomes_of(&y, two);
    for (int i = 0; i < OUTCOMES; i++)
        same &= array_same(one[i], two[i]);
    return same;
}

/* ---- the oracle ---- */

static double at(const array *a, int64_t index, double otherwise)
{
    return a->data ? element_get(a->dtype, a->data, index).re : otherwise;
}

/* One sequence of one channel: p, what reaches c, the product c without the gate behind it,
   and dp. */
typedef struct lane {
    int64_t first, length, filter; /* first: in the arrays */
    double *p, *dc, *c, *dp;
} lane;

static lane lane_of(const packed_case *p, int64_t sequence, int64_t channel)
{
    const conv_case *c = &p->c;
    lane l = { channel * columns_of(p) + p->offsets[sequence],
               p->offsets[sequence + 1] - p->offsets[sequence],
               channel / (c->desc.channels / c->desc.filters),
               NULL,
               NULL,
               NULL,
               NULL };
    size_t size = (size_t)l.length + 1;
    l.p = calloc(4 * size, sizeof *l.p);
    assert_non_null(l.p);
    l.dc = l.p + size, l.c = l.dc + size, l.dp = l.c + size;
    for (int64_t t = 0; t < l.length; t++) {
        l.p[t] = at(&c->u, l.first + t, 0) * at(&c->gate_in, l.first + t, 1);
        l.dc[t] = at(&p->dy, l.first + t, 0) * at(&c->gate_out, l.first + t, 1);
    }
    return l;
}

/* What filters have at a lag: positive ones in k, negative ones in k_reverse. */
static double tap(const packed_case *p, int64_t filter, int64_t lag)
{
    int64_t taps = p->c.desc.filter_length, s = lag < 0 ? -1 - lag : lag;
    double skip = lag ? 0 : at(&p->c.skip, filter, 0);
    if (s >= taps)
        return skip;
    return skip + at(lag < 0 ? &p->c.k_reverse : &p->c.k, filter * taps + s, 0);
}

static void convolve(const packed_case *p, lane *l)
{
    for (int64_t t = 0; t < l->length; t++)
        for (int64_t s = 0; s < l->length; s++) {
            l->c[t] += tap(p, l->filter, t - s) * l->p[s];
            l->dp[s] += tap(p, l->filter, t - s) * l->dc[t];
        }
}

static double norm(const double *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* Euclidean, and of absolute values, of all taps: a transform has those that a sequence
   does not meet, too. */
static void filter_norms(const packed_case *p, const lane *l, double *k2, double *k1)
{
    int64_t taps = p->c.desc.filter_length;
    *k1 = *k2 = 0;
    for (int64_t lag = -taps; lag < taps; lag++) {
        double k = tap(p, l->filter, lag);
        *k1 += fabs(k);
        *k2 += k * k;
    }
    *k2 = sqrt(*k2);
}

/* 5 u log2 n for the longest transform that may come. */
static double error_of_transform(const packed_case *p)
{
    const danaus_conv_desc *d = &p->c.desc;
    double n = 4 * (double)(d->length + d->filter_length) + 1024;
    return 5 * precision_of(d->dtype).sum_unit * log2(n);
}

static void expect_number(
    const packed_case *p, const char *what, const array *is, int64_t i, double should,
    double error)
{
    const danaus_conv_desc *d = &p->c.desc;
    precision f = precision_of(is->dtype);
    double found = element_get(is->dtype, is->data, i).re;
    error = error * (1 + f.unit) + f.unit * fabs(should) + f.tiny;
    if (!(fabs(found - should) <= error))
        fail_msg(
            "kind %d, %s, %" PRId64 " sequences of %" PRId64 " numbers, %" PRId64
            " taps: %s[%" PRId64 "] is %.9g, not %.9g +- %.2g",
            d->kind, danaus_dtype_name(d->dtype), p->sequences, columns_of(p),
            d->filter_length, what, i, found, should, error);
}

/* Numbers of a sequence: `product` times those of an array. */
static void expect_numbers(
    const packed_case *p, const char *what, const array *is, const lane *l,
    const double *product, const array *factor, double error)
{
    for (int64_t t = 0; is->data && t < l->length; t++) {
        double by = at(factor, l->first + t, 1);
        expect_number(p, what, is, l->first + t, by * product[t], fabs(by) * error);
    }
}

static void expect_lane(const packed_case *p, const packed_outcome *o, lane *l)
{
    const conv_case *c = &p->c;
    double k1, k2, t5 = error_of_transform(p);
    double u8 = 8 * precision_of(c->desc.dtype).sum_unit;
    convolve(p, l);
    filter_norms(p, l, &k2, &k1);
    double each = (2 * t5 + u8) * k2 + (t5 + u8) * k1;
    double forward = each * norm(l->p, l->length), back = each * norm(l->dc, l->length);
    expect_numbers(p, "y", &o->y, l, l->c, &c->gate_out, forward);
    expect_numbers(p, "dgate_out", &o->dgate_out, l, l->c, &p->dy, forward);
    expect_numbers(p, "du", &o->du, l, l->dp, &c->gate_in, back);
    expect_numbers(p, "dgate_in", &o->dgate_in, l, l->dp, &c->u, back);
}

/* Gradients of filters by lag, sums[filter][taps + lag], and the norms of what is summed. */
static void add_lane(const packed_case *p, const lane *l, double *sums, double *norms)
{
    int64_t taps = p->c.desc.filter_length;
    double *own = sums + l->filter * (2 * taps + 1) + taps;
    for (int64_t t = 0; t < l->length; t++)
        for (int64_t s = 0; s < l->length; s++)
            if (t - s < taps && s - t <= taps)
                own[t - s] += l->dc[t] * l->p[s];
    norms[l->filter] += norm(l->dc, l->length) * norm(l->p, l->length);
}

/* A sum over rows of products of two spectra errs by 2 t |dc| |p| and a rounding for each
   row, the way back by t times the sums of all lags, which are at most sqrt(length) times
   |dc| |p| together. */
static void expect_filters(
    const packed_case *p, const packed_outcome *o, const double *sums,
    const double *norms)
{
    int64_t taps = p->c.desc.filter_length, all = 2 * taps + 1;
    double t5 = error_of_transform(p), u = precision_of(p->c.desc.dtype).sum_unit;
    double each = 2 * t5 + t5 * sqrt((double)p->c.desc.length) +
                  u * (double)(8 + p->sequences * p->c.desc.channels);
    for (int64_t f = 0; f < p->c.desc.filters; f++) {
        const double *own = sums + f * all + taps;
        for (int64_t s = 0; s < taps; s++) {
            expect_number(p, "dk", &o->dk, f * taps + s, own[s], each * norms[f]);
            if (o->dk_reverse.data)
                expect_number(
                    p, "dk_reverse", &o->dk_reverse, f * taps + s, own[-1 - s],
                    each * norms[f]);
        }
        if (o->dskip.data)
            expect_number(p, "dskip", &o->dskip, f, own[0], each * norms[f]);
    }
}

void packed_expect(const packed_case *p, const packed_outcome *o)
{
    int64_t filters = p->c.desc.filters, all = 2 * p->c.desc.filter_length + 1;
    double *sums = calloc((size_t)(filters * all), sizeof *sums);
    double *norms = calloc((size_t)filters, sizeof *norms);
    assert_true(sums && norms);
    for (int64_t i = 0; i < p->sequences; i++)
        for (int64_t channel = 0; channel < p->c.desc.channels; channel++) {
            lane l = lane_of(p, i, channel);
            if (columns_of(p))
                expect_lane(p, o, &l);
            add_lane(p, &l, sums, norms);
            free(l.p);
        }
    if (columns_of(p))
        expect_filters(p, o, sums, norms);
    free(sums);
    free(norms);
}
