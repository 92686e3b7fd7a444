/* Rows of tokens through a Monarch Mixer BERT. Blocks of rows stay in the caches, but for what a
   long convolution mixes: that is [channels][length] for one sequence at a time. */
// SPDX-License-Identifier: Apache-2.0
#include "model/m2_bert.h"

#include "base/numbers.h"
#include "base/status.h"

#include <math.h>

/* Tokens that go through all blocks together: spectra that do not stay are made once for
   these. */
#define CHUNK_TOKENS 8192

typedef struct activations {
    float *h;             /* [tokens][width] */
    float *normed, *wide; /* [M2_ROWS + M2_TAPS][width], [M2_ROWS + M2_TAPS][3 width] */
    float *gates, *y;     /* x1, x2, v, u of a sequence; y: [width][padded] each */
    float *mixed, *out;   /* [M2_ROWS][width] */
    float *up, *inner;    /* [M2_ROWS][inner], the first twice that where it is gated */
    float *k;             /* two filters [width][padded] */
} activations;

/* A chunk that runs. */
typedef struct running {
    m2_bert *m;
    danaus_device *device;
    const chunk *c;
    activations a;
    int64_t number; /* of the block */
    const m2_block *block;
} running;

static uintptr_t lay(
    const m2_bert *m, int64_t tokens, int64_t longest, uintptr_t at, activations *a)
{
    int64_t number = (int64_t)sizeof(float), row = m->width * number;
    int64_t rows = MIN(tokens, M2_ROWS), more = rows + M2_TAPS;
    int64_t channels = row * dn_m2_padded(m, longest);
    a->h = dn_cut(&at, tokens * row);
    a->normed = dn_cut(&at, more * row);
    a->wide = dn_cut(&at, more * 3 * row);
    a->gates = dn_cut(&at, 4 * channels);
    a->k = a->gates; /* filters are made before signals are there */
    a->y = dn_cut(&at, channels);
    a->mixed = dn_cut(&at, rows * row);
    a->out = dn_cut(&at, rows * row);
    a->up = dn_cut(&at, rows * m->inner * number * (m->gated ? 2 : 1));
    a->inner = m->gated ? dn_cut(&at, rows * m->inner * number) : a->up;
    return at;
}

static int64_t m2_bytes(const danaus_model *model, int64_t tokens, int64_t longest)
{
    activations a;
    return (int64_t)lay(model->own, tokens, longest, 0, &a);
}

/* ---- mixing along a sequence ---- */

/* W_in u of rows [from, to) of the chunk, and u. */
static danaus_status project(
    const running *r, int64_t from, int64_t to, const float **u)
{
    const m2_block *b = r->block;
    int64_t width = r->m->width;
    *u = r->a.h + from * width;
    if (b->input.scale) {
        TRY(dn_affine_run(
            &b->input, r->device, to - from, width, *u, NULL, r->a.normed));
        *u = r->a.normed;
    }
    return dn_linear_run(&b->linear[M2_IN], r->device, to - from, *u, r->a.wide);
}

/* Rows `first` to first + rows - 1 of a sequence into channels of this stride. */
static danaus_status enter(
    const running *r, int64_t first, int64_t rows, const float *u, const float *wide,
    int64_t stride)
{
    const int64_t offsets[] = { 0, first + rows };
    const nn_sequences alone = { 1, offsets };
    TRY(dn_few_taps_run(
        &r->block->taps, r->device, &alone, first, rows, wide, r->a.gates + first,
        stride));
    if (!r->m->residual)
        return DANAUS_OK;
    return r->device->backend->nn->turn(
        r->device, &(nn_turn){ .rows = rows,
                               .width = r->m->width,
                               .stride = stride,
                               .x = u,
                               .y = r->a.gates + 3 * r->m->width * stride + first });
}

/* y = x2 (k (*) (x1 v)), and k' (*) u where x1 was. */
static danaus_status convolve(const running *r, const m2_length *length, int64_t tokens)
{
    int64_t width = r->m->width, n = length->length, size = width * n;
    float *x1 = r->a.gates, *x2 = x1 + size, *v = x2 + size;
    if (tokens < n)
        TRY(r->device->backend->nn->pad(
            r->device, &(nn_pad){ 4 * width, tokens, n, r->a.gates }));
    TRY(danaus_conv_execute(
        length->plan, r->device, dn_m2_spectrum(length, r->number, M2_GATED), 1, v, x1,
        x2, r->a.y));
    if (!r->m->residual)
        return DANAUS_OK;
    return danaus_conv_execute(
        length->plan, r->device, dn_m2_spectrum(length, r->number, M2_RESIDUAL), 1,
        v + size, NULL, NULL, x1);
}

/* Rows of what was convolved, turned back. */
static danaus_status leave(
    const running *r, int64_t first, int64_t rows, int64_t stride, float *mixed)
{
    return r->device->backend->nn->turn(
        r->device, &(nn_turn){ .rows = r->m->width,
                               .width = rows,
                               .stride = r->m->width,
                               .pitch = stride,
                               .x = r->a.y + first,
                               .more = r->m->residual ? r->a.gates + first : NULL,
                               .y = mixed });
}

/* ---- a block ---- */

/* h = norm(a + mlp(a)), a = W_out mixed, for rows [from, to) of the chunk. */
static danaus_status finish(const running *r, int64_t from, int64_t to)
{
    const m2_bert *m = r->m;
    const m2_block *b = r->block;
    int64_t rows = to - from;
    float *h = r->a.h + from * m->width;
    TRY(dn_linear_run(&b->linear[M2_OUT], r->device, rows, r->a.mixed, r->a.out));
    TRY(dn_linear_run(&b->linear[M2_UP], r->device, rows, r->a.out, r->a.up));
    if (m->gated)
        TRY(r->device->backend->nn->gate(
            r->device,
            &(nn_gate){ rows, m->inner, m->activation, r->a.up, r->a.inner }));
    TRY(dn_linear_run(&b->linear[M2_DOWN], r->device, rows, r->a.inner, r->a.mixed));
    return dn_affine_run(
        &b->output, r->device, rows, m->width, r->a.mixed, r->a.out, h);
}

/* Sequences `from` to `to` - 1, which have no more than M2_ROWS tokens together. */
static danaus_status run_short(const running *r, int64_t from, int64_t to)
{
    const int64_t *offsets = r->c->sequences.offsets;
    int64_t first = offsets[from], width = r->m->width;
    const float *u;
    TRY(project(r, first, offsets[to], &u));
    for (int64_t i = from; i < to; i++) {
        int64_t tokens = offsets[i + 1] - offsets[i], at = offsets[i] - first;
        const m2_length *length = dn_m2_length(r->m, tokens);
        TRY(enter(
            r, 0, tokens, u + at * width, r->a.wide + at * 3 * width, length->length));
        TRY(convolve(r, length, tokens));
        TRY(leave(r, 0, tokens, length->length, r->a.mixed + at * width));
    }
    return finish(r, first, offsets[to]);
}

/* A sequence that has more. */
static danaus_status run_long(const running *r, int64_t number)
{
    int64_t from = r->c->sequences.offsets[number], width = r->m->width;
    int64_t tokens = r->c->sequences.offsets[number + 1] - from;
    const m2_length *length = dn_m2_length(r->m, tokens);
    for (int64_t t = 0; t < tokens; t += M2_ROWS) {
        int64_t end = MIN(t + M2_ROWS, tokens), before = t ? M2_TAPS - 1 : 0;
        const float *u;
        TRY(project(r, from + t - before, from + end, &u));
        TRY(enter(
            r, t, end - t, u + before * width, r->a.wide + before * 3 * width,
            length->length));
    }
    TRY(convolve(r, length, tokens));
    for (int64_t t = 0; t < tokens; t += M2_ROWS) {
        int64_t end = MIN(t + M2_ROWS, tokens);
        TRY(leave(r, t, end - t, length->length, r->a.mixed));
        TRY(finish(r, from + t, from + end));
    }
    return DANAUS_OK;
}

static danaus_status run_block(const running *r)
{
    const nn_sequences *s = &r->c->sequences;
    for (int64_t i = 0, n; i < s->count; i += n) {
        n = dn_chunk_of(s->offsets, s->count, i, M2_ROWS);
        if (s->offsets[i + n] - s->offsets[i] <= M2_ROWS)
            TRY(run_short(r, i, i + n));
        else
            TRY(run_long(r, i));
    }
    return DANAUS_OK;
}

/* ---- all blocks ---- */

static danaus_status run_blocks(running *r)
{
    const chunk *c = r->c;
    TRY(dn_m2_open_lengths(r->m, r->device, &c->sequences, r->a.k));
    TRY(dn_words_run(&r->m->words, r->device, c->tokens, c->ids, c->positions, r->a.h));
    for (r->number = 0; r->number < r->m->layers; r->number++) {
        r->block = &r->m->blocks[r->number];
        TRY(dn_m2_make_spectra(r->m, r->device, r->number, r->a.k));
        TRY(run_block(r));
    }
    return DANAUS_OK;
}

static danaus_status m2_run(
    danaus_model *model, danaus_device *device, const chunk *c, void *memory, float **h)
{
    running r = { .m = model->own, .device = device, .c = c };
    int64_t longest = dn_longest(&c->sequences);
    lay(r.m, c->tokens, longest, (uintptr_t)memory, &r.a);
    danaus_status status = run_blocks(&r);
    dn_m2_close_lengths(r.m);
    *h = r.a.h;
    return status;
}

/* Operations of one transform of n real numbers each way, and a product of spectra. */
static double transforms(double n) { return 5 * n * log2(n) + 3 * n; }

static danaus_status m2_cost(
    danaus_model *model, danaus_device *device, int64_t length, danaus_model_cost *c)
{
    m2_bert *m = model->own;
    int64_t n = dn_m2_padded(m, length), filters = m->residual ? 2 : 1;
    danaus_conv_plan *plan;
    TRY(dn_m2_plan(m, device, n, &plan));
    double each = transforms(2 * (double)n) * (double)(m->width * m->layers * filters);
    double network = (double)dn_hyena_filter_operations(m->blocks->filter);
    c->mixing = each;
    c->filters =
        network * (double)(n * m->layers * filters) * (m->bidirectional ? 2 : 1);
    c->kept = dn_m2_keeps(m, plan, 0);
    if (!c->kept)
        c->memory += dn_m2_spectra_bytes(m, plan);
    danaus_conv_plan_destroy(plan);
    return DANAUS_OK;
}

const encoder dn_m2_encoder = {
    .tokens = CHUNK_TOKENS, .bytes = m2_bytes, .run = m2_run, .cost = m2_cost
};
