/* Blocks of a transformer: their weights, and rows of tokens through all of them. */
// SPDX-License-Identifier: Apache-2.0
#include "model/transformer.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"

#include <inttypes.h>

/* ---- loading ---- */

danaus_status dn_transformer_config(
    transformer *t, const json_t *config, const block_sizes *sizes)
{
    t->layers = sizes->layers;
    t->width = sizes->width;
    t->inner = sizes->inner;
    t->epsilon = sizes->epsilon;
    t->activation = sizes->activation;
    const block_fields *f = sizes->fields;
    TRY(dn_config_size(config, f->heads, sizes->width, &t->heads));
    if (sizes->width % t->heads)
        return dn_fail(
            DANAUS_ERR_FORMAT, "%s %" PRId64 " is no multiple of %s %" PRId64, f->width,
            sizes->width, f->heads, t->heads);
    return DANAUS_OK;
}

/* The layer behind a block's last one. */
static int end_of(const transformer *t) { return BLOCK_LINEARS + t->factored; }

static linear *layer_of(const transformer *t, const transformer_block *b, int layer)
{
    return &b->linear[layer - t->begin];
}

/* True for a block that does not normalise before attend(). */
static int reads_h(const transformer *t, const transformer_block *b)
{
    return t->first_reads_h && b == t->blocks;
}

static danaus_status open_block(
    const transformer *t, binder *b, const char *place, const transformer_names *names,
    transformer_block *to)
{
    const int64_t width = t->width, inner = t->inner, parts = t->begin == QKV ? 3 : 1;
    const linear_shape square = { .rows = width,
                                  .cols = width,
                                  .no_bias = t->no_attention_bias };
    linear_shape shapes[BLOCK_LINEARS + 1] = {
        [QUERY] = square,
        [KEY] = square,
        [VALUE] = { .rows = parts * width,
                    .cols = width,
                    .no_bias = t->no_attention_bias },
        [OUTPUT] = square,
        [UP] = { .rows = t->gated ? 2 * inner : inner,
                 .cols = width,
                 .activation = t->activation,
                 .gated = t->gated,
                 .no_bias = t->no_mlp_bias },
        [DOWN] = { .rows = width, .cols = inner, .no_bias = t->no_mlp_bias },
        [FACTOR] = { .rows = inner, .cols = width, .no_bias = t->no_mlp_bias },
    };
    for (int i = t->begin; i < end_of(t); i++) {
        shapes[i].tokens = dn_chunk_tokens(b->device);
        shapes[i].dtype = b->dtype;
        shapes[i].int8 = b->int8;
        TRY(dn_linear_open(
            layer_of(t, to, i), b, dn_name("%s.%s", place, names->linear[i]).text,
            &shapes[i]));
    }
    TRY(dn_affine_bind(
        &to->middle, b, dn_name("%s.%s", place, names->middle).text, width,
        t->epsilon));
    if (reads_h(t, to))
        return DANAUS_OK;
    return dn_affine_bind(
        &to->outer, b, dn_name("%s.%s", place, names->outer).text, width, t->epsilon);
}

danaus_status dn_transformer_open(
    transformer *t, danaus_model *model, binder *b, const transformer_names *names)
{
    int64_t layers = t->layers;
    int linears = end_of(t) - t->begin;
    t->dtype = model->dtype;
    t->blocks = dn_model_blocks(model, layers, sizeof *t->blocks, linears);
    if (!t->blocks)
        return DANAUS_ERR_MEMORY;
    for (int64_t i = 0; i < layers; i++) {
        t->blocks[i].linear = model->linear + i * linears;
        TRY(open_block(
            t, b, dn_name("%s%" PRId64, names->blocks, i).text, names, &t->blocks[i]));
    }
    return DANAUS_OK;
}

static void close_blocks(void *blocks)
{
    transformer *t = blocks;
    dn_free(t->blocks);
}

/* ---- transformer_run ---- */

/* A chunk that runs, with its activations in one block of device memory. */
typedef struct transformer_run {
    const transformer *t;
    danaus_device *device;
    nn_sequences sequences;
    int64_t tokens;
    const int32_t *positions;
    int64_t pitch; /* of rows of q, k and v */
    void *h, *n;   /* n: what layers read, norm(h) or h */
    void *q, *k, *v, *mixed;
    void *up, *inner; /* up: before the gate, or v, or inner */
} transformer_run;

static uintptr_t lay(transformer_run *r, uintptr_t at)
{
    const transformer *t = r->t;
    int64_t number = r->tokens * dn_size_of(t->dtype), row = t->width * number;
    int joint = t->begin == QKV;
    r->pitch = joint ? 3 * t->width : t->width;
    r->h = dn_cut(&at, row);
    r->q = dn_cut(&at, r->pitch * number);
    r->k = joint ? dn_at(r->q, t->dtype, t->width) : dn_cut(&at, row);
    r->v = joint ? dn_at(r->k, t->dtype, t->width) : dn_cut(&at, row);
    r->mixed = dn_cut(&at, row);
    r->n = t->before ? dn_cut(&at, row) : r->h;
    r->inner = dn_cut(&at, t->inner * number);
    int parts = t->gated ? 2 : t->factored;
    r->up = parts ? dn_cut(&at, parts * t->inner * number) : r->inner;
    return at;
}

static int64_t bytes_of(const void *blocks, int64_t tokens, int64_t longest)
{
    transformer_run r = { .t = blocks, .tokens = tokens };
    (void)longest;
    return (int64_t)lay(&r, 0);
}

static void *rows_of(const void *blocks, const token_chunk *c, void *memory)
{
    transformer_run r = { .t = blocks, .tokens = c->tokens };
    lay(&r, (uintptr_t)memory);
    return r.h;
}

static danaus_status run_layer(
    const transformer_run *r, const transformer_block *b, int layer, const void *x,
    void *y)
{
    return dn_linear_run(layer_of(r->t, b, layer), r->device, r->tokens, x, y);
}

static danaus_status turn(const transformer_run *r, const transformer_block *b, void *x)
{
    const transformer *t = r->t;
    return r->device->backend->nn->rotary(
        r->device, &(nn_rotary){ .rows = r->tokens,
                                 .width = t->width,
                                 .pitch = r->pitch,
                                 .head = t->width / t->heads,
                                 .positions = r->positions,
                                 .turns = b->turns,
                                 .x = x,
                                 .dtype = t->dtype });
}

/* q, k and v */
static danaus_status project(const transformer_run *r, const transformer_block *b)
{
    const void *x = reads_h(r->t, b) ? r->h : r->n;
    if (r->t->begin == QKV)
        return run_layer(r, b, QKV, x, r->q);
    TRY(run_layer(r, b, QUERY, x, r->q));
    TRY(run_layer(r, b, KEY, x, r->k));
    return run_layer(r, b, VALUE, x, r->v);
}

/* q = attend(n) */
static danaus_status attend(const transformer_run *r, const transformer_block *b)
{
    const transformer *t = r->t;
    TRY(project(r, b));
    if (b->turns) {
        TRY(turn(r, b, r->q));
        TRY(turn(r, b, r->k));
    }
    TRY(r->device->backend->nn->attention(
        r->device, &(nn_attention){ .sequences = r->sequences,
                                    .width = t->width,
                                    .heads = t->heads,
                                    .pitch = r->pitch,
                                    .window = b->window,
                                    .q = r->q,
                                    .k = r->k,
                                    .v = r->v,
                                    .y = r->mixed,
                                    .dtype = t->dtype,
                                    .bias = t->bias,
                                    .reach = t->reach }));
    return run_layer(r, b, OUTPUT, r->mixed, r->q);
}

/* q = mlp(n) */
static danaus_status run_mlp(const transformer_run *r, const transformer_block *b)
{
    const transformer *t = r->t;
    int gate = t->gated && !layer_of(t, b, UP)->gated;
    TRY(run_layer(r, b, UP, r->n, gate ? r->up : r->inner));
    if (gate)
        TRY(r->device->backend->nn->gate(
            r->device, &(nn_gate){ .rows = r->tokens,
                                   .width = t->inner,
                                   .activation = t->activation,
                                   .x = r->up,
                                   .y = r->inner,
                                   .dtype = t->dtype }));
    if (t->factored) {
        TRY(run_layer(r, b, FACTOR, r->n, r->up));
        TRY(r->device->backend->nn->multiply(
            r->device, &(nn_multiply){ .count = r->tokens * t->inner,
                                       .a = r->inner,
                                       .b = r->up,
                                       .y = r->inner,
                                       .dtype = t->dtype }));
    }
    return run_layer(r, b, DOWN, r->inner, r->q);
}

/* h = norm(h + q), or h = h + q, n = norm(h) */
static danaus_status add_and_norm(const transformer_run *r, const affine *norm)
{
    int64_t width = r->t->width;
    if (r->t->before)
        return dn_affine_add(norm, r->device, r->tokens, width, r->h, r->q, r->n);
    return dn_affine_run(norm, r->device, r->tokens, width, r->h, r->q, r->h);
}

static danaus_status run_block(const transformer_run *r, int64_t number)
{
    const transformer *t = r->t;
    const transformer_block *b = &t->blocks[number];
    const affine *next = number + 1 < t->layers ? &b[1].outer : &t->last;
    TRY(attend(r, b));
    TRY(add_and_norm(r, &b->middle));
    TRY(run_mlp(r, b));
    return add_and_norm(r, t->before ? next : &b->outer);
}

static danaus_status run(
    void *blocks, danaus_device *device, const token_chunk *c, void *memory, void **h)
{
    const transformer *t = blocks;
    transformer_run r = { .t = t,
                          .device = device,
                          .sequences = c->sequences,
                          .tokens = c->tokens,
                          .positions = c->positions };
    lay(&r, (uintptr_t)memory);
    if (t->before && !t->first_reads_h)
        TRY(dn_affine_run(
            &t->blocks->outer, device, r.tokens, t->width, r.h, NULL, r.n));
    for (int64_t i = 0; i < t->layers; i++)
        TRY(run_block(&r, i));
    *h = r.n;
    return DANAUS_OK;
}

/* Scores and sums of values. */
static danaus_status add_cost(
    const void *blocks, danaus_device *device, int64_t length, danaus_model_cost *cost)
{
    const transformer *t = blocks;
    (void)device;
    for (int64_t i = 0; i < t->layers; i++) {
        int64_t window = t->blocks[i].window;
        int64_t keys = window ? MIN(length, 2 * window - 1) : length;
        cost->mixing += 4 * (double)t->width * (double)length * (double)keys;
    }
    return DANAUS_OK;
}

const mixer_kind dn_transformer_mixer = { .size = sizeof(transformer),
                                          .close = close_blocks,
                                          .bytes = bytes_of,
                                          .rows = rows_of,
                                          .run = run,
                                          .cost = add_cost };
