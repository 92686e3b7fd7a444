/* Blocks of a transformer. Rows h of tokens go through each block,

       h = norm(h + attend(h)),       h = norm(h + mlp(h)),         as in BERT, or
       h = h + attend(norm(h)),       h = h + mlp(norm(h)),         as in vision transformers,

   with attend(x) = W_o attention(W_q x, W_k x, W_v x), perhaps with a bias, and mlp(x) = W_2 activation(W_1 x) or, if it
   is gated, W_2 (activation(u) v), where u, v = W_1 x, or u and v have layers of their own. In the second case the result is norm(h). */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_TRANSFORMER_H
#define DN_MODEL_TRANSFORMER_H

#include "device/nn.h"
#include "model/affine.h"
#include "model/arch.h"

enum { QUERY, KEY, VALUE, OUTPUT, UP, DOWN, BLOCK_LINEARS };
#define QKV    VALUE         /* where one layer makes q, k and v */
#define FACTOR BLOCK_LINEARS /* the layer of v, where gates have two layers */

typedef struct transformer_block {
    linear *linear; /* from t->begin to DOWN, or to FACTOR */
    affine middle;  /* between attend() and mlp() */
    affine
        outer; /* at the block's end, or, where blocks normalise before, its beginning */
    int64_t window;     /* of attention; 0: all rows */
    const float *turns; /* of rotary positions (nn_rotary); NULL: there are none */
} transformer_block;

typedef struct transformer {
    int64_t layers, width, heads, inner;
    double epsilon;
    danaus_activation activation;
    danaus_dtype dtype; /* of rows */
    int before;         /* blocks normalise what they read */
    int first_reads_h;  /* attend() of the first block reads h itself all the same */
    int begin;          /* the first layer of a block: QUERY or QKV */
    int gated;          /* the mlp is, by one layer */
    int factored;       /* it is, by two */
    int no_attention_bias, no_mlp_bias; /* those layers may have none */
    transformer_block *blocks;
    affine last;       /* of h, where blocks normalise before */
    const float *bias; /* of all attentions, as in nn_attention */
    int64_t reach;
} transformer;

/* Reads the number of heads. */
danaus_status dn_transformer_config(
    transformer *t, const json_t *config, const block_sizes *sizes);

/* Names in the file. */
typedef struct transformer_names {
    const char *blocks;                    /* before the number of a block */
    const char *linear[BLOCK_LINEARS + 1]; /* of a block's layers */
    const char *middle, *outer;            /* of its norms */
} transformer_names;

/* Reads all blocks. */
danaus_status dn_transformer_open(
    transformer *t, danaus_model *model, binder *b, const transformer_names *names);

extern const mixer_kind dn_transformer_mixer;

#endif
