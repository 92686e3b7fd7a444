/* The head of masked language models as arrays of a file, and its scores by plain loops. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_HEAD_H
#define TEST_SUPPORT_HEAD_H

#include "support/named.h"

#define HEAD_MOST_WIDTH 512

/* cls.predictions.* without a table of its own, in arrays whose prefix is NULL now; or with
   one, half of the time. The bias has one of its two names, or both. */
void head_add_random(rng *r, named_arrays *to, int64_t width, int64_t words);

/* Scores of all words of a row; `word` is the table of embeddings [words][width]. */
void head_scores(
    const named_arrays *arrays, const danaus_tensor *word, danaus_activation activation,
    const double *row, double *scores, rng *noise);

#endif
