/* ModernBERT: Warner et al., 2024 (arXiv 2412.13663), as Hugging Face's transformers run it. Rows
   are norm(word). Blocks of a transformer, with gates, turn queries and keys by their positions;
   most of them attend to a window alone. */
// SPDX-License-Identifier: Apache-2.0
#include "model/bert/bert.h"

#include "base/status.h"
#include "model/bert/rotary.h"

#include <inttypes.h>
#include <string.h>

/* danaus_model.own */
typedef struct modern_bert {
    bert encoder;
    double theta[2]; /* of positions in layers that are global, and local */
    int64_t window;  /* of local layers, as in nn_attention */
    int64_t every;   /* layers from one global layer to the next */
    int norm_bias, head_bias, table_bias;
    danaus_activation head_activation;
} modern_bert;

/* ---- configuration ---- */

static const char *const kinds[] = { "full_attention", "sliding_attention" };

/* The name of a layer's kind in config.json; NULL: it has none. */
static const char *kind_in(const json_t *config, int64_t layer)
{
    const json_t *all = json_object_get(config, "layer_types");
    return json_string_value(json_array_get(all, (size_t)layer));
}

static int is_local(const modern_bert *m, const json_t *config, int64_t layer)
{
    const char *kind = kind_in(config, layer);
    return kind ? !strcmp(kind, kinds[1]) : layer % m->every != 0;
}

static danaus_status check_kinds(const json_t *config, int64_t layers)
{
    json_t *all;
    TRY(dn_json_array(config, "layer_types", &all));
    if (all && json_array_size(all) != (size_t)layers)
        return dn_fail(
            DANAUS_ERR_FORMAT, "layer_types has %zu entries for %" PRId64 " layers",
            json_array_size(all), layers);
    for (int64_t i = 0; all && i < layers; i++) {
        const char *kind = kind_in(config, i);
        if (!kind || (strcmp(kind, kinds[0]) && strcmp(kind, kinds[1])))
            return dn_fail(
                DANAUS_ERR_UNSUPPORTED,
                "layer_types has \"%.40s\", which is neither %s nor %s",
                kind ? kind : "?", kinds[0], kinds[1]);
    }
    return DANAUS_OK;
}

/* Reads the theta of a kind of layers from rope_parameters, or from a field of its own. */
static danaus_status read_theta(
    const json_t *config, int kind, const char *field, double *theta)
{
    const json_t *all = json_object_get(config, "rope_parameters");
    TRY(dn_json_number(config, field, theta));
    return dn_rotary_theta(json_object_get(all, kinds[kind]), theta);
}

static danaus_status read_positions(modern_bert *m, const json_t *config)
{
    const json_t *scaling = json_object_get(config, "rope_scaling");
    int64_t both = 128;
    m->every = 3;
    TRY(dn_config_size(config, "local_attention", MOST_TOKENS, &both));
    TRY(dn_config_size(config, "global_attn_every_n_layers", MOST_LAYERS, &m->every));
    m->window = both / 2 + 1;
    if (scaling && !json_is_null(scaling))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "rope_scaling is not null: positions are scaled");
    m->theta[0] = 160000;
    TRY(read_theta(config, 0, "global_rope_theta", &m->theta[0]));
    /* Null stands for the theta of global layers. */
    m->theta[1] = json_object_get(config, "local_rope_theta") ? m->theta[0] : 10000;
    return read_theta(config, 1, "local_rope_theta", &m->theta[1]);
}

static danaus_status read_biases(
    modern_bert *m, transformer *blocks, const json_t *config)
{
    int attention = 0, mlp = 0;
    m->table_bias = 1;
    TRY(dn_json_flag(config, "norm_bias", &m->norm_bias));
    TRY(dn_json_flag(config, "attention_bias", &attention));
    TRY(dn_json_flag(config, "mlp_bias", &mlp));
    TRY(dn_json_flag(config, "classifier_bias", &m->head_bias));
    TRY(dn_json_flag(config, "decoder_bias", &m->table_bias));
    blocks->no_attention_bias = !attention;
    blocks->no_mlp_bias = !mlp;
    return DANAUS_OK;
}

static danaus_status configure(danaus_model *model, const json_t *config)
{
    static const block_fields fields = { .width = "hidden_size",
                                         .inner = "intermediate_size",
                                         .layers = "num_hidden_layers",
                                         .heads = "num_attention_heads",
                                         .epsilon = "norm_eps",
                                         .activation = "hidden_activation",
                                         .positions = "max_position_embeddings" };
    modern_bert *m = model->own;
    transformer *t = model->blocks;
    const block_sizes *sizes = &m->encoder.config.blocks;
    TRY(dn_bert_configure(model, config, &fields, 1e-5));
    TRY(dn_transformer_config(t, config, sizes));
    t->before = t->first_reads_h = t->gated = 1;
    t->begin = QKV;
    model->info.heads = t->heads;
    TRY(dn_rotary_check_head(t->width / t->heads));
    TRY(read_biases(m, t, config));
    TRY(read_positions(m, config));
    TRY(check_kinds(config, t->layers));
    return dn_config_activation(config, "classifier_activation", &m->head_activation);
}

/* ---- weights ---- */

/* Gives each block its window and its positions. */
static danaus_status place_blocks(danaus_model *model, const json_t *config, binder *b)
{
    const modern_bert *m = model->own;
    const transformer *t = model->blocks;
    const float *turns[2];
    for (int kind = 0; kind < 2; kind++)
        TRY(dn_rotary_make(
            b, model->info.max_length, t->width / t->heads, m->theta[kind],
            &turns[kind]));
    for (int64_t i = 0; i < t->layers; i++) {
        int local = is_local(m, config, i);
        t->blocks[i].window = local ? m->window : 0;
        t->blocks[i].turns = turns[local];
    }
    return DANAUS_OK;
}

/* A classifier has a dense layer of the same name. */
static danaus_status open_head(danaus_model *model, binder *b, const char *heads)
{
    static const head_names names = { "head.dense", "head.norm", "decoder.weight",
                                      "decoder.bias", "decoder.bias" };
    const modern_bert *m = model->own;
    const head_form form = { .activation = m->head_activation,
                             .no_dense_bias = !m->head_bias,
                             .no_bias = !m->table_bias };
    const char *prefix = b->prefix;
    danaus_tensor t;
    b->prefix = heads;
    int classifies = dn_binder_find(b, "classifier.weight", &t);
    b->prefix = prefix;
    return dn_bert_open_head(model, b, heads, classifies ? NULL : &names, &form);
}

static const word_names in_words = {
    (const encoder_prefix[]){ { "model.", "" }, { "", "" } },
    "embeddings.tok_embeddings.weight", "embeddings.norm", NULL, NULL
};

static const transformer_names in_blocks = {
    "layers.",
    { [QKV] = "attn.Wqkv", [OUTPUT] = "attn.Wo", [UP] = "mlp.Wi", [DOWN] = "mlp.Wo" },
    "mlp_norm",
    "attn_norm"
};

static danaus_status bind(danaus_model *model, const json_t *config, binder *b)
{
    modern_bert *m = model->own;
    transformer *t = model->blocks;
    const char *heads = dn_words_prefix(b, &in_words);
    b->unshifted = !m->norm_bias;
    TRY(dn_words_bind(&m->encoder.words, b, &in_words, &m->encoder.config));
    TRY(dn_transformer_open(t, model, b, &in_blocks));
    TRY(dn_affine_bind(&t->last, b, "final_norm", t->width, t->epsilon));
    model->info.max_length = m->encoder.words.positions;
    TRY(open_head(model, b, heads));
    /* Nothing as large as a configuration says, unless the weights fit. */
    return b->problems ? DANAUS_OK : place_blocks(model, config, b);
}

const arch dn_arch_modern_bert = {
    .name = "modernbert",
    .types = { { .name = "modernbert" } },
    .mixer = &dn_transformer_mixer,
    .size = sizeof(modern_bert),
    .configure = configure,
    .bind = bind,
    .encoder = &dn_bert_encoder,
};
