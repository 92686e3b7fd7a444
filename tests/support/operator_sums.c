/* Hyena operators by their definition (support/operator.h). */
// SPDX-License-Identifier: Apache-2.0
#include "support/operator.h"

#include "support/test.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Numbers, and what each may err. */
typedef struct doubtful {
    double *v, *e;
} doubtful;

static doubtful numbers(int64_t count)
{
    doubtful d = { calloc((size_t)count, sizeof(double)),
                   calloc((size_t)count, sizeof(double)) };
    assert_true(d.v && d.e);
    return d;
}

static void numbers_free(doubtful *d)
{
    free(d->v);
    free(d->e);
}

static double at(const array *a, int64_t i)
{
    return a->data ? element_get(a->dtype, a->data, i).re : 0;
}

/* One row [length] of many. */
static doubtful row(doubtful d, int64_t number, int64_t length)
{
    return (doubtful){ d.v + number * length, d.e + number * length };
}

typedef struct work {
    const operator_case *c;
    precision f;
    int64_t order, channels, length, rows; /* rows: of a member of the batch, of z */
    double t;                              /* of a transform */
    double members, columns;               /* that sums are over */
    int64_t met;                           /* taps that may meet something */
    doubtful z, dz, v[DANAUS_HYENA_MOST_ORDER + 1], dv[DANAUS_HYENA_MOST_ORDER + 1];
    doubtful y, du, dtaps, dbias, dk, dskip;
} work;

static double gamma_of(const work *w, double n)
{
    double nu = n * w->f.sum_unit;
    return nu / (1 - nu) + 1e-15;
}

/* Rounded to the type of u. */
static void store(const work *w, doubtful d, int64_t i)
{
    d.e[i] = d.e[i] * (1 + w->f.unit) + w->f.unit * fabs(d.v[i]) + w->f.tiny;
}

/* to[i] = a[i] b[i] */
static void multiply(const work *w, doubtful a, doubtful b, doubtful to, int is_stored)
{
    for (int64_t i = 0; i < w->length; i++) {
        to.v[i] = a.v[i] * b.v[i];
        to.e[i] = fabs(a.v[i]) * b.e[i] + fabs(b.v[i]) * a.e[i] + a.e[i] * b.e[i] +
                  2 * w->f.sum_unit * fabs(to.v[i]);
        if (is_stored)
            store(w, to, i);
    }
}

/* y[t] = bias + sum of taps[s] u[t - s], or the way back: dy[t + s]. */
static void few(
    const work *w, int64_t number, doubtful u, double bias, int back, doubtful y)
{
    int64_t taps = w->c->desc.taps;
    for (int64_t t = 0; t < w->length; t++) {
        double size = fabs(bias);
        y.v[t] = bias;
        for (int64_t s = 0; s < taps; s++) {
            int64_t i = back ? t + s : t - s;
            double k = at(&w->c->taps, number * taps + s);
            if (i < 0 || i >= w->length)
                continue;
            y.v[t] += k * u.v[i];
            y.e[t] += fabs(k) * u.e[i];
            size += fabs(k * u.v[i]);
        }
        y.e[t] += gamma_of(w, (double)taps + 1) * (size + y.e[t]);
        store(w, y, t);
    }
}

static double norm(const double *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* Tap s of a filter with its skip, 0 beyond it. */
static double tap(const work *w, int64_t filter, int64_t s)
{
    int64_t taps = w->c->desc.filter_length;
    double k = s < taps ? at(&w->c->k, filter * taps + s) : 0;
    return s == 0 ? k + at(&w->c->skip, filter) : k;
}

/* c[t] = sum of k[s] p[t - s], or of k[s] p[t + s]. */
static void convolve(const work *w, int64_t filter, doubtful p, int back, doubtful c)
{
    double k1 = 0, k2 = 0, p2 = norm(p.v, w->length) + norm(p.e, w->length);
    for (int64_t s = 0; s < w->length; s++) {
        k1 += fabs(tap(w, filter, s));
        k2 += pow(tap(w, filter, s), 2);
    }
    double u8 = 8 * w->f.sum_unit;
    double bound = p2 * ((2 * w->t + u8) * sqrt(k2) + (w->t + u8) * k1);
    for (int64_t t = 0; t < w->length; t++) {
        c.v[t] = 0;
        c.e[t] = bound;
        int64_t there = back ? w->length - t : t + 1, taps = w->c->desc.filter_length;
        for (int64_t s = 0; s < there && s < taps; s++) {
            int64_t i = back ? t + s : t - s;
            c.v[t] += tap(w, filter, s) * p.v[i];
            c.e[t] += fabs(tap(w, filter, s)) * p.e[i];
        }
    }
}

/* dk[s] += sum of dc[t] p[t - s]; rows: that a filter has. */
static void add_lags(
    const work *w, int64_t filter, doubtful dc, doubtful p, double rows)
{
    int64_t taps = w->c->desc.filter_length;
    double u = w->f.sum_unit, size = (norm(dc.v, w->length) + norm(dc.e, w->length)) *
                                     (norm(p.v, w->length) + norm(p.e, w->length));
    double bound = size * (2 * w->t + (8 + rows) * u + w->t * sqrt((double)w->length));
    for (int64_t s = 0; s < taps; s++) {
        double sum = 0, e = s < w->met ? bound : 0;
        for (int64_t t = s; t < w->length; t++) {
            sum += dc.v[t] * p.v[t - s];
            e += fabs(dc.v[t]) * p.e[t - s] + dc.e[t] * (fabs(p.v[t - s]) + p.e[t - s]);
        }
        w->dk.v[filter * taps + s] += sum;
        w->dk.e[filter * taps + s] += e;
        if (s == 0) {
            w->dskip.v[filter] += sum;
            w->dskip.e[filter] += e;
        }
    }
}

/* The row of channel h of group g. */
static doubtful plane(const work *w, doubtful d, int64_t b, int64_t g, int64_t h)
{
    return row(d, b * w->rows + g * w->channels + h, w->length);
}

static void make_z(const work *w, int64_t b)
{
    doubtful u = numbers(w->length);
    for (int64_t r = 0; r < w->rows; r++) {
        for (int64_t t = 0; t < w->length; t++)
            u.v[t] = at(&w->c->u, (b * w->rows + r) * w->length + t);
        few(w, r, u, at(&w->c->bias, r), 0, row(w->z, b * w->rows + r, w->length));
    }
    numbers_free(&u);
}

/* Channel h of member b, forward and back; p, c, dc, dp: rows. */
static void make_channel(
    const work *w, int64_t b, int64_t h, doubtful p[], doubtful c, doubtful dc,
    doubtful dp)
{
    const danaus_hyena_desc *d = &w->c->desc;
    int64_t filter = h / (d->channels / d->filters), last = w->order - 2;
    double rows = w->members * (double)(d->channels / d->filters);
    int64_t own = b * w->channels + h;
    doubtful x0 = plane(w, w->z, b, 0, h), dy = numbers(w->length);
    for (int64_t t = 0; t < w->length; t++)
        dy.v[t] = at(&w->c->dy, own * w->length + t);
    doubtful v = plane(w, w->z, b, w->order, h);
    for (int64_t o = 0; o <= last; o++) {
        multiply(w, plane(w, w->z, b, w->order - 1 - o, h), v, p[o], 0);
        convolve(w, o * d->filters + filter, p[o], 0, c);
        v = row(w->v[o + 1], own, w->length);
        memcpy(v.v, c.v, (size_t)w->length * sizeof(double));
        memcpy(v.e, c.e, (size_t)w->length * sizeof(double));
        for (int64_t t = 0; o < last && t < w->length; t++)
            store(w, v, t);
    }
    multiply(w, x0, v, row(w->y, own, w->length), 1);
    multiply(w, v, dy, plane(w, w->dz, b, 0, h), 1);
    multiply(w, x0, dy, dc, 0);
    for (int64_t o = last; o >= 0; o--) {
        doubtful x = plane(w, w->z, b, w->order - 1 - o, h);
        doubtful dv =
            o ? row(w->dv[o], own, w->length) : plane(w, w->dz, b, w->order, h);
        doubtful in = o ? row(w->v[o], own, w->length) : plane(w, w->z, b, w->order, h);
        add_lags(w, o * d->filters + filter, dc, p[o], rows);
        convolve(w, o * d->filters + filter, dc, 1, dp);
        multiply(w, in, dp, plane(w, w->dz, b, w->order - 1 - o, h), 1);
        multiply(w, x, dp, dv, 1);
        dc = dv;
    }
    numbers_free(&dy);
}

/* Gradients of u, taps and bias from dz. */
static void make_few(const work *w, int64_t b, int64_t r)
{
    int64_t taps = w->c->desc.taps, own = b * w->rows + r;
    doubtful dz = row(w->dz, own, w->length);
    double g = gamma_of(w, w->columns);
    few(w, r, dz, 0, 1, row(w->du, own, w->length));
    for (int64_t t = 0; t < w->length; t++) {
        w->dbias.v[r] += dz.v[t];
        w->dbias.e[r] += dz.e[t] + g * (fabs(dz.v[t]) + dz.e[t]);
        for (int64_t s = 0; s < taps && s <= t; s++) {
            double u = at(&w->c->u, own * w->length + t - s);
            w->dtaps.v[r * taps + s] += dz.v[t] * u;
            w->dtaps.e[r * taps + s] +=
                fabs(u) * (dz.e[t] + g * (fabs(dz.v[t]) + dz.e[t]));
        }
    }
}

static work work_make(const operator_case *c)
{
    const danaus_hyena_desc *d = &c->desc;
    work w = { .c = c, .f = precision_of(d->dtype), .order = d->order };
    w.channels = d->channels;
    w.length = d->length;
    w.rows = (d->order + 1) * d->channels;
    w.met = d->length;
    w.members = (double)c->batch;
    w.columns = (double)(c->dy.count / d->channels);
    w.t = 5 * w.f.sum_unit * log2(4.0 * (double)(d->length + d->filter_length) + 1024);
    w.z = numbers(c->u.count);
    w.dz = numbers(c->u.count);
    w.y = numbers(c->dy.count);
    for (int64_t o = 1; o < w.order; o++) {
        w.v[o] = numbers(c->dy.count);
        w.dv[o] = numbers(c->dy.count);
    }
    w.du = numbers(c->u.count);
    w.dtaps = numbers(c->taps.count);
    w.dbias = numbers(w.rows);
    w.dk = numbers(c->k.count);
    w.dskip = numbers((d->order - 1) * d->filters);
    return w;
}

static void work_free(work *w)
{
    doubtful *all[] = { &w->z,  &w->dz,    &w->y,     &w->du,
                        &w->dk, &w->dtaps, &w->dbias, &w->dskip };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        numbers_free(all[i]);
    for (int64_t o = 1; o < w->order; o++) {
        numbers_free(&w->v[o]);
        numbers_free(&w->dv[o]);
    }
}

static void make_members(const work *w)
{
    doubtful p[DANAUS_HYENA_MOST_ORDER], rows[3];
    for (int64_t o = 0; o < w->order; o++)
        p[o] = numbers(w->length);
    for (int i = 0; i < 3; i++)
        rows[i] = numbers(w->length);
    for (int64_t b = 0; b < w->c->batch; b++) {
        make_z(w, b);
        for (int64_t h = 0; h < w->channels; h++)
            make_channel(w, b, h, p, rows[0], rows[1], rows[2]);
        for (int64_t r = 0; r < w->rows; r++)
            make_few(w, b, r);
    }
    for (int64_t o = 0; o < w->order; o++)
        numbers_free(&p[o]);
    for (int i = 0; i < 3; i++)
        numbers_free(&rows[i]);
}

/* Rows of a sequence to their columns. */
static void lay_columns(
    const operator_case *c, int64_t i, int64_t rows, doubtful from, doubtful to)
{
    int64_t first = c->offsets[i], n = c->offsets[i + 1] - first;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t t = 0; t < n; t++) {
            to.v[r * c->offsets[c->batch] + first + t] = from.v[r * n + t];
            to.e[r * c->offsets[c->batch] + first + t] = from.e[r * n + t];
        }
}

static void add(doubtful from, int64_t count, doubtful to)
{
    for (int64_t i = 0; i < count; i++) {
        to.v[i] += from.v[i];
        to.e[i] += from.e[i];
    }
}

/* Sequence by sequence. */
static void make_packed(const work *w)
{
    const operator_case *c = w->c;
    for (int64_t i = 0; i < c->batch; i++) {
        if (c->offsets[i] == c->offsets[i + 1])
            continue;
        operator_case own = operator_sequence(c, i);
        work one = work_make(&own);
        one.met = w->met;
        one.members = w->members;
        one.columns = w->columns;
        make_members(&one);
        lay_columns(c, i, w->channels, one.y, w->y);
        lay_columns(c, i, w->rows, one.du, w->du);
        add(one.dtaps, c->taps.count, w->dtaps);
        add(one.dbias, w->rows, w->dbias);
        add(one.dk, c->k.count, w->dk);
        add(one.dskip, (w->order - 1) * c->desc.filters, w->dskip);
        work_free(&one);
        operator_sequence_free(&own);
    }
}

static void make_all(const work *w)
{
    if (w->c->offsets)
        make_packed(w);
    else
        make_members(w);
}

static void expect(
    const operator_case *c, const char *name, const array *is, doubtful should)
{
    const danaus_hyena_desc *d = &c->desc;
    for (int64_t i = 0; i < is->count; i++) {
        double found = element_get(is->dtype, is->data, i).re;
        if (!(fabs(found - should.v[i]) <= should.e[i] + 1e-300))
            fail_msg(
                "%s, order %" PRId64 ", %" PRId64 " x %" PRId64 " x %" PRId64
                ", %" PRId64 " taps, %" PRId64 " filters of %" PRId64 ": %s[%" PRId64
                "] is %.9g, not %.9g +- %.2g",
                danaus_dtype_name(d->dtype), d->order, c->batch, d->channels, d->length,
                d->taps, d->filters, d->filter_length, name, i, found, should.v[i],
                should.e[i]);
    }
}

void operator_errors(
    const operator_case *c, const operator_outcome *o, double errors[OPERATOR_RESULTS])
{
    work w = work_make(c);
    make_all(&w);
    const doubtful all[] = { w.y, w.du, w.dtaps, w.dbias, w.dk, w.dskip };
    for (int n = 0; n < OPERATOR_RESULTS; n++) {
        double error = 0;
        for (int64_t i = 0; i < o->of[n].count; i++)
            error += pow(at(&o->of[n], i) - all[n].v[i], 2);
        errors[n] = o->of[n].count ? sqrt(error) / norm(all[n].v, o->of[n].count) : 0;
    }
    work_free(&w);
}

void operator_expect(const operator_case *c, const operator_outcome *o)
{
    work w = work_make(c);
    make_all(&w);
    expect(c, "y", &o->of[OPERATOR_Y], w.y);
    expect(c, "du", &o->of[OPERATOR_DU], w.du);
    expect(c, "dtaps", &o->of[OPERATOR_DTAPS], w.dtaps);
    expect(c, "dbias", &o->of[OPERATOR_DBIAS], w.dbias);
    expect(c, "dk", &o->of[OPERATOR_DK], w.dk);
    expect(c, "dskip", &o->of[OPERATOR_DSKIP], w.dskip);
    work_free(&w);
}
