/* A block of an encoder step by step, forward and backward, with all intermediate results: for
   fitting its layers. On the host. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_BERT_BERT_STEPS_H
#define DN_MODEL_BERT_BERT_STEPS_H

#include "model/transformer.h"

/* Layers that read the same rows. */
typedef enum bert_stage {
    STAGE_QKV,
    STAGE_OUTPUT,
    STAGE_UP,
    STAGE_DOWN,
    STAGES
} bert_stage;

static inline bert_stage dn_stage_of(int layer)
{
    return layer <= VALUE ? STAGE_QKV : (bert_stage)(layer - VALUE);
}

/* The inputs and results of a block's steps for the rows of some sequences:
       s1 = h + W_o mixed,  h1 = norm(s1),  u = W_1 h1,  inner = gelu(u),
       s2 = h1 + W_2 inner,  h2 = norm(s2). */
typedef struct bert_pass {
    nn_sequences sequences;
    int64_t tokens;
    float *h, *q, *k, *v, *mixed, *s1, *h1, *u, *inner, *s2, *h2;
} bert_pass;

danaus_status dn_pass_make(const transformer *m, int64_t tokens, bert_pass *p);
void dn_pass_free(bert_pass *p);

/* The layers of a block. */
typedef struct bert_layers {
    const linear *of[BLOCK_LINEARS];
    int makes_u; /* UP is without its activation; else it makes `inner`, and no u */
} bert_layers;

/* Runs a block from h to the inputs of a stage's layers or, if `whole`, to their outputs. */
danaus_status dn_pass_run(
    const transformer *m, danaus_device *device, const transformer_block *b,
    const bert_layers *layers, bert_stage stage, int whole, const bert_pass *p);

/* The rows that a stage reads, and those that a layer makes (OUTPUT and DOWN: the sum that
   they are part of). */
const float *dn_pass_input(const bert_pass *p, bert_stage stage);
const float *dn_pass_output(const bert_pass *p, int layer);

/* Gradients at the outputs of all layers of a block, and at h, from dh2, for a whole pass of
   layers that make u; adjoint[] are the same layers' adjoints. */
typedef struct bert_gradients {
    float *of[BLOCK_LINEARS], *h; /* of[DOWN] is dh2 before */
    float *mixed, *inner;         /* between */
} bert_gradients;

danaus_status dn_gradients_make(
    const transformer *m, int64_t tokens, bert_gradients *g);
void dn_gradients_free(bert_gradients *g);
danaus_status dn_pass_go_back(
    const transformer *m, danaus_device *device, const transformer_block *b,
    const linear *adjoint, const bert_pass *p, const bert_gradients *g);

#endif
