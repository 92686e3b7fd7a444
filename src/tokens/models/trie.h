/* The words of a vocabulary as a trie of bytes. Children of a node lie side by side, in the
   order of their bytes. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_TOKENS_TRIE_H
#define DN_TOKENS_TRIE_H

#include "tokens/vocabulary.h"

typedef struct trie_node {
    uint32_t children; /* the first one */
    uint16_t count;    /* of them */
    unsigned char byte;
    int32_t id; /* of the word that ends here; -1: none does */
} trie_node;

/* Zeros are one without nodes. nodes[0] is the root. */
typedef struct trie {
    trie_node *nodes;
    size_t count, capacity;
    const trie_node *firsts[256]; /* the root's children */
} trie;

danaus_status dn_trie_build(trie *t, const vocabulary *v);
void dn_trie_free(trie *t);

/* NULL if there is none. */
static inline const trie_node *dn_trie_child(
    const trie *t, const trie_node *node, unsigned char byte)
{
    const trie_node *low = t->nodes + node->children, *end = low + node->count;
    for (size_t count = node->count; count > 4;) { /* halves, then one by one */
        size_t half = count / 2;
        low = low[half].byte <= byte ? low + half : low;
        count -= half;
        end = low + count;
    }
    while (low < end && low->byte < byte)
        low++;
    return low < end && low->byte == byte ? low : NULL;
}

#endif
