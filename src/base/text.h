/* A bounded writer of text: counts what does not fit, like snprintf. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_TEXT_H
#define DN_BASE_TEXT_H

#include <stddef.h>

typedef struct text {
    char *to;      /* may be NULL when size is 0 */
    size_t size;   /* bytes that `to` has */
    size_t length; /* of the whole text, without its end */
} text;

void dn_text(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
