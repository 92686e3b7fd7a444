/* A bounded writer of text. */
// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>

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
