/* Products and gradients from the definition, with bounds. */
// SPDX-License-Identifier: Apache-2.0
#include "support/oracle.h"

#include "support/device.h"
#include "support/test.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t rows_of(danaus_pattern p) { return p.a * p.b * p.d; }

int64_t cols_of(danaus_pattern p) { return p.a * p.c * p.d; }

int64_t weights_of(danaus_pattern p) { return p.a * p.b * p.c * p.d; }

static void *zeros(int64_t count, size_t size)
{
    void *memory = calloc(count ? (size_t)count : 1, size);
    assert_non_null(memory);
    return memory;
}

static signal signal_make(int64_t size, int64_t batch)
{
    int64_t n = size * batch;
    return (signal){ size, batch, zeros(n, sizeof(value)), zeros(n, sizeof(double)),
                     zeros(n, sizeof(double)) };
}

void signal_free(signal *s)
{
    free(s->v);
    free(s->m);
    free(s->e);
    *s = (signal){ 0 };
}

signal signal_copy(const signal *s)
{
    signal copy = signal_make(s->size, s->batch);
    size_t n = (size_t)(s->size * s->batch);
    memcpy(copy.v, s->v, n * sizeof *s->v);
    memcpy(copy.m, s->m, n * sizeof *s->m);
    memcpy(copy.e, s->e, n * sizeof *s->e);
    return copy;
}

/* Where entry (row, s) lies in an array of this layout. */
static int64_t place(danaus_layout layout, const signal *x, int64_t row, int64_t s)
{
    return layout == DANAUS_BATCH_LAST ? row * x->batch + s : s * x->size + row;
}

signal signal_read(const array *a, danaus_layout layout, int64_t size, int64_t batch)
{
    signal x = signal_make(size, batch);
    assert_int_equal(a->count, size * batch);
    for (int64_t row = 0; row < size; row++)
        for (int64_t s = 0; s < batch; s++) {
            value v = element_get(a->dtype, a->data, place(layout, &x, row, s));
            x.v[row * batch + s] = v;
            x.m[row * batch + s] = magnitude_of(v);
        }
    return x;
}

/* gamma_n of the sums, and of the oracle's own. */
static double gamma_of(danaus_dtype dtype, int64_t terms)
{
    precision p = precision_of(dtype);
    double n = (double)(p.complex ? 2 * terms : terms) + 1;
    return n * p.sum_unit / (1 - n * p.sum_unit) + n * 0x1p-53 / (1 - n * 0x1p-53);
}

static void add_error_of_sums(signal *y, int64_t terms, danaus_dtype dtype)
{
    double g = gamma_of(dtype, terms);
    for (int64_t i = 0; i < y->size * y->batch; i++)
        y->e[i] = y->e[i] * (1 + g) + g * y->m[i];
}

/* y[row] += w x[col], magnitudes and errors along. */
static void accumulate(signal *y, int64_t row, value w, const signal *x, int64_t col)
{
    int64_t n = x->batch;
    double size = magnitude_of(w);
    value *restrict yv = y->v + row * n;
    double *restrict ym = y->m + row * n, *restrict ye = y->e + row * n;
    const value *xv = x->v + col * n;
    const double *xm = x->m + col * n, *xe = x->e + col * n;
    for (int64_t s = 0; s < n; s++) {
        yv[s].re += w.re * xv[s].re - w.im * xv[s].im;
        yv[s].im += w.re * xv[s].im + w.im * xv[s].re;
    }
    for (int64_t s = 0; s < n; s++) {
        ym[s] += size * xm[s];
        ye[s] += size * xe[s];
    }
}

signal signal_times(
    danaus_pattern p, const array *w, int adjoint, const signal *x, danaus_dtype dtype)
{
    signal y = signal_make(adjoint ? cols_of(p) : rows_of(p), x->batch);
    assert_int_equal(x->size, adjoint ? rows_of(p) : cols_of(p));
    assert_int_equal(w->count, weights_of(p));
    int64_t entry = 0;
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t k = 0; k < p.c; k++)
                for (int64_t j = 0; j < p.d; j++, entry++) {
                    value v = element_get(w->dtype, w->data, entry);
                    int64_t row = (i * p.b + r) * p.d + j,
                            col = (i * p.c + k) * p.d + j;
                    if (adjoint)
                        accumulate(&y, col, (value){ v.re, -v.im }, x, row);
                    else
                        accumulate(&y, row, v, x, col);
                }
    add_error_of_sums(&y, adjoint ? p.b : p.c, dtype);
    if (w->dtype != dtype) /* packing rounds weights to the type of sums */
        for (int64_t s = 0; s < y.size * y.batch; s++)
            y.e[s] += precision_of(dtype).sum_unit * y.m[s];
    return y;
}

void signal_add_bias(signal *y, const array *bias, danaus_dtype dtype)
{
    double g = gamma_of(dtype, 1);
    for (int64_t row = 0; row < y->size; row++) {
        value v = element_get(bias->dtype, bias->data, row);
        for (int64_t s = row * y->batch; s < (row + 1) * y->batch; s++) {
            y->v[s].re += v.re;
            y->v[s].im += v.im;
            y->m[s] += magnitude_of(v);
            y->e[s] += g * y->m[s];
        }
    }
}

void signal_scale(signal *y, double scale, danaus_dtype dtype)
{
    precision p = precision_of(type_between(dtype));
    for (int64_t i = 0; i < y->size * y->batch; i++) {
        y->v[i].re *= scale;
        y->v[i].im *= scale;
        y->m[i] *= fabs(scale);
        y->e[i] = y->e[i] * fabs(scale) + 1.01 * p.unit * y->m[i];
    }
}

void signal_begin_with(
    signal *y, const array *residual, danaus_layout layout, danaus_dtype dtype,
    int64_t terms)
{
    double g = gamma_of(dtype, terms);
    signal first = signal_read(residual, layout, y->size, y->batch);
    for (int64_t i = 0; i < y->size * y->batch; i++)
        y->e[i] += g * first.m[i];
    signal_free(&first);
}

void signal_add_residual(
    signal *y, const array *residual, danaus_layout layout, danaus_dtype dtype)
{
    double g = gamma_of(dtype, 1) + precision_of(type_between(dtype)).unit;
    signal more = signal_read(residual, layout, y->size, y->batch);
    for (int64_t i = 0; i < y->size * y->batch; i++) {
        y->v[i].re += more.v[i].re;
        y->v[i].im += more.v[i].im;
        y->m[i] += more.m[i];
        y->e[i] = y->e[i] * (1 + g) + g * y->m[i];
    }
    signal_free(&more);
}

/* v / (1 + exp(-t)), whichever way does not overflow. */
static double gated(double v, double t)
{
    return t < 0 ? v * exp(t) / (1 + exp(t)) : v / (1 + exp(-t));
}

static double activated(danaus_activation activation, double v)
{
    switch (activation) {
    case DANAUS_RELU: return fmax(v, 0);
    case DANAUS_GELU: return v * erfc(-v / sqrt(2)) / 2;
    case DANAUS_SILU: return gated(v, v);
    case DANAUS_GELU_TANH:
        return gated(v, 2 * sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v));
    default: return v;
    }
}

void signal_activate(signal *y, danaus_activation activation, danaus_dtype dtype)
{
    double unit = 8 * precision_of(dtype).sum_unit + 8 * 0x1p-53;
    for (int64_t i = 0; activation && i < y->size * y->batch; i++) {
        y->e[i] = 1.13 * y->e[i] + unit * (fabs(y->v[i].re) + y->e[i]);
        y->v[i].re = activated(activation, y->v[i].re);
    }
}

/* Each of c weights errs by unit |w| + tiny; m is the sum of |w| |x|. */
void signal_round_weights(
    signal *y, danaus_pattern p, int adjoint, const signal *x, danaus_dtype dtype)
{
    precision u = precision_of(dtype);
    double largest = 0, terms = (double)(adjoint ? p.b : p.c);
    for (int64_t i = 0; i < x->size * x->batch; i++)
        largest = fmax(largest, magnitude_of(x->v[i]) + x->e[i]);
    for (int64_t i = 0; i < y->size * y->batch; i++)
        y->e[i] += u.unit * (y->m[i] + y->e[i]) + u.tiny * terms * largest;
}

void signal_round(signal *s, danaus_dtype dtype)
{
    precision p = precision_of(dtype);
    for (int64_t i = 0; i < s->size * s->batch; i++) {
        double size = magnitude_of(s->v[i]);
        s->e[i] += p.unit * (size + s->e[i]) + p.tiny;
    }
}

signal signal_gate(const signal *z, danaus_activation activation, danaus_dtype dtype)
{
    signal y = signal_copy(z);
    int64_t half = z->size / 2 * z->batch;
    double unit = precision_of(dtype).sum_unit;
    signal_activate(&y, activation, dtype);
    signal_round(&y, dtype);
    y.size /= 2;
    for (int64_t s = 0; s < half; s++) {
        double u = y.v[s].re, v = z->v[half + s].re, e = z->e[half + s];
        y.v[s].re = u * v;
        y.e[s] = y.e[s] * (fabs(v) + e) + fabs(u) * e + unit * fabs(u * v);
    }
    signal_round(&y, dtype);
    return y;
}

/* out[to] = sum over the batch of dy[row] conj(x[col]). */
static void dot_batch(
    signal *out, int64_t to, const signal *dy, int64_t row, const signal *x,
    int64_t col)
{
    int64_t n = x->batch;
    for (int64_t s = 0; s < n; s++) {
        int64_t at = row * n + s, from = col * n + s;
        value g = dy->v[at], v = x->v[from];
        out->v[to].re += g.re * v.re + g.im * v.im;
        out->v[to].im += g.im * v.re - g.re * v.im;
        out->m[to] += dy->m[at] * x->m[from];
        out->e[to] += dy->m[at] * x->e[from] + dy->e[at] * (x->m[from] + x->e[from]);
    }
}

signal signal_dw(
    danaus_pattern p, const signal *x, const signal *dy, danaus_dtype dtype)
{
    signal dw = signal_make(weights_of(p), 1);
    int64_t entry = 0;
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t k = 0; k < p.c; k++)
                for (int64_t j = 0; j < p.d; j++, entry++)
                    dot_batch(
                        &dw, entry, dy, (i * p.b + r) * p.d + j, x,
                        (i * p.c + k) * p.d + j);
    add_error_of_sums(&dw, x->batch, dtype);
    return dw;
}

signal signal_dbias(const signal *dy, danaus_dtype dtype)
{
    signal sum = signal_make(dy->size, 1);
    for (int64_t row = 0; row < dy->size; row++)
        for (int64_t s = row * dy->batch; s < (row + 1) * dy->batch; s++) {
            sum.v[row].re += dy->v[s].re;
            sum.v[row].im += dy->v[s].im;
            sum.m[row] += dy->m[s];
            sum.e[row] += dy->e[s];
        }
    add_error_of_sums(&sum, dy->batch, dtype);
    return sum;
}

void expect_signal(
    const array *a, danaus_layout layout, const signal *expected, const char *what)
{
    double largest = precision_of(a->dtype).largest;
    array_expect_guards(a);
    assert_int_equal(a->count, expected->size * expected->batch);
    for (int64_t row = 0; row < expected->size; row++)
        for (int64_t s = 0; s < expected->batch; s++) {
            int64_t at = row * expected->batch + s;
            value v = element_get(a->dtype, a->data, place(layout, expected, row, s));
            value w = expected->v[at];
            double re = fabs(v.re - w.re), im = fabs(v.im - w.im);
            if (re <= expected->e[at] && im <= expected->e[at])
                continue;
            if (magnitude_of(w) + expected->e[at] > largest)
                continue;
            fail_msg(
                "%s: row %" PRId64 " of %" PRId64 ", column %" PRId64 " of %" PRId64
                " is %.17g%+.17gi, not %.17g%+.17gi within %.3g",
                what, row, expected->size, s, expected->batch, v.re, v.im, w.re, w.im,
                expected->e[at]);
        }
}
