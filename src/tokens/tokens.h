/* The inside of a tokenizer: how text becomes ids, in the reference's order.

   1. Added tokens that are not `normalized` are found in the original text (match.c).
   2. The text between them is normalized (normalizers/), and added tokens that are
      `normalized` are found in it.
   3. The text between these is cut into words (pre_tokenizers/), and the model makes ids of
      each word (models/, characters.c).
   4. Ids beyond the greatest length are cut off, and the template's ids are put around.

   decoders/ make text of ids. read/ makes a tokenizer of files. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_TOKENS_TOKENS_H
#define DN_TOKENS_TOKENS_H

#include "danaus/tokenizer.h"
#include "tokens/decoders/decoders.h"
#include "tokens/growing.h"
#include "tokens/models/models.h"
#include "tokens/normalizers/normalizers.h"
#include "tokens/pre_tokenizers/pre_tokenizers.h"
#include "tokens/vocabulary.h"

typedef struct added_token {
    int32_t id;
    int single_word;    /* found only where no letter of a word is beside it */
    int lstrip, rstrip; /* takes the spaces before it, behind it */
    int special;        /* the decoder may leave it out */
    int normalized;     /* found in normalized text, and decoded so */
} added_token;

/* Texts of added tokens that are looked for together; ids are places in `added`. */
typedef struct matcher {
    vocabulary texts;
    size_t *lengths; /* those that there are, the longest first */
    size_t length_count, length_capacity;
    unsigned char begins[256]; /* nonzero: a text has that first byte */
} matcher;

/* The text of an id when it is decoded. */
typedef struct decoded {
    int32_t id;
    int skip; /* with special tokens */
    span text;
} decoded;

struct danaus_tokenizer {
    normalizer *normalizers;
    size_t normalizer_count, normalizer_capacity;
    pre_tokenizer *pre_tokenizers;
    size_t pre_tokenizer_count, pre_tokenizer_capacity;

    vocabulary words;
    int32_t unknown; /* id; -1: there is none */
    model model;

    vocabulary added_texts; /* in the order of `added` */
    added_token *added;
    size_t added_count, added_capacity;
    size_t new_count; /* of these that are no words */
    matcher as_is, normalized;

    int32_t *around; /* the template: `before` ids, then `after` */
    size_t before, after, around_capacity;
    int keep_end; /* of a text that is too long, not its beginning */

    decoded *decoded; /* of each id that there is, in order */
    size_t decoded_count;
    decode_step *decode_steps;
    size_t decode_count, decode_capacity;
};

/* Ids in the making. */
typedef struct encoding {
    const danaus_tokenizer *tokenizer;
    int32_t *ids;
    size_t count, capacity;
    size_t most; /* more ids than these are not needed */
    span whole;  /* the text */
    normal_text normal;
    const char *start; /* of the part with which the text begins; NULL: another part */
    growing *parts;    /* of each pre-tokenizer */
    model_work work;
} encoding;

danaus_status dn_put_id(encoding *e, int32_t id);

/* Puts the unknown token. `what` was found, if there is none. */
danaus_status dn_put_unknown(encoding *e, span what);

danaus_status dn_matcher_add(matcher *m, span string, int32_t token);
void dn_matcher_free(matcher *m);

/* Puts the ids of the tokens found, and calls `between` with the text between them. */
typedef danaus_status between_fn(encoding *e, span part);
danaus_status dn_match(encoding *e, const matcher *m, span string, between_fn *between);

/* The files: bytes of tokenizer.json, or of vocab.txt and tokenizer_config.json, or of
   tokenizer_config.json alone, where characters are tokens. *in_words: 1 if the error is in
   vocab.txt. */
danaus_status dn_tokenizer_read(span json, danaus_tokenizer **tokenizer);
danaus_status dn_tokenizer_read_words(
    span words, span config, danaus_tokenizer **tokenizer, int *in_words);
danaus_status dn_tokenizer_read_characters(span config, danaus_tokenizer **tokenizer);

/* Steps of making one from files (build.c); normalizers, pre-tokenizers and the model with
   all words come first, then tokens, the template, and the end. Spans are copied. */
danaus_tokenizer *dn_tokenizer_new(void); /* NULL if there is no memory */

/* The new one, of zeros. */
danaus_status dn_add_normalizer(danaus_tokenizer *t, normalizer **n);
danaus_status dn_add_pre_tokenizer(danaus_tokenizer *t, pre_tokenizer **p);
danaus_status dn_add_decode_step(danaus_tokenizer *t, decode_step **d);

danaus_status dn_add_word(danaus_tokenizer *t, span word, int32_t id);
int32_t dn_find_id(const danaus_tokenizer *t, span token); /* -1: there is none */
const decoded *dn_decoded(const danaus_tokenizer *t, int32_t id); /* NULL likewise */

/* Makes that word the unknown token. */
danaus_status dn_set_unknown(danaus_tokenizer *t, span word);

/* A token that is no word gets the next id; token->id is the id in the file. */
danaus_status dn_add_token(danaus_tokenizer *t, span string, const added_token *token);
danaus_status dn_add_before(danaus_tokenizer *t, int32_t id);
danaus_status dn_add_after(danaus_tokenizer *t, int32_t id);
danaus_status dn_finish_tokenizer(danaus_tokenizer *t);

#endif
