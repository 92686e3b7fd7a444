/* Code points as the reference, the package `tokenizers`, sees them. Unicode's properties come
   from utf8proc, except those newer than the reference's tables (letters.def). */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_TOKENS_LETTERS_H
#define DN_TOKENS_LETTERS_H

#include "base/text.h"

#include <stddef.h>
#include <stdint.h>

#define LETTER_BYTES 4  /* at most, of one code point in UTF-8 */
#define LETTER_PARTS 18 /* at most, of one that is decomposed */

/* The code point at byte `at`, which is moved behind it, of text that is UTF-8. */
int32_t dn_letter(span string, size_t *at);
int32_t dn_letter_before(span string, size_t at);
size_t dn_put_letter(int32_t c, char *to); /* returns its bytes */

/* The first byte that is not UTF-8, or the length of the text. */
size_t dn_utf8_length(span string);

int dn_is_space(int32_t c);
int dn_is_control(int32_t c); /* removed from text; tabs and ends of lines are not */
int dn_is_chinese(int32_t c); /* a word of its own */
int dn_is_punctuation(int32_t c);
int dn_is_mark(int32_t c);   /* an accent */
int dn_is_accent(int32_t c); /* that StripAccents removes: any mark */
int dn_is_word(int32_t c);   /* \w of regular expressions */
int dn_is_letter(int32_t c); /* \p{L} of these */
int dn_is_number(int32_t c); /* \p{N} */

/* Byte behind what is one character for a reader (an extended grapheme cluster) at `at`. */
size_t dn_cluster_end(span string, size_t at);

/* Canonical, or also for compatibility: at most LETTER_PARTS code points; returns how many. */
int dn_decompose(int32_t c, int compatibility, int32_t *parts);
int dn_combining_class(int32_t c);

/* What both together are; -1 if they are none. */
int32_t dn_compose(int32_t c, int32_t next);

/* Lower case; returns the number of code points, which is two for U+0130 alone. */
int dn_lower(int32_t c, int32_t lower[2]);

#endif
