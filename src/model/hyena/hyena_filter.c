/* Implicit long filters from a weights file, and their values. */
// SPDX-License-Identifier: Apache-2.0
#include "model/hyena/hyena_filter.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"

#include <math.h>

/* Positions that go through a network together: they stay in the second cache. */
#define POSITIONS 512

/* ---- buffers that are made where the file lacks them ---- */

/* Number i of `count` from a to b. */
static double spaced(double a, double b, int64_t i, int64_t count)
{
    return count < 2 ? a : a + (b - a) * (double)i / (double)(count - 1);
}

typedef double maker(const hyena_shape *shape, int64_t row, int64_t col);

/* Number i of z[s]: the time, then cosines, then negative sines of all bands. */
static double encoding(const hyena_shape *shape, int64_t s, int64_t i)
{
    int64_t bands = (shape->features - 1) / 2;
    if (!i)
        return spaced(0, 1, s, shape->length);
    double band = spaced(1e-4, (double)bands - 1, (i - 1) % bands, bands);
    double angle = band * 2 * acos(-1) * (double)s / (double)shape->length;
    return i <= bands ? cos(angle) : -sin(angle);
}

static double decay(const hyena_shape *shape, int64_t row, int64_t i)
{
    (void)row;
    return spaced(log(0.01) / 1.5, log(0.01) / 0.3, i, shape->channels);
}

static danaus_status fill_buffer(
    binder *b, const hyena_shape *shape, maker *make, int64_t rows, int64_t cols,
    const float **numbers)
{
    void *memory;
    TRY(dn_memory_add(b->copies, rows * cols * (int64_t)sizeof(float), &memory));
    if (b->copies->outline)
        return DANAUS_OK;
    double *made = dn_alloc((size_t)(rows * cols) * sizeof *made);
    if (!made)
        return dn_fail_memory((size_t)(rows * cols) * sizeof *made, "a filter");
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            made[r * cols + c] = make(shape, r, c);
    danaus_status status =
        dn_put_numbers(b->device, DANAUS_F64, made, DANAUS_F32, memory, rows * cols);
    dn_free(made);
    *numbers = memory;
    return status;
}

/* A tensor [1][rows][cols] that is no parameter. */
static danaus_status bind_buffer(
    binder *b, const hyena_shape *shape, const char *path, maker *make, int64_t rows,
    int64_t cols, const float **numbers)
{
    danaus_tensor t;
    int64_t parameters = b->parameters;
    int is_there = dn_binder_find(b, path, &t);
    *numbers = NULL;
    /* Nothing as large as a configuration says, unless the weights say so, too. */
    if (!is_there && b->problems)
        return DANAUS_OK;
    if (!is_there)
        return fill_buffer(b, shape, make, rows, cols, numbers);
    TRY(dn_bind(b, path, 3, (const int64_t[]){ 1, rows, cols }, numbers));
    b->parameters = parameters;
    return DANAUS_OK;
}

/* ---- loading ---- */

static const char *const networks[2] = { "implicit_filter", "implicit_filter_rev" };

/* All names of the frequencies have their place; the first is read. */
static danaus_status bind_frequency(hyena_filter *f, binder *b, const char *name)
{
    tensor_name first = dn_name("%s.%s.1.freq", name, networks[0]);
    danaus_tensor t;
    for (int found = 0, way = 0; way <= f->shape.reverse; way++)
        for (int i = 1; i + 1 < 2 * f->shape.layers; i += 2) {
            const tensor_name path = dn_name("%s.%s.%d.freq", name, networks[way], i);
            if (dn_binder_find(b, path.text, &t) && !found++)
                first = path;
        }
    return dn_bind(
        b, first.text, 2, (const int64_t[]){ 1, f->shape.order }, &f->frequency);
}

static danaus_status open_network(hyena_filter *f, binder *b, const char *name, int way)
{
    const hyena_shape *shape = &f->shape;
    for (int i = 0; i < shape->layers; i++) {
        int last = i + 1 == shape->layers;
        linear_shape layer = { .rows = last ? shape->channels : shape->order,
                               .cols = i ? shape->order : shape->features,
                               .tokens = POSITIONS,
                               .no_bias = last };
        linear *to = &f->network[way][i];
        TRY(dn_linear_open(
            to, b, dn_name("%s.%s.%d", name, networks[way], 2 * i).text, &layer));
        b->parameters += to->parameters;
    }
    return DANAUS_OK;
}

static danaus_status bind_encoding(hyena_filter *f, binder *b, const char *name)
{
    const hyena_shape *shape = &f->shape;
    const int64_t sizes[] = { 1, shape->length, shape->features };
    const tensor_name z = dn_name("%s.pos_emb.z", name);
    if (shape->learned)
        return dn_bind(b, z.text, 3, sizes, &f->z);
    return bind_buffer(b, shape, z.text, encoding, sizes[1], sizes[2], &f->z);
}

static danaus_status bind_window(hyena_filter *f, binder *b, const char *name)
{
    const hyena_shape *shape = &f->shape;
    const tensor_name t = dn_name("%s.pos_emb.t", name),
                      deltas = dn_name("%s.modulation.deltas", name);
    TRY(bind_buffer(b, shape, t.text, encoding, shape->length, 1, &f->times));
    TRY(bind_buffer(b, shape, deltas.text, decay, 1, shape->channels, &f->decay));
    if (shape->constant)
        f->decay = NULL;
    return DANAUS_OK;
}

danaus_status dn_hyena_filter_open(
    hyena_filter *f, binder *b, const char *name, const hyena_shape *shape)
{
    *f = (hyena_filter){ .shape = *shape };
    TRY(dn_bind(b, dn_name("%s.bias", name).text, 1, &shape->channels, &f->skip));
    TRY(bind_frequency(f, b, name));
    for (int way = 0; way <= shape->reverse; way++)
        TRY(open_network(f, b, name, way));
    TRY(bind_encoding(f, b, name));
    return bind_window(f, b, name);
}

void dn_hyena_filter_close(hyena_filter *f)
{
    for (int way = 0; way < 2; way++)
        for (int i = 0; i < f->shape.layers; i++)
            dn_linear_close(&f->network[way][i]);
}

/* ---- values ---- */

/* Values of these positions; between[2] have room for each layer's rows. */
static danaus_status run_rows(
    const hyena_filter *f, danaus_device *device, const linear *network, range at,
    float *const between[2], float *k, int64_t stride)
{
    const hyena_shape *shape = &f->shape;
    const nn_backend *nn = device->backend->nn;
    int64_t rows = at.to - at.from;
    const float *x = f->z + at.from * shape->features;
    for (int i = 0; i < shape->layers; i++) {
        float *y = between[i % 2];
        TRY(dn_linear_run(&network[i], device, rows, x, y));
        if (i + 1 < shape->layers)
            TRY(nn->sine(
                device, &(nn_sine){ .rows = rows,
                                    .width = shape->order,
                                    .x = y,
                                    .scale = f->frequency,
                                    .factor = shape->factor,
                                    .y = y }));
        x = y;
    }
    return nn->turn(
        device, &(nn_turn){ .rows = rows,
                            .width = shape->channels,
                            .stride = stride,
                            .x = x,
                            .decay = f->decay,
                            .times = f->times + at.from,
                            .shift = shape->shift,
                            .y = k + at.from });
}

danaus_status dn_hyena_filter_run(
    const hyena_filter *f, danaus_device *device, int reverse, int64_t length, float *k,
    int64_t stride)
{
    int64_t rows = MIN(length, POSITIONS);
    int64_t numbers = rows * MAX(f->shape.order, f->shape.channels);
    void *memory;
    TRY(danaus_alloc(device, 2 * (size_t)numbers * sizeof(float), &memory));
    float *const between[2] = { memory, (float *)memory + numbers };
    danaus_status status = DANAUS_OK;
    for (int64_t s = 0; s < length && status == DANAUS_OK; s += rows)
        status = run_rows(
            f, device, f->network[reverse != 0], (range){ s, MIN(s + rows, length) },
            between, k, stride);
    danaus_free(device, memory);
    return status;
}

int64_t dn_hyena_filter_packed(const hyena_filter *f)
{
    int64_t bytes = 0;
    for (int way = 0; way < 2; way++)
        for (int i = 0; i < f->shape.layers; i++)
            bytes += f->network[way][i].packed;
    return bytes;
}

int64_t dn_hyena_filter_operations(const hyena_filter *f)
{
    int64_t products = 0;
    for (int i = 0; i < f->shape.layers; i++)
        products += f->network[0][i].parameters;
    return 2 * products;
}

double dn_hyena_conv_operations(int64_t length, int64_t taps)
{
    double n = (double)(length + taps);
    return 5 * n * log2(n) + 3 * n;
}
