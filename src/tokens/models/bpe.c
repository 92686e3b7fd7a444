/* Byte pair encoding (Sennrich, Haddow, Birch, ACL 2016, arXiv 1508.07909): the letters of a
   word are its first symbols. Of all pairs of neighbours the one of least rank is merged, the
   first one of equals, until no pair has a merge. Possible merges wait in a heap: n letters
   take n log n steps. */
// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "base/status.h"
#include "tokens/letters.h"
#include "tokens/tokens.h"

#define NONE SIZE_MAX

/* A part of the word, between its neighbours. */
struct symbol {
    int32_t id;            /* -1: merged into the one before */
    size_t before, behind; /* NONE: there is none */
};

/* A merge of a symbol with the one behind it; either may have changed meanwhile. */
struct possible_merge {
    uint32_t rank;
    int32_t both;
    size_t left;
};

/* ---- the heap ---- */

static int is_before(struct possible_merge a, struct possible_merge b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.left < b.left;
}

static danaus_status heap_add(model_work *w, struct possible_merge added)
{
    TRY(dn_reserve(
        &w->heap, w->heap_count, &w->heap_capacity, sizeof *w->heap, "merges"));
    size_t at = w->heap_count++;
    for (size_t above; at > 0; at = above) {
        above = (at - 1) / 2;
        if (!is_before(added, w->heap[above]))
            break;
        w->heap[at] = w->heap[above];
    }
    w->heap[at] = added;
    return DANAUS_OK;
}

static struct possible_merge heap_take(model_work *w)
{
    struct possible_merge first = w->heap[0], last = w->heap[--w->heap_count];
    size_t at = 0;
    for (size_t below; (below = 2 * at + 1) < w->heap_count; at = below) {
        if (below + 1 < w->heap_count && is_before(w->heap[below + 1], w->heap[below]))
            below++;
        if (!is_before(w->heap[below], last))
            break;
        w->heap[at] = w->heap[below];
    }
    w->heap[at] = last;
    return first;
}

/* ---- symbols ---- */

static danaus_status add_symbol(model_work *w, int32_t id)
{
    TRY(dn_reserve(
        &w->symbols, w->symbol_count, &w->symbol_capacity, sizeof *w->symbols,
        "symbols"));
    size_t at = w->symbol_count++;
    w->symbols[at] = (struct symbol){ id, at ? at - 1 : NONE, NONE };
    if (at)
        w->symbols[at - 1].behind = at;
    return DANAUS_OK;
}

/* The letter as the vocabulary has it: with the prefix within a word, the suffix at its end. */
static danaus_status affixed(encoding *e, span *letter, int is_first, int is_last)
{
    const model *m = &e->tokenizer->model;
    growing *to = &e->work.text;
    int has_prefix = !is_first && m->prefix.length,
        has_suffix = is_last && m->suffix.length;
    if (!has_prefix && !has_suffix)
        return DANAUS_OK;
    to->length = 0;
    if (has_prefix)
        TRY(dn_growing_add(to, growing_span(&m->prefix)));
    TRY(dn_growing_add(to, *letter));
    if (has_suffix)
        TRY(dn_growing_add(to, growing_span(&m->suffix)));
    *letter = growing_span(to);
    return DANAUS_OK;
}

/* True if the letter's bytes became symbols. */
static danaus_status add_bytes(encoding *e, span letter, int *has_bytes)
{
    const model *m = &e->tokenizer->model;
    *has_bytes = m->byte_fallback;
    for (size_t i = 0; i < letter.length && *has_bytes; i++)
        *has_bytes = m->bytes[(unsigned char)letter.text[i]] >= 0;
    for (size_t i = 0; i < letter.length && *has_bytes; i++)
        TRY(add_symbol(&e->work, m->bytes[(unsigned char)letter.text[i]]));
    return DANAUS_OK;
}

static danaus_status add_waiting(encoding *e, int *waits)
{
    if (*waits)
        TRY(add_symbol(&e->work, e->tokenizer->unknown));
    *waits = 0;
    return DANAUS_OK;
}

/* Adds a letter. *waits: an unknown symbol is added before the next known one; those that a
   model fuses are one, and bytes come before it, as in the reference. */
static danaus_status add_letter(encoding *e, span letter, int *waits)
{
    const danaus_tokenizer *t = e->tokenizer;
    const vocabulary_word *found = dn_vocabulary_find_word(&t->words, letter);
    int has_bytes;
    if (found) {
        TRY(add_waiting(e, waits));
        return add_symbol(&e->work, found->id);
    }
    TRY(add_bytes(e, letter, &has_bytes));
    if (has_bytes || t->model.skips_unknown)
        return DANAUS_OK;
    if (t->unknown < 0)
        return dn_put_unknown(e, letter);
    if (!t->model.fuse_unknown)
        TRY(add_waiting(e, waits));
    *waits = 1;
    return DANAUS_OK;
}

static danaus_status add_letters(encoding *e, span word)
{
    int waits = 0;
    e->work.symbol_count = 0;
    for (size_t at = 0; at < word.length;) {
        size_t from = at;
        dn_letter(word, &at);
        span letter = span_cut(word, from, at);
        TRY(affixed(e, &letter, from == 0, at == word.length));
        TRY(add_letter(e, letter, &waits));
    }
    return add_waiting(e, &waits);
}

/* ---- merging ---- */

static danaus_status add_possible(encoding *e, size_t left)
{
    const struct symbol *s = e->work.symbols;
    size_t right = left == NONE ? NONE : s[left].behind;
    if (right == NONE)
        return DANAUS_OK;
    const merge *found =
        dn_find_merge(&e->tokenizer->model.merges, s[left].id, s[right].id);
    if (!found)
        return DANAUS_OK;
    return heap_add(
        &e->work, (struct possible_merge){ found->rank, found->both, left });
}

static danaus_status merge_all(encoding *e)
{
    struct symbol *s = e->work.symbols;
    e->work.heap_count = 0;
    for (size_t i = 0; i + 1 < e->work.symbol_count; i++)
        TRY(add_possible(e, i));
    while (e->work.heap_count > 0) {
        struct possible_merge next = heap_take(&e->work);
        size_t left = next.left, right = s[left].behind;
        if (s[left].id < 0 || right == NONE)
            continue;
        const merge *now =
            dn_find_merge(&e->tokenizer->model.merges, s[left].id, s[right].id);
        if (!now || now->both != next.both)
            continue;
        s[left].id = next.both;
        s[left].behind = s[right].behind;
        s[right].id = -1;
        if (s[left].behind != NONE)
            s[s[left].behind].before = left;
        TRY(add_possible(e, s[left].before));
        TRY(add_possible(e, left));
    }
    return DANAUS_OK;
}

danaus_status dn_put_bpe(encoding *e, span word)
{
    const danaus_tokenizer *t = e->tokenizer;
    const vocabulary_word *whole =
        t->model.ignore_merges ? dn_vocabulary_find_word(&t->words, word) : NULL;
    if (whole)
        return dn_put_id(e, whole->id);
    TRY(add_letters(e, word));
    TRY(merge_all(e));
    for (size_t i = 0; i < e->work.symbol_count; i++)
        if (e->work.symbols[i].id >= 0)
            TRY(dn_put_id(e, e->work.symbols[i].id));
    return DANAUS_OK;
}
