/* Sequences through an encoder, chunk after chunk, and the results from its rows: embeddings,
   scores of words, probabilities of next tokens. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_ENCODE_H
#define DN_MODEL_ENCODE_H

#include "base/dtype.h"
#include "danaus/model.h"
#include "device/nn.h"

/* Who is told of the work that is done, and for which part of it. */
typedef struct chunk_listener {
    danaus_progress_fn tell; /* or NULL */
    void *user;
    double from, share;
} chunk_listener;

/* Sequences that go through an encoder together. */
typedef struct token_chunk {
    nn_sequences sequences;
    int64_t tokens;
    const int32_t *ids, *positions; /* [tokens], device memory */
    chunk_listener listener;
} token_chunk;

/* Tells that so much of a chunk is done, from 0 to 1; DANAUS_ERR_CANCELLED: enough. */
danaus_status dn_chunk_report(const token_chunk *c, double done);

/* Cuts so many bytes off; from NULL on it counts them. */
void *dn_cut(uintptr_t *at, int64_t bytes);

/* Number `place` of an array. */
static inline void *dn_at(const void *numbers, danaus_dtype dtype, int64_t place)
{
    return (char *)(uintptr_t)numbers + place * dn_size_of(dtype);
}

/* Sequences from `first` on that have no more than so many tokens together; at least one. */
int64_t dn_chunk_of(
    const int64_t *offsets, int64_t sequences, int64_t first, int64_t tokens);

/* Tokens of the longest one. */
int64_t dn_longest(const nn_sequences *sequences);

/* Like danaus_model_embed(), danaus_model_fill() and danaus_model_score(), for sequences that
   were checked. */
danaus_status dn_encode_embed(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, float *embeddings);
danaus_status dn_encode_fill(
    danaus_model *model, danaus_device *device, int64_t length, const int32_t *ids,
    int64_t count, const int64_t *places, float *scores);
danaus_status dn_encode_score(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, danaus_progress_fn progress, void *user,
    float *scores);

/* Like danaus_model_estimate(). */
danaus_status dn_encode_cost(
    danaus_model *model, danaus_device *device, int64_t sequences, int64_t length,
    danaus_model_cost *cost);

#endif
