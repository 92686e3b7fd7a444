/* Sequences that go through an encoder together (chunk.h). */
// SPDX-License-Identifier: Apache-2.0
#include "model/chunk.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"

int64_t dn_chunk_tokens(const danaus_device *device)
{
    return device->backend->on_host ? CHUNK_TOKENS : GPU_CHUNK_TOKENS;
}

void *dn_cut(uintptr_t *at, int64_t bytes)
{
    void *part = (void *)*at;
    *at += dn_aligned(bytes);
    return part;
}

int64_t dn_chunk_of(
    const int64_t *offsets, int64_t sequences, int64_t first, int64_t tokens)
{
    int64_t n = 1;
    while (first + n < sequences && offsets[first + n + 1] - offsets[first] <= tokens)
        n++;
    return n;
}

int64_t dn_longest(const nn_sequences *sequences)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < sequences->count; i++)
        longest = MAX(longest, sequences->offsets[i + 1] - sequences->offsets[i]);
    return longest;
}

danaus_status dn_chunk_report(const token_chunk *c, double done)
{
    const chunk_listener *l = &c->listener;
    if (l->tell && l->tell(l->user, l->from + l->share * done))
        return dn_fail(DANAUS_ERR_CANCELLED, "the caller gave up");
    return DANAUS_OK;
}
