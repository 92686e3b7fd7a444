/* BERT-shaped encoders: Devlin et al., BERT, NAACL 2019 (arXiv 1810.04805), as BertModel of
   Hugging Face's transformers runs them, on sequences that follow each other without padding:

       h = norm(word + position + type)
       each block:  h = norm(h + W_o attention(W_q h, W_k h, W_v h)),
                    h = norm(h + W_2 gelu(W_1 h)). */
// SPDX-License-Identifier: Apache-2.0
#include "model/bert/bert.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- loading ---- */

static danaus_status read_config(bert *m, const json_t *config, encoder_config *c)
{
    span position = { "absolute", strlen("absolute") };
    TRY(dn_encoder_config(config, c));
    TRY(dn_config_size(config, "num_attention_heads", c->width, &m->heads));
    TRY(dn_json_text(config, "position_embedding_type", &position));
    if (c->width % m->heads)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "hidden_size %" PRId64 " is no multiple of num_attention_heads %" PRId64,
            c->width, m->heads);
    if (!dn_span_is(position, "absolute"))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "position_embedding_type \"%.*s\" is not \"absolute\"",
            (int)MIN(position.length, 40), position.text);
    m->layers = c->layers;
    m->width = c->width;
    m->inner = c->inner;
    m->activation = c->activation;
    return DANAUS_OK;
}

static danaus_status open_block(
    const bert *m, binder *b, int64_t number, double epsilon, bert_block *to)
{
    const block_shape shape = { m->width, m->inner, m->activation,
                                b->device->backend->on_host ? CHUNK_TOKENS
                                                            : GPU_TOKENS };
    char place[40], path[96];
    snprintf(place, sizeof place, "encoder.layer.%" PRId64, number);
    TRY(dn_block_open(to->linear, b, place, "self", &shape));
    snprintf(path, sizeof path, "%s.attention.output.LayerNorm", place);
    TRY(dn_affine_bind(&to->attention, b, path, m->width, epsilon));
    snprintf(path, sizeof path, "%s.output.LayerNorm", place);
    return dn_affine_bind(&to->output, b, path, m->width, epsilon);
}

static danaus_status bind_all(
    danaus_model *model, bert *m, binder *b, const encoder_config *c)
{
    static const char *const others[] = { "pooler.", "embeddings.position_ids", "cls.",
                                          NULL };
    const char *heads;
    dn_words_prefix(b, &heads);
    model->prefix = b->prefix;
    TRY(dn_words_bind(&m->words, b, c));
    for (int64_t i = 0; i < m->layers; i++) {
        m->blocks[i].linear = model->linear + i * BLOCK_LINEARS;
        TRY(open_block(m, b, i, c->epsilon, &m->blocks[i]));
    }
    b->prefix = heads;
    TRY(dn_head_open(&model->head, b, &m->words, c->activation, c->epsilon));
    b->prefix = model->prefix;
    return dn_binder_settle(b, others);
}

static danaus_status bert_bind(danaus_model *model, bert *m, const encoder_config *c)
{
    binder b;
    TRY(dn_binder_open(&b, model->file, &model->memory, model->dtype));
    danaus_status status = bind_all(model, m, &b, c);
    model->others = b.parameters;
    dn_binder_close(&b);
    return status;
}

static int bert_recognizes(const json_t *config, span type)
{
    (void)config;
    return dn_span_is(type, "bert");
}

static danaus_status bert_open(danaus_model *model, const json_t *config)
{
    encoder_config c;
    bert *m = dn_calloc(1, sizeof *m);
    model->own = m;
    if (!m)
        return dn_fail_memory(sizeof *m, "a model");
    TRY(read_config(m, config, &c));
    model->configured = 1;
    model->linears = (int)m->layers * BLOCK_LINEARS;
    model->linear = dn_calloc((size_t)model->linears, sizeof *model->linear);
    m->blocks = dn_calloc((size_t)m->layers, sizeof *m->blocks);
    if (!model->linear || !m->blocks)
        return dn_fail_memory(
            (size_t)model->linears * sizeof *model->linear, "a table of layers");
    TRY(bert_bind(model, m, &c));
    danaus_model_info *info = &model->info;
    info->layers = m->layers;
    info->width = info->embedding = m->width;
    info->heads = m->heads;
    info->vocabulary = m->words.vocabulary;
    info->max_length = m->words.positions;
    return DANAUS_OK;
}

static void bert_close(danaus_model *model)
{
    bert *m = model->own;
    if (m)
        dn_free(m->blocks);
    dn_free(m);
}

/* ---- running ---- */

/* Activations of a chunk, in one block of device memory. */
typedef struct bert_activations {
    void *h, *q, *k, *v, *mixed, *inner;
} bert_activations;

static uintptr_t lay(const bert *m, int64_t tokens, uintptr_t at, bert_activations *a)
{
    int64_t number = dn_size_of(m->words.norm.dtype), row = tokens * m->width * number;
    a->h = dn_cut(&at, row);
    a->q = dn_cut(&at, row);
    a->k = dn_cut(&at, row);
    a->v = dn_cut(&at, row);
    a->mixed = dn_cut(&at, row);
    a->inner = dn_cut(&at, tokens * m->inner * number);
    return at;
}

static int64_t bert_bytes(const danaus_model *model, int64_t tokens, int64_t longest)
{
    bert_activations a;
    (void)longest;
    return (int64_t)lay(model->own, tokens, 0, &a);
}

static danaus_status run_block(
    const bert *m, danaus_device *device, const bert_block *b, const token_chunk *c,
    const bert_activations *a)
{
    const linear *w = b->linear;
    int64_t tokens = c->tokens, width = m->width;
    TRY(dn_linear_run(&w[QUERY], device, tokens, a->h, a->q));
    TRY(dn_linear_run(&w[KEY], device, tokens, a->h, a->k));
    TRY(dn_linear_run(&w[VALUE], device, tokens, a->h, a->v));
    TRY(device->backend->nn->attention(
        device, &(nn_attention){ .sequences = c->sequences,
                                 .width = width,
                                 .heads = m->heads,
                                 .q = a->q,
                                 .k = a->k,
                                 .v = a->v,
                                 .y = a->mixed,
                                 .dtype = m->words.norm.dtype }));
    TRY(dn_linear_run(&w[OUTPUT], device, tokens, a->mixed, a->q));
    TRY(dn_affine_run(&b->attention, device, tokens, width, a->h, a->q, a->h));
    TRY(dn_linear_run(&w[UP], device, tokens, a->h, a->inner));
    TRY(dn_linear_run(&w[DOWN], device, tokens, a->inner, a->q));
    return dn_affine_run(&b->output, device, tokens, width, a->h, a->q, a->h);
}

static danaus_status bert_run(
    danaus_model *model, danaus_device *device, const token_chunk *c, void *memory,
    void **h)
{
    const bert *m = model->own;
    bert_activations a;
    lay(m, c->tokens, (uintptr_t)memory, &a);
    TRY(dn_words_run(&m->words, device, c->tokens, c->ids, c->positions, a.h));
    for (int64_t i = 0; i < m->layers; i++)
        TRY(run_block(m, device, &m->blocks[i], c, &a));
    *h = a.h;
    return DANAUS_OK;
}

/* Scores and sums of values. */
static danaus_status bert_cost(
    danaus_model *model, danaus_device *device, int64_t length, danaus_model_cost *cost)
{
    const bert *m = model->own;
    (void)device;
    cost->mixing = 4 * (double)(m->layers * m->width) * (double)length * (double)length;
    return DANAUS_OK;
}

static const encoder bert_encoder = { .tokens = CHUNK_TOKENS,
                                      .bytes = bert_bytes,
                                      .run = bert_run,
                                      .cost = bert_cost,
                                      .gpu_tokens = GPU_TOKENS };

const arch dn_arch_bert = {
    .name = "bert",
    .recognizes = bert_recognizes,
    .open = bert_open,
    .close = bert_close,
    .encoder = &bert_encoder,
    .compress = dn_bert_compress,
};
