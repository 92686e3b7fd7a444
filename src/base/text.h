/* Text: a bounded writer that counts what does not fit, like snprintf, and spans of text to
   read. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_TEXT_H
#define DN_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>

typedef struct text {
    char *to;      /* may be NULL when size is 0 */
    size_t size;   /* bytes that `to` has */
    size_t length; /* of the whole text, without its end */
} text;

void dn_text(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A piece of text; no NUL ends it. */
typedef struct span {
    const char *text;
    size_t length;
} span;

int dn_span_is(span s, const char *words);

/* The line that text begins with, without its end: LF, CR LF or CR. *rest goes behind it. */
span dn_next_line(span *rest);

/* A decimal integer of digits alone that fits in 63 bits; 0 if it is none. */
int dn_span_integer(span s, int64_t *value);

#endif
