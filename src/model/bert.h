/* What an encoder of BERT's shape is, for the files that run and compress it. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_BERT_H
#define DN_MODEL_BERT_H

#include "backend/nn.h"
#include "model/arch.h"

/* Tokens that go through the model together, unless one sequence has more: their
   activations stay in the last cache. */
#define CHUNK_TOKENS 1024
#define MOST_LAYERS  1000

typedef struct affine {
    const float *scale, *shift;
} affine;

enum { QUERY, KEY, VALUE, OUTPUT, UP, DOWN, BLOCK_LINEARS };

typedef struct block {
    linear *linear; /* BLOCK_LINEARS */
    affine attention, output;
} block;

typedef struct bert {
    int64_t layers, width, heads, inner, vocabulary, positions, types;
    float epsilon;
    danaus_activation activation;
    const float *word, *position, *type;
    affine embeddings;
    block *blocks;
} bert;

/* h becomes norm(h + more); more: or NULL. */
danaus_status dn_bert_norm(
    const bert *m, danaus_device *device, int64_t tokens, const float *more,
    affine norm, float *h);

/* Rows of the first block's input. */
danaus_status dn_bert_lookup(
    const bert *m, danaus_device *device, int64_t tokens, const int32_t *ids,
    const int32_t *positions, float *h);

danaus_status dn_bert_compress(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, const danaus_model_compression *how);

#endif
