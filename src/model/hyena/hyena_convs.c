/* Long convolutions of whole sequences: plans, spectra, and mixing in place. */
// SPDX-License-Identifier: Apache-2.0
#include "model/hyena/hyena.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"

/* Sequences of at most so many tokens are packed: spectra for several lengths take little. */
#define MOST_PACKED 4096
/* The least length of a packed plan, whatever there is to convolve. */
#define LEAST_PACKED 1024

/* ---- groups of filters ---- */

/* Channels that have one filter. */
static int64_t channels_of_filter(const hyena *m) { return m->head * m->head; }

/* Filters of a group, a divisor of all, for sequences of such a length. */
static int64_t group_of(const hyena *m, int64_t length)
{
    int64_t numbers = MAX(length, LEAST_PACKED) * channels_of_filter(m);
    int64_t group = CLAMP(m->convs.group_numbers / numbers, 1, m->filters);
    while (m->filters % group)
        group--;
    return group;
}

static int64_t groups(const hyena *m, const hyena_convs *c)
{
    return m->filters / c->group;
}

/* Behind the channels there is room for a group: results go where it is, and their own
   channels' place is free then. Heads need a group's channels before and after. A group has
   group_numbers for twice the tokens at most, or is one filter. */
int64_t dn_hyena_mix_room(const hyena *m, int64_t tokens)
{
    int64_t one = 2 * MAX(tokens, LEAST_PACKED) * channels_of_filter(m);
    int64_t all = tokens * m->filters * channels_of_filter(m);
    return (m->head > 1 ? 2 : 1) * MIN(all, MAX(m->convs.group_numbers, one));
}

/* ---- plans and spectra ---- */

void dn_hyena_convs_free(hyena_convs *c)
{
    for (int64_t i = 0; c->spectra && i < c->count; i++)
        danaus_spectrum_destroy(c->spectra[i]);
    dn_free(c->spectra);
    danaus_conv_plan_destroy(c->plan);
    *c = (hyena_convs){ .group_numbers = c->group_numbers,
                        .most_spectra = c->most_spectra };
}

/* The length of a plan for a sequence. */
static int64_t length_of(const hyena *m, int64_t longest)
{
    int64_t length = LEAST_PACKED;
    if (longest > MOST_PACKED)
        return longest;
    while (length < longest)
        length *= 2;
    return MIN(length, m->longest);
}

/* Bytes of the spectra that will be there; the caller frees the plan, also on failure. */
static danaus_status make_plan(
    const hyena *m, danaus_device *device, int64_t longest, hyena_convs *c,
    size_t *bytes)
{
    c->length = length_of(m, longest);
    c->taps = dn_hyena_taps(m, c->length);
    c->packed = longest <= MOST_PACKED;
    c->group = group_of(m, c->length);
    danaus_conv_desc desc = { .channels = c->group * channels_of_filter(m),
                              .filters = c->group,
                              .length = c->length,
                              .filter_length = c->taps,
                              .kind = DANAUS_CAUSAL,
                              .dtype = m->dtype,
                              .batch = 1,
                              .packed = c->packed };
    int64_t all = m->layers * (m->order - 1) * groups(m, c);
    TRY(danaus_conv_plan_create(device, &desc, &c->plan));
    TRY(danaus_spectrum_bytes(c->plan, bytes));
    c->kept = *bytes <= c->most_spectra / (size_t)all;
    c->count = c->kept ? all : 1;
    *bytes *= (size_t)c->count;
    return DANAUS_OK;
}

static danaus_status make_spectra(danaus_device *device, hyena_convs *c)
{
    c->spectra = dn_calloc((size_t)c->count, sizeof(*c->spectra));
    if (!c->spectra)
        return dn_fail_memory((size_t)c->count * sizeof(*c->spectra), "spectra");
    for (int64_t i = 0; i < c->count; i++)
        TRY(danaus_spectrum_create(c->plan, device, NULL, NULL, NULL, &c->spectra[i]));
    return DANAUS_OK;
}

danaus_status dn_hyena_make_filters(
    const hyena *m, danaus_device *device, int64_t number, int64_t taps, float **k)
{
    size_t bytes = (size_t)(m->shape.channels * taps) * sizeof **k;
    void *memory;
    TRY(danaus_alloc(device, bytes, &memory));
    *k = memory;
    danaus_status status =
        dn_hyena_filter_run(&m->blocks[number].filter, device, 0, taps, *k, taps);
    if (status != DANAUS_OK)
        danaus_free(device, memory);
    return status;
}

/* Transforms the filters of one group of one convolution of a block. */
static danaus_status transform(
    const hyena *m, danaus_device *device, int64_t number, int64_t which, int64_t group,
    const float *k, danaus_spectrum *to)
{
    const hyena_convs *c = &m->convs;
    int64_t first = which * m->filters + group * c->group;
    return danaus_spectrum_update_from(
        to, device, DANAUS_F32, k + first * c->taps, NULL,
        m->blocks[number].filter.skip + first);
}

static danaus_status transform_block(hyena *m, danaus_device *device, int64_t number)
{
    hyena_convs *c = &m->convs;
    float *k;
    TRY(dn_hyena_make_filters(m, device, number, c->taps, &k));
    danaus_status status = DANAUS_OK;
    danaus_spectrum **to = c->spectra + number * (m->order - 1) * groups(m, c);
    for (int64_t o = 0; o < m->order - 1; o++)
        for (int64_t g = 0; g < groups(m, c) && status == DANAUS_OK; g++)
            status = transform(m, device, number, o, g, k, *to++);
    danaus_free(device, k);
    return status;
}

static danaus_status make_convs(hyena *m, danaus_device *device, int64_t longest)
{
    size_t bytes;
    TRY(make_plan(m, device, longest, &m->convs, &bytes));
    TRY(make_spectra(device, &m->convs));
    for (int64_t i = 0; m->convs.kept && i < m->layers; i++)
        TRY(transform_block(m, device, i));
    return DANAUS_OK;
}

danaus_status dn_hyena_convs_prepare(hyena *m, danaus_device *device, int64_t longest)
{
    hyena_convs *c = &m->convs;
    int packed = longest <= MOST_PACKED;
    if (c->plan && packed == c->packed &&
        (packed ? longest <= c->length : longest == c->length))
        return DANAUS_OK;
    dn_hyena_convs_free(c);
    danaus_status status = make_convs(m, device, longest);
    if (status != DANAUS_OK)
        dn_hyena_convs_free(c);
    return status;
}

danaus_status dn_hyena_convs_cost(
    const void *blocks, danaus_device *device, int64_t length, danaus_model_cost *cost)
{
    const hyena *m = blocks;
    hyena_convs c = { .group_numbers = m->convs.group_numbers,
                      .most_spectra = m->convs.most_spectra };
    size_t bytes;
    int64_t convs = m->layers * (m->order - 1);
    danaus_status status = make_plan(m, device, length, &c, &bytes);
    if (status == DANAUS_OK) {
        double network = (double)dn_hyena_filter_operations(&m->blocks->filter);
        cost->mixing = dn_hyena_conv_operations(length, dn_hyena_taps(m, length)) *
                       (double)(convs * m->filters * channels_of_filter(m));
        cost->filters = network * (double)(m->layers * c.taps);
        *(c.kept ? &cost->kept : &cost->memory) += (int64_t)bytes;
        if (!c.kept)
            cost->memory += m->shape.channels * c.taps * (int64_t)sizeof(float);
    }
    dn_hyena_convs_free(&c);
    return status;
}

/* ---- mixing ---- */

/* A block at work. */
typedef struct mixing {
    const hyena *m;
    danaus_device *device;
    int64_t number;
    const nn_sequences *sequences;
    int64_t tokens;
    void *planes;
    const float *k; /* its filters, where spectra are not kept */
} mixing;

/* y = gate_out (k (*) (gate_in u)) for a group of convolution `which`. */
static danaus_status convolve(
    const mixing *x, int64_t which, int64_t group, const void *u, const void *gate_in,
    const void *gate_out, void *y)
{
    const hyena_convs *c = &x->m->convs;
    int64_t place = (x->number * (x->m->order - 1) + which) * groups(x->m, c) + group;
    danaus_spectrum *spectrum = c->spectra[x->k ? 0 : place];
    if (x->k)
        TRY(transform(x->m, x->device, x->number, which, group, x->k, spectrum));
    if (c->packed)
        return danaus_conv_execute_packed(
            c->plan, x->device, spectrum, x->sequences->count, x->sequences->offsets, u,
            gate_in, gate_out, y);
    return danaus_conv_execute(
        c->plan, x->device, spectrum, 1, u, gate_in, gate_out, y);
}

/* So many numbers on; NULL stays. */
static void *on(const mixing *x, const void *channels, int64_t numbers)
{
    return channels ? dn_at(channels, x->m->dtype, numbers) : NULL;
}

/* Results of a convolution go a group behind their channels, the last group first, those of
   the next one back, the first group first: nothing is in the way. */
static danaus_status mix_channels(const mixing *x, void **mixed)
{
    const hyena *m = x->m;
    int64_t plane = m->width * x->tokens, step = m->convs.group * x->tokens;
    int64_t all = groups(m, &m->convs);
    void *v = on(x, x->planes, m->order * plane);
    for (int64_t o = 0; o < m->order - 1; o++) {
        int forth = o % 2 == 0;
        const void *gate_in = on(x, x->planes, (m->order - 1 - o) * plane);
        const void *gate_out = o == m->order - 2 ? x->planes : NULL;
        for (int64_t i = 0; i < all; i++) {
            int64_t g = forth ? all - 1 - i : i, at = g * step;
            TRY(convolve(
                x, o, g, on(x, v, at), on(x, gate_in, at), on(x, gate_out, at),
                on(x, v, forth ? at + step : at - step)));
        }
        v = on(x, v, forth ? step : -step);
    }
    *mixed = v;
    return DANAUS_OK;
}

/* Results go to the place of v. */
static danaus_status mix_heads(const mixing *x, void **mixed)
{
    const hyena *m = x->m;
    const nn_backend *nn = x->device->backend->nn;
    int64_t plane = m->width * x->tokens, step = m->convs.group * m->head * x->tokens;
    void *x0 = x->planes, *x1 = on(x, x0, plane), *v = on(x, x1, plane);
    void *before = on(x, v, plane), *after = on(x, before, step * m->head);
    *mixed = v;
    for (int64_t g = 0; g < groups(m, &m->convs); g++) {
        int64_t at = g * step;
        nn_heads o = { .heads = m->convs.group,
                       .size = m->head,
                       .length = x->tokens,
                       .dtype = m->dtype };
        o.a = on(x, x1, at);
        o.b = on(x, v, at);
        o.y = before;
        TRY(nn->outer(x->device, &o));
        TRY(convolve(x, 0, g, before, NULL, NULL, after));
        o.a = on(x, x0, at);
        o.b = after;
        o.y = on(x, v, at);
        TRY(nn->contract(x->device, &o));
    }
    return DANAUS_OK;
}

danaus_status dn_hyena_mix(
    const hyena *m, danaus_device *device, int64_t number,
    const nn_sequences *sequences, void *planes, void **mixed)
{
    float *k = NULL;
    mixing x = { .m = m,
                 .device = device,
                 .number = number,
                 .sequences = sequences,
                 .tokens = sequences->offsets[sequences->count],
                 .planes = planes };
    if (!m->convs.kept)
        TRY(dn_hyena_make_filters(m, device, number, m->convs.taps, &k));
    x.k = k;
    danaus_status status = m->head > 1 ? mix_heads(&x, mixed) : mix_channels(&x, mixed);
    danaus_free(device, k);
    return status;
}
