/* Sequences through an encoder, chunk after chunk. */
// SPDX-License-Identifier: Apache-2.0
#include "model/encode.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "model/arch.h"

#include <math.h>

/* Memory for the largest chunk, and for copies from and to the host. */
typedef struct encoder_run {
    danaus_model *model;
    danaus_device *device;
    int64_t tokens, sequences, longest; /* at most */
    void *memory;                       /* of the device, all of it */
    void *own;                          /* of the blocks */
    int32_t *ids, *positions;
    float *pooled, *dense;
    int64_t *host_offsets;
    int32_t *host_positions;
    chunk_listener listener;
} encoder_run;

static int64_t chunk_tokens(const encoder_run *e)
{
    const encoder *of = e->model->arch->encoder;
    return of->gpu_tokens && !e->device->backend->on_host ? of->gpu_tokens : of->tokens;
}

static void measure(encoder_run *e, int64_t sequences, const int64_t *offsets)
{
    const nn_sequences all = { sequences, offsets };
    e->tokens = e->sequences = 1;
    e->longest = MAX(dn_longest(&all), 1);
    for (int64_t first = 0, n; first < sequences; first += n) {
        n = dn_chunk_of(offsets, sequences, first, chunk_tokens(e));
        e->tokens = MAX(e->tokens, offsets[first + n] - offsets[first]);
        e->sequences = MAX(e->sequences, n);
    }
}

static uintptr_t lay(encoder_run *e, uintptr_t at)
{
    int64_t row = e->model->info.width * (int64_t)sizeof(float);
    e->ids = dn_cut(&at, e->tokens * (int64_t)sizeof(int32_t));
    e->positions = dn_cut(&at, e->tokens * (int64_t)sizeof(int32_t));
    e->pooled = dn_cut(&at, e->sequences * row);
    e->dense = dn_cut(&at, e->sequences * row);
    e->own = (void *)at;
    return at;
}

static danaus_status open_encoding(encoder_run *e)
{
    int64_t bytes = (int64_t)lay(e, 0);
    bytes += e->model->arch->mixer->bytes(e->model->blocks, e->tokens, e->longest);
    TRY(dn_need_memory(e->device, bytes, "the activations"));
    TRY(danaus_alloc(e->device, (size_t)bytes, &e->memory));
    lay(e, (uintptr_t)e->memory);
    e->host_offsets = dn_calloc((size_t)e->sequences + 1, sizeof *e->host_offsets);
    e->host_positions = dn_calloc((size_t)e->tokens, sizeof *e->host_positions);
    return e->host_offsets && e->host_positions
               ? DANAUS_OK
               : dn_fail_memory((size_t)e->tokens * sizeof(int32_t), "positions");
}

static void close_encoding(encoder_run *e)
{
    dn_free(e->host_offsets);
    dn_free(e->host_positions);
    danaus_free(e->device, e->memory);
}

static void number_tokens(
    const encoder_run *e, const int64_t *offsets, int64_t sequences)
{
    for (int64_t i = 0; i <= sequences; i++)
        e->host_offsets[i] = offsets[i] - offsets[0];
    for (int64_t i = 0; i < sequences; i++)
        for (int64_t t = e->host_offsets[i]; t < e->host_offsets[i + 1]; t++)
            e->host_positions[t] = (int32_t)(t - e->host_offsets[i]);
}

/* The rows h of `n` sequences. */
static danaus_status run_chunk(
    const encoder_run *e, const int64_t *offsets, int64_t n, const int32_t *ids,
    void **h)
{
    danaus_model *model = e->model;
    const mixer_kind *mixer = model->arch->mixer;
    number_tokens(e, offsets, n);
    int64_t tokens = e->host_offsets[n];
    size_t bytes = (size_t)tokens * sizeof(int32_t);
    TRY(danaus_upload(e->device, e->ids, ids + offsets[0], bytes));
    TRY(danaus_upload(e->device, e->positions, e->host_positions, bytes));
    const token_chunk c = {
        { n, e->host_offsets }, tokens, e->ids, e->positions, e->listener
    };
    if (model->arch->encoder->embed)
        TRY(model->arch->encoder->embed(
            model, e->device, &c, mixer->rows(model->blocks, &c, e->own)));
    return mixer->run(model->blocks, e->device, &c, e->own, h);
}

/* ---- embeddings ---- */

/* One vector a sequence, in host memory. */
static danaus_status pool(const encoder_run *e, int64_t n, const void *h, float *to)
{
    const danaus_model *model = e->model;
    int64_t width = model->info.width;
    float *y = e->pooled;
    TRY(e->device->backend->nn->pool(
        e->device,
        &(nn_pool){ .sequences = { n, e->host_offsets },
                    .width = width,
                    .first = model->pooling.first,
                    .normalize = model->pooling.normalize,
                    .x = h,
                    .y = y,
                    .dtype = model->arch->mixer->wide ? DANAUS_F32 : model->dtype }));
    if (dn_linear_is_open(&model->pooler)) {
        TRY(dn_linear_run(&model->pooler, e->device, n, y, e->dense));
        y = e->dense;
    }
    TRY(danaus_download(e->device, to, y, (size_t)(n * width) * sizeof *to));
    for (int64_t i = 0; dn_linear_is_open(&model->pooler) && i < n * width; i++)
        to[i] = tanhf(to[i]);
    return DANAUS_OK;
}

static danaus_status embed_chunks(
    const encoder_run *e, int64_t sequences, const int64_t *offsets, const int32_t *ids,
    float *embeddings)
{
    void *h;
    for (int64_t first = 0, n; first < sequences; first += n) {
        n = dn_chunk_of(offsets, sequences, first, chunk_tokens(e));
        TRY(run_chunk(e, offsets + first, n, ids, &h));
        TRY(pool(e, n, h, embeddings + first * e->model->info.width));
    }
    return DANAUS_OK;
}

danaus_status dn_encode_embed(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, float *embeddings)
{
    encoder_run e = { .model = model, .device = device };
    measure(&e, sequences, offsets);
    danaus_status status = open_encoding(&e);
    if (status == DANAUS_OK)
        status = embed_chunks(&e, sequences, offsets, ids, embeddings);
    close_encoding(&e);
    return status;
}

danaus_status dn_encode_cost(
    danaus_model *model, danaus_device *device, int64_t sequences, int64_t length,
    danaus_model_cost *cost)
{
    encoder_run e = { .model = model, .device = device };
    const mixer_kind *mixer = model->arch->mixer;
    danaus_model_cost one = { 0 };
    e.sequences = CLAMP(chunk_tokens(&e) / length, 1, sequences);
    e.tokens = e.sequences * length;
    one.memory = (int64_t)lay(&e, 0) + mixer->bytes(model->blocks, e.tokens, length);
    for (int i = 0; i < model->linears; i++)
        one.linear += 2 * (double)model->linear[i].parameters * (double)length;
    TRY(mixer->cost(model->blocks, device, length, &one));
    one.linear *= (double)sequences;
    one.mixing *= (double)sequences;
    *cost = one;
    return DANAUS_OK;
}

/* ---- scores of words ---- */

static danaus_status score_rows(
    const encoder_run *e, const void *h, int64_t count, const int64_t *places,
    float *scores)
{
    const head *of = &e->model->head;
    int64_t width = e->model->info.width;
    danaus_dtype dtype = e->model->dtype;
    void *memory;
    TRY(danaus_alloc(e->device, dn_head_bytes(of), &memory));
    danaus_status status = DANAUS_OK;
    for (int64_t at = 0, n; at < count && status == DANAUS_OK; at += n) {
        n = MIN(count - at, HEAD_ROWS);
        for (int64_t i = 0; i < n && status == DANAUS_OK; i++)
            status = e->device->backend->copy(
                e->device, dn_at(memory, dtype, i * width),
                dn_at(h, dtype, places[at + i] * width),
                (size_t)(width * dn_size_of(dtype)));
        if (status == DANAUS_OK)
            status = dn_head_run(of, e->device, n, memory, scores + at * of->words);
    }
    danaus_free(e->device, memory);
    return status;
}

danaus_status dn_encode_fill(
    danaus_model *model, danaus_device *device, int64_t length, const int32_t *ids,
    int64_t count, const int64_t *places, float *scores)
{
    encoder_run e = { .model = model,
                      .device = device,
                      .tokens = length,
                      .sequences = 1,
                      .longest = length };
    const int64_t offsets[] = { 0, length };
    void *h;
    danaus_status status = open_encoding(&e);
    if (status == DANAUS_OK)
        status = run_chunk(&e, offsets, 1, ids, &h);
    if (status == DANAUS_OK)
        status = score_rows(&e, h, count, places, scores);
    close_encoding(&e);
    return status;
}

/* ---- likelihoods ---- */

/* Logits that are in memory together, unless one row has more. */
#define MOST_LOGITS ((int64_t)1 << 21)
#define MOST_ROWS   ((int64_t)512)

/* In one block of device memory. */
typedef struct likelihoods {
    int64_t rows; /* that are worked on together */
    int32_t *targets;
    float *logits, *y; /* [rows][vocabulary], [tokens] */
} likelihoods;

static uintptr_t lay_likelihoods(const encoder_run *e, uintptr_t at, likelihoods *l)
{
    int64_t width = e->model->next.rows;
    l->rows = CLAMP(MOST_LOGITS / width, 1, MOST_ROWS);
    l->targets = dn_cut(&at, e->tokens * (int64_t)sizeof *l->targets);
    l->logits = dn_cut(&at, l->rows * width * (int64_t)sizeof *l->logits);
    l->y = dn_cut(&at, e->tokens * (int64_t)sizeof *l->y);
    return at;
}

/* The target of a row is the token that follows it; the last one of a sequence has none. */
static danaus_status put_targets(
    const encoder_run *e, int64_t n, const int32_t *ids, const likelihoods *l)
{
    int64_t tokens = e->host_offsets[n];
    int32_t *targets = e->host_positions; /* which are used up */
    for (int64_t t = 0; t + 1 < tokens; t++)
        targets[t] = ids[t + 1];
    for (int64_t i = 1; i <= n; i++)
        targets[e->host_offsets[i] - 1] = -1;
    return danaus_upload(
        e->device, l->targets, targets, (size_t)tokens * sizeof *targets);
}

/* Works on the rows h of a chunk. */
static danaus_status find_likely(
    const encoder_run *e, int64_t tokens, const void *h, const likelihoods *l,
    float *scores)
{
    const linear *next = &e->model->next;
    for (int64_t at = 0, n; at < tokens; at += n) {
        n = MIN(l->rows, tokens - at);
        const void *x = dn_at(h, DANAUS_F32, at * next->cols);
        TRY(dn_linear_run(next, e->device, n, x, l->logits));
        TRY(e->device->backend->nn->likelihood(
            e->device,
            &(nn_likelihood){ n, next->rows, l->logits, l->targets + at, l->y + at }));
    }
    scores[0] = 0;
    return danaus_download(
        e->device, scores + 1, l->y, (size_t)(tokens - 1) * sizeof *scores);
}

static danaus_status score_chunks(
    encoder_run *e, int64_t sequences, const int64_t *offsets, const int32_t *ids,
    const likelihoods *l, float *scores)
{
    double all = (double)offsets[sequences];
    void *h;
    for (int64_t first = 0, n; first < sequences; first += n) {
        int64_t from = offsets[first];
        n = dn_chunk_of(offsets, sequences, first, chunk_tokens(e));
        e->listener.from = (double)from / all;
        e->listener.share = (double)(offsets[first + n] - from) / all;
        TRY(run_chunk(e, offsets + first, n, ids, &h));
        TRY(put_targets(e, n, ids + from, l));
        TRY(find_likely(e, e->host_offsets[n], h, l, scores + from));
        TRY(dn_chunk_report(&(token_chunk){ .listener = e->listener }, 1));
    }
    return DANAUS_OK;
}

danaus_status dn_encode_score(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, danaus_progress_fn progress, void *user,
    float *scores)
{
    encoder_run e = { .model = model,
                      .device = device,
                      .listener = { .tell = progress, .user = user } };
    likelihoods l;
    void *memory = NULL;
    measure(&e, sequences, offsets);
    danaus_status status = open_encoding(&e);
    if (status == DANAUS_OK)
        status = danaus_alloc(device, lay_likelihoods(&e, 0, &l), &memory);
    if (status == DANAUS_OK) {
        lay_likelihoods(&e, (uintptr_t)memory, &l);
        status = score_chunks(&e, sequences, offsets, ids, &l, scores);
    }
    danaus_free(device, memory);
    close_encoding(&e);
    return status;
}
