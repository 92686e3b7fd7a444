/* Unicode's normalization forms: NFD and NFKD decompose, NFC and NFKC also compose.

   A letter of combining class 0, the starter, waits with the marks behind it. Composition joins
   a mark to the starter, unless a mark before it that stayed has its class or a higher one;
   and the next starter, if no mark stayed. */
// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "base/status.h"
#include "tokens/letters.h"
#include "tokens/normalizers/marks.h"
#include "tokens/normalizers/normalizers.h"

#define NONE (-1)

typedef struct unicode_work {
    growing *to;
    int compose;
    int32_t starter; /* NONE at the beginning */
    mark_row marks;  /* behind it, not yet in order */
    growing stayed;  /* text of those that are not joined to it */
    int last;        /* class of the last that stayed; 0: none did */
} unicode_work;

/* True if the letter is joined to the starter. */
static int joins(unicode_work *w, int32_t c, int order)
{
    if (!w->compose || w->starter == NONE || (w->last && w->last >= order))
        return 0;
    int32_t both = dn_compose(w->starter, c);
    if (both >= 0)
        w->starter = both;
    return both >= 0;
}

static danaus_status put_mark(void *arg, waiting_mark mark)
{
    unicode_work *w = arg;
    if (joins(w, mark.c, mark.order))
        return DANAUS_OK;
    w->last = mark.order;
    return dn_add_letter(&w->stayed, mark.c);
}

/* Puts the starter with its marks, all in order. */
static danaus_status put_waiting(unicode_work *w)
{
    if (w->starter != NONE)
        TRY(dn_add_letter(w->to, w->starter));
    TRY(dn_growing_add(w->to, growing_span(&w->stayed)));
    w->starter = NONE;
    w->stayed.length = 0;
    w->last = 0;
    return DANAUS_OK;
}

static danaus_status put_part(unicode_work *w, int32_t c)
{
    int order = dn_combining_class(c);
    if (order)
        return dn_marks_add(&w->marks, c, order);
    TRY(dn_marks_put(&w->marks, put_mark, w));
    if (joins(w, c, order))
        return DANAUS_OK;
    TRY(put_waiting(w));
    w->starter = c;
    return DANAUS_OK;
}

static danaus_status normalize(unicode_work *w, int compatibility, span string)
{
    int32_t parts[LETTER_PARTS];
    for (size_t at = 0; at < string.length;) {
        unsigned char byte = (unsigned char)string.text[at];
        int32_t c = byte < 0x80 ? (at++, byte) : dn_letter(string, &at);
        parts[0] = c;
        int count = c < 0x80 ? 1 : dn_decompose(c, compatibility, parts);
        for (int i = 0; i < count; i++)
            TRY(put_part(w, parts[i]));
    }
    TRY(dn_marks_put(&w->marks, put_mark, w));
    return put_waiting(w);
}

danaus_status dn_normalize_unicode(
    const normalizer *n, span string, growing *to, int *moved)
{
    (void)moved;
    unicode_work w = { .to = to, .compose = n->compose, .starter = NONE };
    size_t ascii = 0;
    while (ascii < string.length && (unsigned char)string.text[ascii] < 0x80)
        ascii++;
    /* The last one may have a mark behind it. */
    ascii -= ascii > 0 && ascii < string.length;
    danaus_status status = dn_growing_add(to, span_cut(string, 0, ascii));
    if (status == DANAUS_OK)
        status =
            normalize(&w, n->compatibility, span_cut(string, ascii, string.length));
    dn_free(w.marks.marks);
    dn_free(w.stayed.text);
    return status;
}
