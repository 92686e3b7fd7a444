/* The merges of BPE: pairs of tokens, their rank, and the token that both become. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_TOKENS_MERGES_H
#define DN_TOKENS_MERGES_H

#include "danaus/base.h"

#include <stddef.h>
#include <stdint.h>

typedef struct merge {
    int32_t left, right;
    int32_t both; /* -1: a free slot */
    uint32_t rank;
} merge;

/* Zeros are an empty one. */
typedef struct merges {
    merge *slots;
    size_t count,
        slot_count; /* slots: 0 or a power of two, more than twice the merges */
} merges;

/* The last merge of a pair counts. */
danaus_status dn_merges_add(merges *m, merge added);
void dn_merges_free(merges *m);

static inline size_t dn_merge_slot(const merges *m, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    pair ^= pair >> 29; /* so that the left one counts, too */
    return (size_t)(pair * 0x9e3779b97f4a7c15u >> 32) & (m->slot_count - 1);
}

/* NULL if the pair is not merged. */
static inline const merge *dn_find_merge(const merges *m, int32_t left, int32_t right)
{
    if (!m->count)
        return NULL;
    for (size_t i = dn_merge_slot(m, left, right);; i = (i + 1) & (m->slot_count - 1)) {
        const merge *found = &m->slots[i];
        if (found->both < 0)
            return NULL;
        if (found->left == left && found->right == right)
            return found;
    }
}

#endif
