/* Encoders of BERT's shape, on sequences that follow each other without padding: the blocks
   take the rows norm(word + position + type) of tokens.

   BERT: Devlin et al., NAACL 2019 (arXiv 1810.04805); RoBERTa: Liu et al., 2019 (arXiv
   1907.11692); and DistilBERT: Sanh et al., 2019 (arXiv 1910.01108), as Hugging Face's
   transformers run them, have the blocks of a transformer. Monarch Mixer BERT: Fu et al.,
   NeurIPS 2023 (arXiv 2310.12109), in the form of its authors' checkpoints, has Monarch Mixers.
   docs/models.md lists the fields of config.json and the tensors. */
// SPDX-License-Identifier: Apache-2.0
#include "model/bert/bert.h"

#include "base/numbers.h"
#include "base/status.h"
#include "model/m2/m2.h"

#include <inttypes.h>
#include <string.h>

#define USUAL_EPSILON 1e-12

/* ---- names ---- */

static const word_names bert_words = {
    (const encoder_prefix[]){ { "bert.", "" },
                              { "model.bert.", "model." },
                              { "module.bert.", "module." },
                              { "model.", "model." },
                              { "", "" } },
    "embeddings.word_embeddings.weight", "embeddings.LayerNorm",
    "embeddings.position_embeddings.weight", "embeddings.token_type_embeddings.weight"
};

static const head_names bert_head = { "cls.predictions.transform.dense",
                                      "cls.predictions.transform.LayerNorm",
                                      "cls.predictions.decoder.weight",
                                      "cls.predictions.decoder.bias",
                                      "cls.predictions.bias" };

static const transformer_names bert_blocks = {
    "encoder.layer.",
    { "attention.self.query", "attention.self.key", "attention.self.value",
      "attention.output.dense", "intermediate.dense", "output.dense" },
    "attention.output.LayerNorm",
    "output.LayerNorm"
};

static const word_names roberta_words = {
    (const encoder_prefix[]){ { "roberta.", "" }, { "", "" } },
    "embeddings.word_embeddings.weight", "embeddings.LayerNorm",
    "embeddings.position_embeddings.weight", "embeddings.token_type_embeddings.weight"
};

static const head_names roberta_head = { "lm_head.dense", "lm_head.layer_norm",
                                         "lm_head.decoder.weight",
                                         "lm_head.decoder.bias", "lm_head.bias" };

static const block_fields distil_fields = { .width = "dim",
                                            .inner = "hidden_dim",
                                            .layers = "n_layers",
                                            .heads = "n_heads",
                                            .epsilon = "layer_norm_eps",
                                            .activation = "activation",
                                            .positions = "max_position_embeddings" };

static const word_names distil_words = {
    (const encoder_prefix[]){ { "distilbert.", "" }, { "", "" } },
    "embeddings.word_embeddings.weight", "embeddings.LayerNorm",
    "embeddings.position_embeddings.weight", NULL
};

static const transformer_names distil_blocks = {
    "transformer.layer.",
    { "attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin",
      "ffn.lin1", "ffn.lin2" },
    "sa_layer_norm",
    "output_layer_norm"
};

static const head_names distil_head = { "vocab_transform", "vocab_layer_norm",
                                        "vocab_projector.weight",
                                        "vocab_projector.bias",
                                        "vocab_projector.bias" };

/* ---- all kinds ---- */

danaus_status dn_bert_configure(
    danaus_model *model, const json_t *config, const block_fields *fields,
    double usual_epsilon)
{
    bert *m = model->own;
    danaus_model_info *info = &model->info;
    m->config.blocks = (block_sizes){ .fields = fields, .epsilon = usual_epsilon };
    TRY(dn_encoder_config(config, &m->config));
    info->layers = m->config.blocks.layers;
    info->width = info->embedding = m->config.blocks.width;
    return DANAUS_OK;
}

danaus_status dn_bert_open_head(
    danaus_model *model, binder *b, const char *heads, const head_names *names,
    const head_form *form)
{
    bert *m = model->own;
    const char *prefix = b->prefix;
    model->info.vocabulary = m->words.vocabulary;
    if (!names)
        return DANAUS_OK;
    b->prefix = heads;
    danaus_status status =
        dn_head_open(&model->head, b, &m->words, names, form, m->config.blocks.epsilon);
    b->prefix = prefix;
    return status;
}

/* One with biases. */
static danaus_status open_head(
    danaus_model *model, binder *b, const char *heads, const head_names *names,
    danaus_activation activation)
{
    return dn_bert_open_head(
        model, b, heads, names, &(head_form){ .activation = activation });
}

static danaus_status embed(
    danaus_model *model, danaus_device *device, const token_chunk *c, void *rows)
{
    const bert *m = model->own;
    return dn_words_run(&m->words, device, c->tokens, c->ids, c->positions, rows);
}

/* ---- transformers ---- */

danaus_status dn_bert_configure_blocks(
    danaus_model *model, const json_t *config, const block_fields *fields)
{
    span position = { "absolute", strlen("absolute") };
    bert *m = model->own;
    transformer *blocks = model->blocks;
    TRY(dn_bert_configure(model, config, fields, USUAL_EPSILON));
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

danaus_status dn_bert_bind_blocks(
    danaus_model *model, binder *b, const word_names *names,
    const transformer_names *blocks)
{
    bert *m = model->own;
    TRY(dn_words_bind(&m->words, b, names, &m->config));
    model->info.max_length = m->words.positions;
    return dn_transformer_open(model->blocks, model, b, blocks);
}

const encoder dn_bert_encoder = { .tokens = CHUNK_TOKENS,
                                  .gpu_tokens = GPU_CHUNK_TOKENS,
                                  .embed = embed };

/* ---- BERT ---- */

static danaus_status configure_bert(danaus_model *model, const json_t *config)
{
    return dn_bert_configure_blocks(model, config, NULL);
}

static danaus_status bind_bert(danaus_model *model, const json_t *config, binder *b)
{
    const bert *m = model->own;
    const char *heads = dn_words_prefix(b, &bert_words);
    (void)config;
    TRY(dn_bert_bind_blocks(model, b, &bert_words, &bert_blocks));
    return open_head(model, b, heads, &bert_head, m->config.blocks.activation);
}

const arch dn_arch_bert = {
    .name = "bert",
    .types = { { .name = "bert" } },
    .mixer = &dn_transformer_mixer,
    .size = sizeof(bert),
    .configure = configure_bert,
    .bind = bind_bert,
    .others =
        (const char *const[]){ "pooler.", "embeddings.position_ids", "cls.", NULL },
    .encoder = &dn_bert_encoder,
    .compress = dn_bert_compress,
};

/* ---- RoBERTa: positions begin behind that of padding ---- */

static danaus_status configure_roberta(danaus_model *model, const json_t *config)
{
    bert *m = model->own;
    int64_t padding = 1;
    TRY(dn_bert_configure_blocks(model, config, NULL));
    TRY(dn_json_integer(config, "pad_token_id", &padding));
    if (padding >= m->config.positions - 1)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "max_position_embeddings %" PRId64
            " leaves no position behind that of pad_token_id %" PRId64,
            m->config.positions, padding);
    m->config.first = padding + 1;
    return DANAUS_OK;
}

/* The head has GELU, whatever blocks have. */
static danaus_status bind_roberta(danaus_model *model, const json_t *config, binder *b)
{
    const char *heads = dn_words_prefix(b, &roberta_words);
    (void)config;
    TRY(dn_bert_bind_blocks(model, b, &roberta_words, &bert_blocks));
    return open_head(model, b, heads, &roberta_head, DANAUS_GELU);
}

const arch dn_arch_roberta = {
    .name = "roberta",
    .types = { { .name = "roberta" },
               { .name = "xlm-roberta" },
               { .name = "camembert" } },
    .mixer = &dn_transformer_mixer,
    .size = sizeof(bert),
    .configure = configure_roberta,
    .bind = bind_roberta,
    .others = (const char *const[]){ "pooler.", "embeddings.position_ids", NULL },
    .encoder = &dn_bert_encoder,
    .compress = dn_bert_compress,
};

/* ---- DistilBERT ---- */

static danaus_status configure_distil(danaus_model *model, const json_t *config)
{
    return dn_bert_configure_blocks(model, config, &distil_fields);
}

static danaus_status bind_distil(danaus_model *model, const json_t *config, binder *b)
{
    const bert *m = model->own;
    const char *heads = dn_words_prefix(b, &distil_words);
    (void)config;
    TRY(dn_bert_bind_blocks(model, b, &distil_words, &distil_blocks));
    return open_head(model, b, heads, &distil_head, m->config.blocks.activation);
}

const arch dn_arch_distilbert = {
    .name = "distilbert",
    .types = { { .name = "distilbert" } },
    .mixer = &dn_transformer_mixer,
    .size = sizeof(bert),
    .configure = configure_distil,
    .bind = bind_distil,
    .others = (const char *const[]){ "embeddings.position_ids", NULL },
    .encoder = &dn_bert_encoder,
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
    TRY(dn_bert_configure(model, config, NULL, USUAL_EPSILON));
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
    const char *heads = dn_words_prefix(b, &bert_words);
    TRY(dn_m2_decide(blocks, b, config, &names));
    blocks->taken = MIN(blocks->filter.length, m->config.positions);
    TRY(dn_words_bind(&m->words, b, &bert_words, &m->config));
    TRY(dn_m2_open_blocks(blocks, model, b, &names));
    TRY(open_pooler(model, b));
    model->info.max_length = blocks->taken;
    return open_head(model, b, heads, &bert_head, m->config.blocks.activation);
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
