/* A text that grows. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_TOKENS_GROWING_H
#define DN_TOKENS_GROWING_H

#include "base/mem.h"
#include "base/text.h"
#include "danaus/base.h"

#include <string.h>

typedef struct growing {
    char *text;
    size_t length, capacity;
} growing;

static inline span growing_span(const growing *g)
{
    return (span){ g->text, g->length };
}

static inline danaus_status dn_growing_reserve(growing *g, size_t more)
{
    return dn_reserve_many(&g->text, g->length, more, &g->capacity, 1, "text");
}

static inline danaus_status dn_growing_add(growing *g, span more)
{
    danaus_status status = dn_growing_reserve(g, more.length);
    if (status != DANAUS_OK)
        return status;
    if (more.length)
        memcpy(g->text + g->length, more.text, more.length);
    g->length += more.length;
    return DANAUS_OK;
}

/* string[from .. to) */
static inline span span_cut(span string, size_t from, size_t to)
{
    return (span){ string.text ? string.text + from : NULL, to - from };
}

#endif
