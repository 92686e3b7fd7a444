/* Cutting normalized text into words, one step after the other. */
// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"
#include "tokens/letters.h"
#include "tokens/tokens.h"

danaus_status dn_put_part(encoding *e, size_t step, span part)
{
    const danaus_tokenizer *t = e->tokenizer;
    if (!part.length)
        return DANAUS_OK;
    return step < t->pre_tokenizer_count ? t->pre_tokenizers[step].run(e, step, part)
                                         : t->model.put(e, part);
}

static int has_enough(const encoding *e) { return e->count >= e->most; }

typedef enum word_place { WITHIN, SPACE, ALONE } word_place;

/* What the code point at `at` is, which is moved behind it. */
static word_place place_of(span string, size_t *at)
{
    int32_t c = (unsigned char)string.text[*at];
    if (c < 0x80)
        ++*at;
    else
        c = dn_letter(string, at);
    if (dn_is_space(c))
        return SPACE;
    return dn_is_punctuation(c) ? ALONE : WITHIN;
}

static danaus_status split(encoding *e, size_t step, span part, int punctuation)
{
    size_t from = 0; /* of the word that is being read */
    for (size_t at = 0; at < part.length && !has_enough(e);) {
        size_t here = at;
        word_place is = place_of(part, &at);
        if (is == ALONE && !punctuation)
            is = WITHIN;
        if (is == WITHIN && at < part.length)
            continue;
        TRY(dn_put_part(e, step + 1, span_cut(part, from, is == WITHIN ? at : here)));
        if (is == ALONE)
            TRY(dn_put_part(e, step + 1, span_cut(part, here, at)));
        from = at;
    }
    return DANAUS_OK;
}

danaus_status dn_split_bert(encoding *e, size_t step, span part)
{
    return split(e, step, part, 1);
}

danaus_status dn_split_spaces(encoding *e, size_t step, span part)
{
    return split(e, step, part, 0);
}

danaus_status dn_split_words(encoding *e, size_t step, span part)
{
    int before = 0; /* 1: within a word, -1: within other signs, 0: spaces */
    size_t from = 0;
    for (size_t at = 0; at < part.length && !has_enough(e);) {
        size_t here = at;
        int32_t c = dn_letter(part, &at);
        int is = dn_is_word(c) ? 1 : dn_is_space(c) ? 0 : -1;
        if (is != before) {
            if (before)
                TRY(dn_put_part(e, step + 1, span_cut(part, from, here)));
            from = here;
        }
        before = is;
    }
    return before ? dn_put_part(e, step + 1, span_cut(part, from, part.length))
                  : DANAUS_OK;
}

danaus_status dn_split_marked(encoding *e, size_t step, span part)
{
    char mark[LETTER_BYTES];
    size_t from = 0,
           length = dn_put_letter(e->tokenizer->pre_tokenizers[step].space, mark);
    for (size_t at = 1; at < part.length && !has_enough(e); at++)
        if (part.text[at] == mark[0] && length <= part.length - at &&
            !memcmp(part.text + at, mark, length)) {
            TRY(dn_put_part(e, step + 1, span_cut(part, from, at)));
            from = at;
        }
    return dn_put_part(e, step + 1, span_cut(part, from, part.length));
}

danaus_status dn_split_pattern(encoding *e, size_t step, span part)
{
    const word_pattern *pattern = &e->tokenizer->pre_tokenizers[step].pattern;
    for (size_t at = 0; at < part.length && !has_enough(e);) {
        size_t from = at;
        at = dn_pattern_end(pattern, part, at);
        TRY(dn_put_part(e, step + 1, span_cut(part, from, at)));
    }
    return DANAUS_OK;
}
