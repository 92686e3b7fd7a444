/* The tensors of linear layers in a file, before a layer is made of them. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_LINEAR_VIEW_H
#define DN_MODEL_LINEAR_VIEW_H

#include "danaus/ks.h"
#include "model/bind.h"

/* 1 for the tensor of a placeholder (structure.h), which stands for a layer that is no dense
   matrix. */
static inline int dn_is_placeholder(const danaus_tensor *t)
{
    return t->ndim == 1 && !t->shape[0];
}

typedef struct layer_size {
    int64_t rows, cols;
    int no_bias; /* it may have none */
} layer_size;

/* The tensors of a matrix or chain, and the patterns that these have. */
typedef struct layer_view {
    int count;
    danaus_pattern patterns[DANAUS_MAX_FACTORS];
    danaus_tensor weights[DANAUS_MAX_FACTORS];
    danaus_tensor bias;
} layer_view;

/* Finds the matrix NAME.weight, which is a pattern; 0: there is none. */
int dn_view_matrix(binder *b, const char *name, layer_view *v);

/* The bias beside a matrix that was found (lacks: NULL), or a chain with its bias; 0: it does not
   fit, which was said. Where there is no factor, NAME.LACKS is what is needed. */
int dn_view_layer(
    binder *b, const char *name, const layer_size *size, const char *lacks,
    layer_view *v);

/* 1 if the layer is a sum of two chains, the second of which needs no bias. */
int dn_is_sum(binder *b, const char *name);
int dn_view_sum(binder *b, const char *name, const layer_size *size, layer_view v[2]);

#endif
