/* Sequences through an encoder, chunk after chunk, and the results from its rows: embeddings,
   scores of words, probabilities of next tokens. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_ENCODE_H
#define DN_MODEL_ENCODE_H

#include "danaus/model.h"

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
