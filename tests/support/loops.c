/* Parts of models as plain loops. */
// SPDX-License-Identifier: Apache-2.0
#include "support/loops.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const danaus_tensor *find(
    const named_arrays *arrays, const char *place, const char *part)
{
    char name[NAMED_LENGTH];
    named_path(name, "%s.%s", place, part);
    return named_find(arrays, name);
}

void loops_linear(
    const named_arrays *arrays, const char *place, int64_t rows, int64_t cols,
    const double *x, double *y, rng *noise)
{
    const danaus_tensor *w = find(arrays, place, "weight"),
                        *bias = find(arrays, place, "bias");
    int64_t g = w->ndim == 3 ? w->shape[0] : 1, b = rows / g, c = cols / g;
    for (int64_t r = 0; r < rows; r++) {
        double sum = bias ? named_at(bias, r) : 0, size = fabs(sum);
        for (int64_t k = 0; k < c; k++) {
            double v = named_at(w, r * c + k) * x[r / b * c + k];
            sum += v;
            size += fabs(v);
        }
        y[r] = noisy(sum, size, (double)c + 2, noise);
    }
}

void loops_norm(
    const named_arrays *arrays, const char *place, int64_t width, double epsilon,
    const double *x, double *y, rng *noise)
{
    const danaus_tensor *scale = find(arrays, place, "weight"),
                        *shift = find(arrays, place, "bias");
    double n = (double)width, mean = 0, square = 0, size = 0;
    for (int64_t i = 0; i < width; i++) {
        mean += x[i] / n;
        size += fabs(x[i]) / n;
    }
    mean = noisy(mean, size, n, noise);
    for (int64_t i = 0; i < width; i++)
        square += (x[i] - mean) * (x[i] - mean) / n;
    square = noisy(square, square, n, noise);
    for (int64_t i = 0; i < width; i++) {
        double less = noisy(x[i] - mean, fabs(x[i]) + fabs(mean), 1, noise);
        double v =
            less / sqrt(square + epsilon) * named_at(scale, i) + named_at(shift, i);
        y[i] = noisy(v, fabs(v) + fabs(named_at(shift, i)), 6, noise);
    }
}

void loops_add(int64_t n, double *r, const double *more, rng *noise)
{
    for (int64_t i = 0; i < n; i++)
        r[i] = noisy(r[i] + more[i], fabs(r[i]) + fabs(more[i]), 1, noise);
}

void loops_taps(
    const named_arrays *arrays, const char *place, int64_t channels, int64_t taps,
    int64_t length, const double *p, double *c, rng *noise)
{
    const danaus_tensor *weight = find(arrays, place, "weight"),
                        *bias = find(arrays, place, "bias");
    for (int64_t i = 0; i < channels; i++)
        for (int64_t t = 0; t < length; t++) {
            double sum = named_at(bias, i), size = fabs(sum);
            for (int64_t j = 0; j < taps; j++) {
                int64_t s = t - (taps - 1) + j;
                double term =
                    s < 0 ? 0 : named_at(weight, i * taps + j) * p[s * channels + i];
                sum += term;
                size += fabs(term);
            }
            c[i * length + t] = noisy(sum, size, (double)taps + 1, noise);
        }
}

void loops_convolve(
    int64_t length, int64_t taps, const double *k, const double *r, double skip,
    const double *x, double *y, rng *noise)
{
    double kk = skip * skip, xx = 0;
    for (int64_t t = 0; t < length; t++) {
        if (t < taps)
            kk += k[t] * k[t] + (r ? r[t] * r[t] : 0);
        xx += x[t] * x[t];
    }
    for (int64_t t = 0; t < length; t++) {
        double sum = skip * x[t];
        for (int64_t s = t < taps ? 0 : t - taps + 1; s <= t; s++)
            sum += k[t - s] * x[s];
        for (int64_t s = t + 1; r && s < length && s <= t + taps; s++)
            sum += r[s - t - 1] * x[s];
        y[t] = noisy(sum, sqrt(kk * xx), 20, noise);
    }
}

void loops_gates(
    int64_t width, int64_t order, const loops_filters *f, int64_t length,
    double *planes, rng *noise)
{
    double *v = planes + order * width * length;
    double *u = calloc((size_t)length, sizeof *u);
    assert_non_null(u);
    for (int64_t i = 0; i < width; i++)
        for (int64_t o = 0; o < order; o++) {
            const double *x = planes + ((order - 1 - o) * width + i) * length;
            double *y = v + i * length;
            int64_t filter = o * width + i;
            for (int64_t t = 0; t < length; t++)
                u[t] = noisy(y[t] * x[t], fabs(y[t] * x[t]), 1, noise);
            if (o < order - 1)
                loops_convolve(
                    length, f->length, f->k + filter * f->length, NULL,
                    named_at(f->skips, filter), u, y, noise);
            else
                memcpy(y, u, (size_t)length * sizeof *u);
        }
    free(u);
}

/* Channels [width][length] through the filter at a place. */
static void filter_channels(
    const named_arrays *arrays, const char *place, const loops_m2 *m, int64_t length,
    const double *x, double *y, rng *noise)
{
    int64_t n = m->width, all = m->filter->length;
    double *k = calloc((size_t)(2 * n * all), sizeof *k), *reverse = k + n * all;
    assert_non_null(k);
    const danaus_tensor *skip = find(arrays, place, "bias");
    filter_values(arrays, place, m->filter, 0, k, noise);
    if (m->bidirectional)
        filter_values(arrays, place, m->filter, 1, reverse, noise);
    for (int64_t i = 0; i < n; i++)
        loops_convolve(
            length, all, k + i * all, m->bidirectional ? reverse + i * all : NULL,
            named_at(skip, i), x + i * length, y + i * length, noise);
    free(k);
}

/* Channels [3 width][length] of what W_in makes of rows u, after the filters of few taps. */
static void project(
    const named_arrays *arrays, const char *place, int64_t n, int64_t length,
    const double *u, double *c, rng *noise)
{
    char name[NAMED_LENGTH];
    double *p = calloc((size_t)(3 * n * length), sizeof *p);
    assert_non_null(p);
    named_path(name, "%s.in_linear", place);
    for (int64_t t = 0; t < length; t++)
        loops_linear(arrays, name, 3 * n, n, u + t * n, p + 3 * n * t, noise);
    named_path(name, "%s.short_filter", place);
    loops_taps(arrays, name, 3 * n, 3, length, p, c, noise);
    free(p);
}

void loops_m2_mix(
    const named_arrays *arrays, const char *place, const loops_m2 *m, int64_t length,
    double *u, rng *noise)
{
    char name[NAMED_LENGTH];
    int64_t n = m->width, size = n * length;
    double *c = calloc((size_t)(6 * size + n), sizeof *c), *x2 = c + size,
           *v = x2 + size;
    double *y = v + size, *turned = y + size, *more = turned + size, *row = more + size;
    assert_non_null(c);
    project(arrays, place, n, length, u, c, noise);
    for (int64_t i = 0; i < size; i++)
        v[i] = noisy(c[i] * v[i], fabs(c[i] * v[i]), 1, noise);
    named_path(name, "%s.filter_fn", place);
    filter_channels(arrays, name, m, length, v, y, noise);
    for (int64_t i = 0; i < size; i++)
        turned[i] = u[i % length * n + i / length];
    named_path(name, "%s.filter_fn2", place);
    if (m->residual)
        filter_channels(arrays, name, m, length, turned, more, noise);
    named_path(name, "%s.out_linear", place);
    for (int64_t t = 0; t < length; t++) {
        for (int64_t i = 0; i < n; i++) {
            double gated = y[i * length + t] * x2[i * length + t];
            double sum = gated + more[i * length + t];
            row[i] = noisy(sum, fabs(gated) + fabs(sum), 2, noise);
        }
        loops_linear(arrays, name, n, n, row, u + t * n, noise);
    }
    free(c);
}
