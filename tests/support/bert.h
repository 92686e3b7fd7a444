/* Small random encoders of BERT's family: as a folder that danaus loads, and as plain loops of
   f64 that share no code with the library.

   The bound of an embedding's error is measured on the loops: every operation's results are
   changed by random parts of what its rounding in f32 may cost, and what comes out moves by
   `moved` at most in some runs; errors are allowed to be BERT_BOUND times that. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_BERT_H
#define TEST_SUPPORT_BERT_H

#include "danaus/danaus.h"
#include "support/named.h"

#include <stddef.h>

#define BERT_BOUND 8

typedef enum bert_kind {
    BERT,
    ROBERTA,
    DISTILBERT,
    MPNET,
    MODERN_BERT,
    NOMIC_BERT,
    BERT_KINDS
} bert_kind;

typedef struct small_bert {
    bert_kind kind;
    int64_t width, heads, inner, layers, vocabulary, positions;
    danaus_activation activation;
    int first, normalize, modules; /* modules: modules.json is there */
    int dense;                     /* all linear layers are */
    int64_t padding;               /* RoBERTa, MPNet: positions begin behind this one */
    /* ModernBERT: tokens in sight of one in local layers; layers to the next global one; thetas of
       positions in global and local layers; that of Nomic BERT is the first. */
    int64_t local, every;
    double theta[2];
    int norm_bias, attention_bias, mlp_bias;
    named_arrays arrays;
} small_bert;

small_bert bert_random(rng *r);
small_bert bert_random_dense(rng *r);
small_bert bert_random_kind(rng *r, bert_kind kind);
void bert_free(small_bert *m);

void bert_config(const small_bert *m, char *config, size_t size);

/* Writes config.json, model.safetensors and, if it has them, modules.json and
   pool/config.json into the folder of files.h. */
void bert_write(const small_bert *m);

/* The same, and loaded. */
danaus_model *bert_load(const small_bert *m, danaus_device *device);

/* For cmocka: removes what models leave, and the folder. */
int bert_teardown(void **state);
void bert_remove_saved(void); /* the folder "saved" alone */

/* The embedding of one sequence, and how much it moves. */
void bert_embed(
    const small_bert *m, const int32_t *ids, int64_t length, double *embedding,
    double *moved);

#endif
