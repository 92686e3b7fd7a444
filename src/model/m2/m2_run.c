/* Rows of tokens through blocks of Monarch Mixers. Blocks of rows stay in the caches, except the
   operands of a long convolution, which are [channels][length] for one sequence at a time. */
// SPDX-License-Identifier: Apache-2.0
#include "model/m2/m2.h"

#include "base/numbers.h"
#include "base/status.h"

typedef struct m2_activations {
    void *h;             /* [tokens][width] */
    void *n;             /* the same, normalised, where blocks do so before */
    void *normed, *wide; /* [rows + M2_TAPS][width], [rows + M2_TAPS][3 width] */
    void *gates,
        *y; /* x1, x2, v, u of what is mixed together; y: [width][columns] each */
    void *mixed, *out; /* [rows][width] */
    void *up, *inner;  /* [rows][inner], the first twice that where it is gated */
    float *k;          /* two filters [width][padded] */
} m2_activations;

/* A chunk that runs. */
typedef struct running {
    m2 *m;
    danaus_device *device;
    const token_chunk *c;
    m2_activations a;
    int64_t number; /* of the block */
    const m2_block *block;
} running;

static uintptr_t lay(
    const m2 *m, int64_t tokens, int64_t longest, uintptr_t at, m2_activations *a)
{
    int64_t number = dn_size_of(m->dtype), row = m->width * number;
    int64_t rows = m->packed ? tokens : MIN(tokens, M2_ROWS), more = rows + M2_TAPS;
    int64_t padded = dn_m2_padded(m, longest);
    int64_t channels = row * (m->packed ? tokens : padded);
    int64_t filters = 2 * m->width * padded * (int64_t)sizeof(float);
    a->h = dn_cut(&at, tokens * row);
    a->n = dn_cut(&at, m->before ? tokens * row : 0);
    a->normed = dn_cut(&at, more * row);
    a->wide = dn_cut(&at, more * 3 * row);
    a->gates = dn_cut(&at, MAX(4 * channels, filters));
    a->k = a->gates; /* filters are made before signals are there */
    a->y = dn_cut(&at, channels);
    a->mixed = dn_cut(&at, rows * row);
    a->out = dn_cut(&at, rows * row);
    a->up = dn_cut(&at, rows * m->inner * number * (m->gated ? 2 : 1));
    a->inner = m->gated ? dn_cut(&at, rows * m->inner * number) : a->up;
    return at;
}

static int64_t bytes_of(const void *blocks, int64_t tokens, int64_t longest)
{
    m2_activations a;
    return (int64_t)lay(blocks, tokens, longest, 0, &a);
}

static void *rows_of(const void *blocks, const token_chunk *c, void *memory)
{
    m2_activations a;
    lay(blocks, c->tokens, dn_longest(&c->sequences), (uintptr_t)memory, &a);
    return a.h;
}

static void *at(const running *r, const void *array, int64_t number)
{
    return dn_at(array, r->m->dtype, number);
}

/* ---- mixing along sequences ---- */

/* W_in u of rows [from, to) of the chunk, and u. */
static danaus_status project(const running *r, int64_t from, int64_t to, const void **u)
{
    const m2_block *b = r->block;
    int64_t width = r->m->width;
    *u = at(r, r->m->before ? r->a.n : r->a.h, from * width);
    if (b->input.scale && !r->m->before) {
        TRY(dn_affine_run(
            &b->input, r->device, to - from, width, *u, NULL, r->a.normed));
        *u = r->a.normed;
    }
    return dn_linear_run(&b->linear[M2_IN], r->device, to - from, *u, r->a.wide);
}

/* Rows `first` to first + rows - 1 of sequences into channels of this stride. */
static danaus_status enter(
    const running *r, const nn_sequences *sequences, int64_t first, int64_t rows,
    const void *u, const void *wide, int64_t stride)
{
    const m2 *m = r->m;
    TRY(dn_short_conv_run(
        &r->block->taps, r->device, sequences, first, rows, wide,
        at(r, r->a.gates, first), stride));
    if (!m->residual)
        return DANAUS_OK;
    return r->device->backend->nn->turn(
        r->device, &(nn_turn){ .rows = rows,
                               .width = m->width,
                               .stride = stride,
                               .x = u,
                               .y = at(r, r->a.gates, 3 * m->width * stride + first),
                               .dtype = m->dtype });
}

/* One of the block's convolutions, of a row or of all sequences of the chunk. */
static danaus_status run_filter(
    const running *r, const m2_length *length, int filter, const void *u,
    const void *gate_in, const void *gate_out, void *y)
{
    const nn_sequences *s = &r->c->sequences;
    const danaus_spectrum *k = dn_m2_spectrum(length, r->number, filter);
    if (r->m->packed)
        return danaus_conv_execute_packed(
            length->plan, r->device, k, s->count, s->offsets, u, gate_in, gate_out, y);
    return danaus_conv_execute(length->plan, r->device, k, 1, u, gate_in, gate_out, y);
}

/* y = x2 (k (*) (x1 v)), and k' (*) u where x1 was, of channels of n numbers. */
static danaus_status convolve(const running *r, const m2_length *length, int64_t n)
{
    int64_t size = r->m->width * n;
    void *x1 = r->a.gates, *x2 = at(r, x1, size), *v = at(r, x2, size);
    TRY(run_filter(r, length, M2_GATED, v, x1, x2, r->a.y));
    if (!r->m->residual)
        return DANAUS_OK;
    return run_filter(r, length, M2_RESIDUAL, at(r, v, size), NULL, NULL, x1);
}

/* The same of a row, behind which come zeros. */
static danaus_status convolve_row(
    const running *r, const m2_length *length, int64_t tokens)
{
    const m2 *m = r->m;
    if (tokens < length->length)
        TRY(r->device->backend->nn->pad(
            r->device, &(nn_pad){ .channels = 4 * m->width,
                                  .from = tokens,
                                  .stride = length->length,
                                  .y = r->a.gates,
                                  .dtype = m->dtype }));
    return convolve(r, length, length->length);
}

/* Turns the results of convolutions back into rows. */
static danaus_status leave(
    const running *r, int64_t first, int64_t rows, int64_t stride, void *mixed)
{
    const m2 *m = r->m;
    const void *more = m->residual ? at(r, r->a.gates, first) : NULL;
    return r->device->backend->nn->turn(
        r->device, &(nn_turn){ .rows = m->width,
                               .width = rows,
                               .stride = m->width,
                               .pitch = stride,
                               .x = at(r, r->a.y, first),
                               .more = more,
                               .y = mixed,
                               .dtype = m->dtype });
}

/* ---- a block ---- */

/* mlp(x) of some rows, in `mixed`. */
static danaus_status run_mlp(const running *r, int64_t rows, const void *x)
{
    const m2 *m = r->m;
    const linear *up = &r->block->linear[M2_UP];
    int gate = m->gated && !up->gated;
    TRY(dn_linear_run(up, r->device, rows, x, gate ? r->a.up : r->a.inner));
    if (gate)
        TRY(r->device->backend->nn->gate(
            r->device, &(nn_gate){ .rows = rows,
                                   .width = m->inner,
                                   .activation = m->activation,
                                   .x = r->a.up,
                                   .y = r->a.inner,
                                   .dtype = m->dtype }));
    return dn_linear_run(
        &r->block->linear[M2_DOWN], r->device, rows, r->a.inner, r->a.mixed);
}

/* The norm of the block's output, for models whose blocks normalise their input. */
static const affine *next_norm(const running *r)
{
    return r->number + 1 < r->m->layers ? &r->block[1].input : &r->m->last;
}

/* h = norm(a + mlp(a)), or h = h + a, h = h + mlp(norm(h)), n = next_norm(h); a = W_out mixed,
   for rows [from, to) of the chunk. */
static danaus_status finish(const running *r, int64_t from, int64_t to)
{
    const m2 *m = r->m;
    const m2_block *b = r->block;
    int64_t rows = to - from, width = m->width;
    void *h = at(r, r->a.h, from * width);
    TRY(dn_linear_run(&b->linear[M2_OUT], r->device, rows, r->a.mixed, r->a.out));
    if (!m->before) {
        TRY(run_mlp(r, rows, r->a.out));
        return dn_affine_run(
            &b->output, r->device, rows, width, r->a.mixed, r->a.out, h);
    }
    void *n = at(r, r->a.n, from * width);
    TRY(dn_affine_add(&b->output, r->device, rows, width, h, r->a.out, n));
    TRY(run_mlp(r, rows, n));
    return dn_affine_add(next_norm(r), r->device, rows, width, h, r->a.mixed, n);
}

/* Sequences `from` to `to` - 1, which have no more than M2_ROWS tokens together. */
static danaus_status run_short(const running *r, int64_t from, int64_t to)
{
    const int64_t *offsets = r->c->sequences.offsets;
    int64_t first = offsets[from], width = r->m->width;
    const void *u;
    TRY(project(r, first, offsets[to], &u));
    for (int64_t i = from; i < to; i++) {
        int64_t tokens = offsets[i + 1] - offsets[i],
                row = (offsets[i] - first) * width;
        const int64_t whole[] = { 0, tokens };
        const nn_sequences alone = { 1, whole };
        const m2_length *length = dn_m2_length(r->m, tokens);
        TRY(enter(
            r, &alone, 0, tokens, at(r, u, row), at(r, r->a.wide, 3 * row),
            length->length));
        TRY(convolve_row(r, length, tokens));
        TRY(leave(r, 0, tokens, length->length, at(r, r->a.mixed, row)));
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
        const int64_t known[] = { 0, end };
        const nn_sequences alone = { 1, known };
        const void *u;
        TRY(project(r, from + t - before, from + end, &u));
        TRY(enter(
            r, &alone, t, end - t, at(r, u, before * width),
            at(r, r->a.wide, 3 * before * width), length->length));
    }
    TRY(convolve_row(r, length, tokens));
    for (int64_t t = 0; t < tokens; t += M2_ROWS) {
        int64_t end = MIN(t + M2_ROWS, tokens);
        TRY(leave(r, t, end - t, length->length, r->a.mixed));
        TRY(finish(r, from + t, from + end));
    }
    return DANAUS_OK;
}

/* All sequences of the chunk. */
static danaus_status run_packed(const running *r)
{
    const nn_sequences *s = &r->c->sequences;
    int64_t tokens = r->c->tokens;
    const void *u;
    TRY(project(r, 0, tokens, &u));
    TRY(enter(r, s, 0, tokens, u, r->a.wide, tokens));
    TRY(convolve(r, dn_m2_length(r->m, dn_longest(s)), tokens));
    TRY(leave(r, 0, tokens, tokens, r->a.mixed));
    return finish(r, 0, tokens);
}

static danaus_status run_block(const running *r)
{
    const nn_sequences *s = &r->c->sequences;
    if (r->m->packed)
        return run_packed(r);
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
    const token_chunk *c = r->c;
    const int64_t whole[] = { 0, dn_longest(&c->sequences) };
    const nn_sequences longest = { 1, whole };
    TRY(dn_m2_open_lengths(
        r->m, r->device, r->m->packed ? &longest : &c->sequences, r->a.k));
    if (r->m->before)
        TRY(dn_affine_run(
            &r->m->blocks->input, r->device, c->tokens, r->m->width, r->a.h, NULL,
            r->a.n));
    for (r->number = 0; r->number < r->m->layers; r->number++) {
        r->block = &r->m->blocks[r->number];
        TRY(dn_m2_make_spectra(r->m, r->device, r->number, r->a.k));
        TRY(run_block(r));
    }
    return DANAUS_OK;
}

static danaus_status run(
    void *blocks, danaus_device *device, const token_chunk *c, void *memory, void **h)
{
    m2 *m = blocks;
    running r = { .m = m, .device = device, .c = c };
    lay(m, c->tokens, dn_longest(&c->sequences), (uintptr_t)memory, &r.a);
    danaus_status status = run_blocks(&r);
    dn_m2_close_lengths(m);
    *h = m->before ? r.a.n : r.a.h;
    return status;
}

static danaus_status add_cost(
    const void *blocks, danaus_device *device, int64_t length, danaus_model_cost *cost)
{
    const m2 *m = blocks;
    int64_t n = dn_m2_padded(m, length), filters = m->layers * dn_m2_filters(m);
    danaus_conv_plan *plan;
    TRY(dn_m2_plan(m, device, n, &plan));
    double network = (double)dn_hyena_filter_operations(m->blocks->filter);
    cost->mixing = dn_hyena_conv_operations(n, n) * (double)(m->width * filters);
    cost->filters = network * (double)(n * filters) * (m->filter.reverse ? 2 : 1);
    cost->kept = dn_m2_keeps(m, plan, 0);
    if (!cost->kept)
        cost->memory += dn_m2_spectra_bytes(m, plan);
    danaus_conv_plan_destroy(plan);
    return DANAUS_OK;
}

const mixer_kind dn_m2_mixer = { .size = sizeof(m2),
                                 .close = dn_m2_close,
                                 .bytes = bytes_of,
                                 .rows = rows_of,
                                 .run = run,
                                 .cost = add_cost };
