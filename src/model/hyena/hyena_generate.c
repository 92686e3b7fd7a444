/* One token after the other: a model of Hyena's kind whose long convolutions are streams. */
// SPDX-License-Identifier: Apache-2.0
#include "model/hyena/hyena.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "model/sampler.h"

#include <inttypes.h>

/* Numbers of the channels of a step, unless one token has more. */
#define STEP_NUMBERS ((int64_t)1 << 20)

/* ---- making ---- */

static int64_t stream_count(const hyena *m) { return m->layers * (m->order - 1); }

/* Channels of a stream: products of a head's channels, or just those of v. */
static int64_t stream_channels(const hyena *m) { return m->width * m->head; }

static uintptr_t lay(hyena_text *t, uintptr_t at)
{
    const hyena *m = t->m;
    const int64_t size = (int64_t)sizeof(float);
    int64_t planes = t->most * dn_hyena_planes(m) * dn_size_of(m->dtype);
    t->ids = dn_cut(&at, t->most * (int64_t)sizeof *t->ids);
    t->r = dn_cut(&at, t->most * m->width * size);
    t->planes = dn_cut(&at, planes);
    for (int i = 0; i < 2; i++)
        t->products[i] = dn_cut(&at, t->most * stream_channels(m) * size);
    t->logits = dn_cut(&at, m->rows * size);
    dn_hyena_rows_lay(m, t->most, &at, &t->rows);
    return at;
}

/* Filters of a block in host memory, skips within. */
static danaus_status take_filters(const hyena_text *t, int64_t number, float *k)
{
    const hyena_filter *filter = &t->m->blocks[number].filter;
    int64_t channels = filter->shape.channels, taps = t->taps;
    float *made, skip;
    TRY(dn_hyena_make_filters(t->m, t->device, number, taps, &made));
    danaus_status status =
        danaus_download(t->device, k, made, (size_t)(channels * taps) * sizeof *k);
    danaus_free(t->device, made);
    for (int64_t i = 0; i < channels && status == DANAUS_OK; i++) {
        status = danaus_download(t->device, &skip, filter->skip + i, sizeof skip);
        k[i * taps] += skip;
    }
    return status;
}

static danaus_status make_streams(hyena_text *t, int64_t number, float *k)
{
    const hyena *m = t->m;
    danaus_stream_desc desc = { .channels = stream_channels(m),
                                .filters = m->filters,
                                .filter_length = t->taps };
    TRY(take_filters(t, number, k));
    for (int64_t o = 0; o < m->order - 1; o++)
        TRY(danaus_stream_create(
            t->device, &desc, k + o * m->filters * t->taps,
            &t->streams[number * (m->order - 1) + o]));
    return DANAUS_OK;
}

static danaus_status make_all_streams(hyena_text *t)
{
    const hyena *m = t->m;
    size_t numbers = (size_t)(m->shape.channels * t->taps);
    float *k = dn_calloc(numbers, sizeof *k);
    t->streams = dn_calloc((size_t)stream_count(m), sizeof(*t->streams));
    danaus_status status =
        k && t->streams ? DANAUS_OK : dn_fail_memory(numbers * sizeof *k, "filters");
    for (int64_t i = 0; i < m->layers && status == DANAUS_OK; i++)
        status = make_streams(t, i, k);
    dn_free(k);
    return status;
}

danaus_status dn_hyena_text_open(
    hyena_text *t, const hyena *m, danaus_device *device, int64_t length)
{
    int64_t channels = dn_hyena_planes(m) + 2 * stream_channels(m);
    *t = (hyena_text){ .m = m, .device = device, .length = length };
    t->taps = dn_hyena_taps(m, length);
    t->most = CLAMP(STEP_NUMBERS / channels, 1, MIN(length, HYENA_ROWS));
    TRY(dn_need_memory(device, (int64_t)lay(t, 0), "a text"));
    TRY(danaus_alloc(device, lay(t, 0), &t->memory));
    lay(t, (uintptr_t)t->memory);
    TRY(dn_hyena_words(m, device, &t->rows));
    return make_all_streams(t);
}

void dn_hyena_text_close(hyena_text *t)
{
    for (int64_t i = 0; t->streams && i < stream_count(t->m); i++)
        danaus_stream_destroy(t->streams[i]);
    dn_free(t->streams);
    danaus_free(t->device, t->memory);
    *t = (hyena_text){ 0 };
}

/* ---- going on ---- */

/* Streams are f32, and so is what comes before and after them. */
static danaus_status mix_channels(
    hyena_text *t, int64_t number, int64_t n, void **mixed)
{
    const hyena *m = t->m;
    int64_t plane = m->width * n;
    *mixed = dn_at(t->planes, m->dtype, m->order * plane);
    nn_multiply gate = {
        .count = plane, .a = *mixed, .y = t->products[0], .dtype = m->dtype, .wide_y = 1
    };
    for (int64_t o = 0; o < m->order - 1; o++) {
        gate.b = dn_at(t->planes, m->dtype, (m->order - 1 - o) * plane);
        TRY(t->device->backend->nn->multiply(t->device, &gate));
        TRY(danaus_stream_run(
            t->streams[number * (m->order - 1) + o], t->device, n, t->products[0],
            t->products[1]));
        gate.a = t->products[1];
        gate.wide_a = 1;
    }
    gate.b = t->planes;
    gate.y = *mixed;
    gate.wide_y = 0;
    return t->device->backend->nn->multiply(t->device, &gate);
}

static danaus_status mix_heads(hyena_text *t, int64_t number, int64_t n, void **mixed)
{
    const hyena *m = t->m;
    const nn_backend *nn = t->device->backend->nn;
    int64_t plane = m->width * n;
    nn_heads o = {
        .heads = m->filters, .size = m->head, .length = n, .dtype = m->dtype, .wide = 1
    };
    *mixed = dn_at(t->planes, m->dtype, 2 * plane);
    o.a = dn_at(t->planes, m->dtype, plane);
    o.b = *mixed;
    o.y = t->products[0];
    TRY(nn->outer(t->device, &o));
    TRY(danaus_stream_run(
        t->streams[number], t->device, n, t->products[0], t->products[1]));
    o.a = t->planes;
    o.b = t->products[1];
    o.y = *mixed;
    return nn->contract(t->device, &o);
}

/* At most t->most tokens, to r before the last norm. */
static danaus_status step(hyena_text *t, const int32_t *ids, int64_t n)
{
    const hyena *m = t->m;
    const int64_t offsets[] = { -t->time, n };
    const hyena_place at = {
        .sequences = { 1, offsets }, .rows = n, .stride = n, .ids = t->ids
    };
    void *mixed;
    TRY(danaus_upload(t->device, t->ids, ids, (size_t)n * sizeof *ids));
    TRY(t->device->backend->nn->lookup(
        t->device,
        &(nn_lookup){
            .rows = n, .width = m->width, .ids = t->ids, .word = m->word, .y = t->r }));
    for (int64_t i = 0; i < m->layers; i++) {
        TRY(dn_hyena_front(m, t->device, i, &at, &t->rows, t->r, t->planes));
        TRY(m->head > 1 ? mix_heads(t, i, n, &mixed) : mix_channels(t, i, n, &mixed));
        TRY(dn_hyena_back(m, t->device, i, &at, &t->rows, mixed, t->r));
    }
    t->time += n;
    return dn_hyena_last(m, t->device, n, &t->rows, t->r);
}

danaus_status dn_hyena_text_go_on(
    hyena_text *t, const int32_t *ids, int64_t n, float *logits)
{
    const hyena *m = t->m;
    int64_t last = 0;
    for (int64_t at = 0; at < n; at += last) {
        last = MIN(t->most, n - at);
        TRY(step(t, ids + at, last));
    }
    TRY(t->device->backend->nn->score(
        t->device, &(nn_score){ .rows = 1,
                                .width = m->width,
                                .words = m->rows,
                                .x = t->r + (last - 1) * m->width,
                                .table = m->table,
                                .y = t->logits }));
    return danaus_download(
        t->device, logits, t->logits, (size_t)m->rows * sizeof *logits);
}

/* ---- generating ---- */

static danaus_status generate(
    hyena_text *t, sampler *s, const int32_t *prompt, int64_t n, float *logits,
    danaus_token_fn on_token, void *user)
{
    TRY(dn_hyena_text_go_on(t, prompt, n, logits));
    for (int64_t left = t->length - n; left > 0; left--) {
        int32_t token = dn_sampler_pick(s, logits);
        if (token < 0)
            return dn_fail(
                DANAUS_ERR_FORMAT,
                "the model's logits are not finite after %" PRId64 " tokens", t->time);
        if (on_token(user, token))
            break;
        if (left > 1)
            TRY(dn_hyena_text_go_on(t, &token, 1, logits));
    }
    return DANAUS_OK;
}

/* A text of n tokens and those to come. */
static danaus_status generate_text(
    const hyena *m, danaus_device *device, sampler *s, const int32_t *prompt, int64_t n,
    int64_t length, danaus_token_fn on_token, void *user)
{
    hyena_text t;
    float *logits = dn_calloc((size_t)m->rows, sizeof *logits);
    if (!logits)
        return dn_fail_memory((size_t)m->rows * sizeof *logits, "logits");
    danaus_status status = dn_hyena_text_open(&t, m, device, length);
    if (status == DANAUS_OK)
        status = generate(&t, s, prompt, n, logits, on_token, user);
    dn_hyena_text_close(&t);
    dn_free(logits);
    return status;
}

danaus_status dn_hyena_generate(
    danaus_model *model, danaus_device *device, const int32_t *prompt, int64_t n,
    const danaus_sampling *sampling, danaus_token_fn on_token, void *user)
{
    int64_t room = model->info.max_length - n;
    int64_t tokens = sampling->max_tokens ? MIN(sampling->max_tokens, room) : room;
    sampler s;
    TRY(dn_sampler_open(&s, sampling, model->info.vocabulary));
    danaus_status status =
        generate_text(model->blocks, device, &s, prompt, n, n + tokens, on_token, user);
    dn_sampler_close(&s);
    return status;
}
