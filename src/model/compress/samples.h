/* The samples of a compression: sequences of tokens, or images, in host memory, which run batch
   after batch; and the output whose change gives the value of a layer. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_COMPRESS_SAMPLES_H
#define DN_MODEL_COMPRESS_SAMPLES_H

#include "danaus/model.h"

typedef struct samples {
    int64_t count;          /* 0: nothing is known of inputs */
    const int64_t *offsets; /* [count + 1], from 0, of sequences */
    const int32_t *ids;
    const float *pixels; /* of images; NULL: sequences */
} samples;

/* How many from `first` on run together. */
int64_t dn_samples_batch(const samples *s, int64_t first);
int64_t dn_samples_batches(const samples *s);

/* Numbers of the output of n of them: scores of classes; log-probabilities of tokens, where the
   model is causal; else embeddings. */
int64_t dn_samples_numbers(
    const danaus_model *model, const samples *s, int64_t first, int64_t n);
danaus_status dn_samples_run(
    danaus_model *model, danaus_device *device, const samples *s, int64_t first,
    int64_t n, float *output);

#endif
