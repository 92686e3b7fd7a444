/* Causal models of Hyena's kind, from their folder.
   docs/models.md lists the fields of config.json and the tensors. */
// SPDX-License-Identifier: Apache-2.0
#include "model/hyena/hyena.h"

#include "base/numbers.h"
#include "base/status.h"

#include <inttypes.h>
#include <string.h>

/* ---- config.json ---- */

/* True if a field is there and not null. */
static int is_given(const json_t *config, const char *field)
{
    const json_t *found = json_object_get(config, field);
    return found && !json_is_null(found);
}

/* A field that may be left out. */
static danaus_status read_size(
    const json_t *config, const char *field, int64_t most, int64_t usual,
    int64_t *value)
{
    *value = usual;
    return dn_config_size(config, field, most, value);
}

static danaus_status check_heads(const hyena *m)
{
    if (m->width % m->head)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "\"d_model\" %" PRId64 " is no multiple of \"head_dim\" %" PRId64, m->width,
            m->head);
    if (m->head > 1 && m->order != 2)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "heads of %" PRId64 " channels need \"hyena_order\" 2, not %" PRId64,
            m->head, m->order);
    return DANAUS_OK;
}

static danaus_status read_config(hyena *m, const json_t *config, int64_t *vocabulary)
{
    span type = { 0 };
    int64_t multiple;
    m->epsilon = m->block_epsilon = 1e-5;
    m->activation = DANAUS_GELU_TANH;
    m->order = 2;
    m->taps = 3;
    TRY(dn_json_text(config, "model_type", &type));
    int is_dna = dn_span_is(type, "hyenadna");
    TRY(dn_config_size(config, "d_model", MOST_WIDTH, &m->width));
    TRY(dn_config_size(config, "n_layer", MOST_LAYERS, &m->layers));
    if (is_given(config, "d_inner") || is_dna)
        TRY(dn_config_size(config, "d_inner", MOST_WIDTH, &m->inner));
    TRY(dn_config_size(config, "vocab_size", INT32_MAX / 2, vocabulary));
    TRY(read_size(config, "pad_vocab_size_multiple", 1 << 20, 8, &multiple));
    TRY(read_size(config, "head_dim", m->width, 1, &m->head));
    TRY(dn_json_number(config, "layer_norm_epsilon", &m->epsilon));
    TRY(dn_config_size(config, "max_seq_len", MOST_TOKENS, &m->shape.length));
    m->longest = is_given(config, "filter_taps") ? MOST_TOKENS : m->shape.length;
    if (is_dna)
        m->shape.shift = 0.05F;
    TRY(dn_hyena_config(m, config));
    m->rows = ROUND_UP(*vocabulary, multiple);
    return check_heads(m);
}

static danaus_status configure(danaus_model *model, const json_t *config)
{
    hyena *m = model->blocks;
    danaus_model_info *info = &model->info;
    TRY(read_config(m, config, &info->vocabulary));
    m->dtype = model->dtype;
    m->step = HYENA_ROWS;
    info->layers = m->layers;
    info->width = info->embedding = m->width;
    info->heads = m->filters;
    info->max_length = m->longest;
    if (!model->pooling.folder[0])
        model->pooling.normalize = 0;
    return DANAUS_OK;
}

/* ---- weights ---- */

/* True if a part of the first block, dense or not, has such a name: checkpoints that were trained
   with checkpoints of activations have one word more. */
static int has_part(const binder *b, const char *part)
{
    const tensor_name begin = dn_name("%sbackbone.layers.0.%s.", b->prefix, part);
    danaus_tensor t;
    for (int i = 0; i < danaus_file_count(b->file); i++)
        if (!danaus_file_tensor(b->file, i, &t) &&
            !strncmp(t.name, begin.text, strlen(begin.text)))
            return 1;
    return 0;
}

static hyena_names names_of(const binder *b)
{
    hyena_names found = { "backbone.layers.", "mixer", "mlp" };
    if (has_part(b, "mixer.layer"))
        found.mixer = "mixer.layer";
    if (has_part(b, "mlp.layer"))
        found.mlp = "mlp.layer";
    return found;
}

/* W is a table of its own, whose name has no prefix, or that of words. */
static danaus_status open_logits(hyena *m, binder *b, linear *to)
{
    const int64_t sizes[] = { m->rows, m->width };
    const linear_shape shape = {
        .rows = m->rows, .cols = m->width, .tokens = HYENA_ROWS, .no_bias = 1
    };
    const char *prefix = b->prefix, *name = "backbone.embeddings.word_embeddings";
    danaus_tensor t;
    danaus_status status = DANAUS_OK;
    m->table = m->word;
    b->prefix = "";
    if (dn_binder_find(b, "lm_head.weight", &t)) {
        name = "lm_head";
        status = dn_bind(b, "lm_head.weight", 2, sizes, &m->table);
    } else {
        b->prefix = prefix;
    }
    if (status == DANAUS_OK)
        status = dn_linear_open(to, b, name, &shape);
    b->prefix = prefix;
    return status;
}

static const char word_table[] = "backbone.embeddings.word_embeddings.weight";

static void find_prefix(binder *b)
{
    static const char *const prefixes[] = { "hyena.", "model.", "" };
    danaus_tensor t;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        b->prefix = prefixes[i];
        if (dn_binder_find(b, word_table, &t))
            return;
    }
}

static danaus_status bind(danaus_model *model, const json_t *config, binder *b)
{
    hyena *m = model->blocks;
    const int64_t sizes[] = { m->rows, m->width };
    (void)config;
    find_prefix(b);
    const hyena_names names = names_of(b);
    TRY(dn_bind(b, word_table, 2, sizes, &m->word));
    TRY(dn_hyena_open_blocks(m, model, b, &names));
    TRY(dn_affine_bind(&m->last, b, "backbone.ln_f", m->width, m->epsilon));
    return open_logits(m, b, &model->next);
}

/* ---- the architecture ---- */

static const encoder hyena_encoder = { .tokens = CHUNK_TOKENS };

const arch dn_arch_hyena = {
    .name = "hyena",
    .types = { { .name = "hyena" }, { .name = "hyenadna" } },
    .mixer = &dn_hyena_mixer,
    .configure = configure,
    .bind = bind,
    .others = (const char *const[]){ "lm_head.", NULL },
    .encoder = &hyena_encoder,
    .generate = dn_hyena_generate,
};
