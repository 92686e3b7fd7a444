/* Tokenizers of a vocabulary of a few words, as files, and what ids they make. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_TOKENIZERS_H
#define TEST_SUPPORT_TOKENIZERS_H

#include "base/text.h"
#include "danaus/tokenizer.h"

/* What a tokenizer.json has; NULL: as in `usual`. */
typedef struct parts {
    const char *words, *added, *normalizer, *template, *model, *decoder, *more;
} parts;

#define TOKEN(text, id, flags) "{\"id\":" #id ",\"content\":\"" text "\"," flags "}"
#define PLAIN                                                                          \
    "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"    \
    "\"special\":true"
#define CASED                                                                          \
    "{\"type\":\"BertNormalizer\",\"clean_text\":false,\"handle_chinese_chars\":"      \
    "false,"                                                                           \
    "\"strip_accents\":null,\"lowercase\":false}"

#define FLAGS(word, left, right, normal, special)                                      \
    "\"single_word\":" #word ",\"lstrip\":" #left ",\"rstrip\":" #right                \
    ",\"normalized\":" #normal ",\"special\":" #special

extern const parts usual_parts;

span span_of(const char *words);
const char *json_of(parts p); /* until the next call */
danaus_tokenizer *tokenizer_of(parts p);

/* Reads a tokenizer.json, the argument, and makes ids of a text and a text of these. */
danaus_status tokenizer_load_and_use(void *json);

/* Fails unless the ids, with spaces between, are these. */
void expect_most(
    const danaus_tokenizer *t, const char *string, size_t length, int64_t most,
    const char *expected);

/* Checks the ids of a string by a tokenizer that is made of these parts. */
void expect_ids(parts p, const char *string, const char *expected);

#endif
