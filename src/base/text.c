/* Text: a bounded writer, and pieces of text that is being read. */
// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void dn_text(text *t, const char *format, ...)
{
    size_t used = t->length < t->size ? t->length : t->size;
    va_list args;
    va_start(args, format);
    int n =
        vsnprintf(used < t->size ? t->to + used : NULL, t->size - used, format, args);
    va_end(args);
    t->length += n > 0 ? (size_t)n : 0;
}

int dn_span_is(span s, const char *words)
{
    return s.length == strlen(words) && !memcmp(s.text, words, s.length);
}

int dn_span_integer(span s, int64_t *value)
{
    int64_t n = 0;
    for (size_t i = 0; i < s.length; i++)
        if (s.text[i] < '0' || s.text[i] > '9' || __builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, s.text[i] - '0', &n))
            return 0;
    *value = n;
    return s.length > 0;
}
