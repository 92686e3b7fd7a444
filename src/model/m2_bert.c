/* Loading a Monarch Mixer BERT. What config.json leaves open the weights decide. */
// SPDX-License-Identifier: Apache-2.0
#include "model/m2_bert.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"

#include <inttypes.h>
#include <stdio.h>

#define MOST_NAME 160
/* Of the normalisation before mixing, whatever config.json says of the others. */
#define INPUT_EPSILON 1e-5
/* Layers of a filter's network: two between the first and the last. */
#define FILTER_LAYERS 4

/* Sizes that the weights have beside those of config.json. */
typedef struct m2_sizes {
    encoder_config common;
    hyena_shape filter;
    int normed, whole; /* u is normalised; pooling takes all rows */
} m2_sizes;

static int has(binder *b, const char *name)
{
    danaus_tensor t;
    return dn_binder_find(b, name, &t);
}

/* ---- configuration ---- */

static danaus_status read_config(
    const json_t *config, const encoder_config *c, m2_sizes *to)
{
    double factor = 1;
    int64_t length = c->positions, order = 64, features = 3;
    TRY(dn_json_number(config, "hyena_w_mod", &factor));
    TRY(dn_config_size(config, "long_conv_l_max", MOST_TOKENS, &length));
    TRY(dn_config_size(config, "hyena_filter_order", MOST_WIDTH, &order));
    TRY(dn_config_size(config, "hyena_emb_dim", MOST_WIDTH, &features));
    TRY(dn_json_flag(config, "pool_all", &to->whole));
    to->common = *c;
    to->filter = (hyena_shape){ .length = length,
                                .channels = c->width,
                                .features = features,
                                .order = order,
                                .layers = FILTER_LAYERS,
                                .learned = 1,
                                .factor = (float)factor };
    return DANAUS_OK;
}

/* A flag of config.json has to say what the weights do, or nothing. */
static danaus_status check_flag(
    binder *b, const json_t *config, const char *field, int found, int *to)
{
    int said = found;
    TRY(dn_json_flag(config, field, &said));
    if (said != found)
        dn_binder_complain(
            b, "config.json says that %s is %s, the weights that it is not", field,
            said ? "true" : "false");
    *to = found;
    return DANAUS_OK;
}

/* The same of a size, which a tensor has. */
static void check_size(
    binder *b, const json_t *config, const char *field, const char *name, int64_t found,
    int64_t *to)
{
    int64_t said = found;
    dn_json_integer(config, field, &said); /* it has been read before */
    if (said != found)
        dn_binder_complain(
            b, "config.json says that %s is %" PRId64 ", %s has %" PRId64, field, said,
            name, found);
    *to = found;
}

/* What the first block tells of all. */
static danaus_status read_block(
    m2_bert *m, binder *b, const json_t *config, m2_sizes *to)
{
    danaus_tensor t;
    int gated = 1;
    static const char first[] =
        "encoder.layer.0.attention.filter_fn.implicit_filter.0.weight";
    static const char places[] = "encoder.layer.0.attention.filter_fn.pos_emb.z";
    if (dn_binder_find(b, first, &t) && t.ndim == 2) {
        check_size(
            b, config, "hyena_filter_order", first, t.shape[0], &to->filter.order);
        check_size(b, config, "hyena_emb_dim", first, t.shape[1], &to->filter.features);
    }
    if (dn_binder_find(b, places, &t) && t.ndim == 3)
        check_size(
            b, config, "long_conv_l_max", places, t.shape[1], &to->filter.length);
    if (dn_binder_find(b, "encoder.layer.0.mlp.gated_layers.weight", &t))
        gated =
            t.ndim == 3 ? t.shape[0] * t.shape[1] != m->inner : t.shape[0] != m->inner;
    else if (dn_binder_find(b, "encoder.layer.0.mlp.gated_layers.place", &t))
        gated = t.shape[0] != m->inner;
    to->normed = has(b, "encoder.layer.0.attention.layernorm.weight");
    TRY(check_flag(b, config, "use_glu_mlp", gated, &m->gated));
    TRY(check_flag(
        b, config, "residual_long_conv",
        has(b, "encoder.layer.0.attention.filter_fn2.bias"), &m->residual));
    return check_flag(
        b, config, "bidirectional",
        has(b, "encoder.layer.0.attention.filter_fn.implicit_filter_rev.6.weight"),
        &m->bidirectional);
}

/* ---- weights ---- */

static danaus_status open_linears(
    const m2_bert *m, binder *b, const char *place, m2_block *to)
{
    const struct {
        const char *name;
        linear_shape shape;
    } all[M2_LINEARS] = {
        [M2_IN] = { "attention.in_linear", { .rows = 3 * m->width, .cols = m->width } },
        [M2_OUT] = { "attention.out_linear", { .rows = m->width, .cols = m->width } },
        [M2_UP] = { "mlp.gated_layers",
                    { .rows = m->inner, .cols = m->width, .no_bias = 1 } },
        [M2_DOWN] = { "mlp.wo", { .rows = m->width, .cols = m->inner } },
    };
    char path[MOST_NAME];
    for (int i = 0; i < M2_LINEARS; i++) {
        linear_shape shape = all[i].shape;
        shape.tokens = m->packed ? M2_GPU_TOKENS : M2_ROWS;
        shape.dtype = m->dtype;
        if (i == M2_UP) {
            shape.activation = m->activation;
            shape.gated = m->gated;
            shape.rows *= m->gated ? 2 : 1;
        }
        snprintf(path, sizeof path, "%s.%s", place, all[i].name);
        TRY(dn_linear_open(&to->linear[i], b, path, &shape));
    }
    return DANAUS_OK;
}

static danaus_status open_block(
    const m2_bert *m, binder *b, const m2_sizes *s, const char *place, m2_block *to)
{
    static const char *const filters[M2_FILTERS] = { "filter_fn", "filter_fn2" };
    char path[MOST_NAME];
    if (s->normed) {
        snprintf(path, sizeof path, "%s.attention.layernorm", place);
        TRY(dn_affine_bind(&to->input, b, path, m->width, INPUT_EPSILON));
    }
    TRY(open_linears(m, b, place, to));
    snprintf(path, sizeof path, "%s.attention.short_filter", place);
    TRY(dn_few_taps_bind(&to->taps, b, path, 3 * m->width, M2_TAPS));
    for (int f = 0; f < (m->residual ? M2_FILTERS : 1); f++) {
        snprintf(path, sizeof path, "%s.attention.%s", place, filters[f]);
        TRY(dn_hyena_filter_open(&to->filter[f], b, path, &s->filter));
    }
    snprintf(path, sizeof path, "%s.mlp.layernorm", place);
    return dn_affine_bind(&to->output, b, path, m->width, s->common.epsilon);
}

/* Without modules.json, pooled rows go through the file's pooler, if it has one. */
static danaus_status open_pooler(danaus_model *model, binder *b, int whole)
{
    const linear_shape shape = { .rows = model->info.width,
                                 .cols = model->info.width,
                                 .tokens = 1 };
    if (model->pooling.given || !has(b, "pooler.dense.weight"))
        return DANAUS_OK;
    model->pooling.first = !whole;
    model->pooling.normalize = 0;
    TRY(dn_linear_open(&model->pooler, b, "pooler.dense", &shape));
    b->parameters += model->pooler.parameters;
    return DANAUS_OK;
}

static danaus_status bind_all(
    danaus_model *model, m2_bert *m, binder *b, const json_t *config, m2_sizes *s)
{
    static const char *const others[] = {
        "pooler.",     "embeddings.position_ids", "cls.",
        "classifier.", "encoder.flashfft.",       NULL
    };
    const encoder_config *c = &s->common;
    char place[40];
    const char *heads;
    dn_words_prefix(b, &heads);
    model->prefix = b->prefix;
    TRY(read_block(m, b, config, s));
    s->filter.reverse = m->bidirectional;
    m->taken = MIN(s->filter.length, c->positions);
    TRY(dn_words_bind(&m->words, b, c));
    for (int64_t i = 0; i < m->layers; i++) {
        snprintf(place, sizeof place, "encoder.layer.%" PRId64, i);
        m->blocks[i].linear = model->linear + i * M2_LINEARS;
        TRY(open_block(m, b, s, place, &m->blocks[i]));
    }
    TRY(open_pooler(model, b, s->whole));
    b->prefix = heads;
    TRY(dn_head_open(&model->head, b, &m->words, c->activation, c->epsilon));
    b->prefix = model->prefix;
    return dn_binder_settle(b, others);
}

static danaus_status m2_bind(
    danaus_model *model, m2_bert *m, const json_t *config, m2_sizes *s)
{
    binder b;
    TRY(dn_binder_open(&b, model->file, &model->memory, model->dtype));
    danaus_status status = bind_all(model, m, &b, config, s);
    model->others = b.parameters;
    dn_binder_close(&b);
    return status;
}

static void fill_info(danaus_model *model, const m2_bert *m)
{
    danaus_model_info *info = &model->info;
    info->layers = m->layers;
    info->vocabulary = m->words.vocabulary;
    info->max_length = m->taken;
    for (int64_t i = 0; i < m->layers; i++)
        for (int f = 0; f < (m->residual ? M2_FILTERS : 1); f++)
            model->packed += dn_hyena_filter_packed(&m->blocks[i].filter[f]);
}

/* ---- the architecture ---- */

static int m2_recognizes(const json_t *config, span type)
{
    return dn_span_is(type, "m2-bert") || dn_span_is(type, "m2_bert") ||
           (dn_span_is(type, "bert") && json_object_get(config, "long_conv_l_max"));
}

static danaus_status choose_kept(m2_bert *m, const danaus_device *device)
{
    danaus_device_info info;
    TRY(danaus_device_describe(device, &info));
    m->most_kept = m->packed ? info.memory / M2_KEPT_GPU : M2_KEPT;
    return DANAUS_OK;
}

static danaus_status m2_open(danaus_model *model, const json_t *config)
{
    m2_sizes sizes = { 0 };
    encoder_config c;
    m2_bert *m = dn_calloc(1, sizeof *m);
    model->own = m;
    if (!m)
        return dn_fail_memory(sizeof *m, "a model");
    TRY(dn_encoder_config(config, &c));
    TRY(read_config(config, &c, &sizes));
    model->configured = 1;
    m->layers = c.layers;
    m->inner = c.inner;
    m->activation = c.activation;
    m->dtype = model->dtype;
    m->packed = !model->memory.device->backend->on_host;
    TRY(choose_kept(m, model->memory.device));
    model->info.width = model->info.embedding = m->width = c.width;
    model->linears = (int)m->layers * M2_LINEARS;
    model->linear = dn_calloc((size_t)model->linears, sizeof *model->linear);
    m->blocks = dn_calloc((size_t)m->layers, sizeof *m->blocks);
    if (!model->linear || !m->blocks)
        return dn_fail_memory(
            (size_t)m->layers * sizeof *m->blocks, "a table of layers");
    TRY(m2_bind(model, m, config, &sizes));
    fill_info(model, m);
    return DANAUS_OK;
}

static void m2_close(danaus_model *model)
{
    m2_bert *m = model->own;
    if (!m)
        return;
    dn_m2_forget(m);
    for (int64_t i = 0; m->blocks && i < m->layers; i++)
        for (int f = 0; f < M2_FILTERS; f++)
            dn_hyena_filter_close(&m->blocks[i].filter[f]);
    dn_free(m->blocks);
    dn_free(m);
}

const arch dn_arch_m2_bert = {
    .name = "m2-bert",
    .recognizes = m2_recognizes,
    .open = m2_open,
    .close = m2_close,
    .encoder = &dn_m2_encoder,
};
