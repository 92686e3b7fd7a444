/* Encoders of BERT's shape, on sequences that follow each other without padding: the blocks
   take the rows norm(word + position + type) of tokens.

   BERT: Devlin et al., NAACL 2019 (arXiv 1810.04805), as BertModel of Hugging Face's
   transformers runs it, has those of a transformer. Monarch Mixer BERT: Fu et al., NeurIPS 2023
   (arXiv 2310.12109), in the form of its authors' checkpoints, has Monarch Mixers.
   docs/models.md lists the fields of config.json and the tensors. */
// SPDX-License-Identifier: Apache-2.0
#include "model/bert/bert.h"

#include "base/numbers.h"
#include "base/status.h"
#include "model/m2/m2.h"

#include <string.h>

/* ---- both ---- */

static danaus_status configure(danaus_model *model, const json_t *config)
{
    bert *m = model->own;
    danaus_model_info *info = &model->info;
    TRY(dn_encoder_config(config, &m->config));
    info->layers = m->config.blocks.layers;
    info->width = info->embedding = m->config.blocks.width;
    return DANAUS_OK;
}

/* The head of masked language models, whose names begin with `heads`. */
static danaus_status open_head(danaus_model *model, binder *b, const char *heads)
{
    bert *m = model->own;
    const char *prefix = b->prefix;
    const block_sizes *sizes = &m->config.blocks;
    model->info.vocabulary = m->words.vocabulary;
    b->prefix = heads;
    danaus_status status =
        dn_head_open(&model->head, b, &m->words, sizes->activation, sizes->epsilon);
    b->prefix = prefix;
    return status;
}

static danaus_status embed(
    danaus_model *model, danaus_device *device, const token_chunk *c, void *rows)
{
    const bert *m = model->own;
    return dn_words_run(&m->words, device, c->tokens, c->ids, c->positions, rows);
}

/* ---- BERT ---- */

static danaus_status configure_bert(danaus_model *model, const json_t *config)
{
    span position = { "absolute", strlen("absolute") };
    bert *m = model->own;
    transformer *blocks = model->blocks;
    TRY(configure(model, config));
    TRY(dn_transformer_config(blocks, config, &m->config.blocks));
    TRY(dn_json_text(config, "position_embedding_type", &position));
    if (!dn_span_is(position, "absolute"))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "position_embedding_type \"%.*s\" is not \"absolute\"",
            (int)MIN(position.length, 40), position.text);
    model->info.heads = blocks->heads;
    return DANAUS_OK;
}

static danaus_status bind_bert(danaus_model *model, const json_t *config, binder *b)
{
    static const transformer_names names = { "attention.self",
                                             "attention.output.LayerNorm",
                                             "output.LayerNorm" };
    bert *m = model->own;
    const char *heads;
    (void)config;
    dn_words_prefix(b, &heads);
    TRY(dn_words_bind(&m->words, b, &m->config));
    TRY(dn_transformer_open(model->blocks, model, b, &names));
    model->info.max_length = m->words.positions;
    return open_head(model, b, heads);
}

static const encoder bert_encoder = { .tokens = CHUNK_TOKENS,
                                      .gpu_tokens = GPU_CHUNK_TOKENS,
                                      .embed = embed };

const arch dn_arch_bert = {
    .name = "bert",
    .types = { { .name = "bert" } },
    .mixer = &dn_transformer_mixer,
    .size = sizeof(bert),
    .configure = configure_bert,
    .bind = bind_bert,
    .others =
        (const char *const[]){ "pooler.", "embeddings.position_ids", "cls.", NULL },
    .encoder = &bert_encoder,
    .compress = dn_bert_compress,
};

/* ---- Monarch Mixer BERT ---- */

/* The normalisation before mixing has this epsilon; config.json states that of the others. */
#define INPUT_EPSILON 1e-5

/* Tokens that go through all blocks together: spectra that do not stay are made once for
   these. */
#define M2_CHUNK_TOKENS 8192

static danaus_status configure_m2(danaus_model *model, const json_t *config)
{
    bert *m = model->own;
    m2 *blocks = model->blocks;
    TRY(configure(model, config));
    blocks->input_epsilon = INPUT_EPSILON;
    blocks->filter.length = m->config.positions;
    TRY(dn_config_size(config, "long_conv_l_max", MOST_TOKENS, &blocks->filter.length));
    TRY(dn_m2_config(blocks, config, &m->config.blocks));
    return dn_json_flag(config, "pool_all", &m->whole);
}

/* Without modules.json, pooled rows go through the file's pooler, if it has one. */
static danaus_status open_pooler(danaus_model *model, binder *b)
{
    const bert *m = model->own;
    const linear_shape shape = { .rows = model->info.width,
                                 .cols = model->info.width,
                                 .tokens = 1 };
    danaus_tensor t;
    if (model->pooling.given || !dn_binder_find(b, "pooler.dense.weight", &t))
        return DANAUS_OK;
    model->pooling.first = !m->whole;
    model->pooling.normalize = 0;
    TRY(dn_linear_open(&model->pooler, b, "pooler.dense", &shape));
    b->parameters += model->pooler.parameters;
    return DANAUS_OK;
}

static danaus_status bind_m2(danaus_model *model, const json_t *config, binder *b)
{
    static const m2_names names = { "encoder.layer.", "attention",
                                    "attention.layernorm", "mlp.layernorm" };
    bert *m = model->own;
    m2 *blocks = model->blocks;
    const char *heads;
    dn_words_prefix(b, &heads);
    TRY(dn_m2_decide(blocks, b, config, &names));
    blocks->taken = MIN(blocks->filter.length, m->config.positions);
    TRY(dn_words_bind(&m->words, b, &m->config));
    TRY(dn_m2_open_blocks(blocks, model, b, &names));
    TRY(open_pooler(model, b));
    model->info.max_length = blocks->taken;
    return open_head(model, b, heads);
}

static const encoder m2_encoder = { .tokens = M2_CHUNK_TOKENS,
                                    .gpu_tokens = M2_GPU_TOKENS,
                                    .embed = embed };

const arch dn_arch_m2_bert = {
    .name = "m2-bert",
    .types = { { .name = "m2-bert" },
               { .name = "m2_bert" },
               { .name = "bert", .field = "long_conv_l_max" } },
    .mixer = &dn_m2_mixer,
    .size = sizeof(bert),
    .configure = configure_m2,
    .bind = bind_m2,
    .others = (const char *const[]){ "pooler.", "embeddings.position_ids", "cls.",
                                     "classifier.", "encoder.flashfft.", NULL },
    .encoder = &m2_encoder,
};
