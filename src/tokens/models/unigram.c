/* Unigram (Kudo, ACL 2018, arXiv 1804.10959): the pieces of a word are those whose scores have
   the greatest sum, found by Viterbi's algorithm, from the front. A code point that is no piece
   counts as unknown, with a score below all others. Unknown ones in a row are one token. Among
   equal sums the one found first wins: for each end, the longest last piece. */
// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "tokens/letters.h"
#include "tokens/tokens.h"

/* The best way to a byte of the word. */
struct best_path {
    double score;
    size_t length; /* of its last piece; 0: there is no way yet */
    int32_t id;    /* of this piece */
};

static void offer(struct best_path *to, double score, size_t length, int32_t id)
{
    if (!to->length || score > to->score)
        *to = (struct best_path){ score, length, id };
}

/* Offers all pieces that begin at a place. */
static danaus_status offer_pieces(
    encoding *e, span word, size_t at, size_t letter, struct best_path *paths)
{
    const danaus_tokenizer *t = e->tokenizer;
    const trie_node *node = t->model.trie.firsts[(unsigned char)word.text[at]];
    double score = paths[at].score;
    int is_known = 0;
    for (size_t end = at + 1; node;) {
        if (node->id >= 0)
            offer(&paths[end], t->model.scores[node->id] + score, end - at, node->id);
        is_known |= node->id >= 0 && end - at == letter;
        if (end == word.length)
            break;
        node = dn_trie_child(&t->model.trie, node, (unsigned char)word.text[end++]);
    }
    if (is_known)
        return DANAUS_OK;
    if (t->unknown < 0)
        return dn_put_unknown(e, span_cut(word, at, at + letter));
    offer(&paths[at + letter], t->model.unknown_score + score, letter, t->unknown);
    return DANAUS_OK;
}

static danaus_status find_paths(encoding *e, span word)
{
    model_work *w = &e->work;
    TRY(dn_reserve_many(
        &w->paths, 0, word.length + 1, &w->path_capacity, sizeof *w->paths, "pieces"));
    memset(w->paths, 0, (word.length + 1) * sizeof *w->paths);
    for (size_t at = 0, next; at < word.length; at = next) {
        next = at + 1;
        while (next < word.length && ((unsigned char)word.text[next] & 0xc0) == 0x80)
            next++;
        TRY(offer_pieces(e, word, at, next - at, w->paths));
    }
    return DANAUS_OK;
}

static danaus_status put_byte_pieces(encoding *e, span unknown)
{
    for (size_t i = 0; i < unknown.length; i++)
        TRY(dn_put_id(e, e->tokenizer->model.bytes[(unsigned char)unknown.text[i]]));
    return DANAUS_OK;
}

/* Unknown text: together it may be a word after all, or its bytes are tokens. */
static danaus_status put_unknown_text(encoding *e, span unknown)
{
    const danaus_tokenizer *t = e->tokenizer;
    const vocabulary_word *found = dn_vocabulary_find_word(&t->words, unknown);
    if (found)
        return dn_put_id(e, found->id);
    int has_bytes = t->model.byte_fallback;
    for (size_t i = 0; i < unknown.length && has_bytes; i++)
        has_bytes = t->model.bytes[(unsigned char)unknown.text[i]] >= 0;
    return has_bytes ? put_byte_pieces(e, unknown) : dn_put_unknown(e, unknown);
}

/* The ends of the best pieces, the last one first; *count of them. */
static danaus_status find_ends(model_work *w, size_t length, size_t *count)
{
    *count = 0;
    for (size_t at = length; at > 0; at -= w->paths[at].length) {
        TRY(dn_reserve(&w->ends, *count, &w->end_capacity, sizeof *w->ends, "pieces"));
        w->ends[(*count)++] = at;
    }
    return DANAUS_OK;
}

danaus_status dn_put_unigram(encoding *e, span word)
{
    model_work *w = &e->work;
    int32_t unknown = e->tokenizer->unknown;
    size_t count, done = 0; /* done: behind all that is put */
    TRY(find_paths(e, word));
    TRY(find_ends(w, word.length, &count));
    while (count-- > 0 && e->count < e->most) {
        size_t end = w->ends[count];
        const struct best_path *piece = &w->paths[end];
        int is_last = count == 0 || w->paths[w->ends[count - 1]].id != unknown;
        if (piece->id == unknown && !is_last)
            continue;
        if (piece->id == unknown)
            TRY(put_unknown_text(e, span_cut(word, done, end)));
        else
            TRY(dn_put_id(e, piece->id));
        done = end;
    }
    return DANAUS_OK;
}
