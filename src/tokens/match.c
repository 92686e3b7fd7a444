/* Finds added tokens in a text from left to right, without overlaps; at each place the longest
   one wins. If a token begins with the byte at a place, the text of each length that tokens
   have is looked up there. */
// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "tokens/letters.h"
#include "tokens/tokens.h"

#include <string.h>

void dn_matcher_free(matcher *m)
{
    dn_vocabulary_free(&m->texts);
    dn_free(m->lengths);
}

static danaus_status add_length(matcher *m, size_t length)
{
    size_t at = 0;
    while (at < m->length_count && m->lengths[at] > length)
        at++;
    if (at < m->length_count && m->lengths[at] == length)
        return DANAUS_OK;
    TRY(dn_reserve(
        &m->lengths, m->length_count, &m->length_capacity, sizeof *m->lengths,
        "added tokens"));
    size_t behind = m->length_count++ - at;
    memmove(m->lengths + at + 1, m->lengths + at, behind * sizeof *m->lengths);
    m->lengths[at] = length;
    return DANAUS_OK;
}

danaus_status dn_matcher_add(matcher *m, span string, int32_t token)
{
    size_t index;
    if (!string.length || dn_vocabulary_find_word(&m->texts, string))
        return dn_fail(
            DANAUS_ERR_FORMAT, "added token \"%.*s\" is %s",
            (int)MIN(string.length, 100), string.text,
            string.length ? "there twice, once normalized" : "empty");
    TRY(dn_vocabulary_add(&m->texts, string, token, &index));
    m->begins[(unsigned char)string.text[0]] = 1;
    return add_length(m, string.length);
}

/* The longest token at the beginning of the text, which is not empty. */
static const vocabulary_word *token_at(const matcher *m, span string)
{
    if (!m->begins[(unsigned char)string.text[0]])
        return NULL;
    for (size_t i = 0; i < m->length_count; i++) {
        span part = { string.text, m->lengths[i] };
        const vocabulary_word *found = part.length > string.length
                                           ? NULL
                                           : dn_vocabulary_find_word(&m->texts, part);
        if (found)
            return found;
    }
    return NULL;
}

static int is_within_word(span string, size_t from, size_t to)
{
    return (from > 0 && dn_is_word(dn_letter_before(string, from))) ||
           (to < string.length && dn_is_word(dn_letter(string, &to)));
}

/* Where the spaces before `at` begin, not before `least`. */
static size_t spaces_before(span string, size_t at, size_t least)
{
    while (at > least) {
        int32_t c = dn_letter_before(string, at);
        if (!dn_is_space(c))
            break;
        char bytes[LETTER_BYTES];
        at -= dn_put_letter(c, bytes);
    }
    return MAX(at, least);
}

static size_t spaces_behind(span string, size_t at)
{
    while (at < string.length) {
        size_t next = at;
        if (!dn_is_space(dn_letter(string, &next)))
            break;
        at = next;
    }
    return at;
}

static span cut(span string, size_t from, size_t to)
{
    return (span){ string.text + from, to - from };
}

/* Where a search is: `done` is behind what has been put, `spaces` behind the spaces that the
   latest token took. */
typedef struct match_search {
    size_t done, spaces;
} match_search;

static danaus_status put_token(
    encoding *e, const added_token *token, span string, size_t from, size_t to,
    match_search *s, between_fn *between)
{
    if (token->single_word && is_within_word(string, from, to))
        return DANAUS_OK;
    if (token->lstrip)
        from = MAX(spaces_before(string, from, MIN(s->done, from)), s->done);
    if (token->rstrip) {
        /* A token of spaces may lie within what the one before took. */
        s->spaces = to < s->spaces ? s->spaces : spaces_behind(string, to);
        to = s->spaces;
    }
    if (from >= to) /* all of it is taken: it is not there twice */
        return DANAUS_OK;
    if (s->done < from)
        TRY(between(e, cut(string, s->done, from)));
    s->done = to;
    return dn_put_id(e, token->id);
}

danaus_status dn_match(encoding *e, const matcher *m, span string, between_fn *between)
{
    match_search s = { 0, 0 };
    for (size_t at = 0; at < string.length && m->length_count && e->count < e->most;) {
        const vocabulary_word *found = token_at(m, cut(string, at, string.length));
        if (!found) {
            at++;
            continue;
        }
        const added_token *token = &e->tokenizer->added[found->id];
        TRY(put_token(e, token, string, at, at + found->length, &s, between));
        at += found->length;
    }
    return s.done < string.length ? between(e, cut(string, s.done, string.length))
                                  : DANAUS_OK;
}
