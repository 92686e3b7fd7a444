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
#include "base/status.h"
#include "tokens/letters.h"
#include "tokens/normalizers/marks.h"
#include "tokens/normalizers/normalizers.h"

/* Most bytes that a code point becomes: its parts in lower case, with two spaces. */
#define MOST_BYTES (2 + 2 * LETTER_PARTS * LETTER_BYTES)

typedef struct bert_text {
    const normalizer *how;
    growing *to;
    mark_row marks;
} bert_text;

/* There is room for it. */
static void put(bert_text *w, int32_t c)
{
    int32_t lower[2] = { c };
    int count = w->how->bert.lower ? dn_lower(c, lower) : 1;
    for (int i = 0; i < count; i++)
        w->to->length += dn_put_letter(lower[i], w->to->text + w->to->length);
}

static danaus_status put_mark(void *arg, waiting_mark mark)
{
    put(arg, mark.c);
    return DANAUS_OK;
}

static danaus_status put_marks(bert_text *w)
{
    TRY(dn_growing_reserve(w->to, w->marks.count * 2 * LETTER_BYTES + MOST_BYTES));
    return dn_marks_put(&w->marks, put_mark, w);
}

static danaus_status put_part(bert_text *w, int32_t c)
{
    int order = dn_combining_class(c);
    if (order == 0 && w->marks.count)
        TRY(put_marks(w));
    if (dn_is_mark(c))
        return DANAUS_OK;
    if (order != 0)
        return dn_marks_add(&w->marks, c, order);
    put(w, c);
    return DANAUS_OK;
}

static danaus_status put_letter(bert_text *w, int32_t c)
{
    int32_t parts[LETTER_PARTS];
    if (!w->how->bert.strip_accents) {
        put(w, c);
        return DANAUS_OK;
    }
    int count = dn_decompose(c, 0, parts);
    for (int i = 0; i < count; i++)
        TRY(put_part(w, parts[i]));
    return DANAUS_OK;
}

static danaus_status put_cleaned(bert_text *w, int32_t c)
{
    const normalizer *how = w->how;
    if (how->bert.clean && (c == 0 || dn_is_control(c)))
        return DANAUS_OK;
    if (how->bert.clean && dn_is_space(c))
        c = ' ';
    if (!how->bert.chinese || !dn_is_chinese(c))
        return put_letter(w, c);
    TRY(put_letter(w, ' '));
    TRY(put_letter(w, c));
    return put_letter(w, ' ');
}

/* Printable ASCII characters in a row need none of this; returns how many. */
static size_t put_ascii(bert_text *w, span string, size_t at)
{
    size_t from = at;
    int lower = w->how->bert.lower;
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

static danaus_status normalize(bert_text *w, span string)
{
    for (size_t at = 0; at < string.length;) {
        if (w->marks.count == 0) {
            TRY(dn_growing_reserve(w->to, string.length - at + MOST_BYTES));
            at += put_ascii(w, string, at);
        }
        if (at < string.length) {
            TRY(dn_growing_reserve(w->to, MOST_BYTES));
            TRY(put_cleaned(w, dn_letter(string, &at)));
        }
    }
    return w->marks.count ? put_marks(w) : DANAUS_OK;
}

danaus_status dn_normalize_bert(
    const normalizer *n, span string, growing *to, int *moved)
{
    bert_text w = { .how = n, .to = to };
    size_t first = 0;
    if (n->bert.clean && string.length) {
        int32_t c = dn_letter(string, &first);
        *moved |= c == 0 || dn_is_control(c);
    }
    danaus_status status = normalize(&w, string);
    dn_free(w.marks.marks);
    return status;
}
