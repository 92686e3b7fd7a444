/* Sequences in order of length. */
// SPDX-License-Identifier: Apache-2.0
#include "model/texts.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

typedef struct sequence {
    int64_t length, number;
} sequence;

static int shorter(const void *a, const void *b)
{
    const sequence *x = a, *y = b;
    int64_t less =
        x->length != y->length ? x->length - y->length : x->number - y->number;
    return less < 0 ? -1 : less > 0;
}

static void fill(
    const sequence *order, const int64_t *offsets, const int32_t *ids, texts *t)
{
    for (int64_t i = 0; i < t->count; i++) {
        int64_t at = t->offsets[i], length = order[i].length;
        t->offsets[i + 1] = at + length;
        memcpy(
            t->ids + at, ids + offsets[order[i].number],
            (size_t)length * sizeof *t->ids);
        for (int64_t p = 0; p < length; p++)
            t->positions[at + p] = (int32_t)p;
    }
    for (int64_t b = 0; b < t->count; b += TEXTS_BATCH)
        t->most =
            MAX(t->most, t->offsets[MIN(b + TEXTS_BATCH, t->count)] - t->offsets[b]);
}

danaus_status dn_texts_make(
    int64_t count, const int64_t *offsets, const int32_t *ids, texts *t)
{
    size_t tokens = (size_t)offsets[count];
    sequence *order = dn_calloc((size_t)count + 1, sizeof *order);
    *t = (texts){ .count = count, .tokens = offsets[count] };
    t->offsets = dn_calloc((size_t)count + 1, sizeof *t->offsets);
    t->ids = dn_calloc(tokens + 1, sizeof *t->ids);
    t->positions = dn_calloc(tokens + 1, sizeof *t->positions);
    if (!order || !t->offsets || !t->ids || !t->positions) {
        dn_free(order);
        dn_texts_free(t);
        return dn_fail_memory(tokens * sizeof *t->ids, "tokens");
    }
    for (int64_t i = 0; i < count; i++)
        order[i] = (sequence){ offsets[i + 1] - offsets[i], i };
    qsort(order, (size_t)count, sizeof *order, shorter);
    fill(order, offsets, ids, t);
    dn_free(order);
    return DANAUS_OK;
}

void dn_texts_free(texts *t)
{
    dn_free(t->offsets);
    dn_free(t->ids);
    dn_free(t->positions);
    *t = (texts){ 0 };
}
