/* Plain loops over places of planes and of filters. */
// SPDX-License-Identifier: Apache-2.0
#include "support/planes.h"

#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int conv_has_planes(const danaus_conv_desc *desc)
{
    return desc->height || desc->kind == DANAUS_CENTRED || desc->centre[1];
}

void conv_make_planes(rng *r, danaus_conv_desc *desc, int64_t most)
{
    int64_t rows = 1;
    if (rng_int(r, 0, 3)) {
        desc->height = (int32_t)rng_int(r, 1, most);
        rows = rng_int(r, 0, 2 * desc->height);
        desc->filter_height = (int32_t)rows;
        rows = rows ? rows : desc->height;
    }
    desc->kind = rng_int(r, 0, 1) ? DANAUS_CIRCULAR : DANAUS_CENTRED;
    desc->centre[0] = (int32_t)rng_int(r, 0, rng_int(r, 0, 3) ? rows - 1 : 0);
    desc->centre[1] =
        (int32_t)rng_int(r, 0, rng_int(r, 0, 3) ? desc->filter_length - 1 : 0);
    if (!desc->centre[0] && !desc->centre[1] && desc->kind == DANAUS_CENTRED)
        desc->kind = DANAUS_CAUSAL;
}

conv_sizes conv_sizes_of(const conv_case *c)
{
    const danaus_conv_desc *d = &c->desc;
    conv_sizes z = { .height = d->height ? d->height : 1, .width = d->length };
    z.taps_height = d->filter_height ? d->filter_height : z.height;
    z.taps_width = d->filter_length ? d->filter_length : d->length;
    z.numbers = z.height * z.width;
    z.taps = z.taps_height * z.taps_width;
    return z;
}

int64_t conv_number_at(
    const conv_case *c, const conv_sizes *z, int64_t down, int64_t across)
{
    if (c->desc.kind == DANAUS_CIRCULAR) {
        down = (down % z->height + z->height) % z->height;
        across = (across % z->width + z->width) % z->width;
    }
    int is_inside = down >= 0 && down < z->height && across >= 0 && across < z->width;
    return is_inside ? down * z->width + across : -1;
}

int64_t conv_meets(const conv_case *c, const conv_sizes *z, int64_t t, int64_t s)
{
    int64_t down = t / z->width + c->desc.centre[0] - s / z->taps_width;
    int64_t across = t % z->width + c->desc.centre[1] - s % z->taps_width;
    return conv_number_at(c, z, down, across);
}

double conv_flat_error(const conv_case *c, const conv_sizes *z)
{
    double flat = (double)((z->height + z->taps_height) * (z->width + z->taps_width));
    return 5 * precision_of(c->desc.dtype).sum_unit * log2(4 * flat + 1024) +
           (double)(z->numbers + z->taps) * 0x1p-53;
}

static double at(const array *a, int64_t index, double otherwise)
{
    return a->data ? element_get(a->dtype, a->data, index).re : otherwise;
}

/* One filter, one plane of its channel, and what becomes of it. */
typedef struct plane {
    double *k, *p, *dc, *y, *dp, *dk;
    double skip, dskip;
    double k1, k2, p2, d2; /* norms */
    double pd, rest; /* sums over planes of |dc| |p|, and of that times sqrt(numbers) */
} plane;

static void read_filter(const conv_case *c, const conv_sizes *z, int64_t f, plane *a)
{
    a->skip = at(&c->skip, f, 0);
    a->k1 = fabs(a->skip);
    a->k2 = a->dskip = a->pd = a->rest = 0;
    for (int64_t s = 0; s < z->taps; s++) {
        a->k[s] = at(&c->k, f * z->taps + s, 0);
        a->dk[s] = 0;
        a->k1 += fabs(a->k[s]);
    }
    a->k2 = a->k1; /* taps of a circle may share a lag */
}

static void read_plane(
    const conv_case *c, const conv_sizes *z, int64_t row, const array *dy, plane *a)
{
    a->p2 = a->d2 = 0;
    for (int64_t t = 0; t < z->numbers; t++) {
        int64_t i = row * z->numbers + t;
        a->p[t] = at(&c->u, i, 0) * at(&c->gate_in, i, 1);
        a->dc[t] = at(dy, i, 0) * at(&c->gate_out, i, 1);
        a->p2 += a->p[t] * a->p[t];
        a->d2 += a->dc[t] * a->dc[t];
        a->y[t] = a->skip * a->p[t];
        a->dp[t] = a->skip * a->dc[t];
        a->dskip += a->dc[t] * a->p[t];
    }
    a->p2 = sqrt(a->p2);
    a->d2 = sqrt(a->d2);
    a->pd += a->p2 * a->d2;
    a->rest += a->p2 * a->d2 * sqrt((double)(z->height * (z->width + z->taps_width)));
}

static void sum_plane(const conv_case *c, const conv_sizes *z, plane *a)
{
    for (int64_t t = 0; t < z->numbers; t++)
        for (int64_t s = 0; s < z->taps; s++) {
            int64_t from = conv_meets(c, z, t, s);
            if (from < 0)
                continue;
            a->y[t] += a->k[s] * a->p[from];
            a->dp[from] += a->k[s] * a->dc[t];
            a->dk[s] += a->dc[t] * a->p[from];
        }
}

static void put(conv_exact *x, conv_name name, int64_t i, double v, double e)
{
    if (x->v[name]) {
        x->v[name][i] = v;
        x->e[name][i] = e;
    }
}

static void put_plane(
    const conv_case *c, const conv_sizes *z, int64_t row, const array *dy,
    const plane *a, conv_exact *x)
{
    double t5 = conv_flat_error(c, z), u8 = 8 * precision_of(c->desc.dtype).sum_unit;
    double each = (2 * t5 + u8) * a->k2 + (t5 + u8) * a->k1;
    for (int64_t t = 0; t < z->numbers; t++) {
        int64_t i = row * z->numbers + t;
        double out = at(&c->gate_out, i, 1), in = at(&c->gate_in, i, 1);
        double u = at(&c->u, i, 0), d = at(dy, i, 0);
        put(x, CONV_Y, i, out * a->y[t], fabs(out) * each * a->p2);
        put(x, CONV_DGATE_OUT, i, d * a->y[t], fabs(d) * each * a->p2);
        put(x, CONV_DU, i, in * a->dp[t], fabs(in) * each * a->d2);
        put(x, CONV_DGATE_IN, i, u * a->dp[t], fabs(u) * each * a->d2);
    }
}

static void put_filter(
    const conv_case *c, const conv_sizes *z, int64_t f, double planes, const plane *a,
    conv_exact *x)
{
    double t5 = conv_flat_error(c, z), u = precision_of(c->desc.dtype).sum_unit;
    double error = (2 * t5 + (8 + planes) * u) * a->pd + t5 * a->rest;
    for (int64_t s = 0; s < z->taps; s++)
        put(x, CONV_DK, f * z->taps + s, a->dk[s], error);
    put(x, CONV_DSKIP, f, a->dskip, error);
}

void conv_exactly_planes(const conv_case *c, const array *dy, conv_exact *x)
{
    conv_sizes z = conv_sizes_of(c);
    int64_t group = c->desc.channels / c->desc.filters;
    double *memory = calloc((size_t)(4 * z.numbers + 2 * z.taps), sizeof *memory);
    assert_non_null(memory);
    plane a = { .k = memory, .dk = memory + z.taps, .p = memory + 2 * z.taps };
    a.dc = a.p + z.numbers;
    a.y = a.dc + z.numbers;
    a.dp = a.y + z.numbers;
    for (int64_t f = 0; f < c->desc.filters; f++) {
        read_filter(c, &z, f, &a);
        for (int64_t row = 0; row < conv_rows(c); row++) {
            if (row % c->desc.channels / group != f)
                continue;
            read_plane(c, &z, row, dy, &a);
            sum_plane(c, &z, &a);
            put_plane(c, &z, row, dy, &a, x);
        }
        put_filter(c, &z, f, (double)(c->batch * group), &a, x);
    }
    free(memory);
}
