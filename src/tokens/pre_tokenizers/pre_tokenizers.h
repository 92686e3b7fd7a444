/* Pre-tokenizers: the steps that cut normalized text into words. Each step gets a part of the
   text and hands parts of it, or what it makes of them, to the next step; the model comes
   after the last one. A kind of tokenizer.json may be several steps. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_TOKENS_PRE_TOKENIZERS_H
#define DN_TOKENS_PRE_TOKENIZERS_H

#include "base/text.h"
#include "danaus/base.h"
#include "tokens/pre_tokenizers/pattern.h"

#include <stdint.h>

struct encoding;

typedef danaus_status pre_tokenize_fn(struct encoding *e, size_t step, span part);

typedef enum prepend_scheme {
    PREPEND_ALWAYS,
    PREPEND_FIRST,
    PREPEND_NEVER
} prepend_scheme;

typedef struct pre_tokenizer {
    pre_tokenize_fn *run;
    int32_t space; /* Metaspace: the letter that stands for a space */
    prepend_scheme scheme;
    word_pattern pattern;
} pre_tokenizer;

/* Hands a part, if it is not empty, to a step, or to the model behind the last step. */
danaus_status dn_put_part(struct encoding *e, size_t step, span part);

pre_tokenize_fn dn_split_bert;   /* at spaces, and punctuation alone */
pre_tokenize_fn dn_split_spaces; /* at spaces */
pre_tokenize_fn dn_split_words;  /* letters of words and others apart, at spaces */
pre_tokenize_fn dn_mark_spaces;  /* Metaspace: spaces become its letter */
pre_tokenize_fn dn_split_marked; /* Metaspace: before each of its letters */
pre_tokenize_fn dn_begin_with_space;
pre_tokenize_fn dn_split_pattern;
pre_tokenize_fn dn_put_bytes; /* each byte becomes a letter */

#endif
