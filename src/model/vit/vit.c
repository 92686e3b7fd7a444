/* Vision transformers. Rows of an image are its patches, line by line; ViT has a class token
   before them:

       h = (class token, W_p patches + bias) + positions
       each block:  h = h + mixer(norm(h)),  h = h + mlp(norm(h))
       e = mean over rows of norm(h), or its first row,  scores = W e + bias.

   ViT mixes by attention: Dosovitskiy et al., An image is worth 16x16 words, ICLR 2021 (arXiv
   2010.11929), as ViTModel and ViTForImageClassification of Hugging Face's transformers run it.
   HyenaViT mixes by long convolutions: Poli et al., Hyena Hierarchy, ICML 2023 (arXiv
   2302.10866), section 4.5, as HazyResearch/safari has it; and M2-ViT by Monarch Mixers: Fu et
   al., NeurIPS 2023 (arXiv 2310.12109). */
// SPDX-License-Identifier: Apache-2.0
#include "model/arch.h"

#include "base/mem.h"
#include "base/status.h"
#include "model/hyena/hyena.h"
#include "model/m2/m2.h"
#include "model/transformer.h"
#include "model/vit/pictures.h"

#include <math.h>

typedef struct vit {
    block_sizes sizes;
    danaus_dtype dtype; /* of rows */
    pictures pictures;
    int has_token;                /* an image has a row before those of patches */
    int has_positions;            /* rows get positions */
    const void *token, *position; /* [width], [tokens][width], in the type of rows */
} vit;

static int64_t tokens_of(const vit *m)
{
    return m->has_token + dn_pictures_patches(&m->pictures);
}

/* ---- all kinds ---- */

static danaus_status configure(
    danaus_model *model, const json_t *config, double usual_epsilon)
{
    vit *m = model->own;
    danaus_model_info *info = &model->info;
    m->sizes.epsilon = usual_epsilon;
    m->dtype = model->arch->mixer->wide ? DANAUS_F32 : model->dtype;
    TRY(dn_config_blocks(config, &m->sizes));
    TRY(dn_pictures_config(&m->pictures, config));
    m->pictures.width = m->sizes.width;
    m->pictures.dtype = m->dtype;
    info->layers = m->sizes.layers;
    info->width = info->embedding = m->sizes.width;
    info->image_channels = m->pictures.channels;
    info->image_size = m->pictures.size;
    return DANAUS_OK;
}

/* The norm behind all blocks; it is read last. */
static danaus_status open_last(
    danaus_model *model, binder *b, const char *name, affine *last)
{
    vit *m = model->own;
    dn_pictures_count(&m->pictures, b);
    model->packed += dn_pictures_packed(&m->pictures);
    return dn_affine_bind(last, b, name, m->sizes.width, m->sizes.epsilon);
}

static void close_vit(void *own)
{
    vit *m = own;
    dn_pictures_close(&m->pictures);
}

/* ---- ViT ---- */

static danaus_status configure_vit(danaus_model *model, const json_t *config)
{
    vit *m = model->own;
    transformer *blocks = model->blocks;
    int bias = 1;
    TRY(configure(model, config, 1e-12));
    TRY(dn_transformer_config(blocks, config, &m->sizes));
    TRY(dn_json_flag(config, "qkv_bias", &bias));
    if (!bias)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "qkv_bias false: q, k and v without a bias");
    blocks->before = 1;
    m->has_token = m->has_positions = 1;
    model->info.heads = blocks->heads;
    return DANAUS_OK;
}

static danaus_status bind_vit(danaus_model *model, const json_t *config, binder *b)
{
    static const transformer_names names = {
        "encoder.layer.",
        { "attention.attention.query", "attention.attention.key",
          "attention.attention.value", "attention.output.dense", "intermediate.dense",
          "output.dense" },
        "layernorm_after",
        "layernorm_before"
    };
    vit *m = model->own;
    transformer *blocks = model->blocks;
    const int64_t place[] = { 1, tokens_of(m), m->sizes.width },
                  token[] = { 1, 1, m->sizes.width };
    danaus_tensor t;
    (void)config;
    TRY(dn_pictures_open_classes(&m->pictures, b, "classifier", &model->info.classes));
    b->prefix = "vit.";
    if (!dn_binder_find(b, "embeddings.cls_token", &t))
        b->prefix = "";
    TRY(dn_bind_rows(b, "embeddings.cls_token", 3, token, &m->token));
    TRY(dn_bind_rows(b, "embeddings.position_embeddings", 3, place, &m->position));
    TRY(dn_pictures_open_patches(
        &m->pictures, b, "embeddings.patch_embeddings.projection"));
    TRY(dn_transformer_open(blocks, model, b, &names));
    return open_last(model, b, "layernorm", &blocks->last);
}

/* ---- HyenaViT ---- */

static danaus_status configure_hyena(danaus_model *model, const json_t *config)
{
    const vit *m = model->own;
    const int on_host = model->memory.device->backend->on_host;
    hyena *blocks = model->blocks;
    TRY(configure(model, config, 1e-6));
    *blocks =
        (hyena){ .layers = m->sizes.layers,
                 .width = m->sizes.width,
                 .inner = m->sizes.inner,
                 .epsilon = m->sizes.epsilon,
                 .block_epsilon = m->sizes.epsilon,
                 .activation = m->sizes.activation,
                 .dtype = model->dtype,
                 .head = 1,
                 .order = 2,
                 .taps = 5,
                 .longest = tokens_of(m),
                 .step = on_host ? HYENA_ROWS : GPU_CHUNK_TOKENS,
                 .shape = { .length = tokens_of(m), .features = 3, .order = 64 } };
    TRY(dn_hyena_config(blocks, config));
    model->info.heads = blocks->filters;
    return DANAUS_OK;
}

/* What stands before the blocks of both kinds of long convolutions. */
static danaus_status open_patches(danaus_model *model, binder *b)
{
    vit *m = model->own;
    TRY(dn_pictures_open_classes(&m->pictures, b, "head", &model->info.classes));
    return dn_pictures_open_patches(&m->pictures, b, "patch_embed.proj");
}

static danaus_status bind_hyena(danaus_model *model, const json_t *config, binder *b)
{
    static const hyena_names names = { "blocks.", "mixer", "mlp" };
    hyena *blocks = model->blocks;
    (void)config;
    TRY(open_patches(model, b));
    TRY(dn_hyena_open_blocks(blocks, model, b, &names));
    return open_last(model, b, "norm", &blocks->last);
}

/* ---- M2-ViT ---- */

static danaus_status configure_m2(danaus_model *model, const json_t *config)
{
    vit *m = model->own;
    m2 *blocks = model->blocks;
    TRY(configure(model, config, 1e-6));
    blocks->input_epsilon = m->sizes.epsilon;
    blocks->before = 1;
    blocks->taken = tokens_of(m);
    m->has_positions = 1;
    return dn_m2_config(blocks, config, &m->sizes);
}

/* Sines of t / 10000^(2i / width) in columns 2i, cosines in 2i + 1. */
static void fill_positions(int64_t rows, int64_t width, double *to)
{
    for (int64_t t = 0; t < rows; t++)
        for (int64_t i = 0; i < width; i++) {
            double angle = (double)t / pow(1e4, (double)(i - i % 2) / (double)width);
            to[t * width + i] = i % 2 ? cos(angle) : sin(angle);
        }
}

static danaus_status make_positions(vit *m, binder *b)
{
    int64_t numbers = tokens_of(m) * m->sizes.width;
    void *memory;
    /* Nothing as large as a configuration says, unless the weights say so, too. */
    if (b->problems)
        return DANAUS_OK;
    TRY(dn_memory_add(b->copies, numbers * dn_size_of(m->dtype), &memory));
    if (b->copies->outline)
        return DANAUS_OK;
    double *made = dn_alloc((size_t)numbers * sizeof *made);
    if (!made)
        return dn_fail_memory((size_t)numbers * sizeof *made, "positions");
    fill_positions(tokens_of(m), m->sizes.width, made);
    danaus_status status =
        dn_put_numbers(b->device, DANAUS_F64, made, m->dtype, memory, numbers);
    dn_free(made);
    m->position = memory;
    return status;
}

/* Filters have to be as long as images have patches. */
static danaus_status bind_m2(danaus_model *model, const json_t *config, binder *b)
{
    static const m2_names names = { "blocks.", "mixer", "norm1", "norm2" };
    vit *m = model->own;
    m2 *blocks = model->blocks;
    TRY(open_patches(model, b));
    TRY(dn_m2_decide(blocks, b, config, &names));
    blocks->filter.length = tokens_of(m);
    TRY(dn_m2_open_blocks(blocks, model, b, &names));
    TRY(open_last(model, b, "norm", &blocks->last));
    return make_positions(m, b);
}

/* ---- running ---- */

/* Memory for images that go through together. */
typedef struct looking {
    danaus_model *model;
    const vit *m;
    danaus_device *device;
    picture_room room;
    void *memory, *blocks; /* blocks: theirs */
    void *rows;            /* the class token, and patches before they have positions */
    int32_t *ids, *positions; /* [tokens]: a row's number in `rows`, and in its image */
    int32_t *host_ids;        /* and positions behind them */
    int64_t *offsets;
} looking;

static looking looking_at(danaus_model *model, danaus_device *device, int64_t images)
{
    looking l = { .model = model, .m = model->own, .device = device };
    l.room.images = dn_pictures_together(device, tokens_of(l.m), images);
    return l;
}

static uintptr_t lay(looking *l, uintptr_t at)
{
    const vit *m = l->m;
    int64_t tokens = l->room.images * tokens_of(m);
    int64_t placed = m->has_positions ? tokens : 0;
    dn_pictures_lay(&m->pictures, l->device, &at, &l->room);
    l->rows = dn_cut(&at, placed * m->sizes.width * dn_size_of(m->dtype));
    l->ids = dn_cut(&at, 2 * placed * (int64_t)sizeof *l->ids);
    l->positions = l->ids + placed;
    l->blocks = dn_cut(
        &at, l->model->arch->mixer->bytes(l->model->blocks, tokens, tokens_of(m)));
    return at;
}

/* Patches of image i follow those of image i - 1 in `rows`; all images have the class token,
   which is row 0. */
static danaus_status number_rows(looking *l)
{
    const vit *m = l->m;
    int64_t tokens = tokens_of(m), patches = dn_pictures_patches(&m->pictures);
    int64_t all = l->room.images * tokens;
    size_t bytes = 2 * (size_t)all * sizeof *l->host_ids;
    l->offsets = dn_calloc((size_t)l->room.images + 1, sizeof *l->offsets);
    l->host_ids = dn_alloc(bytes);
    if (!l->offsets || !l->host_ids)
        return dn_fail_memory(bytes, "positions");
    for (int64_t i = 0; i < l->room.images; i++) {
        l->offsets[i + 1] = (i + 1) * tokens;
        for (int64_t t = 0; t < tokens; t++) {
            int is_token = t < m->has_token;
            l->host_ids[i * tokens + t] = (int32_t)(is_token ? 0 : i * patches + t);
            l->host_ids[all + i * tokens + t] = (int32_t)t;
        }
    }
    return m->has_positions ? danaus_upload(l->device, l->ids, l->host_ids, bytes)
                            : DANAUS_OK;
}

static danaus_status open_looking(looking *l)
{
    const vit *m = l->m;
    TRY(dn_need_memory(l->device, (int64_t)lay(l, 0), "the activations"));
    TRY(danaus_alloc(l->device, lay(l, 0), &l->memory));
    lay(l, (uintptr_t)l->memory);
    TRY(number_rows(l));
    if (!m->has_token)
        return DANAUS_OK;
    return l->device->backend->copy(
        l->device, l->rows, m->token, (size_t)(m->sizes.width * dn_size_of(m->dtype)));
}

static void close_looking(looking *l)
{
    dn_free(l->host_ids);
    dn_free(l->offsets);
    danaus_free(l->device, l->memory);
}

static danaus_status embed_patches(
    const looking *l, int64_t images, const float *pixels, void *h)
{
    const vit *m = l->m;
    void *patches =
        m->has_positions ? dn_at(l->rows, m->dtype, m->has_token * m->sizes.width) : h;
    TRY(dn_pictures_rows(&m->pictures, l->device, &l->room, images, pixels, patches));
    if (!m->has_positions)
        return DANAUS_OK;
    return l->device->backend->nn->lookup(
        l->device, &(nn_lookup){ .rows = images * tokens_of(m),
                                 .width = m->sizes.width,
                                 .ids = l->ids,
                                 .positions = l->positions,
                                 .word = l->rows,
                                 .position = m->position,
                                 .y = h,
                                 .dtype = m->dtype });
}

/* Class tokens after the last norm, or means over the rows of each image. */
static danaus_status look(const void *looks, int64_t images, const float *pixels)
{
    const looking *l = looks;
    const vit *m = l->m;
    const mixer_kind *mixer = l->model->arch->mixer;
    void *blocks = l->model->blocks, *h;
    const token_chunk c = { .sequences = { images, l->offsets },
                            .tokens = images * tokens_of(m) };
    TRY(embed_patches(l, images, pixels, mixer->rows(blocks, &c, l->blocks)));
    TRY(mixer->run(blocks, l->device, &c, l->blocks, &h));
    return l->device->backend->nn->pool(
        l->device, &(nn_pool){ .sequences = c.sequences,
                               .width = m->sizes.width,
                               .first = m->has_token,
                               .x = h,
                               .y = l->room.embeddings,
                               .dtype = m->dtype });
}

static danaus_status look_at(
    danaus_model *model, danaus_device *device, int64_t images, const float *pixels,
    int classify, float *to)
{
    looking l = looking_at(model, device, images);
    danaus_status status = open_looking(&l);
    if (status == DANAUS_OK)
        status = dn_pictures_look(
            &l.m->pictures, device, &l.room, look, &l, images, pixels, classify, to);
    close_looking(&l);
    return status;
}

static danaus_status add_cost(
    danaus_model *model, danaus_device *device, int64_t images, danaus_model_cost *cost)
{
    looking l = looking_at(model, device, images);
    int64_t tokens = tokens_of(l.m);
    cost->memory = (int64_t)lay(&l, 0);
    cost->linear = dn_pictures_operations(&l.m->pictures, images);
    for (int i = 0; i < model->linears; i++)
        cost->linear +=
            2 * (double)model->linear[i].parameters * (double)(tokens * images);
    TRY(model->arch->mixer->cost(model->blocks, device, tokens, cost));
    cost->mixing *= (double)images;
    return DANAUS_OK;
}

static const viewer vit_viewer = { look_at, add_cost };

/* ---- the architectures ---- */

const arch dn_arch_vit = {
    .name = "vit",
    .types = { { .name = "vit" } },
    .mixer = &dn_transformer_mixer,
    .size = sizeof(vit),
    .configure = configure_vit,
    .bind = bind_vit,
    .others = (const char *const[]){ "pooler.", "embeddings.mask_token", NULL },
    .close = close_vit,
    .viewer = &vit_viewer,
};

const arch dn_arch_hyena_vit = {
    .name = "hyena-vit",
    .types = { { .name = "hyena_vit" } },
    .mixer = &dn_hyena_mixer,
    .size = sizeof(vit),
    .configure = configure_hyena,
    .bind = bind_hyena,
    .close = close_vit,
    .viewer = &vit_viewer,
};

const arch dn_arch_m2_vit = {
    .name = "m2-vit",
    .types = { { .name = "m2_vit" } },
    .mixer = &dn_m2_mixer,
    .size = sizeof(vit),
    .configure = configure_m2,
    .bind = bind_m2,
    .close = close_vit,
    .viewer = &vit_viewer,
};
