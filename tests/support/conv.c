/* Random convolutions and their oracle. */
// SPDX-License-Identifier: Apache-2.0
#include "support/conv.h"

#include "support/device.h"
#include "support/test.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t conv_rows(const conv_case *c) { return c->batch * c->desc.channels; }

conv_case conv_random(rng *r, const danaus_conv_desc *desc, int64_t batch, int extras)
{
    conv_case c = { .desc = *desc, .batch = batch };
    danaus_conv_desc *d = &c.desc;
    d->filter_length = d->filter_length ? d->filter_length : d->length;
    d->filters = d->filters ? d->filters : d->channels;
    d->dtype = d->dtype ? d->dtype : DANAUS_F32;
    d->accuracy = d->accuracy ? d->accuracy : DANAUS_CONV_ACCURATE;
    d->filter_height = d->filter_height ? d->filter_height : d->height;
    int64_t numbers = batch * d->channels * d->length * (d->height ? d->height : 1);
    int64_t taps = d->filter_length * (d->height ? d->filter_height : 1);
    danaus_dtype sums = sum_type(d->dtype);
    c.u = array_random(r, d->dtype, numbers);
    if (extras & 1)
        c.gate_in = array_random(r, d->dtype, numbers);
    if (extras & 2)
        c.gate_out = array_random(r, d->dtype, numbers);
    c.k = array_random(r, sums, d->filters * taps);
    if (d->kind == DANAUS_BIDIRECTIONAL)
        c.k_reverse = array_random(r, sums, d->filters * d->filter_length);
    if (extras & 4)
        c.skip = array_random(r, sums, d->filters);
    return c;
}

void conv_free(conv_case *c)
{
    array *all[] = { &c->u, &c->gate_in, &c->gate_out, &c->k, &c->k_reverse, &c->skip };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        array_free(all[i]);
}

/* Element `index` of an array, or `otherwise` where there is none. */
static double at(const array *a, int64_t index, double otherwise)
{
    return a->data ? element_get(a->dtype, a->data, index).re : otherwise;
}

/* Filter f by lag: g[lag + length] for -length < lag < length, with the skip; circular
   filters wrap. */
static double *lags(const conv_case *c, int64_t f)
{
    int64_t length = c->desc.length, taps = c->desc.filter_length;
    double *g = calloc((size_t)(2 * length + 1), sizeof *g);
    assert_non_null(g);
    for (int64_t s = 0; s < taps; s++) {
        if (c->desc.kind == DANAUS_CIRCULAR)
            g[length + s % length] += at(&c->k, f * taps + s, 0);
        else if (s < length)
            g[length + s] += at(&c->k, f * taps + s, 0);
        if (c->desc.kind == DANAUS_BIDIRECTIONAL && s + 1 < length)
            g[length - 1 - s] += at(&c->k_reverse, f * taps + s, 0);
    }
    g[length] += at(&c->skip, f, 0);
    return g;
}

static double convolve(const conv_case *c, const double *g, const double *p, int64_t t)
{
    int64_t length = c->desc.length, taps = c->desc.filter_length;
    int64_t most = taps < length ? taps : length;
    double sum = 0;
    for (int64_t lag = -most; lag < most; lag++) {
        int64_t s = t - lag;
        if (c->desc.kind == DANAUS_CIRCULAR)
            s = (s + length) % length;
        if (s >= 0 && s < length)
            sum += g[length + lag] * p[s];
    }
    return sum;
}

static void direct_row(const conv_case *c, int64_t row, double *y, double *e)
{
    int64_t length = c->desc.length, channel = row % c->desc.channels;
    double *g = lags(c, channel / (c->desc.channels / c->desc.filters));
    double *p = malloc((size_t)length * sizeof *p);
    assert_non_null(p);
    double p2 = 0, k2 = 0, k1 = 0;
    for (int64_t t = 0; t < length; t++) {
        p[t] = at(&c->u, row * length + t, 0) * at(&c->gate_in, row * length + t, 1);
        p2 += p[t] * p[t];
    }
    for (int64_t i = 0; i <= 2 * length; i++) {
        k1 += fabs(g[i]);
        k2 += g[i] * g[i];
    }
    precision f = precision_of(c->desc.dtype);
    double n = 4 * (double)(length + c->desc.filter_length) + 1024;
    double t5 = 5 * f.sum_unit * log2(n), u8 = 8 * f.sum_unit;
    double bound = sqrt(p2) * ((2 * t5 + u8) * sqrt(k2) + (t5 + u8) * k1);
    for (int64_t t = 0; t < length; t++) {
        double gate = at(&c->gate_out, row * length + t, 1);
        y[t] = gate * convolve(c, g, p, t);
        e[t] = fabs(gate) * bound * (1 + f.unit) + f.unit * fabs(y[t]) + f.tiny;
    }
    free(g);
    free(p);
}

conv_result conv_direct(const conv_case *c)
{
    int64_t rows = conv_rows(c), length = c->desc.length;
    size_t bytes = (size_t)(rows * length) * sizeof(double);
    conv_result r = { rows * length, malloc(bytes), malloc(bytes) };
    assert_true(r.y && r.e);
    for (int64_t row = 0; row < rows; row++)
        direct_row(c, row, r.y + row * length, r.e + row * length);
    return r;
}

void conv_result_free(conv_result *r)
{
    free(r->y);
    free(r->e);
    *r = (conv_result){ 0 };
}

void conv_need(danaus_device *device)
{
    danaus_conv_desc desc = { .channels = 1, .length = 1 };
    danaus_conv_plan *plan = NULL;
    danaus_status status = danaus_conv_plan_create(device, &desc, &plan);
    danaus_conv_plan_destroy(plan);
    if (status == DANAUS_ERR_UNSUPPORTED) {
        print_message("%s\n", danaus_error_detail());
        exit(77);
    }
}

void conv_outcome_free(conv_outcome *o)
{
    for (int i = 0; i < CONV_RESULTS; i++)
        array_free(&o->of[i]);
}

int conv_outcome_same(const conv_outcome *a, const conv_outcome *b)
{
    int same = 1;
    for (int i = 0; i < CONV_RESULTS; i++)
        same &= array_same(&a->of[i], &b->of[i]);
    return same;
}

static array like(const array *a)
{
    return a->data ? array_make(a->dtype, a->count) : (array){ 0 };
}

static conv_outcome outcome_make(const conv_case *c, int gradients)
{
    const array *all[CONV_RESULTS] = { &c->u, &c->u,         &c->gate_in, &c->gate_out,
                                       &c->k, &c->k_reverse, &c->skip };
    conv_outcome o = { { { 0 } } };
    for (int i = 0; i < (gradients ? CONV_RESULTS : 1); i++)
        o.of[i] = like(all[i]);
    return o;
}

static void make_results(conv_scene *s)
{
    s->made = outcome_make(s->c, s->dy != NULL);
    for (int i = 0; i < CONV_RESULTS; i++)
        s->to[i] = to_device(s->device, &s->made.of[i]);
}

static void end_results(conv_scene *s)
{
    for (int i = 0; i < CONV_RESULTS; i++)
        from_device(s->device, &s->made.of[i], s->to[i]);
    conv_outcome_free(&s->made);
}

conv_scene conv_scene_make(danaus_device *device, const conv_case *c, const array *dy)
{
    conv_scene s = { .device = device, .c = c, .dy = dy };
    assert_ok(danaus_conv_plan_create(device, &c->desc, &s.plan));
    assert_ok(danaus_spectrum_create(
        s.plan, device, c->k.data, c->k_reverse.data, c->skip.data, &s.spectrum));
    s.u = to_device(device, &c->u);
    s.gate_in = to_device(device, &c->gate_in);
    s.gate_out = to_device(device, &c->gate_out);
    s.on_dy = dy ? to_device(device, dy) : NULL;
    make_results(&s);
    return s;
}

conv_scene conv_scene_like(const conv_scene *s)
{
    conv_scene other = *s;
    other.is_like = 1;
    make_results(&other);
    return other;
}

danaus_status conv_scene_run(const conv_scene *s, danaus_device *device)
{
    return danaus_conv_execute(
        s->plan, device, s->spectrum, s->c->batch, s->u, s->gate_in, s->gate_out,
        s->to[CONV_Y]);
}

danaus_status conv_scene_go_back(const conv_scene *s, danaus_device *device)
{
    danaus_conv_gradients g = {
        s->to[CONV_DU], s->to[CONV_DGATE_IN],   s->to[CONV_DGATE_OUT],
        s->to[CONV_DK], s->to[CONV_DK_REVERSE], s->to[CONV_DSKIP],
        { NULL },
    };
    return danaus_conv_gradient(
        s->plan, device, s->spectrum, s->c->batch, s->u, s->gate_in, s->gate_out,
        s->on_dy, &g);
}

void conv_scene_forget(conv_scene *s)
{
    end_results(s);
    make_results(s);
}

conv_outcome conv_scene_results(const conv_scene *s)
{
    conv_outcome o = { { { 0 } } };
    assert_ok(danaus_device_sync(s->device));
    for (int i = 0; i < CONV_RESULTS; i++) {
        const array *made = &s->made.of[i];
        copy_from_device(s->device, made, s->to[i]);
        if (!made->data)
            continue;
        array_expect_guards(made);
        o.of[i] = like(made);
        memcpy(
            o.of[i].data, made->data,
            (size_t)made->count * danaus_dtype_size(made->dtype));
    }
    return o;
}

void conv_scene_end(conv_scene *s)
{
    const conv_case *c = s->c;
    end_results(s);
    if (s->is_like)
        return;
    from_device(s->device, &c->u, s->u);
    from_device(s->device, &c->gate_in, s->gate_in);
    from_device(s->device, &c->gate_out, s->gate_out);
    if (s->dy)
        from_device(s->device, s->dy, s->on_dy);
    danaus_spectrum_destroy(s->spectrum);
    danaus_conv_plan_destroy(s->plan);
}

/* y alone without dy. */
static conv_outcome run_once(danaus_device *device, const conv_case *c, const array *dy)
{
    conv_scene s = conv_scene_make(device, c, dy);
    assert_ok(conv_scene_run(&s, device));
    if (dy)
        assert_ok(conv_scene_go_back(&s, device));
    conv_outcome o = conv_scene_results(&s);
    conv_scene_end(&s);
    return o;
}

array conv_run(danaus_device *device, const conv_case *c)
{
    return run_once(device, c, NULL).of[CONV_Y];
}

conv_outcome conv_compute(danaus_device *device, const conv_case *c, const array *dy)
{
    return run_once(device, c, dy);
}

void conv_expect(const conv_case *c, const array *y, const conv_result *expected)
{
    const danaus_conv_desc *d = &c->desc;
    for (int64_t i = 0; i < expected->count; i++) {
        double is = element_get(y->dtype, y->data, i).re, should = expected->y[i];
        if (!(fabs(is - should) <= expected->e[i]))
            fail_msg(
                "kind %d, %s, %" PRId64 " x %" PRId64 " x %" PRId64 ", %" PRId64
                " filters of %" PRId64 ": y[%" PRId64 "][%" PRId64
                "] is %.9g, not %.9g +- %.2g",
                d->kind, danaus_dtype_name(d->dtype), c->batch, d->channels, d->length,
                d->filters, d->filter_length, i / d->length, i % d->length, is, should,
                expected->e[i]);
    }
}
