/* From normalized text to ids. Spaces separate words, and every punctuation mark is a word. A
   word becomes the longest piece that it begins with, then the longest piece that the rest
   begins with, written with the prefix of pieces within words, and so on. A word that cannot be
   cut so, or is too long, is the unknown token. */
// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "tokens/letters.h"
#include "tokens/tokens.h"

/* A beginning of what is left of a word. */
struct word_piece {
    size_t end; /* in the word */
    uint64_t hash;
};

danaus_status dn_put_id(encoding *e, int32_t id)
{
    if (e->count == e->capacity)
        TRY(dn_reserve(&e->ids, e->count, &e->capacity, sizeof *e->ids, "ids"));
    e->ids[e->count++] = id;
    return DANAUS_OK;
}

static int ends_letter(span string, size_t at)
{
    return at == string.length || ((unsigned char)string.text[at] & 0xc0) != 0x80;
}

static int64_t letters_in(span word)
{
    int64_t count = 0;
    for (size_t i = 1; i <= word.length; i++)
        count += ends_letter(word, i);
    return count;
}

/* The longest piece at word[start ...]; *end is behind it. */
static const vocabulary_word *longest_piece(
    encoding *e, span word, size_t start, size_t *end)
{
    const danaus_tokenizer *t = e->tokenizer;
    span head = start ? growing_span(&t->prefix) : (span){ 0 };
    uint64_t hash = start ? t->prefix_hash : WORD_HASH_START;
    size_t longest =
        t->words.longest > head.length ? t->words.longest - head.length : 0;
    size_t stop = start + MIN(word.length - start, longest), count = 0;
    for (size_t at = start; at < stop;) {
        hash = dn_word_hash_add(hash, word.text[at++]);
        if (ends_letter(word, at))
            e->pieces[count++] = (struct word_piece){ at, hash };
    }
    while (count-- > 0) {
        *end = e->pieces[count].end;
        span tail = { word.text + start, *end - start };
        const vocabulary_word *found =
            dn_vocabulary_find(&t->words, e->pieces[count].hash, head, tail);
        if (found)
            return found;
    }
    return NULL;
}

static danaus_status put_word(encoding *e, span word)
{
    const danaus_tokenizer *t = e->tokenizer;
    size_t before = e->count;
    int64_t bytes = (int64_t)word.length;
    if (bytes > t->longest_word && letters_in(word) > t->longest_word)
        return dn_put_id(e, t->unknown);
    for (size_t start = 0; start < word.length;) {
        const vocabulary_word *piece = longest_piece(e, word, start, &start);
        if (!piece) {
            e->count = before;
            return dn_put_id(e, t->unknown);
        }
        TRY(dn_put_id(e, piece->id));
    }
    return DANAUS_OK;
}

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

danaus_status dn_put_words(encoding *e, span string)
{
    size_t longest = e->tokenizer->words.longest;
    if (!e->pieces && !(e->pieces = dn_calloc(longest, sizeof *e->pieces)))
        return dn_fail_memory(longest * sizeof *e->pieces, "pieces of a word");
    size_t from = 0; /* of the word that is being read */
    for (size_t at = 0; at < string.length && e->count < e->most;) {
        size_t here = at;
        word_place is = place_of(string, &at);
        if (is == WITHIN && at < string.length)
            continue;
        size_t to = is == WITHIN ? at : here;
        if (to > from)
            TRY(put_word(e, (span){ string.text + from, to - from }));
        if (is == ALONE)
            TRY(put_word(e, (span){ string.text + here, at - here }));
        from = at;
    }
    return DANAUS_OK;
}
