/* Steps that change a part of the text and hand it on as a whole. */
// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"
#include "tokens/byte_letters.h"
#include "tokens/letters.h"
#include "tokens/tokens.h"

/* Hands on what a step has made of a part; it begins where the part does. */
static danaus_status put_changed(encoding *e, size_t step, span part)
{
    span changed = growing_span(&e->parts[step]);
    if (e->start && e->start == part.text)
        e->start = changed.text;
    return dn_put_part(e, step + 1, changed);
}

static int begins_with(span string, const char *letter, size_t length)
{
    return string.length >= length && !memcmp(string.text, letter, length);
}

danaus_status dn_mark_spaces(encoding *e, size_t step, span part)
{
    const pre_tokenizer *p = &e->tokenizer->pre_tokenizers[step];
    growing *to = &e->parts[step];
    char mark[LETTER_BYTES];
    size_t length = dn_put_letter(p->space, mark);
    int may = p->scheme == PREPEND_ALWAYS ||
              (p->scheme == PREPEND_FIRST && e->start && e->start == part.text);
    to->length = 0;
    if (may && part.text[0] != ' ' && !begins_with(part, mark, length))
        TRY(dn_growing_add(to, (span){ mark, length }));
    for (size_t at = 0; at < part.length;) {
        const char *space = memchr(part.text + at, ' ', part.length - at);
        size_t end = space ? (size_t)(space - part.text) : part.length;
        TRY(dn_growing_add(to, span_cut(part, at, end)));
        if (space)
            TRY(dn_growing_add(to, (span){ mark, length }));
        at = end + 1;
    }
    return put_changed(e, step, part);
}

danaus_status dn_begin_with_space(encoding *e, size_t step, span part)
{
    growing *to = &e->parts[step];
    if (part.text[0] == ' ')
        return dn_put_part(e, step + 1, part);
    to->length = 0;
    TRY(dn_growing_add(to, (span){ " ", 1 }));
    TRY(dn_growing_add(to, part));
    return put_changed(e, step, part);
}

danaus_status dn_put_bytes(encoding *e, size_t step, span part)
{
    e->parts[step].length = 0;
    TRY(dn_put_byte_letters(part, &e->parts[step]));
    return put_changed(e, step, part);
}
