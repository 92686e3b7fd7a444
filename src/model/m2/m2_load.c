/* Loads blocks of Monarch Mixers. The weights decide what config.json leaves open. */
// SPDX-License-Identifier: Apache-2.0
#include "model/m2/m2.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "model/structure.h"
#include "model/words.h"

#include <inttypes.h>
#include <stdio.h>

/* Layers of a filter's network: two between the first and the last. */
#define FILTER_LAYERS 4

/* ---- configuration ---- */

danaus_status dn_m2_config(m2 *m, const json_t *config)
{
    double factor = 1;
    int64_t order = 64, features = 3;
    TRY(dn_json_number(config, "hyena_w_mod", &factor));
    TRY(dn_config_size(config, "hyena_filter_order", MOST_WIDTH, &order));
    TRY(dn_config_size(config, "hyena_emb_dim", MOST_WIDTH, &features));
    m->filter.channels = m->width;
    m->filter.features = features;
    m->filter.order = order;
    m->filter.layers = FILTER_LAYERS;
    m->filter.learned = 1;
    m->filter.factor = (float)factor;
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

/* A tensor of the first block; its name is left in `path`. */
static int find(
    binder *b, const m2_names *names, const char *part, const char *name,
    char path[MOST_NAME], danaus_tensor *t)
{
    snprintf(path, MOST_NAME, "%s0.%s.%s", names->blocks, part, name);
    return dn_binder_find(b, path, t);
}

static void decide_filter(m2 *m, binder *b, const json_t *config, const m2_names *names)
{
    char path[MOST_NAME];
    danaus_tensor t;
    if (find(b, names, names->mixer, "filter_fn.implicit_filter.0.weight", path, &t) &&
        t.ndim == 2) {
        check_size(b, config, "hyena_filter_order", path, t.shape[0], &m->filter.order);
        check_size(b, config, "hyena_emb_dim", path, t.shape[1], &m->filter.features);
    }
    if (find(b, names, names->mixer, "filter_fn.pos_emb.z", path, &t) && t.ndim == 3)
        check_size(b, config, "long_conv_l_max", path, t.shape[1], &m->filter.length);
}

/* Rows of the layer before the activation, in whatever form it is; 0: it is not there. */
static int64_t up_rows(binder *b, const m2_names *names)
{
    static const char *const forms[] = { "weight", "weights.0", "first.weights.0",
                                         "place" };
    char name[40], path[MOST_NAME];
    danaus_tensor t;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        snprintf(name, sizeof name, "gated_layers.%s", forms[i]);
        if (!find(b, names, "mlp", name, path, &t) || dn_is_placeholder(&t))
            continue;
        if (t.ndim == 4)
            return t.shape[0] * t.shape[1] * t.shape[3];
        return t.ndim == 3 ? t.shape[0] * t.shape[1] : t.shape[0];
    }
    return 0;
}

danaus_status dn_m2_decide(
    m2 *m, binder *b, const json_t *config, const m2_names *names)
{
    char path[MOST_NAME];
    danaus_tensor t;
    decide_filter(m, b, config, names);
    TRY(check_flag(b, config, "use_glu_mlp", up_rows(b, names) != m->inner, &m->gated));
    TRY(check_flag(
        b, config, "residual_long_conv",
        find(b, names, names->mixer, "filter_fn2.bias", path, &t), &m->residual));
    TRY(check_flag(
        b, config, "bidirectional",
        find(
            b, names, names->mixer, "filter_fn.implicit_filter_rev.6.weight", path, &t),
        &m->bidirectional));
    m->filter.reverse = m->bidirectional;
    return DANAUS_OK;
}

/* ---- weights ---- */

static danaus_status choose_kept(m2 *m, const danaus_device *device)
{
    danaus_device_info info;
    TRY(danaus_device_describe(device, &info));
    m->most_kept = m->packed ? info.memory / M2_KEPT_GPU : M2_KEPT;
    return DANAUS_OK;
}

danaus_status dn_m2_make(m2 *m, danaus_model *model)
{
    const danaus_device *device = model->memory.device;
    m->dtype = model->dtype;
    m->packed = !device->backend->on_host;
    TRY(choose_kept(m, device));
    model->linears = (int)m->layers * M2_LINEARS;
    model->linear = dn_calloc((size_t)model->linears, sizeof *model->linear);
    m->blocks = dn_calloc((size_t)m->layers, sizeof *m->blocks);
    if (!model->linear || !m->blocks)
        return dn_fail_memory(
            (size_t)m->layers * sizeof *m->blocks, "a table of layers");
    return DANAUS_OK;
}

static danaus_status open_linears(
    const m2 *m, binder *b, const char *place, const m2_names *names, m2_block *to)
{
    const struct {
        const char *part, *name;
        linear_shape shape;
    } all[M2_LINEARS] = {
        [M2_IN] = { names->mixer,
                    "in_linear",
                    { .rows = 3 * m->width, .cols = m->width } },
        [M2_OUT] = { names->mixer,
                     "out_linear",
                     { .rows = m->width, .cols = m->width } },
        [M2_UP] = { "mlp",
                    "gated_layers",
                    { .rows = m->inner, .cols = m->width, .no_bias = 1 } },
        [M2_DOWN] = { "mlp", "wo", { .rows = m->width, .cols = m->inner } },
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
        snprintf(path, sizeof path, "%s.%s.%s", place, all[i].part, all[i].name);
        TRY(dn_linear_open(&to->linear[i], b, path, &shape));
    }
    return DANAUS_OK;
}

static danaus_status open_block(
    const m2 *m, binder *b, const char *place, const m2_names *names, int normed,
    m2_block *to)
{
    static const char *const filters[M2_FILTERS] = { "filter_fn", "filter_fn2" };
    char path[MOST_NAME - 32];
    if (normed) {
        snprintf(path, sizeof path, "%s.%s", place, names->input);
        TRY(dn_affine_bind(&to->input, b, path, m->width, m->input_epsilon));
    }
    TRY(open_linears(m, b, place, names, to));
    snprintf(path, sizeof path, "%s.%s.short_filter", place, names->mixer);
    TRY(dn_short_conv_bind(&to->taps, b, path, 3 * m->width, M2_TAPS));
    for (int f = 0; f < (m->residual ? M2_FILTERS : 1); f++) {
        snprintf(path, sizeof path, "%s.%s.%s", place, names->mixer, filters[f]);
        TRY(dn_hyena_filter_open(&to->filter[f], b, path, &m->filter));
    }
    snprintf(path, sizeof path, "%s.%s", place, names->output);
    return dn_affine_bind(&to->output, b, path, m->width, m->epsilon);
}

danaus_status dn_m2_open_blocks(
    m2 *m, danaus_model *model, binder *b, const m2_names *names)
{
    char place[64], path[MOST_NAME];
    danaus_tensor t;
    int normed = m->before || find(b, names, names->input, "weight", path, &t);
    for (int64_t i = 0; i < m->layers; i++) {
        m2_block *block = &m->blocks[i];
        snprintf(place, sizeof place, "%s%" PRId64, names->blocks, i);
        block->linear = model->linear + i * M2_LINEARS;
        TRY(open_block(m, b, place, names, normed, block));
        for (int f = 0; f < (m->residual ? M2_FILTERS : 1); f++)
            model->packed += dn_hyena_filter_packed(&block->filter[f]);
    }
    return DANAUS_OK;
}

void dn_m2_close(m2 *m)
{
    dn_m2_forget(m);
    for (int64_t i = 0; m->blocks && i < m->layers; i++)
        for (int f = 0; f < M2_FILTERS; f++)
            dn_hyena_filter_close(&m->blocks[i].filter[f]);
    dn_free(m->blocks);
}
