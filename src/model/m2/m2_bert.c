/* Loads Monarch Mixer BERT from its folder, in the form of its authors' checkpoints.
   docs/models.md lists the fields of config.json and the tensors. */
// SPDX-License-Identifier: Apache-2.0
#include "model/m2/m2.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "model/words.h"

/* The normalisation before mixing has this epsilon; config.json states that of the others. */
#define INPUT_EPSILON 1e-5

typedef struct m2_bert {
    m2 m2;
    words words;
    int whole; /* pooling takes all rows */
} m2_bert;

/* ---- weights ---- */

/* Without modules.json, pooled rows go through the file's pooler, if it has one. */
static danaus_status open_pooler(danaus_model *model, binder *b, int whole)
{
    const linear_shape shape = { .rows = model->info.width,
                                 .cols = model->info.width,
                                 .tokens = 1 };
    danaus_tensor t;
    if (model->pooling.given || !dn_binder_find(b, "pooler.dense.weight", &t))
        return DANAUS_OK;
    model->pooling.first = !whole;
    model->pooling.normalize = 0;
    TRY(dn_linear_open(&model->pooler, b, "pooler.dense", &shape));
    b->parameters += model->pooler.parameters;
    return DANAUS_OK;
}

static danaus_status bind_all(
    danaus_model *model, m2_bert *m, binder *b, const json_t *config,
    const encoder_config *c)
{
    static const m2_names names = { "encoder.layer.", "attention",
                                    "attention.layernorm", "mlp.layernorm" };
    static const char *const others[] = {
        "pooler.",     "embeddings.position_ids", "cls.",
        "classifier.", "encoder.flashfft.",       NULL
    };
    const char *heads;
    dn_words_prefix(b, &heads);
    model->prefix = b->prefix;
    TRY(dn_m2_decide(&m->m2, b, config, &names));
    m->m2.taken = MIN(m->m2.filter.length, c->positions);
    TRY(dn_words_bind(&m->words, b, c));
    TRY(dn_m2_open_blocks(&m->m2, model, b, &names));
    TRY(open_pooler(model, b, m->whole));
    b->prefix = heads;
    TRY(dn_head_open(&model->head, b, &m->words, c->activation, c->epsilon));
    b->prefix = model->prefix;
    return dn_binder_settle(b, others);
}

static danaus_status m2_bind(
    danaus_model *model, m2_bert *m, const json_t *config, const encoder_config *c)
{
    binder b;
    TRY(dn_binder_open(&b, model->file, &model->memory, model->dtype));
    danaus_status status = bind_all(model, m, &b, config, c);
    model->others = b.parameters;
    dn_binder_close(&b);
    return status;
}

/* ---- the architecture ---- */

static int m2_recognizes(const json_t *config, span type)
{
    return dn_span_is(type, "m2-bert") || dn_span_is(type, "m2_bert") ||
           (dn_span_is(type, "bert") && json_object_get(config, "long_conv_l_max"));
}

static danaus_status read_config(m2 *m, const json_t *config, encoder_config *c)
{
    TRY(dn_encoder_config(config, c));
    m->layers = c->layers;
    m->width = c->width;
    m->inner = c->inner;
    m->activation = c->activation;
    m->epsilon = c->epsilon;
    m->input_epsilon = INPUT_EPSILON;
    m->filter.length = c->positions;
    TRY(dn_config_size(config, "long_conv_l_max", MOST_TOKENS, &m->filter.length));
    return dn_m2_config(m, config);
}

static danaus_status m2_open(danaus_model *model, const json_t *config)
{
    encoder_config c;
    m2_bert *m = dn_calloc(1, sizeof *m);
    model->own = m;
    if (!m)
        return dn_fail_memory(sizeof *m, "a model");
    TRY(read_config(&m->m2, config, &c));
    TRY(dn_json_flag(config, "pool_all", &m->whole));
    model->configured = 1;
    danaus_model_info *info = &model->info;
    info->width = info->embedding = c.width;
    TRY(dn_m2_make(&m->m2, model));
    TRY(m2_bind(model, m, config, &c));
    info->layers = c.layers;
    info->vocabulary = m->words.vocabulary;
    info->max_length = m->m2.taken;
    return DANAUS_OK;
}

static void m2_close(danaus_model *model)
{
    m2_bert *m = model->own;
    if (m)
        dn_m2_close(&m->m2);
    dn_free(m);
}

static int64_t m2_bytes(const danaus_model *model, int64_t tokens, int64_t longest)
{
    const m2_bert *m = model->own;
    return dn_m2_bytes(&m->m2, tokens, longest);
}

static danaus_status m2_run(
    danaus_model *model, danaus_device *device, const token_chunk *c, void *memory,
    void **h)
{
    m2_bert *m = model->own;
    TRY(dn_words_run(
        &m->words, device, c->tokens, c->ids, c->positions,
        dn_m2_rows(&m->m2, c, memory)));
    return dn_m2_run(&m->m2, device, c, memory, h);
}

static danaus_status m2_cost(
    danaus_model *model, danaus_device *device, int64_t length, danaus_model_cost *cost)
{
    const m2_bert *m = model->own;
    return dn_m2_cost(&m->m2, device, length, cost);
}

/* Tokens that go through all blocks together: spectra that do not stay are made once for
   these. */
#define CHUNK_TOKENS 8192

static const encoder m2_encoder = { .tokens = CHUNK_TOKENS,
                                    .bytes = m2_bytes,
                                    .run = m2_run,
                                    .cost = m2_cost,
                                    .gpu_tokens = M2_GPU_TOKENS };

const arch dn_arch_m2_bert = {
    .name = "m2-bert",
    .recognizes = m2_recognizes,
    .open = m2_open,
    .close = m2_close,
    .encoder = &m2_encoder,
};
