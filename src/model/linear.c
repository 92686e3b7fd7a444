/* Linear layers from tensors of a file, and from fits. */
// SPDX-License-Identifier: Apache-2.0
#include "model/linear.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "device/backend.h"
#include "io/int8.h"
#include "math/pattern.h"
#include "model/interpolated.h"
#include "model/linear_view.h"

#include <string.h>

static int64_t numbers_of(danaus_pattern p) { return p.a * p.b * p.c * p.d; }

/* The numbers of all factors. */
static int64_t weights_of(const layer_view v[2])
{
    int64_t sum = 0;
    for (int i = 0; i < 2; i++)
        for (int n = 0; n < v[i].count; n++)
            sum += numbers_of(v[i].patterns[n]);
    return sum;
}

static int biases_of(const layer_view v[2])
{
    return (v[0].bias.data != NULL) + (v[1].bias.data != NULL);
}

/* ---- plans and what is packed ---- */

/* A chain without its bias: chains of operators have none. Weights of 8 bits are those of each
   factor, also where a plan multiplies factors out: so they are saved. */
static danaus_status make_chain(const layer_view *v, int int8, danaus_chain **chain)
{
    TRY(danaus_chain_create(v->patterns, v->count, DANAUS_F32, chain));
    for (int i = 0; i < v->count; i++) {
        danaus_pattern p = v->patterns[i];
        float *w = danaus_chain_weights(*chain, i);
        dn_convert(
            v->weights[i].dtype, v->weights[i].data, DANAUS_F32, w, numbers_of(p));
        if (int8)
            dn_int8_round_blocks(p.a * p.b, p.c, p.d, w);
    }
    return DANAUS_OK;
}

/* The bias as f32, which the caller frees; NULL: there is none. */
static danaus_status read_bias(const layer_view *v, int64_t rows, float **bias)
{
    *bias = NULL;
    if (!v->bias.data)
        return DANAUS_OK;
    *bias = dn_calloc((size_t)rows, sizeof **bias);
    if (!*bias)
        return dn_fail_memory((size_t)rows * sizeof **bias, "a bias");
    dn_convert(v->bias.dtype, v->bias.data, DANAUS_F32, *bias, rows);
    return DANAUS_OK;
}

/* Gates may have to be a launch of their own, which is then the caller's. */
static danaus_status plan_or_plain(
    linear *layer, danaus_device *device, danaus_ks_desc desc)
{
    int count = (int)layer->factors;
    danaus_status status =
        danaus_ks_plan_create(device, layer->patterns, count, &desc, &layer->plan);
    layer->gated = desc.gated && status == DANAUS_OK;
    if (!desc.gated || status != DANAUS_ERR_UNSUPPORTED)
        return status;
    desc.gated = 0;
    desc.activation = DANAUS_ACTIVATION_NONE;
    return danaus_ks_plan_create(device, layer->patterns, count, &desc, &layer->plan);
}

/* Plans a layer; what is packed comes later. */
static danaus_status plan(
    linear *layer, danaus_device *device, const danaus_pattern *patterns, int count,
    const danaus_ks_desc *desc)
{
    size_t bytes = (size_t)count * sizeof *patterns;
    layer->patterns = dn_alloc(bytes);
    if (!layer->patterns)
        return dn_fail_memory(bytes, "patterns");
    memcpy(layer->patterns, patterns, bytes);
    layer->factors = count;
    layer->rows = dn_pattern_rows(patterns[0]);
    layer->cols = dn_pattern_cols(patterns[count - 1]);
    TRY(plan_or_plain(layer, device, *desc));
    TRY(danaus_ks_weights_bytes(layer->plan, &bytes));
    layer->packed = (int64_t)bytes;
    return DANAUS_OK;
}

static danaus_ks_desc desc_of(const linear_shape *shape, int bias)
{
    return (danaus_ks_desc){ .batch = shape->tokens,
                             .activation = shape->activation,
                             .dtype = shape->dtype,
                             .gated = shape->gated,
                             .int8 = shape->int8,
                             .bias = bias };
}

/* Packs what the layer's tensors hold. */
static danaus_status pack(
    linear *layer, danaus_device *device, const layer_view *v, int64_t rows)
{
    danaus_chain *chain;
    float *bias;
    TRY(make_chain(v, layer->shape.int8, &chain));
    danaus_status status = read_bias(v, rows, &bias);
    if (bias)
        status = danaus_chain_set_bias(chain, bias);
    if (status == DANAUS_OK)
        status = danaus_ks_weights_create(layer->plan, device, chain, &layer->weights);
    dn_free(bias);
    danaus_chain_destroy(chain);
    return status;
}

static danaus_status name_layer(linear *layer, const char *name)
{
    layer->name = dn_copy_text(name);
    return layer->name ? DANAUS_OK : dn_fail_memory(strlen(name), "a name");
}

/* The factors of a layer of such a rank. */
static void fitted_patterns(
    int64_t rows, int64_t cols, int64_t rank, danaus_pattern p[2])
{
    p[0] = (danaus_pattern){ 1, rows, rank, 1 };
    p[1] = (danaus_pattern){ 1, rank, cols, 1 };
}

static danaus_status outline_interpolated(
    linear *layer, danaus_device *device, const char *name, const linear_shape *shape,
    int64_t rank)
{
    danaus_pattern p[2];
    danaus_ks_desc desc = desc_of(shape, 1);
    fitted_patterns(shape->rows, shape->cols, rank, p);
    layer->parameters = dn_fit_parameters(shape->rows, shape->cols, rank);
    TRY(name_layer(layer, name));
    return plan(layer, device, p, 2, &desc);
}

/* ---- sums of two chains ---- */

/* An operator of one chain, with its bias, if it has one. */
static danaus_status make_term(
    const layer_view *v, const linear *layer, danaus_operator **term)
{
    danaus_chain *chain;
    float *bias;
    TRY(make_chain(v, layer->shape.int8, &chain));
    danaus_status status = danaus_operator_create(
        &chain, 1, NULL, NULL, dn_pattern_cols(v->patterns[v->count - 1]), term);
    if (status != DANAUS_OK) {
        danaus_chain_destroy(chain);
        return status;
    }
    status = read_bias(v, layer->rows, &bias);
    if (bias)
        status = danaus_operator_set_bias(*term, bias);
    dn_free(bias);
    return status;
}

static danaus_status plan_sum(
    linear *layer, danaus_device *device, const layer_view v[2])
{
    danaus_operator *terms[2] = { NULL, NULL }, *sum = NULL;
    danaus_ks_desc desc = desc_of(&layer->shape, biases_of(v) > 0);
    desc.gated = 0;
    if (layer->shape.gated)
        desc.activation = DANAUS_ACTIVATION_NONE;
    danaus_status status = make_term(&v[0], layer, &terms[0]);
    if (status == DANAUS_OK)
        status = make_term(&v[1], layer, &terms[1]);
    if (status == DANAUS_OK)
        status = danaus_operator_add(terms, 2, &sum);
    if (status == DANAUS_OK)
        terms[0] = terms[1] = NULL;
    if (status == DANAUS_OK)
        status = danaus_operator_plan_create(device, sum, &desc, &layer->sum);
    danaus_operator_destroy(terms[0]);
    danaus_operator_destroy(terms[1]);
    danaus_operator_destroy(sum);
    return status;
}

/* Patterns of both chains, one after the other. */
static danaus_status note_sum(linear *layer, const layer_view v[2])
{
    size_t bytes = (size_t)(v[0].count + v[1].count) * sizeof *layer->patterns;
    layer->patterns = dn_alloc(bytes);
    if (!layer->patterns)
        return dn_fail_memory(bytes, "patterns");
    for (int i = 0; i < 2; i++)
        for (int n = 0; n < v[i].count; n++)
            layer->patterns[layer->factors++] = v[i].patterns[n];
    layer->first = v[0].count;
    layer->packed = weights_of(v) * (int64_t)sizeof(float);
    return DANAUS_OK;
}

/* ---- layers ---- */

/* Makes the layer of one chain, or of the sum of two. In an outline a sum has no plan, and a
   chain no weights. */
static danaus_status make(
    linear *layer, danaus_device *device, const layer_view v[2], int outline)
{
    if (v[1].count) {
        TRY(note_sum(layer, v));
        return outline ? DANAUS_OK : plan_sum(layer, device, v);
    }
    const danaus_ks_desc desc = desc_of(&layer->shape, biases_of(v) > 0);
    TRY(plan(layer, device, v[0].patterns, v[0].count, &desc));
    return outline ? DANAUS_OK : pack(layer, device, &v[0], layer->rows);
}

/* 1 if the file has weights of 8 bits for the layer, and the device multiplies them. */
static int has_int8(const binder *b)
{
    return b->widened_count > 0 && b->device->backend->on_host;
}

static danaus_status open_interpolated(
    linear *layer, binder *b, const char *name, const linear_shape *shape, int64_t rank)
{
    fit f = { 0 };
    int good;
    TRY(dn_interpolated_read(b, name, shape->rows, shape->cols, rank, &f, &good));
    if (!good)
        return DANAUS_OK;
    b->parameters += shape->rows;
    layer->shape.int8 |= has_int8(b);
    const linear_shape found = layer->shape;
    if (b->copies->outline)
        return outline_interpolated(layer, b->device, name, &found, rank);
    danaus_status status = dn_linear_fitted(layer, b->device, name, &f, &found);
    dn_fit_free(&f);
    return status;
}

static danaus_status open_layer(
    linear *layer, binder *b, const char *name, const linear_shape *shape)
{
    layer_view v[2] = { { 0 }, { 0 } };
    int64_t rank = dn_interpolated_rank(b, name);
    *layer = (linear){ .rows = shape->rows, .cols = shape->cols, .shape = *shape };
    layer->is_chain = !dn_view_matrix(b, name, &v[0]); /* a placeholder has its place */
    if (rank)
        return open_interpolated(layer, b, name, shape, rank);
    const char *lacks = layer->is_chain ? "weight" : NULL;
    const layer_size size = { shape->rows, shape->cols, shape->no_bias };
    int good = lacks && dn_is_sum(b, name) ? dn_view_sum(b, name, &size, v)
                                           : dn_view_layer(b, name, &size, lacks, v);
    if (!good)
        return DANAUS_OK;
    layer->shape.int8 |= has_int8(b);
    layer->parameters = weights_of(v);
    layer->biased = biases_of(v) > 0;
    b->parameters += biases_of(v) * layer->rows;
    TRY(name_layer(layer, name));
    return make(layer, b->device, v, b->copies->outline);
}

danaus_status dn_linear_open(
    linear *layer, binder *b, const char *name, const linear_shape *shape)
{
    dn_binder_forget(b);
    danaus_status status = open_layer(layer, b, name, shape);
    dn_binder_forget(b);
    return status;
}

danaus_status dn_linears_open(
    linear *layers, int count, const linear_row *rows, binder *b, const char *place,
    int64_t tokens)
{
    for (int i = 0; i < count; i++) {
        linear_shape shape = rows[i].shape;
        shape.tokens = tokens;
        shape.dtype = b->dtype;
        shape.int8 = b->int8;
        TRY(dn_linear_open(
            &layers[i], b, dn_name("%s.%s.%s", place, rows[i].part, rows[i].name).text,
            &shape));
    }
    return DANAUS_OK;
}

danaus_status dn_linear_dense(
    linear *layer, danaus_device *device, const danaus_tensor *weight,
    const danaus_tensor *bias, int adjoint, int64_t tokens)
{
    layer_view v = { .count = 1, .weights = { *weight }, .bias = *bias };
    v.patterns[0] = (danaus_pattern){ 1, weight->shape[0], weight->shape[1], 1 };
    const danaus_ks_desc desc = { .batch = tokens,
                                  .bias = !adjoint,
                                  .adjoint = adjoint };
    *layer = (linear){ 0 };
    danaus_status status = plan(layer, device, v.patterns, 1, &desc);
    if (status == DANAUS_OK)
        status = pack(layer, device, &v, weight->shape[0]);
    if (status != DANAUS_OK)
        dn_linear_close(layer);
    return status;
}

static danaus_tensor numbers_at(const double *numbers)
{
    return (danaus_tensor){ .dtype = DANAUS_F64, .data = numbers };
}

/* The tensors that a chain's file would have. */
static void view_factors(const danaus_chain *chain, layer_view *v)
{
    v->count = danaus_chain_count(chain);
    for (int i = 0; i < v->count; i++) {
        v->patterns[i] = danaus_chain_pattern(chain, i);
        v->weights[i] = numbers_at(danaus_chain_weights_const(chain, i));
    }
}

/* Those of a fit: one chain, or two whose sum it is. */
static void view_fit(const fit *f, layer_view v[2])
{
    int first = f->dense; /* the basis alone is the layer */
    v[0] = v[1] = (layer_view){ 0 };
    if (f->chain[0]) {
        view_factors(f->chain[0], &v[0]);
        if (f->chain[1])
            view_factors(f->chain[1], &v[1]);
    } else {
        danaus_pattern p[2];
        fitted_patterns(f->rows, f->cols, f->rank, p);
        v[0].count = 2 - first;
        memcpy(v[0].patterns, p + first, (size_t)v[0].count * sizeof *p);
        v[0].weights[0] = numbers_at(f->left);
        v[0].weights[1 - first] = numbers_at(f->basis);
    }
    v[0].bias = numbers_at(f->bias);
}

danaus_status dn_linear_fitted(
    linear *layer, danaus_device *device, const char *name, fit *f,
    const linear_shape *shape)
{
    layer_view v[2];
    view_fit(f, v);
    *layer = (linear){ .shape = *shape, .rows = f->rows, .cols = f->cols };
    layer->biased = f->chain[0] != NULL;
    danaus_status status = name_layer(layer, name);
    if (status == DANAUS_OK)
        status = make(layer, device, v, 0);
    if (status != DANAUS_OK) {
        dn_linear_close(layer);
        return status;
    }
    layer->parameters = f->dense || f->chain[0]
                            ? weights_of(v)
                            : dn_fit_parameters(f->rows, f->cols, f->rank);
    layer->fitted = *f;
    *f = (fit){ 0 };
    return DANAUS_OK;
}

double dn_linear_seconds(const linear *layer)
{
    return layer->sum ? danaus_operator_plan_seconds(layer->sum)
                      : danaus_ks_plan_seconds(layer->plan);
}

void dn_linear_close(linear *layer)
{
    dn_free(layer->name);
    dn_free(layer->patterns);
    dn_fit_free(&layer->fitted);
    danaus_ks_weights_destroy(layer->weights);
    danaus_ks_plan_destroy(layer->plan);
    danaus_operator_plan_destroy(layer->sum);
    *layer = (linear){ 0 };
}
