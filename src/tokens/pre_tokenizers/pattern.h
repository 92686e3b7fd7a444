/* Patterns that cut text into words, as tokenizers of byte-level BPE write them: regular
   expressions of which the letters' case, numbers and ends of lines are the only differences. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_TOKENS_PATTERN_H
#define DN_TOKENS_PATTERN_H

#include "base/text.h"

typedef struct word_pattern {
    int is_gpt2; /* a space may begin a word; else any one letter that is no number
                          and ends no line may begin one of letters */
    size_t most_digits; /* of a word of numbers, without a space; GPT-2: any number */
} word_pattern;

extern const word_pattern dn_gpt2_pattern;

/* The pattern of a regular expression; 0: it is none of those known. */
int dn_find_pattern(span expression, word_pattern *pattern);

/* The end of the word at `at`, which is before the end of the text. */
size_t dn_pattern_end(const word_pattern *pattern, span string, size_t at);

#endif
