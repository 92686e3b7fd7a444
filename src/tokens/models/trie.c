/* A trie from words in order: each node is a range of words that begin alike. Nodes are made
   level by level, so that children lie side by side. */
// SPDX-License-Identifier: Apache-2.0
#include "tokens/models/trie.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

typedef struct trie_word {
    span text;
    int32_t id;
} trie_word;

/* The words of a node. */
typedef struct word_range {
    uint32_t from, to, depth;
} word_range;

static int by_text(const void *x, const void *y)
{
    const trie_word *a = x, *b = y;
    size_t both = MIN(a->text.length, b->text.length);
    int order = both ? memcmp(a->text.text, b->text.text, both) : 0;
    return order
               ? order
               : (a->text.length > b->text.length) - (a->text.length < b->text.length);
}

typedef struct trie_work {
    trie *to;
    trie_word *words;
    word_range *ranges; /* of each node */
    size_t range_count, range_capacity;
} trie_work;

static danaus_status add_node(trie_work *w, unsigned char byte, word_range words)
{
    trie *t = w->to;
    TRY(dn_reserve(&t->nodes, t->count, &t->capacity, sizeof *t->nodes, "a trie"));
    TRY(dn_reserve(
        &w->ranges, w->range_count, &w->range_capacity, sizeof words, "a trie"));
    t->nodes[t->count++] = (trie_node){ .byte = byte, .id = -1 };
    w->ranges[w->range_count++] = words;
    return DANAUS_OK;
}

static danaus_status add_children(trie_work *w, size_t node)
{
    word_range r = w->ranges[node];
    size_t before = w->to->count;
    if (r.from < r.to && w->words[r.from].text.length == r.depth)
        w->to->nodes[node].id = w->words[r.from++].id;
    for (uint32_t from = r.from, to; from < r.to; from = to) {
        char byte = w->words[from].text.text[r.depth];
        for (to = from + 1; to < r.to && w->words[to].text.text[r.depth] == byte;)
            to++;
        TRY(add_node(w, (unsigned char)byte, (word_range){ from, to, r.depth + 1 }));
    }
    w->to->nodes[node].children = (uint32_t)before;
    w->to->nodes[node].count = (uint16_t)(w->to->count - before);
    return DANAUS_OK;
}

static danaus_status build(trie_work *w, const vocabulary *v)
{
    w->words = dn_calloc(v->count, sizeof *w->words);
    if (!w->words)
        return dn_fail_memory(v->count * sizeof *w->words, "a trie");
    for (size_t i = 0; i < v->count; i++)
        w->words[i] =
            (trie_word){ dn_vocabulary_text(v, &v->words[i]), v->words[i].id };
    qsort(w->words, v->count, sizeof *w->words, by_text);
    TRY(add_node(w, 0, (word_range){ 0, (uint32_t)v->count, 0 }));
    for (size_t node = 0; node < w->to->count; node++)
        TRY(add_children(w, node));
    for (int byte = 0; byte < 256; byte++)
        w->to->firsts[byte] = dn_trie_child(w->to, w->to->nodes, (unsigned char)byte);
    return DANAUS_OK;
}

danaus_status dn_trie_build(trie *t, const vocabulary *v)
{
    trie_work w = { .to = t };
    if (v->text_bytes >= UINT32_MAX - 1)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "a vocabulary of %zu bytes is too large",
            v->text_bytes);
    danaus_status status = build(&w, v);
    dn_free(w.words);
    dn_free(w.ranges);
    return status;
}

void dn_trie_free(trie *t)
{
    dn_free(t->nodes);
    *t = (trie){ 0 };
}
