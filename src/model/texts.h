/* Sequences in order of length, in batches, for compressing a model. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_TEXTS_H
#define DN_MODEL_TEXTS_H

#include "danaus/base.h"

#define TEXTS_BATCH 64 /* sequences; their embeddings are compared with each other */

typedef struct texts {
    int64_t count, tokens;
    int64_t *offsets;         /* [count + 1], from 0 */
    int32_t *ids, *positions; /* [tokens] */
    int64_t most;             /* tokens of a batch at most */
} texts;

/* Copies, shortest first. */
danaus_status dn_texts_make(
    int64_t count, const int64_t *offsets, const int32_t *ids, texts *t);
void dn_texts_free(texts *t);

static inline int64_t dn_texts_batches(const texts *t)
{
    return (t->count + TEXTS_BATCH - 1) / TEXTS_BATCH;
}

#endif
