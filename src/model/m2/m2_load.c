/* Loads blocks of Monarch Mixers. The weights decide what config.json leaves open. */
// SPDX-License-Identifier: Apache-2.0
#include "model/m2/m2.h"
#include "model/linear_view.h"

#include "base/mem.h"
#include "base/status.h"

#include <inttypes.h>

/* Layers of a filter's network: two between the first and the last. */
#define FILTER_LAYERS 4

/* ---- configuration ---- */

danaus_status dn_m2_config(m2 *m, const json_t *config, const block_sizes *sizes)
{
    double factor = 1;
    int64_t order = 64, features = 3;
    TRY(dn_json_number(config, "hyena_w_mod", &factor));
    TRY(dn_config_size(config, "hyena_filter_order", MOST_WIDTH, &order));
    TRY(dn_config_size(config, "hyena_emb_dim", MOST_WIDTH, &features));
    m->layers = sizes->layers;
    m->width = sizes->width;
    m->inner = sizes->inner;
    m->epsilon = sizes->epsilon;
    m->activation = sizes->activation;
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

/* A name in the first block. */
static tensor_name first_name(const m2_names *names, const char *part, const char *name)
{
    return dn_name("%s0.%s.%s", names->blocks, part, name);
}

static int has(binder *b, const m2_names *names, const char *part, const char *name)
{
    danaus_tensor t;
    return dn_binder_find(b, first_name(names, part, name).text, &t);
}

static void decide_filter(m2 *m, binder *b, const json_t *config, const m2_names *names)
{
    const tensor_name weight = first_name(
                          names, names->mixer, "filter_fn.implicit_filter.0.weight"),
                      z = first_name(names, names->mixer, "filter_fn.pos_emb.z");
    hyena_shape *f = &m->filter;
    danaus_tensor t;
    if (dn_binder_find(b, weight.text, &t) && t.ndim == 2) {
        check_size(b, config, "hyena_filter_order", weight.text, t.shape[0], &f->order);
        check_size(b, config, "hyena_emb_dim", weight.text, t.shape[1], &f->features);
    }
    if (dn_binder_find(b, z.text, &t) && t.ndim == 3)
        check_size(b, config, "long_conv_l_max", z.text, t.shape[1], &f->length);
}

/* Rows of the layer before the activation, in whatever form it is; 0: it is not there. */
static int64_t up_rows(binder *b, const m2_names *names)
{
    static const char *const forms[] = { "gated_layers.weight",
                                         "gated_layers.weights.0",
                                         "gated_layers.first.weights.0",
                                         "gated_layers.place" };
    danaus_tensor t;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (!dn_binder_find(b, first_name(names, "mlp", forms[i]).text, &t) ||
            dn_is_placeholder(&t))
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
    int residual = has(b, names, names->mixer, "filter_fn2.bias");
    int reverse = has(b, names, names->mixer, "filter_fn.implicit_filter_rev.6.weight");
    decide_filter(m, b, config, names);
    TRY(check_flag(b, config, "use_glu_mlp", up_rows(b, names) != m->inner, &m->gated));
    TRY(check_flag(b, config, "residual_long_conv", residual, &m->residual));
    return check_flag(b, config, "bidirectional", reverse, &m->filter.reverse);
}

/* ---- weights ---- */

static danaus_status choose_kept(m2 *m, const danaus_device *device)
{
    danaus_device_info info;
    TRY(danaus_device_describe(device, &info));
    m->most_kept = m->packed ? info.memory / M2_KEPT_GPU : M2_KEPT;
    return DANAUS_OK;
}

static danaus_status open_linears(
    const m2 *m, binder *b, const char *place, const m2_names *names, m2_block *to)
{
    const linear_row rows[M2_LINEARS] = {
        [M2_IN] = { names->mixer,
                    "in_linear",
                    { .rows = 3 * m->width, .cols = m->width } },
        [M2_OUT] = { names->mixer,
                     "out_linear",
                     { .rows = m->width, .cols = m->width } },
        [M2_UP] = { "mlp",
                    "gated_layers",
                    { .rows = m->inner * (m->gated ? 2 : 1),
                      .cols = m->width,
                      .activation = m->activation,
                      .gated = m->gated,
                      .no_bias = 1 } },
        [M2_DOWN] = { "mlp", "wo", { .rows = m->width, .cols = m->inner } },
    };
    return dn_linears_open(
        to->linear, M2_LINEARS, rows, b, place, m->packed ? M2_GPU_TOKENS : M2_ROWS);
}

static danaus_status open_block(
    const m2 *m, binder *b, const char *place, const m2_names *names, int normed,
    m2_block *to)
{
    static const char *const filters[M2_FILTERS] = { "filter_fn", "filter_fn2" };
    const tensor_name input = dn_name("%s.%s", place, names->input),
                      output = dn_name("%s.%s", place, names->output),
                      mixer = dn_name("%s.%s", place, names->mixer);
    if (normed)
        TRY(dn_affine_bind(&to->input, b, input.text, m->width, m->input_epsilon));
    TRY(open_linears(m, b, place, names, to));
    TRY(dn_short_conv_bind(
        &to->taps, b, dn_name("%s.short_filter", mixer.text).text, 3 * m->width,
        M2_TAPS));
    for (int f = 0; f < dn_m2_filters(m); f++)
        TRY(dn_hyena_filter_open(
            &to->filter[f], b, dn_name("%s.%s", mixer.text, filters[f]).text,
            &m->filter));
    return dn_affine_bind(&to->output, b, output.text, m->width, m->epsilon);
}

danaus_status dn_m2_open_blocks(
    m2 *m, danaus_model *model, binder *b, const m2_names *names)
{
    int normed = m->before || has(b, names, names->input, "weight");
    m->dtype = model->dtype;
    m->packed = !b->device->backend->on_host;
    TRY(choose_kept(m, b->device));
    m->blocks = dn_model_blocks(model, m->layers, sizeof *m->blocks, M2_LINEARS);
    if (!m->blocks)
        return DANAUS_ERR_MEMORY;
    for (int64_t i = 0; i < m->layers; i++) {
        m2_block *block = &m->blocks[i];
        block->linear = model->linear + i * M2_LINEARS;
        TRY(open_block(
            m, b, dn_name("%s%" PRId64, names->blocks, i).text, names, normed, block));
        for (int f = 0; f < dn_m2_filters(m); f++)
            model->packed += dn_hyena_filter_packed(&block->filter[f]);
    }
    return DANAUS_OK;
}

void dn_m2_close(void *blocks)
{
    m2 *m = blocks;
    dn_m2_forget(m);
    for (int64_t i = 0; m->blocks && i < m->layers; i++)
        for (int f = 0; f < M2_FILTERS; f++)
            dn_hyena_filter_close(&m->blocks[i].filter[f]);
    dn_free(m->blocks);
}
