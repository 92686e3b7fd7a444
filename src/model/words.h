/* The first step of encoders of BERT's family: the normalised sum of a word's, a position's and a
   type's row. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_WORDS_H
#define DN_MODEL_WORDS_H

#include "model/affine.h"
#include "model/config.h"

typedef struct words {
    int64_t width, vocabulary, positions; /* positions: of tokens, from 0 on */
    const void *word;                     /* in the type of rows, */
    const void *position, *type;          /* as are these, or NULL */
    affine norm;
} words;

/* Fields of config.json. */
typedef struct encoder_config {
    block_sizes blocks;
    int64_t vocabulary, positions, types;
    int64_t
        first; /* the row of the table of positions that a sequence's first token has */
} encoder_config;

/* Reads all but `first`; c->blocks has its names of fields and its epsilon already. */
danaus_status dn_encoder_config(const json_t *config, encoder_config *c);

/* What stands before all names of an encoder, such as "bert." where heads are in the same file,
   and what stands before those of its heads. */
typedef struct encoder_prefix {
    const char *encoder, *heads;
} encoder_prefix;

/* Names in the file. */
typedef struct word_names {
    const encoder_prefix *prefixes; /* the last one is "" */
    const char *word, *norm;
    const char *position, *type; /* NULL: no such table */
} word_names;

/* Sets the binder's prefix. Returns that of heads. */
const char *dn_words_prefix(binder *b, const word_names *names);

/* Reads the tables and the norm. */
danaus_status dn_words_bind(
    words *w, binder *b, const word_names *names, const encoder_config *c);
danaus_status dn_words_run(
    const words *w, danaus_device *device, int64_t tokens, const int32_t *ids,
    const int32_t *positions, void *h);

#endif
