/* Blocks of a transformer: their weights, and rows of tokens through all of them. */
// SPDX-License-Identifier: Apache-2.0
#include "model/transformer.h"

#include "base/mem.h"
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

static danaus_status open_block(
    const transformer *t, binder *b, const char *place, const transformer_names *names,
    transformer_block *to)
{
    const int64_t width = t->width, inner = t->inner;
    const linear_shape square = { .rows = width, .cols = width };
    linear_shape shapes[BLOCK_LINEARS] = {
        [QUERY] = square,
        [KEY] = square,
        [VALUE] = square,
        [OUTPUT] = square,
        [UP] = { .rows = inner, .cols = width, .activation = t->activation },
        [DOWN] = { .rows = width, .cols = inner },
    };
    for (int i = 0; i < BLOCK_LINEARS; i++) {
        shapes[i].tokens = dn_chunk_tokens(b->device);
        shapes[i].dtype = b->dtype;
        TRY(dn_linear_open(
            &to->linear[i], b, dn_name("%s.%s", place, names->linear[i]).text,
            &shapes[i]));
    }
    TRY(dn_affine_bind(
        &to->middle, b, dn_name("%s.%s", place, names->middle).text, width,
        t->epsilon));
    return dn_affine_bind(
        &to->outer, b, dn_name("%s.%s", place, names->outer).text, width, t->epsilon);
}

danaus_status dn_transformer_open(
    transformer *t, danaus_model *model, binder *b, const transformer_names *names)
{
    int64_t layers = t->layers;
    t->dtype = model->dtype;
    t->blocks = dn_model_blocks(model, layers, sizeof *t->blocks, BLOCK_LINEARS);
    if (!t->blocks)
        return DANAUS_ERR_MEMORY;
    for (int64_t i = 0; i < layers; i++) {
        t->blocks[i].linear = model->linear + i * BLOCK_LINEARS;
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
    void *h, *n; /* n: what layers read, norm(h) or h */
    void *q, *k, *v, *mixed, *inner;
} transformer_run;

static uintptr_t lay(transformer_run *r, uintptr_t at)
{
    const transformer *t = r->t;
    int64_t number = r->tokens * dn_size_of(t->dtype), row = t->width * number;
    void **const arrays[] = { &r->h, &r->q, &r->k, &r->v, &r->mixed };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        *arrays[i] = dn_cut(&at, row);
    r->n = t->before ? dn_cut(&at, row) : r->h;
    r->inner = dn_cut(&at, t->inner * number);
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

/* q = attend(n) */
static danaus_status attend(const transformer_run *r, const linear *w)
{
    const transformer *t = r->t;
    TRY(dn_linear_run(&w[QUERY], r->device, r->tokens, r->n, r->q));
    TRY(dn_linear_run(&w[KEY], r->device, r->tokens, r->n, r->k));
    TRY(dn_linear_run(&w[VALUE], r->device, r->tokens, r->n, r->v));
    TRY(r->device->backend->nn->attention(
        r->device, &(nn_attention){ .sequences = r->sequences,
                                    .width = t->width,
                                    .heads = t->heads,
                                    .q = r->q,
                                    .k = r->k,
                                    .v = r->v,
                                    .y = r->mixed,
                                    .dtype = t->dtype }));
    return dn_linear_run(&w[OUTPUT], r->device, r->tokens, r->mixed, r->q);
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
    TRY(attend(r, b->linear));
    TRY(add_and_norm(r, &b->middle));
    TRY(dn_linear_run(&b->linear[UP], r->device, r->tokens, r->n, r->inner));
    TRY(dn_linear_run(&b->linear[DOWN], r->device, r->tokens, r->inner, r->q));
    return add_and_norm(r, t->before ? next : &b->outer);
}

static danaus_status run(
    void *blocks, danaus_device *device, const token_chunk *c, void *memory, void **h)
{
    const transformer *t = blocks;
    transformer_run r = {
        .t = t, .device = device, .sequences = c->sequences, .tokens = c->tokens
    };
    lay(&r, (uintptr_t)memory);
    if (t->before)
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
    double numbers = (double)(t->layers * t->width);
    (void)device;
    cost->mixing = 4 * numbers * (double)length * (double)length;
    return DANAUS_OK;
}

const mixer_kind dn_transformer_mixer = { .size = sizeof(transformer),
                                          .close = close_blocks,
                                          .bytes = bytes_of,
                                          .rows = rows_of,
                                          .run = run,
                                          .cost = add_cost };
