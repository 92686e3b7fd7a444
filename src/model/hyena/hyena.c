/* Loads causal models of Hyena's kind from their folder, and runs whole sequences through them.
   docs/models.md lists the fields of config.json and the tensors. */
// SPDX-License-Identifier: Apache-2.0
#include "model/hyena/hyena.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "model/words.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- config.json ---- */

static int is_dna(span type) { return dn_span_is(type, "hyenadna"); }

static int hyena_recognizes(const json_t *config, span type)
{
    (void)config;
    return is_dna(type) || dn_span_is(type, "hyena");
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
    TRY(dn_config_size(config, "d_model", MOST_WIDTH, &m->width));
    TRY(dn_config_size(config, "n_layer", MOST_LAYERS, &m->layers));
    if (json_object_get(config, "d_inner") || is_dna(type))
        TRY(dn_config_size(config, "d_inner", MOST_WIDTH, &m->inner));
    TRY(dn_config_size(config, "vocab_size", INT32_MAX / 2, vocabulary));
    TRY(read_size(config, "pad_vocab_size_multiple", 1 << 20, 8, &multiple));
    TRY(read_size(config, "head_dim", m->width, 1, &m->head));
    TRY(dn_json_number(config, "layer_norm_epsilon", &m->epsilon));
    TRY(dn_config_size(config, "max_seq_len", MOST_TOKENS, &m->shape.length));
    if (is_dna(type))
        m->shape.shift = 0.05F;
    TRY(dn_hyena_config(m, config));
    m->rows = ROUND_UP(*vocabulary, multiple);
    return check_heads(m);
}

/* ---- weights ---- */

/* True if a part of the first block, dense or not, has such a name: checkpoints that were trained
   with checkpoints of activations have one word more. */
static int has_part(const binder *b, const char *part)
{
    char begin[MOST_NAME];
    danaus_tensor t;
    int length =
        snprintf(begin, sizeof begin, "%sbackbone.layers.0.%s.", b->prefix, part);
    for (int i = 0; i < danaus_file_count(b->file); i++)
        if (!danaus_file_tensor(b->file, i, &t) &&
            !strncmp(t.name, begin, (size_t)length))
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

static danaus_status bind_all(danaus_model *model, hyena *m, binder *b)
{
    const int64_t sizes[] = { m->rows, m->width };
    const hyena_names names = names_of(b);
    TRY(dn_bind(b, "backbone.embeddings.word_embeddings.weight", 2, sizes, &m->word));
    TRY(dn_hyena_open_blocks(m, model, b, &names));
    TRY(dn_affine_bind(&m->last, b, "backbone.ln_f", m->width, m->epsilon));
    TRY(open_logits(m, b, &model->next));
    return dn_binder_settle(b, (const char *const[]){ "lm_head.", NULL });
}

static danaus_status hyena_bind(danaus_model *model, hyena *m)
{
    static const char *const prefixes[] = { "hyena.", "model.", "" };
    binder b;
    danaus_tensor t;
    TRY(dn_binder_open(&b, model->file, &model->memory, model->dtype));
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        b.prefix = prefixes[i];
        if (dn_binder_find(&b, "backbone.embeddings.word_embeddings.weight", &t))
            break;
    }
    danaus_status status = bind_all(model, m, &b);
    model->others = b.parameters;
    model->prefix = b.prefix;
    dn_binder_close(&b);
    return status;
}

static danaus_status hyena_open(danaus_model *model, const json_t *config)
{
    hyena *m = dn_calloc(1, sizeof *m);
    model->own = m;
    if (!m)
        return dn_fail_memory(sizeof *m, "a model");
    danaus_model_info *info = &model->info;
    m->dtype = model->dtype;
    TRY(read_config(m, config, &info->vocabulary));
    model->configured = 1;
    m->step = HYENA_ROWS;
    TRY(dn_hyena_make(m, model));
    info->layers = m->layers;
    info->width = info->embedding = m->width;
    info->heads = m->filters;
    info->max_length = m->shape.length;
    if (!model->pooling.folder[0])
        model->pooling.normalize = 0;
    return hyena_bind(model, m);
}

static void hyena_close(danaus_model *model)
{
    hyena *m = model->own;
    if (m)
        dn_hyena_close(m);
    dn_free(m);
}

/* ---- whole sequences ---- */

static int64_t hyena_bytes(const danaus_model *model, int64_t tokens, int64_t longest)
{
    (void)longest;
    return dn_hyena_bytes(model->own, tokens);
}

static danaus_status hyena_run(
    danaus_model *model, danaus_device *device, const token_chunk *c, void *memory,
    void **h)
{
    return dn_hyena_run(model->own, device, c, memory, h);
}

static danaus_status hyena_cost(
    danaus_model *model, danaus_device *device, int64_t length, danaus_model_cost *cost)
{
    return dn_hyena_convs_cost(model->own, device, length, cost);
}

/* Tokens that go through together: their activations stay in the last cache. */
#define CHUNK_TOKENS 1024

static const encoder hyena_encoder = { .tokens = CHUNK_TOKENS,
                                       .bytes = hyena_bytes,
                                       .run = hyena_run,
                                       .cost = hyena_cost,
                                       .wide = 1 };

const arch dn_arch_hyena = {
    .name = "hyena",
    .recognizes = hyena_recognizes,
    .open = hyena_open,
    .close = hyena_close,
    .encoder = &hyena_encoder,
    .generate = dn_hyena_generate,
};
