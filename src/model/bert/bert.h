/* The inside of an encoder of BERT's shape, for the files that run and compress it. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_BERT_BERT_H
#define DN_MODEL_BERT_BERT_H

#include "device/nn.h"
#include "model/arch.h"
#include "model/block.h"

/* Tokens that go through the model together, unless one sequence has more: their
   activations stay in the last cache. */
#define CHUNK_TOKENS 1024
#define GPU_TOKENS   16384 /* so many on a GPU */

typedef struct bert_block {
    linear *linear; /* BLOCK_LINEARS */
    affine attention, output;
} bert_block;

typedef struct bert {
    int64_t layers, width, heads, inner;
    danaus_activation activation;
    words words;
    bert_block *blocks;
} bert;

danaus_status dn_bert_compress(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, const danaus_model_compression *how);

#endif
