/* A hash table of merges with open addressing, at most half full. */
// SPDX-License-Identifier: Apache-2.0
#include "tokens/models/merges.h"

#include "base/mem.h"
#include "base/status.h"

#define LEAST_SLOTS 64

static void put(merges *m, merge added)
{
    size_t i = dn_merge_slot(m, added.left, added.right);
    while (m->slots[i].both >= 0 &&
           (m->slots[i].left != added.left || m->slots[i].right != added.right))
        i = (i + 1) & (m->slot_count - 1);
    m->count += m->slots[i].both < 0;
    m->slots[i] = added;
}

static danaus_status grow(merges *m)
{
    merges more = { .slot_count = m->slot_count ? 2 * m->slot_count : LEAST_SLOTS };
    more.slots = dn_calloc(more.slot_count, sizeof *more.slots);
    if (!more.slots)
        return dn_fail_memory(more.slot_count * sizeof *more.slots, "merges");
    for (size_t i = 0; i < more.slot_count; i++)
        more.slots[i].both = -1;
    for (size_t i = 0; i < m->slot_count; i++)
        if (m->slots[i].both >= 0)
            put(&more, m->slots[i]);
    dn_free(m->slots);
    *m = more;
    return DANAUS_OK;
}

danaus_status dn_merges_add(merges *m, merge added)
{
    if (m->slot_count <= 2 * (m->count + 1))
        TRY(grow(m));
    put(m, added);
    return DANAUS_OK;
}

void dn_merges_free(merges *m)
{
    dn_free(m->slots);
    *m = (merges){ 0 };
}
