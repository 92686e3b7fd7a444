/* Convolutions and gradients by direct sums or transforms of radix 2. */
// SPDX-License-Identifier: Apache-2.0
#include "support/exact.h"

#include "support/planes.h"
#include "support/test.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FEW_TAPS 512 /* which are summed */
#define LANES    64  /* of sums */

static void *zeros(int64_t count, size_t size)
{
    void *memory = calloc(count ? (size_t)count : 1, size);
    assert_non_null(memory);
    return memory;
}

static double at(const array *a, int64_t index, double otherwise)
{
    return a->data ? element_get(a->dtype, a->data, index).re : otherwise;
}

static double norm(const double *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* ---- transforms ---- */

static value times(value a, value b)
{
    return (value){ a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re };
}

static value conjugate(value a) { return (value){ a.re, -a.im }; }

/* y[f] = sum of x[t step] exp(-2 pi i f t / n); roots of the whole transform. */
static void transform_part(
    int64_t n, int64_t step, const value *x, const value *roots, value *y)
{
    if (n == 1) {
        *y = *x;
        return;
    }
    transform_part(n / 2, 2 * step, x, roots, y);
    transform_part(n / 2, 2 * step, x + step, roots, y + n / 2);
    for (int64_t f = 0; f < n / 2; f++) {
        value a = y[f], b = times(roots[f * step], y[f + n / 2]);
        y[f] = (value){ a.re + b.re, a.im + b.im };
        y[f + n / 2] = (value){ a.re - b.re, a.im - b.im };
    }
}

/* One filter and one row of a case. */
typedef struct work {
    const conv_case *c;
    int64_t length, taps, first; /* first: the least lag */
    double *k;                   /* by lag, from `first`; k_count of them */
    int64_t k_count;
    double *p, *dc; /* the row */
    double *y, *dp; /* what becomes of it */
    double *r;      /* sums over rows by lag, as k */
    int64_t n;      /* of transforms; 0: sums */
    value *roots, *spectrum, *x, *z;
    double k2, largest, r2; /* |k|, K, R of this filter */
    double pd, p2, d2;      /* |dc| |p| of all its rows; |p|, |dc| of this one */
} work;

static void transform(const work *w, const value *x, value *to)
{
    transform_part(w->n, 1, x, w->roots, to);
}

/* Where lag or time t lies on the circle of a transform. */
static int64_t place(const work *w, int64_t t) { return t < 0 ? t + w->n : t; }

static int is_circular(const work *w) { return w->c->desc.kind == DANAUS_CIRCULAR; }

/* Lags of filters that rows meet: those of a circle are all positive. */
static void read_filter(work *w, int64_t f)
{
    const conv_case *c = w->c;
    memset(w->k, 0, (size_t)w->k_count * sizeof *w->k);
    memset(w->r, 0, (size_t)w->k_count * sizeof *w->r);
    for (int64_t s = 0; s < w->taps; s++) {
        if (is_circular(w))
            w->k[s % w->length] += at(&c->k, f * w->taps + s, 0);
        else if (s < w->length)
            w->k[s - w->first] += at(&c->k, f * w->taps + s, 0);
        if (c->k_reverse.data && s + 1 < w->length)
            w->k[-1 - s - w->first] += at(&c->k_reverse, f * w->taps + s, 0);
    }
    w->k[-w->first] += at(&c->skip, f, 0);
    w->k2 = norm(w->k, w->k_count);
    w->largest = w->pd = w->r2 = 0;
    for (int64_t i = 0; i < w->k_count; i++)
        w->largest += fabs(w->k[i]);
    if (!w->n)
        return;
    double most = 0;
    memset(w->x, 0, (size_t)w->n * sizeof *w->x);
    for (int64_t i = 0; i < w->k_count; i++)
        w->x[place(w, w->first + i)].re = w->k[i];
    transform(w, w->x, w->spectrum);
    for (int64_t i = 0; i < w->n; i++)
        most = fmax(most, magnitude_of(w->spectrum[i]));
    w->largest = fmin(w->largest, sqrt(2) * most);
}

static void read_row(work *w, int64_t row, const array *dy)
{
    const conv_case *c = w->c;
    for (int64_t t = 0; t < w->length; t++) {
        int64_t i = row * w->length + t;
        w->p[t] = at(&c->u, i, 0) * at(&c->gate_in, i, 1);
        w->dc[t] = at(dy, i, 0) * at(&c->gate_out, i, 1);
        w->y[t] = w->dp[t] = 0;
    }
    w->p2 = norm(w->p, w->length);
    w->d2 = norm(w->dc, w->length);
    w->pd += w->p2 * w->d2;
}

static void add(double *restrict y, double k, const double *restrict x, int64_t count)
{
    for (int64_t t = 0; t < count; t++)
        y[t] += k * x[t];
}

/* In so many sums that each is of few products. */
static double dot(const double *x, const double *y, int64_t count)
{
    double parts[LANES] = { 0 }, sum = 0;
    int64_t t = 0;
    for (; t + LANES <= count; t += LANES)
        for (int i = 0; i < LANES; i++)
            parts[i] += x[t + i] * y[t + i];
    for (; t < count; t++)
        parts[t % LANES] += x[t] * y[t];
    for (int i = 0; i < LANES; i++)
        sum += parts[i];
    return sum;
}

/* What a tap does to y[t] for t in [from, to) and x[t - lag]. */
static void add_tap(work *w, int64_t tap, int64_t lag, int64_t from, int64_t to)
{
    add(w->y + from, w->k[tap], w->p + from - lag, to - from);
    add(w->dp + from - lag, w->k[tap], w->dc + from, to - from);
    w->r[tap] += dot(w->dc + from, w->p + from - lag, to - from);
}

static void sum_row(work *w)
{
    for (int64_t tap = 0; tap < w->k_count; tap++) {
        int64_t lag = w->first + tap, length = w->length;
        add_tap(w, tap, lag, lag < 0 ? 0 : lag, lag < 0 ? length + lag : length);
        if (is_circular(w))
            add_tap(w, tap, lag - length, 0, lag);
    }
    w->r2 += sqrt((double)w->length) * w->p2 * w->d2;
}

/* Circles of `length` are folded from results at both sides of it. */
static double folded(const work *w, const value *z, int64_t t, int64_t side, int part)
{
    value a = z[place(w, t)];
    value b = is_circular(w) ? z[place(w, t + side)] : (value){ 0, 0 };
    return part ? a.im + b.im : a.re + b.re;
}

/* The transform of p + i dc is that of both: P = (Z + Z'*) / 2, D = (Z - Z'*) / 2 i. */
static void split(value a, value b, value *p, value *d)
{
    *p = (value){ (a.re + b.re) / 2, (a.im - b.im) / 2 };
    *d = (value){ (a.im + b.im) / 2, (b.re - a.re) / 2 };
}

/* Real results come back as the real and the imaginary part of one transform:
   y + i dp = (K P + i K* D) back, r = (D P*) back. */
static void go_back(const work *w, int filters)
{
    for (int64_t f = 0; f < w->n; f++) {
        value p, d, a, b = { 0, 0 };
        split(w->z[f], w->z[f ? w->n - f : 0], &p, &d);
        if (filters) {
            a = times(d, conjugate(p));
        } else {
            a = times(w->spectrum[f], p);
            b = times(conjugate(w->spectrum[f]), d);
        }
        w->x[f] = (value){ a.re - b.im, -a.im - b.re }; /* conjugate: back is forward */
    }
}

static void transform_row(work *w)
{
    double scale = 1 / (double)w->n;
    value *result = zeros(w->n, sizeof *result);
    memset(w->x, 0, (size_t)w->n * sizeof *w->x);
    for (int64_t t = 0; t < w->length; t++)
        w->x[t] = (value){ w->p[t], w->dc[t] };
    transform(w, w->x, w->z);
    go_back(w, 0);
    transform(w, w->x, result);
    for (int64_t t = 0; t < w->length; t++) {
        w->y[t] = scale * folded(w, result, t, w->length, 0);
        w->dp[t] = -scale * folded(w, result, t, -w->length, 1);
    }
    go_back(w, 1);
    transform(w, w->x, result);
    double all = 0;
    for (int64_t i = 0; i < w->k_count; i++)
        w->r[i] += scale * folded(w, result, w->first + i, -w->length, 0);
    for (int64_t i = 0; i < w->n; i++)
        all += result[i].re * result[i].re;
    /* A row of few taps may have been cut into windows. */
    w->r2 += w->taps < w->length ? sqrt((double)w->length) * w->p2 * w->d2
                                 : sqrt(2 * all) * scale;
    free(result);
}

/* ---- cases ---- */

static work work_make(const conv_case *c)
{
    const danaus_conv_desc *d = &c->desc;
    int64_t most = d->filter_length < d->length ? d->filter_length : d->length;
    int both = d->kind == DANAUS_BIDIRECTIONAL;
    work w = { .c = c, .length = d->length, .taps = d->filter_length };
    w.first = both ? -most : 0;
    w.k_count = both ? 2 * most : most;
    double **rows[] = { &w.p, &w.dc, &w.y, &w.dp };
    for (int i = 0; i < 4; i++)
        *rows[i] = zeros(d->length, sizeof(double));
    w.k = zeros(w.k_count, sizeof *w.k);
    w.r = zeros(w.k_count, sizeof *w.r);
    if (most <= FEW_TAPS)
        return w;
    for (w.n = 1; w.n < (both ? 4 : 2) * d->length;)
        w.n *= 2;
    value **transforms[] = { &w.roots, &w.spectrum, &w.x, &w.z };
    for (int i = 0; i < 4; i++)
        *transforms[i] = zeros(w.n, sizeof(value));
    for (int64_t i = 0; i < w.n / 2; i++) {
        double angle = 2 * acos(-1) * (double)i / (double)w.n;
        w.roots[i] = (value){ cos(angle), -sin(angle) };
    }
    return w;
}

static void work_free(work *w)
{
    void *all[] = { w->k,  w->r,     w->p,        w->dc, w->y,
                    w->dp, w->roots, w->spectrum, w->x,  w->z };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* t of transforms of this type, and of those here. */
static double error_of_transform(const work *w, double unit)
{
    return 5 * unit * log2(4 * (double)(w->length + w->taps) + 1024);
}

static void put(conv_exact *x, conv_name name, int64_t i, double v, double e)
{
    if (x->v[name]) {
        x->v[name][i] = v;
        x->e[name][i] = e;
    }
}

/* What y and dp of a vector of norm 1 may err by. */
static double error_of_row(const work *w, double unit)
{
    double t = error_of_transform(w, unit);
    return (2 * t + 8 * unit) * w->k2 + (t + 8 * unit) * w->largest;
}

static void put_row(conv_exact *x, const work *w, int64_t row, const array *dy)
{
    const conv_case *c = w->c;
    double each = error_of_row(w, precision_of(c->desc.dtype).sum_unit);
    each += w->n ? error_of_row(w, 0x1p-53) : (double)w->k_count * 0x1p-53 * w->k2;
    for (int64_t t = 0; t < w->length; t++) {
        int64_t i = row * w->length + t;
        double out = at(&c->gate_out, i, 1), in = at(&c->gate_in, i, 1);
        double u = at(&c->u, i, 0), d = at(dy, i, 0);
        put(x, CONV_Y, i, out * w->y[t], fabs(out) * each * w->p2);
        put(x, CONV_DGATE_OUT, i, d * w->y[t], fabs(d) * each * w->p2);
        put(x, CONV_DU, i, in * w->dp[t], fabs(in) * each * w->d2);
        put(x, CONV_DGATE_IN, i, u * w->dp[t], fabs(u) * each * w->d2);
    }
}

static double error_of_filter(const work *w, double unit, double rows)
{
    double t = error_of_transform(w, unit);
    return (2 * t + (8 + rows) * unit) * w->pd + t * w->r2;
}

static void put_filter(conv_exact *x, const work *w, int64_t f, int64_t rows)
{
    double unit = precision_of(w->c->desc.dtype).sum_unit;
    double error = error_of_filter(w, unit, (double)rows);
    error += w->n ? error_of_filter(w, 0x1p-53, (double)rows)
                  : (double)(w->length + rows) * 0x1p-53 * w->pd;
    for (int64_t s = 0; s < w->taps; s++) {
        int64_t i = f * w->taps + s, lag = is_circular(w) ? s % w->length : s;
        put(x, CONV_DK, i, lag < w->length ? w->r[lag - w->first] : 0, error);
        if (x->v[CONV_DK_REVERSE])
            put(x, CONV_DK_REVERSE, i, s + 1 < w->length ? w->r[-1 - s - w->first] : 0,
                error);
    }
    put(x, CONV_DSKIP, f, w->r[-w->first], error);
}

static conv_exact exact_make(const conv_case *c)
{
    const array *like[CONV_RESULTS] = { &c->u, &c->u,         &c->gate_in, &c->gate_out,
                                        &c->k, &c->k_reverse, &c->skip };
    conv_exact x = { { 0 }, { NULL }, { NULL } };
    for (int i = 0; i < CONV_RESULTS; i++)
        if (like[i]->data) {
            x.count[i] = like[i]->count;
            x.v[i] = zeros(x.count[i], sizeof(double));
            x.e[i] = zeros(x.count[i], sizeof(double));
        }
    return x;
}

conv_exact conv_exactly(const conv_case *c, const array *dy)
{
    conv_exact x = exact_make(c);
    if (conv_has_planes(&c->desc)) {
        conv_exactly_planes(c, dy, &x);
        return x;
    }
    work w = work_make(c);
    int64_t group = c->desc.channels / c->desc.filters;
    for (int64_t f = 0; f < c->desc.filters; f++) {
        read_filter(&w, f);
        for (int64_t row = 0; row < conv_rows(c); row++) {
            if (row % c->desc.channels / group != f)
                continue;
            read_row(&w, row, dy);
            if (w.n)
                transform_row(&w);
            else
                sum_row(&w);
            put_row(&x, &w, row, dy);
        }
        put_filter(&x, &w, f, c->batch * group);
    }
    work_free(&w);
    return x;
}

void conv_exact_free(conv_exact *x)
{
    for (int i = 0; i < CONV_RESULTS; i++) {
        free(x->v[i]);
        free(x->e[i]);
    }
    *x = (conv_exact){ { 0 }, { NULL }, { NULL } };
}

static const char *const names[CONV_RESULTS] = { "y",         "du", "dgate_in",
                                                 "dgate_out", "dk", "dk_reverse",
                                                 "dskip" };

void conv_exact_expect(
    const conv_case *c, const conv_outcome *o, const conv_exact *exact)
{
    const danaus_conv_desc *d = &c->desc;
    for (int n = 0; n < CONV_RESULTS; n++)
        for (int64_t i = 0; i < o->of[n].count; i++) {
            precision f = precision_of(o->of[n].dtype);
            double is = element_get(o->of[n].dtype, o->of[n].data, i).re;
            double should = exact->v[n][i];
            double e = exact->e[n][i] * (1 + f.unit) + f.unit * fabs(should) + f.tiny;
            if (!(fabs(is - should) <= e))
                fail_msg(
                    "kind %d, %s, %" PRId64 " x %" PRId64 " x %d x %" PRId64
                    ", %" PRId64 " filters of %d x %" PRId64
                    " around (%d, %d): %s[%" PRId64 "] is %.9g, not %.9g +- %.2g",
                    d->kind, danaus_dtype_name(d->dtype), c->batch, d->channels,
                    d->height, d->length, d->filters, d->filter_height,
                    d->filter_length, d->centre[0], d->centre[1], names[n], i, is,
                    should, e);
        }
}

double conv_exact_error(const conv_exact *x, conv_name name, const array *is)
{
    double error = 0;
    for (int64_t i = 0; i < is->count; i++) {
        double a = element_get(is->dtype, is->data, i).re - x->v[name][i];
        error += a * a;
    }
    return sqrt(error) / norm(x->v[name], x->count[name]);
}

double conv_exact_doubt(const conv_exact *x, conv_name name)
{
    return norm(x->e[name], x->count[name]) / norm(x->v[name], x->count[name]);
}
