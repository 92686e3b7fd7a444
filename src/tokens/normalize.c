/* BERT's normalization of text, one code point after the other:

   - clean: control characters are removed, and spaces of all kinds become ' ';
   - chinese: a space is put on both sides of a Chinese character;
   - strip_accents: canonical decomposition, and marks are removed;
   - lower: lower case.

   Marks that stay are put in the order of their combining classes, as decomposition
   requires: marks in a row wait until a code point of class 0 comes. Removed marks of class 0
   end such a row too. */
// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "tokens/letters.h"
#include "tokens/tokens.h"

#include <limits.h>
#include <string.h>

/* Most bytes that a code point becomes: its parts in lower case, with two spaces. */
#define MOST_BYTES (2 + 2 * LETTER_PARTS * LETTER_BYTES)

typedef struct waiting_mark {
    int32_t c;
    int order; /* its combining class */
} waiting_mark;

typedef struct normal_work {
    const normalizer *how;
    growing *to;
    waiting_mark *marks;
    size_t mark_count, mark_capacity;
} normal_work;

static danaus_status reserve(growing *g, size_t bytes)
{
    return dn_reserve_many(
        &g->text, g->length, bytes, &g->capacity, 1, "normalized text");
}

danaus_status dn_growing_add(growing *g, span more)
{
    TRY(reserve(g, more.length));
    if (more.length)
        memcpy(g->text + g->length, more.text, more.length);
    g->length += more.length;
    return DANAUS_OK;
}

/* There is room for it. */
static void put(normal_work *w, int32_t c)
{
    int32_t lower[2] = { c };
    int count = w->how->lower ? dn_lower(c, lower) : 1;
    for (int i = 0; i < count; i++)
        w->to->length += dn_put_letter(lower[i], w->to->text + w->to->length);
}

/* Puts marks in the order of their classes; marks of one class stay in their order. */
static danaus_status put_marks(normal_work *w)
{
    TRY(reserve(w->to, w->mark_count * 2 * LETTER_BYTES + MOST_BYTES));
    size_t left = w->mark_count;
    for (int last = 0; left > 0;) {
        int next = INT_MAX;
        for (size_t i = 0; i < w->mark_count; i++)
            if (w->marks[i].order > last)
                next = MIN(next, w->marks[i].order);
        for (size_t i = 0; i < w->mark_count; i++)
            if (w->marks[i].order == next) {
                put(w, w->marks[i].c);
                left--;
            }
        last = next;
    }
    w->mark_count = 0;
    return DANAUS_OK;
}

static danaus_status put_part(normal_work *w, int32_t c)
{
    int order = dn_combining_class(c);
    if (order == 0 && w->mark_count)
        TRY(put_marks(w));
    if (dn_is_mark(c))
        return DANAUS_OK;
    if (order == 0) {
        put(w, c);
        return DANAUS_OK;
    }
    TRY(dn_reserve(
        &w->marks, w->mark_count, &w->mark_capacity, sizeof *w->marks, "marks"));
    w->marks[w->mark_count++] = (waiting_mark){ c, order };
    return DANAUS_OK;
}

static danaus_status put_letter(normal_work *w, int32_t c)
{
    int32_t parts[LETTER_PARTS];
    if (!w->how->strip_accents) {
        put(w, c);
        return DANAUS_OK;
    }
    int count = dn_decompose(c, parts);
    for (int i = 0; i < count; i++)
        TRY(put_part(w, parts[i]));
    return DANAUS_OK;
}

static danaus_status put_cleaned(normal_work *w, int32_t c)
{
    const normalizer *how = w->how;
    if (how->clean && (c == 0 || dn_is_control(c)))
        return DANAUS_OK;
    if (how->clean && dn_is_space(c))
        c = ' ';
    if (!how->chinese || !dn_is_chinese(c))
        return put_letter(w, c);
    TRY(put_letter(w, ' '));
    TRY(put_letter(w, c));
    return put_letter(w, ' ');
}

/* Printable ASCII characters in a row need none of this; returns how many. */
static size_t put_ascii(normal_work *w, span string, size_t at)
{
    size_t from = at;
    int lower = w->how->lower;
    char *to = w->to->text + w->to->length;
    for (; at < string.length; at++) {
        unsigned char c = (unsigned char)string.text[at];
        if (c < ' ' || c >= 127)
            break;
        *to++ = (char)(lower && c >= 'A' && c <= 'Z' ? c | ' ' : c);
    }
    w->to->length += at - from;
    return at - from;
}

static danaus_status normalize(normal_work *w, span string)
{
    for (size_t at = 0; at < string.length;) {
        if (w->mark_count == 0) {
            TRY(reserve(w->to, string.length - at + MOST_BYTES));
            at += put_ascii(w, string, at);
        }
        if (at < string.length) {
            TRY(reserve(w->to, MOST_BYTES));
            TRY(put_cleaned(w, dn_letter(string, &at)));
        }
    }
    return w->mark_count ? put_marks(w) : DANAUS_OK;
}

danaus_status dn_normalize(const normalizer *n, span string, growing *to)
{
    normal_work w = { .how = n, .to = to };
    danaus_status status = normalize(&w, string);
    dn_free(w.marks);
    return status;
}
