/* The inside of a tokenizer: how text becomes ids, in the reference's order.

   1. Added tokens that are not `normalized` are found in the original text (match.c).
   2. The text between them is normalized (normalize.c), and added tokens that are `normalized`
      are found in it.
   3. The text between these is cut into words, and words into pieces (wordpiece.c).
      A tokenizer of characters skips these two steps, and every character is a token
      (characters.c).
   4. Ids beyond the greatest length are cut off, and the template's ids are put around. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_TOKENS_TOKENS_H
#define DN_TOKENS_TOKENS_H

#include "danaus/tokenizer.h"
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

/* How BERT's text is normalized. */
typedef struct normalizer {
    int clean, chinese, strip_accents, lower;
} normalizer;

/* A text that grows. */
typedef struct growing {
    char *text;
    size_t length, capacity;
} growing;

/* The text of an id when it is decoded. */
typedef struct decoded {
    int32_t id;
    int skip; /* with special tokens */
    span text;
} decoded;

struct danaus_tokenizer {
    vocabulary words;
    int characters;       /* nonzero: they are the words */
    int32_t unknown;      /* id */
    int64_t longest_word; /* in code points; a longer one is unknown */
    growing prefix;       /* of pieces within a word: "##" */
    uint64_t prefix_hash;
    normalizer normalizer;

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
    growing decoder_prefix;
    int cleanup;
};

/* Ids in the making. */
typedef struct encoding {
    const danaus_tokenizer *tokenizer;
    int32_t *ids;
    size_t count, capacity;
    size_t most;               /* more ids than these are not needed */
    growing normal;            /* a part of the text, normalized */
    struct word_piece *pieces; /* room for the beginnings of a word */
} encoding;

static inline span growing_span(const growing *g)
{
    return (span){ g->text, g->length };
}

danaus_status dn_growing_add(growing *g, span more);

danaus_status dn_put_id(encoding *e, int32_t id);

/* Appends the normalized text. */
danaus_status dn_normalize(const normalizer *n, span string, growing *to);

danaus_status dn_matcher_add(matcher *m, span string, int32_t token);
void dn_matcher_free(matcher *m);

/* Puts the ids of the tokens found, and calls `between` with the text between them. */
typedef danaus_status between_fn(encoding *e, span part);
danaus_status dn_match(encoding *e, const matcher *m, span string, between_fn *between);

/* Puts the ids of normalized text, or of text whose characters are tokens. */
danaus_status dn_put_words(encoding *e, span string);
danaus_status dn_put_characters(encoding *e, span string);

/* The files: bytes of tokenizer.json, or of vocab.txt and tokenizer_config.json, or of
   tokenizer_config.json alone, where characters are tokens. *in_words: 1 if the error is in
   vocab.txt. */
danaus_status dn_tokenizer_read(span json, danaus_tokenizer **tokenizer);
danaus_status dn_tokenizer_read_words(
    span words, span config, danaus_tokenizer **tokenizer, int *in_words);
danaus_status dn_tokenizer_read_characters(span config, danaus_tokenizer **tokenizer);

/* Steps of making one from files (build.c); the normalizer, the prefixes and all words come
   first, then tokens, the template, and the end. Spans are copied. */
danaus_status dn_add_word(danaus_tokenizer *t, span word, int32_t id);
int32_t dn_find_id(const danaus_tokenizer *t, span token); /* -1: there is none */
const decoded *dn_decoded(const danaus_tokenizer *t, int32_t id); /* NULL likewise */

/* A token that is no word gets the next id; token->id is the id in the file. */
danaus_status dn_add_token(danaus_tokenizer *t, span string, const added_token *token);
danaus_status dn_add_before(danaus_tokenizer *t, int32_t id);
danaus_status dn_add_after(danaus_tokenizer *t, int32_t id);
danaus_status dn_finish_tokenizer(danaus_tokenizer *t, span unknown);

#endif
