/* Nomic BERT: Nussbaum et al., 2024 (arXiv 2402.01613), as its authors' checkpoints have it. Rows
   are norm(word + type). Blocks of a transformer turn queries and keys by their positions, and
   gate by two layers. */
// SPDX-License-Identifier: Apache-2.0
#include "model/bert/bert.h"

#include "base/numbers.h"
#include "base/status.h"
#include "model/bert/rotary.h"

#include <string.h>

/* danaus_model.own */
typedef struct nomic_bert {
    bert encoder;
    double theta;
} nomic_bert;

/* ---- configuration, by the names of transformers or those of the authors ---- */

static const block_fields fields_of_authors = { .width = "n_embd",
                                                .inner = "n_inner",
                                                .layers = "n_layer",
                                                .heads = "n_head",
                                                .epsilon = "layer_norm_epsilon",
                                                .activation = "hidden_act",
                                                .positions = "n_positions" };

static int has_names_of_authors(const json_t *config)
{
    return json_object_get(config, fields_of_authors.width) != NULL;
}

static danaus_status read_gate(const json_t *config, danaus_activation *activation)
{
    span name = { "swiglu", strlen("swiglu") };
    TRY(dn_json_text(config, "activation_function", &name));
    *activation = dn_span_is(name, "swiglu") ? DANAUS_SILU : DANAUS_GELU;
    if (*activation == DANAUS_SILU || dn_span_is(name, "geglu"))
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED, "activation_function \"%.*s\" is not swiglu or geglu",
        (int)MIN(name.length, 40), name.text);
}

/* Blocks that the authors' code has beside those that they published. */
static danaus_status check_blocks(const json_t *config)
{
    static const char *const others[] = {
        "prenorm", "parallel_block",         "use_rms_norm",
        "causal",  "rotary_emb_interleaved", "scale_attn_by_inverse_layer_idx"
    };
    double fraction = 1, experts = 0;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        int is_set = 0;
        TRY(dn_json_flag(config, others[i], &is_set));
        if (is_set)
            return dn_fail(DANAUS_ERR_UNSUPPORTED, "\"%s\" is true", others[i]);
    }
    TRY(dn_json_number(config, "rotary_emb_fraction", &fraction));
    TRY(dn_json_number(config, "num_experts", &experts));
    if (fraction != 1 || experts != 0)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "rotary_emb_fraction is %g and num_experts %g; danaus has 1 and 0",
            fraction, experts);
    return DANAUS_OK;
}

static danaus_status read_theta(const json_t *config, double *theta)
{
    static const char *const scales[] = { "rotary_emb_scale_base",
                                          "rotary_scaling_factor", "rope_scaling" };
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        const json_t *found = json_object_get(config, scales[i]);
        if (found && !json_is_null(found))
            return dn_fail(
                DANAUS_ERR_UNSUPPORTED, "%s is not null: positions are scaled",
                scales[i]);
    }
    *theta = 1000;
    TRY(dn_json_number(config, "rotary_emb_base", theta));
    return dn_rotary_theta(json_object_get(config, "rope_parameters"), theta);
}

static danaus_status configure(danaus_model *model, const json_t *config)
{
    nomic_bert *m = model->own;
    transformer *t = model->blocks;
    block_sizes *sizes = &m->encoder.config.blocks;
    int authors = has_names_of_authors(config);
    TRY(dn_bert_configure(model, config, authors ? &fields_of_authors : NULL, 1e-12));
    if (authors)
        TRY(read_gate(config, &sizes->activation));
    TRY(check_blocks(config));
    TRY(dn_transformer_config(t, config, sizes));
    t->begin = QKV;
    t->factored = t->no_attention_bias = t->no_mlp_bias = 1;
    model->info.heads = t->heads;
    TRY(dn_rotary_check_head(t->width / t->heads));
    return read_theta(config, &m->theta);
}

/* ---- weights ---- */

static const word_names words_of_nomic = {
    (const encoder_prefix[]){ { "nomic_bert.", "" }, { "bert.", "" }, { "", "" } },
    "embeddings.word_embeddings.weight", "emb_ln", NULL,
    "embeddings.token_type_embeddings.weight"
};

static const transformer_names blocks_of_nomic = { "encoder.layers.",
                                                   { [QKV] = "attn.Wqkv",
                                                     [OUTPUT] = "attn.out_proj",
                                                     [UP] = "mlp.fc12",
                                                     [DOWN] = "mlp.fc2",
                                                     [FACTOR] = "mlp.fc11" },
                                                   "norm1",
                                                   "norm2" };

static const head_names head_of_nomic = { "cls.predictions.transform.dense",
                                          "cls.predictions.transform.layer_norm",
                                          "cls.predictions.decoder.weight",
                                          "cls.predictions.decoder.bias",
                                          "cls.predictions.bias" };

static danaus_status bind(danaus_model *model, const json_t *config, binder *b)
{
    const nomic_bert *m = model->own;
    transformer *t = model->blocks;
    const head_form form = { .activation = m->encoder.config.blocks.activation };
    const char *heads = dn_words_prefix(b, &words_of_nomic);
    const float *turns;
    (void)config;
    TRY(dn_bert_bind_blocks(model, b, &words_of_nomic, &blocks_of_nomic));
    TRY(dn_bert_open_head(model, b, heads, &head_of_nomic, &form));
    if (b->problems) /* nothing as large as a configuration says, unless weights fit */
        return DANAUS_OK;
    TRY(dn_rotary_make(
        b, model->info.max_length, t->width / t->heads, m->theta, &turns));
    for (int64_t i = 0; i < t->layers; i++)
        t->blocks[i].turns = turns;
    return DANAUS_OK;
}

const arch dn_arch_nomic_bert = {
    .name = "nomic-bert",
    .types = { { .name = "nomic_bert" } },
    .mixer = &dn_transformer_mixer,
    .size = sizeof(nomic_bert),
    .configure = configure,
    .bind = bind,
    .others = (const char *const[]){ "pooler.", "embeddings.position_ids", NULL },
    .encoder = &dn_bert_encoder,
};
