/* Blocks of a transformer. Rows h of tokens go through each block,

       h = norm(h + attend(h)),       h = norm(h + mlp(h)),         as in BERT, or
       h = h + attend(norm(h)),       h = h + mlp(norm(h)),         as in vision transformers,

   with attend(x) = W_o attention(W_q x, W_k x, W_v x) and mlp(x) = W_2 activation(W_1 x). In the
   second case the result is norm(h). */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_TRANSFORMER_H
#define DN_MODEL_TRANSFORMER_H

#include "device/nn.h"
#include "model/affine.h"
#include "model/arch.h"

enum { QUERY, KEY, VALUE, OUTPUT, UP, DOWN, BLOCK_LINEARS };

typedef struct transformer_block {
    linear *linear; /* BLOCK_LINEARS */
    affine middle;  /* between attend() and mlp() */
    affine
        outer; /* at the block's end, or, where blocks normalise before, its beginning */
} transformer_block;

typedef struct transformer {
    int64_t layers, width, heads, inner;
    double epsilon;
    danaus_activation activation;
    danaus_dtype dtype; /* of rows */
    int before;         /* blocks normalise what they read */
    transformer_block *blocks;
    affine last; /* of h, where blocks normalise before */
} transformer;

/* Reads num_attention_heads. */
danaus_status dn_transformer_config(
    transformer *t, const json_t *config, const block_sizes *sizes);

/* What names of tensors have: q is encoder.layer.0.SELF.query; the others are norms. */
typedef struct transformer_names {
    const char *self, *middle, *outer;
} transformer_names;

/* Reads all blocks. */
danaus_status dn_transformer_open(
    transformer *t, danaus_model *model, binder *b, const transformer_names *names);

extern const mixer_kind dn_transformer_mixer;

#endif
