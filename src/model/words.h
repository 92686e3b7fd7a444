/* The first step of encoders of BERT's family: the normalised sum of a word's, a position's and a
   type's row. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_WORDS_H
#define DN_MODEL_WORDS_H

#include "model/affine.h"
#include "model/config.h"

typedef struct words {
    int64_t width, vocabulary, positions, types;
    const void *word, *position, *type; /* in the type of rows */
    affine norm;
} words;

/* Fields of config.json. */
typedef struct encoder_config {
    block_sizes blocks;
    int64_t vocabulary, positions, types;
} encoder_config;

danaus_status dn_encoder_config(const json_t *config, encoder_config *c);

/* Finds what stands before all names of an encoder, such as "bert." where heads are in the same
   file. `heads` is what stands before those. */
void dn_words_prefix(binder *b, const char **heads);

/* Reads embeddings.*. */
danaus_status dn_words_bind(words *w, binder *b, const encoder_config *c);
danaus_status dn_words_run(
    const words *w, danaus_device *device, int64_t tokens, const int32_t *ids,
    const int32_t *positions, void *h);

#endif
