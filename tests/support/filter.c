/* Small random implicit filters, and plain loops. */
// SPDX-License-Identifier: Apache-2.0
#include "support/filter.h"
#include "support/test.h"

#include <math.h>

static const char *network_of(int reverse)
{
    return reverse ? "implicit_filter_rev" : "implicit_filter";
}

/* ---- making ---- */

static void add_network(
    rng *r, named_arrays *to, const char *name, const small_filter *f)
{
    char path[NAMED_LENGTH];
    for (int i = 0; i < f->layers; i++) {
        int last = i + 1 == f->layers;
        int64_t rows = last ? f->channels : f->order;
        int64_t cols = i ? f->order : f->features;
        named_path(path, "%s.%d.weight", name, 2 * i);
        named_add_random(
            r, to, 2, (const int64_t[]){ rows, cols }, 0, 1.5 / sqrt((double)cols),
            path);
        if (last)
            break;
        named_path(path, "%s.%d.bias", name, 2 * i);
        named_add_random(r, to, 1, &rows, 0, 0.5, path);
    }
}

/* All sines have the same numbers. */
static void add_frequencies(
    rng *r, named_arrays *to, const char *name, const small_filter *f, int reverse)
{
    char path[NAMED_LENGTH];
    uint64_t seed = rng_next(r);
    for (int way = 0; way <= reverse; way++)
        for (int i = 0; i + 1 < f->layers; i++) {
            rng same = { seed };
            named_path(path, "%s.%s.%d.freq", name, network_of(way), 2 * i + 1);
            named_add_random(
                &same, to, 2, (const int64_t[]){ 1, f->order }, 1.5, 1, path);
        }
}

void filter_encode(const small_filter *f, double *z)
{
    int64_t bands = (f->features - 1) / 2, n = f->features;
    for (int64_t s = 0; s < f->length; s++) {
        z[s * n] = f->length > 1 ? (double)s / (double)(f->length - 1) : 0;
        for (int64_t b = 0; b < bands; b++) {
            double last = (double)(bands - 1), step = bands > 1 ? (double)b / last : 0;
            double band = 1e-4 + step * (last - 1e-4);
            double angle = band * 2 * acos(-1) * (double)s / (double)f->length;
            z[s * n + 1 + b] = cos(angle);
            z[s * n + 1 + bands + b] = -sin(angle);
        }
    }
}

static double decay_of(const small_filter *f, int64_t channel)
{
    double from = log(0.01) / 1.5, to = log(0.01) / 0.3;
    double step = f->channels > 1 ? (double)channel / (double)(f->channels - 1) : 0;
    return from + step * (to - from);
}

static void add_window(named_arrays *to, const char *name, const small_filter *f)
{
    char path[NAMED_LENGTH];
    named_path(path, "%s.pos_emb.t", name);
    float *t = named_add(to, 3, (const int64_t[]){ 1, f->length, 1 }, path);
    for (int64_t s = 0; s < f->length; s++)
        t[s] = f->length > 1 ? (float)((double)s / (double)(f->length - 1)) : 0;
    named_path(path, "%s.modulation.deltas", name);
    float *decay = named_add(to, 3, (const int64_t[]){ 1, 1, f->channels }, path);
    for (int64_t h = 0; h < f->channels; h++)
        decay[h] = (float)decay_of(f, h);
}

void filter_add_random(
    rng *r, named_arrays *to, const char *name, const small_filter *f, int reverse,
    int bare)
{
    char path[NAMED_LENGTH];
    named_path(path, "%s.bias", name);
    named_add_random(r, to, 1, &f->channels, 0, 1, path);
    if (!bare) {
        named_path(path, "%s.pos_emb.z", name);
        filter_encode(
            f,
            named_add_f64(to, 3, (const int64_t[]){ 1, f->length, f->features }, path));
        add_window(to, name, f);
    }
    add_frequencies(r, to, name, f, reverse);
    for (int way = 0; way <= reverse; way++) {
        named_path(path, "%s.%s", name, network_of(way));
        add_network(r, to, path, f);
    }
}

/* ---- values ---- */

static void run_layer(
    const named_arrays *arrays, const char *path, int64_t rows, int64_t cols,
    const double *x, double *y, rng *noise)
{
    char name[NAMED_LENGTH];
    named_path(name, "%s.weight", path);
    const danaus_tensor *weight = named_find(arrays, name);
    named_path(name, "%s.bias", path);
    const danaus_tensor *bias = named_find(arrays, name);
    for (int64_t r = 0; r < rows; r++) {
        double sum = bias ? named_at(bias, r) : 0, size = fabs(sum);
        for (int64_t c = 0; c < cols; c++) {
            sum += named_at(weight, r * cols + c) * x[c];
            size += fabs(named_at(weight, r * cols + c) * x[c]);
        }
        y[r] = noisy(sum, size, (double)cols + 1, noise);
    }
}

static double window(const small_filter *f, int64_t s, int64_t channel)
{
    double time = f->length > 1 ? (double)s / (double)(f->length - 1) : 0;
    return exp(-time * fabs(decay_of(f, channel))) + f->shift;
}

void filter_values(
    const named_arrays *arrays, const char *name, const small_filter *f, int reverse,
    double *k, rng *noise)
{
    const double stored = named_stored;
    named_stored = 0; /* filters are of f32 */
    char path[NAMED_LENGTH];
    double x[FILTER_MOST_ORDER], y[FILTER_MOST_ORDER];
    assert_true(f->order <= FILTER_MOST_ORDER && f->features <= FILTER_MOST_ORDER);
    assert_true(f->channels <= FILTER_MOST_ORDER);
    named_path(path, "%s.implicit_filter.1.freq", name);
    const danaus_tensor *frequency = named_find(arrays, path);
    named_path(path, "%s.pos_emb.z", name);
    const danaus_tensor *z = named_find(arrays, path);
    for (int64_t s = 0; s < f->length; s++) {
        for (int64_t i = 0; i < f->features; i++)
            x[i] = named_at(z, s * f->features + i);
        for (int i = 0; i < f->layers; i++) {
            int last = i + 1 == f->layers;
            int64_t rows = last ? f->channels : f->order;
            named_path(path, "%s.%s.%d", name, network_of(reverse), 2 * i);
            run_layer(arrays, path, rows, i ? f->order : f->features, x, y, noise);
            for (int64_t r = 0; r < rows && !last; r++) {
                double angle = f->factor * named_at(frequency, r) * y[r];
                x[r] = noisy(sin(noisy(angle, fabs(angle), 3, noise)), 1, 2, noise);
            }
        }
        for (int64_t h = 0; h < f->channels; h++) {
            k[h * f->length + s] = 0;
            if (f->taps && s >= f->taps)
                continue;
            double v = y[h] * window(f, s, h);
            k[h * f->length + s] = noisy(v, fabs(v) * 20, 4, noise);
        }
    }
    named_stored = stored;
}
