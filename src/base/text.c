/* Text: a bounded writer, and spans of text to read. */
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

span dn_next_line(span *rest)
{
    span line = { rest->text, 0 };
    while (line.length < rest->length && line.text[line.length] != '\n' &&
           line.text[line.length] != '\r')
        line.length++;
    size_t used = line.length + (line.length < rest->length);
    if (used < rest->length && line.text[used - 1] == '\r' && line.text[used] == '\n')
        used++;
    *rest = (span){ rest->text + used, rest->length - used };
    return line;
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
