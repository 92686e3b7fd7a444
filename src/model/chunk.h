/* Sequences that go through an encoder together, and memory that is cut into arrays. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_CHUNK_H
#define DN_MODEL_CHUNK_H

#include "base/dtype.h"
#include "danaus/model.h"
#include "device/nn.h"

/* Tokens that go through a model together, unless one sequence has more: their activations stay
   in the last cache. */
#define CHUNK_TOKENS     1024
#define GPU_CHUNK_TOKENS 16384 /* so many on a GPU */

/* The one or the other. */
int64_t dn_chunk_tokens(const danaus_device *device);

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

#endif
