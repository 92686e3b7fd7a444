/* Normalizers: the steps that change text before it is cut into words. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_TOKENS_NORMALIZERS_H
#define DN_TOKENS_NORMALIZERS_H

#include "tokens/normalizers/charsmap.h"
#include "tokens/growing.h"

typedef struct normalizer normalizer;

/* Appends the normalized text. *moved is set if letters at the beginning are left out: the
   text then begins behind its beginning, which Metaspace may ask. */
typedef danaus_status normalize_fn(
    const normalizer *n, span string, growing *to, int *moved);

/* What Replace looks for: a text, or one letter, or any space, `least` times or more. */
typedef struct replaced {
    growing text;   /* empty: letters in a row */
    int32_t letter; /* -1: any space */
    size_t least;
} replaced;

struct normalizer {
    normalize_fn *run;
    struct {
        int clean, chinese, strip_accents, lower;
    } bert;
    int compatibility, compose; /* of Unicode's forms */
    int left, right;            /* which ends Strip strips */
    replaced replaced;
    growing content; /* what Replace and Prepend put */
    charsmap map;
};

/* normalize_bert.c, normalize_unicode.c, normalize_charsmap.c, normalize_letters.c */
normalize_fn dn_normalize_bert, dn_normalize_unicode, dn_normalize_charsmap;
normalize_fn dn_normalize_lower, dn_normalize_accents, dn_normalize_nmt;
normalize_fn dn_normalize_strip, dn_normalize_replace, dn_normalize_prepend;
normalize_fn dn_normalize_bytes;

danaus_status dn_add_letter(growing *to, int32_t c);

void dn_normalizer_free(normalizer *n);

/* Results of steps take turns in two texts. */
typedef struct normal_text {
    growing texts[2];
    int moved;
} normal_text;

void dn_normal_text_free(normal_text *n);

/* *normal is the text after all steps: it is in `to`, or the string itself without steps. */
danaus_status dn_normalize(
    const normalizer *steps, size_t count, span string, normal_text *to, span *normal);

#endif
