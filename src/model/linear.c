/* Linear layers from tensors of a file, and from fits. */
// SPDX-License-Identifier: Apache-2.0
#include "model/linear.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/pattern.h"
#include "model/interpolated.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The tensors of a layer, in the file. */
typedef struct layer_view {
    int count;
    danaus_pattern patterns[DANAUS_MAX_FACTORS];
    danaus_tensor weights[DANAUS_MAX_FACTORS];
    danaus_tensor bias;
} layer_view;

static int view_dense(binder *b, const char *name, layer_view *v)
{
    char path[MOST_NAME];
    danaus_tensor *t = v->weights;
    snprintf(path, sizeof path, "%s.weight", name);
    if (!dn_binder_find(b, path, t) || dn_is_placeholder(t))
        return 0;
    if (t->ndim == 2)
        v->patterns[v->count++] = (danaus_pattern){ 1, t->shape[0], t->shape[1], 1 };
    else if (t->ndim == 3)
        v->patterns[v->count++] =
            (danaus_pattern){ t->shape[0], t->shape[1], t->shape[2], 1 };
    else if (t->ndim == 4) /* of a convolution whose pieces do not overlap */
        v->patterns[v->count++] =
            (danaus_pattern){ 1, t->shape[0], t->shape[1] * t->shape[2] * t->shape[3],
                              1 };
    else
        dn_binder_complain(b, "%s has %d dimensions, not 2 to 4", path, t->ndim);
    return 1;
}

/* Where there is no factor, NAME.LACKS is what is needed. */
static void view_chain(
    binder *b, const char *name, const char *lacks, const linear_shape *shape,
    layer_view *v)
{
    char path[MOST_NAME];
    for (; v->count < DANAUS_MAX_FACTORS; v->count++) {
        danaus_tensor *t = &v->weights[v->count];
        snprintf(path, sizeof path, "%s.weights.%d", name, v->count);
        if (!dn_binder_find(b, path, t))
            break;
        if (t->ndim != 4) {
            dn_binder_complain(b, "%s has %d dimensions, not 4", path, t->ndim);
            v->count = 0;
            return;
        }
        v->patterns[v->count] =
            (danaus_pattern){ t->shape[0], t->shape[1], t->shape[2], t->shape[3] };
    }
    if (v->count)
        return;
    const int64_t whole[] = { shape->rows, shape->cols };
    snprintf(path, sizeof path, "%s.%s", name, lacks);
    dn_binder_lack(b, path, 2, whole);
}

static int is_whole(
    binder *b, const char *name, int64_t rows, int64_t cols, const layer_view *v)
{
    if (danaus_patterns_check(v->patterns, v->count)) {
        dn_binder_complain(b, "%s: %s", name, danaus_error_detail());
        return 0;
    }
    int64_t found[] = { dn_pattern_rows(v->patterns[0]),
                        dn_pattern_cols(v->patterns[v->count - 1]) };
    if (found[0] == rows && found[1] == cols)
        return 1;
    dn_binder_complain(
        b, "%s is %" PRId64 " x %" PRId64 ", not %" PRId64 " x %" PRId64, name,
        found[0], found[1], rows, cols);
    return 0;
}

static int view_bias(
    binder *b, const char *name, const linear_shape *shape, layer_view *v)
{
    char path[MOST_NAME];
    snprintf(path, sizeof path, "%s.bias", name);
    danaus_tensor t;
    if (!dn_binder_find(b, path, &t) && shape->no_bias)
        return 1;
    if (!dn_binder_take(b, path, 1, &shape->rows, &t))
        return 0;
    v->bias = t;
    return 1;
}

static int64_t numbers_of(danaus_pattern p) { return p.a * p.b * p.c * p.d; }

static danaus_status fill_chain(const layer_view *v, int64_t rows, danaus_chain *chain)
{
    for (int i = 0; i < v->count; i++)
        dn_convert(
            v->weights[i].dtype, v->weights[i].data, DANAUS_F32,
            danaus_chain_weights(chain, i), numbers_of(v->patterns[i]));
    if (!v->bias.data)
        return DANAUS_OK;
    float *bias = dn_calloc((size_t)rows, sizeof *bias);
    if (!bias)
        return dn_fail_memory((size_t)rows * sizeof *bias, "a bias");
    dn_convert(v->bias.dtype, v->bias.data, DANAUS_F32, bias, rows);
    danaus_status status = danaus_chain_set_bias(chain, bias);
    dn_free(bias);
    return status;
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
                             .bias = bias };
}

/* Packs what the layer's tensors hold. */
static danaus_status pack(
    linear *layer, danaus_device *device, const layer_view *v, int64_t rows)
{
    danaus_chain *chain;
    TRY(danaus_chain_create(v->patterns, v->count, DANAUS_F32, &chain));
    danaus_status status = fill_chain(v, rows, chain);
    if (status == DANAUS_OK)
        status = danaus_ks_weights_create(layer->plan, device, chain, &layer->weights);
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

static danaus_status set_bias(
    const danaus_tensor *given, int64_t rows, danaus_operator *term)
{
    if (!given->data)
        return DANAUS_OK;
    float *bias = dn_calloc((size_t)rows, sizeof *bias);
    if (!bias)
        return dn_fail_memory((size_t)rows * sizeof *bias, "a bias");
    dn_convert(given->dtype, given->data, DANAUS_F32, bias, rows);
    danaus_status status = danaus_operator_set_bias(term, bias);
    dn_free(bias);
    return status;
}

/* An operator of one chain, with its bias, if it has one. */
static danaus_status make_term(
    const layer_view *v, int64_t rows, danaus_operator **term)
{
    danaus_chain *chain;
    layer_view plain = *v;
    plain.bias = (danaus_tensor){ 0 }; /* chains of operators have none */
    TRY(danaus_chain_create(v->patterns, v->count, DANAUS_F32, &chain));
    danaus_status status = fill_chain(&plain, rows, chain);
    if (status == DANAUS_OK)
        status = danaus_operator_create(
            &chain, 1, NULL, NULL, dn_pattern_cols(v->patterns[v->count - 1]), term);
    if (status != DANAUS_OK) {
        danaus_chain_destroy(chain);
        return status;
    }
    return set_bias(&v->bias, rows, *term);
}

static danaus_status plan_sum(
    linear *layer, danaus_device *device, const layer_view v[2])
{
    danaus_operator *terms[2] = { NULL, NULL }, *sum = NULL;
    danaus_ks_desc desc = desc_of(&layer->shape, layer->biased);
    desc.gated = 0;
    if (layer->shape.gated)
        desc.activation = DANAUS_ACTIVATION_NONE;
    danaus_status status = make_term(&v[0], layer->rows, &terms[0]);
    if (status == DANAUS_OK)
        status = make_term(&v[1], layer->rows, &terms[1]);
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
        for (int n = 0; n < v[i].count; n++) {
            layer->patterns[layer->factors++] = v[i].patterns[n];
            layer->parameters += numbers_of(v[i].patterns[n]);
        }
    layer->first = v[0].count;
    layer->packed = layer->parameters * (int64_t)sizeof(float);
    return DANAUS_OK;
}

static danaus_status open_sum(
    linear *layer, binder *b, const char *name, const linear_shape *shape)
{
    static const char *const parts[] = { "first", "second" };
    layer_view v[2] = { { 0 }, { 0 } };
    char path[MOST_NAME - 16]; /* of a layer's name; parts are appended */
    int good = 1;
    for (int i = 0; i < 2; i++) {
        linear_shape part = *shape;
        part.no_bias |= i;
        snprintf(path, sizeof path, "%s.%s", name, parts[i]);
        view_chain(b, path, "weights.0", shape, &v[i]);
        good &= view_bias(b, path, &part, &v[i]) && v[i].count &&
                is_whole(b, path, shape->rows, shape->cols, &v[i]);
    }
    if (good && v[0].count + v[1].count > DANAUS_MAX_FACTORS) {
        dn_binder_complain(
            b, "%s is a sum of more than %d factors", name, DANAUS_MAX_FACTORS);
        good = 0;
    }
    if (!good)
        return DANAUS_OK;
    layer->is_chain = 1;
    layer->biased = v[0].bias.data || v[1].bias.data;
    b->parameters +=
        (v[0].bias.data ? layer->rows : 0) + (v[1].bias.data ? layer->rows : 0);
    TRY(name_layer(layer, name));
    TRY(note_sum(layer, v));
    return b->copies->outline ? DANAUS_OK : plan_sum(layer, b->device, v);
}

static int is_sum(binder *b, const char *name)
{
    char path[MOST_NAME];
    danaus_tensor t;
    snprintf(path, sizeof path, "%s.first.weights.0", name);
    return dn_binder_find(b, path, &t);
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
    if (b->copies->outline)
        return outline_interpolated(layer, b->device, name, shape, rank);
    danaus_status status = dn_linear_fitted(layer, b->device, name, &f, shape);
    dn_fit_free(&f);
    return status;
}

danaus_status dn_linear_open(
    linear *layer, binder *b, const char *name, const linear_shape *shape)
{
    layer_view v = { 0 };
    int64_t rows = shape->rows, rank = dn_interpolated_rank(b, name);
    *layer = (linear){ .rows = rows, .cols = shape->cols, .shape = *shape };
    layer->is_chain = !view_dense(b, name, &v); /* a placeholder has its place */
    if (rank)
        return open_interpolated(layer, b, name, shape, rank);
    if (layer->is_chain && is_sum(b, name))
        return open_sum(layer, b, name, shape);
    if (layer->is_chain)
        view_chain(b, name, "weight", shape, &v);
    int good_bias = view_bias(b, name, shape, &v);
    if (!good_bias || !v.count || !is_whole(b, name, rows, shape->cols, &v))
        return DANAUS_OK;
    for (int i = 0; i < v.count; i++)
        layer->parameters += numbers_of(v.patterns[i]);
    b->parameters += v.bias.data ? rows : 0;
    layer->biased = v.bias.data != NULL;
    danaus_ks_desc desc = desc_of(shape, layer->biased);
    TRY(name_layer(layer, name));
    TRY(plan(layer, b->device, v.patterns, v.count, &desc));
    return b->copies->outline ? DANAUS_OK : pack(layer, b->device, &v, rows);
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

/* The numbers that are stored. */
static int64_t fit_size(const fit *f, const layer_view v[2])
{
    int64_t numbers = 0;
    if (!f->chain[0] && !f->dense)
        return dn_fit_parameters(f->rows, f->cols, f->rank);
    for (int i = 0; i < 2; i++)
        for (int n = 0; n < v[i].count; n++)
            numbers += numbers_of(v[i].patterns[n]);
    return numbers;
}

static danaus_status make_fitted(
    linear *layer, danaus_device *device, const layer_view v[2])
{
    danaus_ks_desc desc = desc_of(&layer->shape, 1);
    if (v[1].count) {
        TRY(note_sum(layer, v));
        return plan_sum(layer, device, v);
    }
    TRY(plan(layer, device, v[0].patterns, v[0].count, &desc));
    return pack(layer, device, &v[0], layer->rows);
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
        status = make_fitted(layer, device, v);
    if (status != DANAUS_OK) {
        dn_linear_close(layer);
        return status;
    }
    layer->parameters = fit_size(f, v);
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
