/* BERT-shaped encoders: Devlin et al., BERT, NAACL 2019 (arXiv 1810.04805), as BertModel of
   Hugging Face's transformers runs them, on sequences that follow each other without padding:

       h = norm(word + position + type)
       each block:  h = norm(h + W_o attention(W_q h, W_k h, W_v h)),
                    h = norm(h + W_2 gelu(W_1 h)). */
// SPDX-License-Identifier: Apache-2.0
#include "model/bert.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_WIDTH  ((int64_t)1 << 20)
#define MOST_TOKENS ((int64_t)1 << 24)

/* ---- loading ---- */

static danaus_status read_activation(
    const json_t *config, danaus_activation *activation)
{
    static const struct {
        const char *name;
        danaus_activation activation;
    } known[] = {
        { "gelu", DANAUS_GELU },          { "relu", DANAUS_RELU },
        { "silu", DANAUS_SILU },          { "swish", DANAUS_SILU },
        { "gelu_new", DANAUS_GELU_TANH }, { "gelu_pytorch_tanh", DANAUS_GELU_TANH }
    };
    span name = { "gelu", strlen("gelu") };
    TRY(dn_json_text(config, "hidden_act", &name));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (dn_span_is(name, known[i].name)) {
            *activation = known[i].activation;
            return DANAUS_OK;
        }
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED,
        "hidden_act \"%.*s\" is not one of gelu, relu, silu, gelu_new",
        (int)MIN(name.length, 40), name.text);
}

static danaus_status read_config(bert *m, const json_t *config)
{
    double epsilon = 1e-12;
    span position = { "absolute", strlen("absolute") };
    m->types = 2;
    TRY(dn_config_size(config, "hidden_size", MOST_WIDTH, &m->width));
    TRY(dn_config_size(config, "intermediate_size", MOST_WIDTH, &m->inner));
    TRY(dn_config_size(config, "num_hidden_layers", MOST_LAYERS, &m->layers));
    TRY(dn_config_size(config, "num_attention_heads", m->width, &m->heads));
    TRY(dn_config_size(config, "vocab_size", INT32_MAX, &m->vocabulary));
    TRY(dn_config_size(config, "max_position_embeddings", MOST_TOKENS, &m->positions));
    TRY(dn_config_size(config, "type_vocab_size", MOST_TOKENS, &m->types));
    TRY(dn_json_number(config, "layer_norm_eps", &epsilon));
    TRY(dn_json_text(config, "position_embedding_type", &position));
    TRY(read_activation(config, &m->activation));
    m->epsilon = (float)epsilon;
    if (m->width % m->heads)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "hidden_size %" PRId64 " is no multiple of num_attention_heads %" PRId64,
            m->width, m->heads);
    if (!dn_span_is(position, "absolute"))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "position_embedding_type \"%.*s\" is not \"absolute\"",
            (int)MIN(position.length, 40), position.text);
    return DANAUS_OK;
}

static danaus_status bind_table(
    binder *b, const char *name, int64_t rows, int64_t width, const float **numbers)
{
    char path[160];
    snprintf(path, sizeof path, "embeddings.%s_embeddings.weight", name);
    return dn_bind(b, path, 2, (const int64_t[]){ rows, width }, numbers);
}

static danaus_status bind_norm(
    binder *b, const char *place, int64_t width, affine *norm)
{
    char path[160];
    snprintf(path, sizeof path, "%s.LayerNorm.weight", place);
    TRY(dn_bind(b, path, 1, &width, &norm->scale));
    snprintf(path, sizeof path, "%s.LayerNorm.bias", place);
    return dn_bind(b, path, 1, &width, &norm->shift);
}

static danaus_status open_block(const bert *m, binder *b, int64_t number, block *to)
{
    const struct {
        const char *name;
        int64_t rows, cols;
    } shape[BLOCK_LINEARS] = {
        [QUERY] = { "attention.self.query", m->width, m->width },
        [KEY] = { "attention.self.key", m->width, m->width },
        [VALUE] = { "attention.self.value", m->width, m->width },
        [OUTPUT] = { "attention.output.dense", m->width, m->width },
        [UP] = { "intermediate.dense", m->inner, m->width },
        [DOWN] = { "output.dense", m->width, m->inner },
    };
    char path[96];
    for (int i = 0; i < BLOCK_LINEARS; i++) {
        linear_shape of = { .rows = shape[i].rows,
                            .cols = shape[i].cols,
                            .activation = i == UP ? m->activation : 0,
                            .tokens = CHUNK_TOKENS };
        snprintf(
            path, sizeof path, "encoder.layer.%" PRId64 ".%s", number, shape[i].name);
        TRY(dn_linear_open(&to->linear[i], b, path, &of));
    }
    snprintf(path, sizeof path, "encoder.layer.%" PRId64 ".attention.output", number);
    TRY(bind_norm(b, path, m->width, &to->attention));
    snprintf(path, sizeof path, "encoder.layer.%" PRId64 ".output", number);
    return bind_norm(b, path, m->width, &to->output);
}

static danaus_status bind_all(danaus_model *model, bert *m, binder *b)
{
    TRY(bind_table(b, "word", m->vocabulary, m->width, &m->word));
    TRY(bind_table(b, "position", m->positions, m->width, &m->position));
    TRY(bind_table(b, "token_type", m->types, m->width, &m->type));
    TRY(bind_norm(b, "embeddings", m->width, &m->embeddings));
    for (int64_t i = 0; i < m->layers; i++) {
        m->blocks[i].linear = model->linear + i * BLOCK_LINEARS;
        TRY(open_block(m, b, i, &m->blocks[i]));
    }
    static const char *const others[] = { "pooler.", "embeddings.position_ids", "cls.",
                                          NULL };
    return dn_binder_settle(b, others);
}

static danaus_status bert_bind(danaus_model *model, bert *m)
{
    binder b;
    danaus_tensor t;
    TRY(dn_binder_open(&b, model->file, &model->memory));
    /* Of models with heads, whose encoder is a part. */
    b.prefix = "bert.";
    if (!dn_binder_find(&b, "embeddings.word_embeddings.weight", &t))
        b.prefix = "";
    danaus_status status = bind_all(model, m, &b);
    model->others = b.parameters;
    model->prefix = b.prefix;
    dn_binder_close(&b);
    return status;
}

static danaus_status bert_open(danaus_model *model, const json_t *config)
{
    bert *m = dn_calloc(1, sizeof *m);
    model->own = m;
    if (!m)
        return dn_fail_memory(sizeof *m, "a model");
    TRY(read_config(m, config));
    model->linears = (int)m->layers * BLOCK_LINEARS;
    model->linear = dn_calloc((size_t)model->linears, sizeof *model->linear);
    m->blocks = dn_calloc((size_t)m->layers, sizeof *m->blocks);
    if (!model->linear || !m->blocks)
        return dn_fail_memory(
            (size_t)model->linears * sizeof *model->linear, "a table of layers");
    danaus_model_info *info = &model->info;
    info->layers = m->layers;
    info->width = info->embedding = m->width;
    info->heads = m->heads;
    info->vocabulary = m->vocabulary;
    info->max_length = m->positions;
    return bert_bind(model, m);
}

static void bert_close(danaus_model *model)
{
    bert *m = model->own;
    if (m)
        dn_free(m->blocks);
    dn_free(m);
}

/* ---- running ---- */

/* Activations of a chunk, and what goes in and out, in one block of device memory. */
typedef struct chunk {
    int32_t *ids, *positions;
    float *h, *q, *k, *v, *mixed, *inner, *pooled;
} chunk;

/* Cuts so many bytes off; a chunk without memory counts them. */
static void *cut(uintptr_t *at, int64_t bytes)
{
    void *part = (void *)*at;
    *at += dn_aligned(bytes);
    return part;
}

static uintptr_t lay(
    const bert *m, int64_t tokens, int64_t sequences, uintptr_t at, chunk *c)
{
    int64_t row = m->width * (int64_t)sizeof(float);
    c->ids = cut(&at, tokens * (int64_t)sizeof(int32_t));
    c->positions = cut(&at, tokens * (int64_t)sizeof(int32_t));
    c->h = cut(&at, tokens * row);
    c->q = cut(&at, tokens * row);
    c->k = cut(&at, tokens * row);
    c->v = cut(&at, tokens * row);
    c->mixed = cut(&at, tokens * row);
    c->inner = cut(&at, tokens * m->inner * (int64_t)sizeof(float));
    c->pooled = cut(&at, sequences * row);
    return at;
}

danaus_status dn_bert_norm(
    const bert *m, danaus_device *device, int64_t tokens, const float *more,
    affine norm, float *h)
{
    return device->backend->nn->norm(
        device, &(nn_norm){ .rows = tokens,
                            .width = m->width,
                            .x = h,
                            .more = more,
                            .scale = norm.scale,
                            .shift = norm.shift,
                            .epsilon = m->epsilon,
                            .y = h });
}

static danaus_status run_block(
    const bert *m, danaus_device *device, const block *b, const nn_sequences *sequences,
    int64_t tokens, const chunk *c)
{
    const linear *w = b->linear;
    TRY(dn_linear_run(&w[QUERY], device, tokens, c->h, c->q));
    TRY(dn_linear_run(&w[KEY], device, tokens, c->h, c->k));
    TRY(dn_linear_run(&w[VALUE], device, tokens, c->h, c->v));
    TRY(device->backend->nn->attention(
        device,
        &(nn_attention){ *sequences, m->width, m->heads, c->q, c->k, c->v, c->mixed }));
    TRY(dn_linear_run(&w[OUTPUT], device, tokens, c->mixed, c->q));
    TRY(dn_bert_norm(m, device, tokens, c->q, b->attention, c->h));
    TRY(dn_linear_run(&w[UP], device, tokens, c->h, c->inner));
    TRY(dn_linear_run(&w[DOWN], device, tokens, c->inner, c->q));
    return dn_bert_norm(m, device, tokens, c->q, b->output, c->h);
}

danaus_status dn_bert_lookup(
    const bert *m, danaus_device *device, int64_t tokens, const int32_t *ids,
    const int32_t *positions, float *h)
{
    TRY(device->backend->nn->lookup(
        device, &(nn_lookup){ tokens, m->width, ids, positions, m->word, m->position,
                              m->type, h }));
    return dn_bert_norm(m, device, tokens, NULL, m->embeddings, h);
}

static danaus_status run_chunk(
    danaus_model *model, danaus_device *device, const nn_sequences *sequences,
    const chunk *c)
{
    const bert *m = model->own;
    int64_t tokens = sequences->offsets[sequences->count];
    TRY(dn_bert_lookup(m, device, tokens, c->ids, c->positions, c->h));
    for (int64_t i = 0; i < m->layers; i++)
        TRY(run_block(m, device, &m->blocks[i], sequences, tokens, c));
    return device->backend->nn->pool(
        device, &(nn_pool){ *sequences, m->width, model->pooling.first,
                            model->pooling.normalize, c->h, c->pooled });
}

/* Sequences from `first` on that make a chunk of at most `tokens`, or one. */
static int64_t chunk_of(
    const int64_t *offsets, int64_t sequences, int64_t first, int64_t tokens)
{
    int64_t n = 1;
    while (first + n < sequences && offsets[first + n + 1] - offsets[first] <= tokens)
        n++;
    return n;
}

/* Host memory for a chunk's offsets and positions. */
typedef struct numbers {
    int64_t *offsets;
    int32_t *positions;
} numbers;

static void number_tokens(const int64_t *offsets, int64_t sequences, const numbers *to)
{
    for (int64_t i = 0; i <= sequences; i++)
        to->offsets[i] = offsets[i] - offsets[0];
    for (int64_t i = 0; i < sequences; i++)
        for (int64_t t = to->offsets[i]; t < to->offsets[i + 1]; t++)
            to->positions[t] = (int32_t)(t - to->offsets[i]);
}

static danaus_status embed_chunks(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, float *embeddings, const chunk *c,
    const numbers *host)
{
    int64_t width = model->info.width, n;
    for (int64_t first = 0; first < sequences; first += n) {
        n = chunk_of(offsets, sequences, first, CHUNK_TOKENS);
        number_tokens(offsets + first, n, host);
        size_t bytes = (size_t)host->offsets[n] * sizeof(int32_t);
        TRY(danaus_upload(device, c->ids, ids + offsets[first], bytes));
        TRY(danaus_upload(device, c->positions, host->positions, bytes));
        TRY(run_chunk(model, device, &(nn_sequences){ n, host->offsets }, c));
        TRY(danaus_download(
            device, embeddings + first * width, c->pooled,
            (size_t)(n * width) * sizeof(float)));
    }
    return DANAUS_OK;
}

static danaus_status bert_embed(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, float *embeddings)
{
    int64_t tokens = 1, most = 1, n;
    for (int64_t first = 0; first < sequences; first += n) {
        n = chunk_of(offsets, sequences, first, CHUNK_TOKENS);
        tokens = MAX(tokens, offsets[first + n] - offsets[first]);
        most = MAX(most, n);
    }
    chunk c;
    void *memory;
    size_t bytes = (size_t)lay(model->own, tokens, most, 0, &c);
    TRY(danaus_alloc(device, bytes, &memory));
    lay(model->own, tokens, most, (uintptr_t)memory, &c);
    numbers host = { dn_calloc((size_t)most + 1, sizeof *host.offsets),
                     dn_calloc((size_t)tokens, sizeof *host.positions) };
    danaus_status status =
        host.offsets && host.positions
            ? embed_chunks(
                  model, device, sequences, offsets, ids, embeddings, &c, &host)
            : dn_fail_memory((size_t)tokens * sizeof *host.positions, "positions");
    dn_free(host.offsets);
    dn_free(host.positions);
    danaus_free(device, memory);
    return status;
}

const arch dn_arch_bert = {
    .name = "bert",
    .open = bert_open,
    .close = bert_close,
    .embed = bert_embed,
    .compress = dn_bert_compress,
};
