/* Models: how a word becomes ids. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_TOKENS_MODELS_H
#define DN_TOKENS_MODELS_H

#include "danaus/tokenizer.h"
#include "tokens/growing.h"
#include "tokens/models/merges.h"
#include "tokens/models/trie.h"

struct encoding;

/* Puts the ids of a word, which is not empty. */
typedef danaus_status put_word_fn(struct encoding *e, span word);

put_word_fn dn_put_wordpiece, dn_put_unigram, dn_put_bpe, dn_put_characters;

typedef struct model {
    put_word_fn *put;

    int64_t longest_word; /* WordPiece: in code points; a longer one is unknown */
    growing prefix;       /* WordPiece, BPE: of pieces within a word, "##" */
    uint64_t prefix_hash;

    growing suffix; /* BPE: of the last piece of a word */
    merges merges;
    int ignore_merges; /* nonzero: a word of the vocabulary is one piece */
    int fuse_unknown;
    int skips_unknown; /* nonzero: unknown letters are left out */

    trie trie; /* Unigram */
    double *scores;
    size_t score_count, score_capacity;
    double unknown_score;

    int byte_fallback;
    int32_t bytes[256]; /* ids of "<0x00>" ...; -1: there is none */
} model;

/* What follows from the words (model.c). */
danaus_status dn_finish_model(danaus_tokenizer *t);
void dn_model_free(model *m);

/* Memory of the models for the words of one text. */
typedef struct model_work {
    struct word_piece *pieces; /* WordPiece: beginnings of a word */

    struct best_path *paths; /* Unigram: to each byte of a word */
    size_t path_capacity;
    size_t *ends; /* of the best pieces */
    size_t end_capacity;

    struct symbol *symbols; /* BPE */
    size_t symbol_count, symbol_capacity;
    struct possible_merge *heap;
    size_t heap_count, heap_capacity;

    growing text; /* of a symbol with its prefix and suffix */
} model_work;

void dn_model_work_free(model_work *w);

#endif
