/* Vision transformers: Dosovitskiy et al., An image is worth 16x16 words, ICLR 2021 (arXiv
   2010.11929), as ViTModel and ViTForImageClassification of Hugging Face's transformers run
   them. Rows of an image are a class token and then its patches, line by line:

       h = (class token, W_p patches + bias) + positions
       each block:  h = h + W_o attention(W_q n, W_k n, W_v n),  n = norm(h)
                    h = h + W_2 gelu(W_1 n),                     n = norm(h)
       then n = norm(h); its first row is the embedding. */
// SPDX-License-Identifier: Apache-2.0
#include "model/arch.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "model/block.h"
#include "model/vit/pictures.h"
#include "model/words.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct vit_block {
    linear *linear; /* BLOCK_LINEARS */
    affine before, after;
} vit_block;

typedef struct vit {
    int64_t layers, width, heads, inner;
    danaus_activation activation;
    danaus_dtype dtype; /* of rows */
    pictures pictures;
    const void *token, *position; /* [width], [tokens][width], in the type of rows */
    vit_block *blocks;
    affine last;
} vit;

static int64_t tokens_of(const vit *m) { return 1 + dn_pictures_patches(&m->pictures); }

/* ---- loading ---- */

static danaus_status read_config(vit *m, const json_t *config, double *epsilon)
{
    int bias = 1;
    TRY(dn_config_size(config, "hidden_size", MOST_WIDTH, &m->width));
    TRY(dn_config_size(config, "intermediate_size", MOST_WIDTH, &m->inner));
    TRY(dn_config_size(config, "num_hidden_layers", MOST_LAYERS, &m->layers));
    TRY(dn_config_size(config, "num_attention_heads", m->width, &m->heads));
    TRY(dn_pictures_config(&m->pictures, config));
    TRY(dn_json_number(config, "layer_norm_eps", epsilon));
    TRY(dn_json_flag(config, "qkv_bias", &bias));
    TRY(dn_config_activation(config, &m->activation));
    m->pictures.width = m->width;
    m->pictures.dtype = m->dtype;
    if (m->width % m->heads)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "hidden_size %" PRId64 " is no multiple of num_attention_heads %" PRId64,
            m->width, m->heads);
    if (!bias)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "qkv_bias false: q, k and v without a bias");
    return DANAUS_OK;
}

static danaus_status open_block(
    const vit *m, binder *b, int64_t number, double epsilon, vit_block *to)
{
    const block_shape shape = { m->width, m->inner, m->activation,
                                dn_pictures_tokens(b->device) };
    char place[40], path[96];
    snprintf(place, sizeof place, "encoder.layer.%" PRId64, number);
    TRY(dn_block_open(to->linear, b, place, "attention", &shape));
    snprintf(path, sizeof path, "%s.layernorm_before", place);
    TRY(dn_affine_bind(&to->before, b, path, m->width, epsilon));
    snprintf(path, sizeof path, "%s.layernorm_after", place);
    return dn_affine_bind(&to->after, b, path, m->width, epsilon);
}

static danaus_status bind_all(danaus_model *model, vit *m, binder *b, double epsilon)
{
    static const char patches[] = "embeddings.patch_embeddings.projection";
    static const char *const others[] = { "pooler.", "embeddings.mask_token", NULL };
    const int64_t place[] = { 1, tokens_of(m), m->width }, token[] = { 1, 1, m->width };
    danaus_tensor t;
    TRY(dn_pictures_open_classes(&m->pictures, b, "classifier", &model->info.classes));
    b->prefix = "vit.";
    if (!dn_binder_find(b, "embeddings.cls_token", &t))
        b->prefix = "";
    model->prefix = b->prefix;
    TRY(dn_bind_rows(b, "embeddings.cls_token", 3, token, &m->token));
    TRY(dn_bind_rows(b, "embeddings.position_embeddings", 3, place, &m->position));
    TRY(dn_pictures_open_patches(
        &m->pictures, b, patches, dn_pictures_tokens(b->device)));
    for (int64_t i = 0; i < m->layers; i++) {
        m->blocks[i].linear = model->linear + i * BLOCK_LINEARS;
        TRY(open_block(m, b, i, epsilon, &m->blocks[i]));
    }
    TRY(dn_affine_bind(&m->last, b, "layernorm", m->width, epsilon));
    dn_pictures_count(&m->pictures, b);
    return dn_binder_settle(b, others);
}

static danaus_status vit_bind(danaus_model *model, vit *m, double epsilon)
{
    binder b;
    TRY(dn_binder_open(&b, model->file, &model->memory, model->dtype));
    danaus_status status = bind_all(model, m, &b, epsilon);
    model->others = b.parameters;
    dn_binder_close(&b);
    return status;
}

static int vit_recognizes(const json_t *config, span type)
{
    (void)config;
    return dn_span_is(type, "vit");
}

static danaus_status vit_open(danaus_model *model, const json_t *config)
{
    double epsilon = 1e-12;
    vit *m = dn_calloc(1, sizeof *m);
    model->own = m;
    if (!m)
        return dn_fail_memory(sizeof *m, "a model");
    m->dtype = model->dtype;
    TRY(read_config(m, config, &epsilon));
    model->configured = 1;
    model->linears = (int)m->layers * BLOCK_LINEARS;
    model->linear = dn_calloc((size_t)model->linears, sizeof *model->linear);
    m->blocks = dn_calloc((size_t)m->layers, sizeof *m->blocks);
    if (!model->linear || !m->blocks)
        return dn_fail_memory(
            (size_t)model->linears * sizeof *model->linear, "a table of layers");
    TRY(vit_bind(model, m, epsilon));
    danaus_model_info *info = &model->info;
    info->layers = m->layers;
    info->width = info->embedding = m->width;
    info->heads = m->heads;
    info->image_channels = m->pictures.channels;
    info->image_size = m->pictures.size;
    model->packed = dn_pictures_packed(&m->pictures);
    return DANAUS_OK;
}

static void vit_close(danaus_model *model)
{
    vit *m = model->own;
    if (m) {
        dn_pictures_close(&m->pictures);
        dn_free(m->blocks);
    }
    dn_free(m);
}

/* ---- running ---- */

/* Memory for images that go through together. */
typedef struct vit_looking {
    const vit *m;
    danaus_device *device;
    picture_room room;
    void *memory;
    int32_t *ids, *positions; /* [tokens] */
    void *rows;               /* the class token, then a row for each patch */
    void *h, *n, *q, *k, *v, *mixed, *inner;
    int32_t *host_ids; /* and positions behind them */
    int64_t *offsets;
} vit_looking;

static uintptr_t lay(vit_looking *l, uintptr_t at)
{
    const vit *m = l->m;
    int64_t number = dn_size_of(m->dtype), tokens = l->room.images * tokens_of(m);
    int64_t row = tokens * m->width * number;
    void **const arrays[] = { &l->h, &l->n, &l->q, &l->k, &l->v, &l->mixed };
    l->ids = dn_cut(&at, tokens * (int64_t)sizeof(int32_t));
    l->positions = dn_cut(&at, tokens * (int64_t)sizeof(int32_t));
    dn_pictures_lay(&m->pictures, l->device, &at, &l->room);
    l->rows = dn_cut(&at, row + m->width * number);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        *arrays[i] = dn_cut(&at, row);
    l->inner = dn_cut(&at, tokens * m->inner * number);
    return at;
}

/* Row t of an image is the class token, which is number 0 of `rows`, or a patch. */
static void number_rows(vit_looking *l)
{
    int64_t tokens = tokens_of(l->m), patches = tokens - 1;
    int32_t *positions = l->host_ids + l->room.images * tokens;
    for (int64_t i = 0; i < l->room.images; i++) {
        l->offsets[i + 1] = (i + 1) * tokens;
        for (int64_t t = 0; t < tokens; t++) {
            l->host_ids[i * tokens + t] = (int32_t)(t ? i * patches + t : 0);
            positions[i * tokens + t] = (int32_t)t;
        }
    }
}

static danaus_status open_looking(vit_looking *l)
{
    const vit *m = l->m;
    size_t tokens = (size_t)(l->room.images * tokens_of(m));
    TRY(dn_need_memory(l->device, (int64_t)lay(l, 0), "the activations"));
    TRY(danaus_alloc(l->device, lay(l, 0), &l->memory));
    lay(l, (uintptr_t)l->memory);
    l->host_ids = dn_calloc(2 * tokens, sizeof *l->host_ids);
    l->offsets = dn_calloc((size_t)l->room.images + 1, sizeof *l->offsets);
    if (!l->host_ids || !l->offsets)
        return dn_fail_memory(tokens * sizeof *l->host_ids, "positions");
    number_rows(l);
    size_t bytes = tokens * sizeof *l->ids;
    TRY(danaus_upload(l->device, l->ids, l->host_ids, bytes));
    TRY(danaus_upload(l->device, l->positions, l->host_ids + tokens, bytes));
    return l->device->backend->copy(
        l->device, l->rows, m->token, (size_t)(m->width * dn_size_of(m->dtype)));
}

static void close_looking(vit_looking *l)
{
    dn_free(l->host_ids);
    dn_free(l->offsets);
    danaus_free(l->device, l->memory);
}

static danaus_status embed_patches(
    const vit_looking *l, int64_t images, const float *pixels)
{
    const vit *m = l->m;
    TRY(dn_pictures_rows(
        &m->pictures, l->device, &l->room, images, pixels,
        dn_at(l->rows, m->dtype, m->width)));
    return l->device->backend->nn->lookup(
        l->device, &(nn_lookup){ .rows = images * tokens_of(m),
                                 .width = m->width,
                                 .ids = l->ids,
                                 .positions = l->positions,
                                 .word = l->rows,
                                 .position = m->position,
                                 .y = l->h,
                                 .dtype = m->dtype });
}

/* Runs a block on h + more, where `more` comes from the block before, or is NULL. Updates h
   and leaves in q what the next block has to add to it. */
static danaus_status run_block(
    const vit_looking *l, const vit_block *b, int64_t images, const void *more)
{
    const vit *m = l->m;
    const linear *w = b->linear;
    danaus_device *device = l->device;
    int64_t tokens = images * tokens_of(m), width = m->width;
    TRY(dn_affine_add(&b->before, device, tokens, width, l->h, more, l->n));
    TRY(dn_linear_run(&w[QUERY], device, tokens, l->n, l->q));
    TRY(dn_linear_run(&w[KEY], device, tokens, l->n, l->k));
    TRY(dn_linear_run(&w[VALUE], device, tokens, l->n, l->v));
    TRY(device->backend->nn->attention(
        device, &(nn_attention){ .sequences = { images, l->offsets },
                                 .width = width,
                                 .heads = m->heads,
                                 .q = l->q,
                                 .k = l->k,
                                 .v = l->v,
                                 .y = l->mixed,
                                 .dtype = m->dtype }));
    TRY(dn_linear_run(&w[OUTPUT], device, tokens, l->mixed, l->q));
    TRY(dn_affine_add(&b->after, device, tokens, width, l->h, l->q, l->n));
    TRY(dn_linear_run(&w[UP], device, tokens, l->n, l->inner));
    return dn_linear_run(&w[DOWN], device, tokens, l->inner, l->q);
}

/* Class tokens after the last normalisation. */
static danaus_status look(const void *looks, int64_t images, const float *pixels)
{
    const vit_looking *l = looks;
    const vit *m = l->m;
    TRY(embed_patches(l, images, pixels));
    for (int64_t i = 0; i < m->layers; i++)
        TRY(run_block(l, &m->blocks[i], images, i ? l->q : NULL));
    TRY(dn_affine_add(
        &m->last, l->device, images * tokens_of(m), m->width, l->h, l->q, l->n));
    return l->device->backend->nn->pool(
        l->device, &(nn_pool){ .sequences = { images, l->offsets },
                               .width = m->width,
                               .first = 1,
                               .x = l->n,
                               .y = l->room.embeddings,
                               .dtype = m->dtype });
}

static danaus_status vit_look(
    danaus_model *model, danaus_device *device, int64_t images, const float *pixels,
    int classify, float *to)
{
    const vit *m = model->own;
    vit_looking l = { .m = m, .device = device };
    l.room.images = dn_pictures_together(device, tokens_of(m), images);
    danaus_status status = open_looking(&l);
    if (status == DANAUS_OK)
        status = dn_pictures_look(
            &m->pictures, device, &l.room, look, &l, images, pixels, classify, to);
    close_looking(&l);
    return status;
}

static danaus_status vit_cost(
    danaus_model *model, danaus_device *device, int64_t images, danaus_model_cost *cost)
{
    const vit *m = model->own;
    double tokens = (double)tokens_of(m) * (double)images;
    vit_looking l = { .m = m, .device = device };
    l.room.images = dn_pictures_together(device, tokens_of(m), images);
    cost->memory = (int64_t)lay(&l, 0);
    cost->linear = dn_pictures_operations(&m->pictures, images);
    for (int i = 0; i < model->linears; i++)
        cost->linear += 2 * (double)model->linear[i].parameters * tokens;
    cost->mixing = 4 * (double)(m->layers * m->width) * (double)tokens_of(m) * tokens;
    return DANAUS_OK;
}

static const viewer vit_viewer = { vit_look, vit_cost };

const arch dn_arch_vit = {
    .name = "vit",
    .recognizes = vit_recognizes,
    .open = vit_open,
    .close = vit_close,
    .viewer = &vit_viewer,
};
