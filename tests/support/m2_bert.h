/* Small Monarch Mixer BERTs: as a folder that danaus loads, and as plain loops of f64 that share
   no code with the library. Errors are bounded as support/bert.h says. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_M2_BERT_H
#define TEST_SUPPORT_M2_BERT_H

#include "support/filter.h"

#include <stddef.h>

#define M2_MOST_WIDTH 64

typedef struct small_m2 {
    int64_t width, inner, blocks, layers, vocabulary, length;
    int normed, gated, residual, bidirectional;
    int pooler, all, head; /* all: pooling takes all rows; head: for masked words */
    small_filter filter;
    named_arrays arrays;
} small_m2;

small_m2 m2_random(rng *r);

/* A narrow one with everything, of one block, for sequences of so many tokens. */
small_m2 m2_long(rng *r, int64_t length);

/* The model of the test vectors: two blocks of width 8, numbers that are sines. */
small_m2 m2_of_vectors(int normed);
void m2_free(small_m2 *m);

void m2_config(const small_m2 *m, char *config, size_t size);

/* Writes config.json and model.safetensors into the folder of files.h, and loads them. */
void m2_write(const small_m2 *m);
danaus_model *m2_load(const small_m2 *m, danaus_device *device);

/* Rows h [length][width] of a sequence; what the pooler, or the mean of length 1, makes of
   them; scores of all words at a row. */
void m2_rows(
    const small_m2 *m, const int32_t *ids, int64_t length, double *h, rng *noise);
void m2_pool(const small_m2 *m, const double *h, int64_t length, double *y, rng *noise);
void m2_scores(const small_m2 *m, const double *row, double *scores, rng *noise);

#endif
