/* WordPiece: a word becomes the longest piece that it begins with, then the longest piece that
   the rest begins with, written with the prefix of pieces within words, and so on. A word that
   cannot be cut so, or is too long, is the unknown token. */
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
    span head = start ? growing_span(&t->model.prefix) : (span){ 0 };
    uint64_t hash = start ? t->model.prefix_hash : WORD_HASH_START;
    size_t longest =
        t->words.longest > head.length ? t->words.longest - head.length : 0;
    size_t stop = start + MIN(word.length - start, longest), count = 0;
    for (size_t at = start; at < stop;) {
        hash = dn_word_hash_add(hash, word.text[at++]);
        if (ends_letter(word, at))
            e->work.pieces[count++] = (struct word_piece){ at, hash };
    }
    while (count-- > 0) {
        *end = e->work.pieces[count].end;
        span tail = { word.text + start, *end - start };
        const vocabulary_word *found =
            dn_vocabulary_find(&t->words, e->work.pieces[count].hash, head, tail);
        if (found)
            return found;
    }
    return NULL;
}

danaus_status dn_put_wordpiece(encoding *e, span word)
{
    const danaus_tokenizer *t = e->tokenizer;
    size_t before = e->count, longest = t->words.longest;
    int64_t bytes = (int64_t)word.length;
    if (!e->work.pieces &&
        !(e->work.pieces = dn_calloc(longest, sizeof *e->work.pieces)))
        return dn_fail_memory(longest * sizeof *e->work.pieces, "pieces of a word");
    if (bytes > t->model.longest_word && letters_in(word) > t->model.longest_word)
        return dn_put_unknown(e, word);
    for (size_t start = 0; start < word.length;) {
        const vocabulary_word *piece = longest_piece(e, word, start, &start);
        if (!piece) {
            e->count = before;
            return dn_put_unknown(e, word);
        }
        TRY(dn_put_id(e, piece->id));
    }
    return DANAUS_OK;
}
