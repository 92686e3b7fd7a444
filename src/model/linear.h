/* A linear layer of a model: y = activation(W x + bias) for rows of tokens, W a dense
   matrix or a chain; or, where the device can, u, v = W x + bias and y = activation(u) v. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_LINEAR_H
#define DN_MODEL_LINEAR_H

#include "base/status.h"
#include "danaus/ks.h"
#include "danaus/transforms.h"
#include "model/bind.h"
#include "model/compress/fit.h"

typedef struct linear_shape {
    int64_t rows, cols;
    danaus_activation activation;
    int64_t tokens;     /* rows of x that it is planned for */
    int no_bias;        /* it may have none */
    int gated;          /* as desc.gated, where that can be */
    danaus_dtype dtype; /* of x, y and the packed weights; 0: f32 */
    int int8; /* as desc.int8; also set where the file has weights of 8 bits */
} linear_shape;

struct linear;

/* Sees the rows that layers are about to read. */
typedef struct watcher {
    danaus_status (*see)(
        struct watcher *w, const struct linear *layer, int64_t rows, const void *x);
} watcher;

typedef struct linear {
    char *name;
    linear_shape shape; /* that it was made for */
    int64_t rows, cols, parameters;
    int biased;             /* the file has a bias for it, or a fit of chains */
    int gated;              /* y is activation(u) v: shape.gated, and the device can */
    int is_chain;           /* the file has factors in place of a matrix */
    int64_t factors, first; /* of a sum of two chains, `first` of the first; else 0 */
    danaus_pattern *patterns; /* [factors] */
    int64_t packed;           /* bytes */
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    danaus_operator_plan *sum; /* of a sum, in place of plan and weights */
    fit fitted;                /* what it was made of; basis NULL: it is the file's */
    double speedup;   /* over the dense layer that it replaces; 0: it replaces none */
    watcher *watcher; /* or NULL; the caller's */
} linear;

/* Reads a matrix and NAME.bias[rows]. The matrix is NAME.weight[rows][cols], with columns in
   three dimensions if it is a convolution's; or [g][rows / g][cols / g], which is
   block-diagonal; or the chain NAME.weights.0, NAME.weights.1, ... whose shapes are patterns;
   or the sum of two such chains, NAME.first and NAME.second. Tensors that do not fit are a
   complaint, and the layer then has no plan. In an outline it has a plan and no weights. */
danaus_status dn_linear_open(
    linear *layer, binder *b, const char *name, const linear_shape *shape);

/* A layer of a block: PLACE.PART.NAME. */
typedef struct linear_row {
    const char *part, *name;
    linear_shape shape; /* without tokens and type */
} linear_row;

/* Reads the layers of a block, which are planned for so many tokens. */
danaus_status dn_linears_open(
    linear *layers, int count, const linear_row *rows, binder *b, const char *place,
    int64_t tokens);

/* The dense layer of two tensors of a file, without its activation; adjoint: W^T x. */
danaus_status dn_linear_dense(
    linear *layer, danaus_device *device, const danaus_tensor *weight,
    const danaus_tensor *bias, int adjoint, int64_t tokens);

/* Makes a layer of a fit, which then belongs to the layer. */
danaus_status dn_linear_fitted(
    linear *layer, danaus_device *device, const char *name, fit *f,
    const linear_shape *shape);
void dn_linear_close(linear *layer);

/* The expected seconds of a product of shape.tokens rows. */
double dn_linear_seconds(const linear *layer);

/* True for layers that can run. */
static inline int dn_linear_is_open(const linear *layer)
{
    return layer->plan || layer->sum;
}

static inline danaus_status dn_linear_run(
    const linear *layer, danaus_device *device, int64_t tokens, const void *x, void *y)
{
    if (layer->watcher)
        TRY(layer->watcher->see(layer->watcher, layer, tokens, x));
    if (layer->sum)
        return danaus_operator_execute(layer->sum, device, tokens, x, y);
    return danaus_ks_execute(layer->plan, device, layer->weights, tokens, x, y);
}

#endif
