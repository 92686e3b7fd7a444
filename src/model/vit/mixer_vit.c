/* Vision transformers whose tokens are mixed by long convolutions: HyenaViT (Poli et al., Hyena
   Hierarchy, ICML 2023, arXiv 2302.10866, section 4.5, as HazyResearch/safari has it) and M2-ViT
   (Fu et al., Monarch Mixer, NeurIPS 2023, arXiv 2310.12109). Rows of an image are its patches,
   line by line:

       h = W_p patches + bias, and, in M2-ViT, positions
       each block:  h = h + mixer(norm1(h)),  h = h + mlp(norm2(h))
       e = mean over rows of norm(h),  scores = W e + bias,

   with mixers and MLPs of hyena.h or m2.h. */
// SPDX-License-Identifier: Apache-2.0
#include "model/arch.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "model/hyena/hyena.h"
#include "model/m2/m2.h"
#include "model/vit/pictures.h"
#include "model/words.h"

#include <math.h>

typedef struct mixer_vit mixer_vit;

/* What the two kinds do in their own ways. */
typedef struct mixer_kind {
    danaus_status (*config)(mixer_vit *m, const json_t *config);
    danaus_status (*make)(mixer_vit *m, danaus_model *model);
    danaus_status (*bind)(
        mixer_vit *m, danaus_model *model, binder *b, const json_t *config);
    void (*close)(mixer_vit *m);
    int64_t (*bytes)(const mixer_vit *m, int64_t tokens);
    void *(*rows)(const mixer_vit *m, const token_chunk *c, void *memory);
    danaus_status (*run)(
        mixer_vit *m, danaus_device *device, const token_chunk *c, void *memory,
        void **h);
    danaus_status (*cost)(
        const mixer_vit *m, danaus_device *device, danaus_model_cost *cost);
} mixer_kind;

struct mixer_vit {
    const mixer_kind *kind;
    int64_t layers, width, inner;
    double epsilon;
    danaus_activation activation;
    danaus_dtype dtype;   /* of rows that go through all blocks */
    int placed;           /* rows have positions */
    const void *position; /* [patches][width], in the type of rows */
    pictures pictures;
    hyena hyena; /* for hyena_kind */
    m2 m2;       /* for m2_kind */
};

static int64_t tokens_of(const mixer_vit *m)
{
    return dn_pictures_patches(&m->pictures);
}

/* ---- HyenaViT ---- */

static danaus_status hyena_config(mixer_vit *m, const json_t *config)
{
    hyena *h = &m->hyena;
    h->layers = m->layers;
    h->width = m->width;
    h->inner = m->inner;
    h->activation = m->activation;
    h->epsilon = h->block_epsilon = m->epsilon;
    h->dtype = m->dtype;
    h->head = 1;
    h->order = 2;
    h->taps = 5;
    h->shape.length = tokens_of(m);
    h->shape.features = 3;
    h->shape.order = 64;
    m->dtype = DANAUS_F32; /* r of hyena.h */
    return dn_hyena_config(h, config);
}

static danaus_status hyena_make(mixer_vit *m, danaus_model *model)
{
    const danaus_device *device = model->memory.device;
    m->hyena.step = device->backend->on_host ? HYENA_ROWS : dn_pictures_tokens(device);
    model->info.heads = m->hyena.filters;
    return dn_hyena_make(&m->hyena, model);
}

static danaus_status hyena_bind(
    mixer_vit *m, danaus_model *model, binder *b, const json_t *config)
{
    const hyena_names names = { "blocks.", "mixer", "mlp" };
    (void)config;
    TRY(dn_hyena_open_blocks(&m->hyena, model, b, &names));
    return dn_affine_bind(&m->hyena.last, b, "norm", m->width, m->epsilon);
}

static void hyena_close(mixer_vit *m) { dn_hyena_close(&m->hyena); }

static int64_t hyena_bytes(const mixer_vit *m, int64_t tokens)
{
    return dn_hyena_bytes(&m->hyena, tokens);
}

static void *hyena_rows_of(const mixer_vit *m, const token_chunk *c, void *memory)
{
    return dn_hyena_r(&m->hyena, c->tokens, memory);
}

static danaus_status hyena_run(
    mixer_vit *m, danaus_device *device, const token_chunk *c, void *memory, void **h)
{
    return dn_hyena_run(&m->hyena, device, c, memory, h);
}

static danaus_status hyena_cost(
    const mixer_vit *m, danaus_device *device, danaus_model_cost *cost)
{
    return dn_hyena_convs_cost(&m->hyena, device, tokens_of(m), cost);
}

static const mixer_kind hyena_kind = { hyena_config, hyena_make,  hyena_bind,
                                       hyena_close,  hyena_bytes, hyena_rows_of,
                                       hyena_run,    hyena_cost };

/* ---- M2-ViT ---- */

static danaus_status m2_config(mixer_vit *m, const json_t *config)
{
    m2 *h = &m->m2;
    h->layers = m->layers;
    h->width = m->width;
    h->inner = m->inner;
    h->activation = m->activation;
    h->epsilon = h->input_epsilon = m->epsilon;
    h->before = 1;
    h->taken = tokens_of(m);
    m->placed = 1;
    return dn_m2_config(h, config);
}

static danaus_status m2_make(mixer_vit *m, danaus_model *model)
{
    return dn_m2_make(&m->m2, model);
}

/* Filters have to be as long as images have patches. */
static danaus_status m2_bind(
    mixer_vit *m, danaus_model *model, binder *b, const json_t *config)
{
    const m2_names names = { "blocks.", "mixer", "norm1", "norm2" };
    TRY(dn_m2_decide(&m->m2, b, config, &names));
    m->m2.filter.length = tokens_of(m);
    TRY(dn_m2_open_blocks(&m->m2, model, b, &names));
    return dn_affine_bind(&m->m2.last, b, "norm", m->width, m->epsilon);
}

static void m2_close(mixer_vit *m) { dn_m2_close(&m->m2); }

static int64_t m2_bytes(const mixer_vit *m, int64_t tokens)
{
    return dn_m2_bytes(&m->m2, tokens, tokens_of(m));
}

static void *m2_rows(const mixer_vit *m, const token_chunk *c, void *memory)
{
    return dn_m2_rows(&m->m2, c, memory);
}

static danaus_status m2_run(
    mixer_vit *m, danaus_device *device, const token_chunk *c, void *memory, void **h)
{
    return dn_m2_run(&m->m2, device, c, memory, h);
}

static danaus_status m2_cost(
    const mixer_vit *m, danaus_device *device, danaus_model_cost *cost)
{
    return dn_m2_cost(&m->m2, device, tokens_of(m), cost);
}

static const mixer_kind m2_kind = { m2_config, m2_make, m2_bind, m2_close,
                                    m2_bytes,  m2_rows, m2_run,  m2_cost };

/* ---- loading ---- */

static danaus_status read_config(mixer_vit *m, const json_t *config)
{
    m->epsilon = 1e-6;
    TRY(dn_config_size(config, "hidden_size", MOST_WIDTH, &m->width));
    TRY(dn_config_size(config, "intermediate_size", MOST_WIDTH, &m->inner));
    TRY(dn_config_size(config, "num_hidden_layers", MOST_LAYERS, &m->layers));
    TRY(dn_pictures_config(&m->pictures, config));
    TRY(dn_json_number(config, "layer_norm_eps", &m->epsilon));
    TRY(dn_config_activation(config, &m->activation));
    TRY(m->kind->config(m, config));
    m->pictures.width = m->width;
    m->pictures.dtype = m->dtype;
    return DANAUS_OK;
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

static danaus_status make_positions(mixer_vit *m, binder *b)
{
    int64_t numbers = tokens_of(m) * m->width;
    void *memory;
    /* Nothing as large as a configuration says, unless the weights say so, too. */
    if (!m->placed || b->problems)
        return DANAUS_OK;
    TRY(dn_blocks_add(b->copies, numbers * dn_size_of(m->dtype), &memory));
    if (b->copies->outline)
        return DANAUS_OK;
    double *made = dn_alloc((size_t)numbers * sizeof *made);
    if (!made)
        return dn_fail_memory((size_t)numbers * sizeof *made, "positions");
    fill_positions(tokens_of(m), m->width, made);
    danaus_status status =
        dn_put_numbers(b->device, DANAUS_F64, made, m->dtype, memory, numbers);
    dn_free(made);
    m->position = memory;
    return status;
}

static danaus_status bind_all(
    danaus_model *model, mixer_vit *m, binder *b, const json_t *config)
{
    TRY(dn_pictures_open_classes(&m->pictures, b, "head", &model->info.classes));
    TRY(dn_pictures_open_patches(
        &m->pictures, b, "patch_embed.proj", dn_pictures_tokens(b->device)));
    TRY(m->kind->bind(m, model, b, config));
    TRY(make_positions(m, b));
    dn_pictures_count(&m->pictures, b);
    return dn_binder_settle(b, (const char *const[]){ NULL });
}

static danaus_status mixer_vit_bind(
    danaus_model *model, mixer_vit *m, const json_t *config)
{
    binder b;
    TRY(dn_binder_open(&b, model->file, &model->memory, model->dtype));
    danaus_status status = bind_all(model, m, &b, config);
    model->others = b.parameters;
    model->prefix = b.prefix;
    dn_binder_close(&b);
    return status;
}

static danaus_status open_kind(
    danaus_model *model, const json_t *config, const mixer_kind *kind)
{
    mixer_vit *m = dn_calloc(1, sizeof *m);
    model->own = m;
    if (!m)
        return dn_fail_memory(sizeof *m, "a model");
    m->kind = kind;
    m->dtype = model->dtype;
    TRY(read_config(m, config));
    model->configured = 1;
    TRY(kind->make(m, model));
    TRY(mixer_vit_bind(model, m, config));
    danaus_model_info *info = &model->info;
    info->layers = m->layers;
    info->width = info->embedding = m->width;
    info->image_channels = m->pictures.channels;
    info->image_size = m->pictures.size;
    model->packed += dn_pictures_packed(&m->pictures);
    return DANAUS_OK;
}

static int hyena_vit_recognizes(const json_t *config, span type)
{
    (void)config;
    return dn_span_is(type, "hyena_vit");
}

static int m2_vit_recognizes(const json_t *config, span type)
{
    (void)config;
    return dn_span_is(type, "m2_vit");
}

static danaus_status hyena_vit_open(danaus_model *model, const json_t *config)
{
    return open_kind(model, config, &hyena_kind);
}

static danaus_status m2_vit_open(danaus_model *model, const json_t *config)
{
    return open_kind(model, config, &m2_kind);
}

static void mixer_vit_close(danaus_model *model)
{
    mixer_vit *m = model->own;
    if (m) {
        dn_pictures_close(&m->pictures);
        m->kind->close(m);
    }
    dn_free(m);
}

/* ---- running ---- */

/* Memory for images that go through together. */
typedef struct mixer_vit_looking {
    mixer_vit *m;
    danaus_device *device;
    picture_room room;
    void *memory, *blocks; /* blocks: of the kind */
    void *rows;            /* of patches, before they have positions */
    int32_t *ids; /* [tokens] from 0, and numbers of their patches behind them */
    int32_t *host_ids;
    int64_t *offsets;
} mixer_vit_looking;

static uintptr_t lay(mixer_vit_looking *l, uintptr_t at)
{
    const mixer_vit *m = l->m;
    int64_t tokens = l->room.images * tokens_of(m), placed = m->placed ? tokens : 0;
    dn_pictures_lay(&m->pictures, l->device, &at, &l->room);
    l->rows = dn_cut(&at, placed * m->width * dn_size_of(m->dtype));
    l->ids = dn_cut(&at, 2 * placed * (int64_t)sizeof *l->ids);
    l->blocks = dn_cut(&at, m->kind->bytes(m, tokens));
    return at;
}

static danaus_status number_rows(mixer_vit_looking *l)
{
    int64_t patches = tokens_of(l->m), tokens = l->room.images * patches;
    size_t bytes = 2 * (size_t)tokens * sizeof *l->host_ids;
    l->offsets = dn_calloc((size_t)l->room.images + 1, sizeof *l->offsets);
    l->host_ids = dn_alloc(bytes);
    if (!l->offsets || !l->host_ids)
        return dn_fail_memory(bytes, "positions");
    for (int64_t i = 0; i <= l->room.images; i++)
        l->offsets[i] = i * patches;
    for (int64_t t = 0; t < tokens; t++) {
        l->host_ids[t] = (int32_t)t;
        l->host_ids[tokens + t] = (int32_t)(t % patches);
    }
    return l->m->placed ? danaus_upload(l->device, l->ids, l->host_ids, bytes)
                        : DANAUS_OK;
}

static danaus_status open_looking(mixer_vit_looking *l)
{
    TRY(dn_need_memory(l->device, (int64_t)lay(l, 0), "the activations"));
    TRY(danaus_alloc(l->device, lay(l, 0), &l->memory));
    lay(l, (uintptr_t)l->memory);
    return number_rows(l);
}

static void close_looking(mixer_vit_looking *l)
{
    dn_free(l->host_ids);
    dn_free(l->offsets);
    danaus_free(l->device, l->memory);
}

static danaus_status embed_patches(
    const mixer_vit_looking *l, int64_t images, const float *pixels, void *h)
{
    const mixer_vit *m = l->m;
    void *rows = m->placed ? l->rows : h;
    TRY(dn_pictures_rows(&m->pictures, l->device, &l->room, images, pixels, rows));
    if (!m->placed)
        return DANAUS_OK;
    return l->device->backend->nn->lookup(
        l->device, &(nn_lookup){ .rows = images * tokens_of(m),
                                 .width = m->width,
                                 .ids = l->ids,
                                 .positions = l->ids + l->room.images * tokens_of(m),
                                 .word = rows,
                                 .position = m->position,
                                 .y = h,
                                 .dtype = m->dtype });
}

/* Means over the rows of each image. */
static danaus_status look(const void *looks, int64_t images, const float *pixels)
{
    const mixer_vit_looking *l = looks;
    mixer_vit *m = l->m;
    void *h;
    const token_chunk c = { .sequences = { images, l->offsets },
                            .tokens = images * tokens_of(m) };
    TRY(embed_patches(l, images, pixels, m->kind->rows(m, &c, l->blocks)));
    TRY(m->kind->run(m, l->device, &c, l->blocks, &h));
    return l->device->backend->nn->pool(
        l->device, &(nn_pool){ .sequences = c.sequences,
                               .width = m->width,
                               .x = h,
                               .y = l->room.embeddings,
                               .dtype = m->dtype });
}

static danaus_status mixer_vit_look(
    danaus_model *model, danaus_device *device, int64_t images, const float *pixels,
    int classify, float *to)
{
    mixer_vit *m = model->own;
    mixer_vit_looking l = { .m = m, .device = device };
    l.room.images = dn_pictures_together(device, tokens_of(m), images);
    danaus_status status = open_looking(&l);
    if (status == DANAUS_OK)
        status = dn_pictures_look(
            &m->pictures, device, &l.room, look, &l, images, pixels, classify, to);
    close_looking(&l);
    return status;
}

static danaus_status mixer_vit_cost(
    danaus_model *model, danaus_device *device, int64_t images, danaus_model_cost *cost)
{
    mixer_vit *m = model->own;
    double tokens = (double)tokens_of(m) * (double)images;
    mixer_vit_looking l = { .m = m, .device = device };
    l.room.images = dn_pictures_together(device, tokens_of(m), images);
    cost->memory = (int64_t)lay(&l, 0);
    cost->linear = dn_pictures_operations(&m->pictures, images);
    for (int i = 0; i < model->linears; i++)
        cost->linear += 2 * (double)model->linear[i].parameters * tokens;
    TRY(m->kind->cost(m, device, cost));
    cost->mixing *= (double)images;
    return DANAUS_OK;
}

static const viewer mixer_vit_viewer = { mixer_vit_look, mixer_vit_cost };

const arch dn_arch_hyena_vit = {
    .name = "hyena-vit",
    .recognizes = hyena_vit_recognizes,
    .open = hyena_vit_open,
    .close = mixer_vit_close,
    .viewer = &mixer_vit_viewer,
};

const arch dn_arch_m2_vit = {
    .name = "m2-vit",
    .recognizes = m2_vit_recognizes,
    .open = m2_vit_open,
    .close = mixer_vit_close,
    .viewer = &mixer_vit_viewer,
};
