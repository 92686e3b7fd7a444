/* Samples through models of every kind. */
// SPDX-License-Identifier: Apache-2.0
#include "model/compress/samples.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "model/arch.h"
#include "model/encode.h"

/* A batch has at most so many, unless one sequence has more. */
#define BATCH_TOKENS 4096
#define BATCH_IMAGES 16

int64_t dn_samples_batch(const samples *s, int64_t first)
{
    if (s->pixels)
        return MIN(s->count - first, BATCH_IMAGES);
    return dn_chunk_of(s->offsets, s->count, first, BATCH_TOKENS);
}

int64_t dn_samples_batches(const samples *s)
{
    int64_t batches = 0;
    for (int64_t i = 0; i < s->count; i += dn_samples_batch(s, i))
        batches++;
    return batches;
}

int64_t dn_samples_numbers(
    const danaus_model *model, const samples *s, int64_t first, int64_t n)
{
    const danaus_model_info *info = &model->info;
    if (!s->pixels && dn_linear_is_open(&model->next))
        return s->offsets[first + n] - s->offsets[first];
    return n * (info->classes ? info->classes : info->embedding);
}

/* Sequences whose offsets begin with 0. */
static danaus_status run_tokens(
    danaus_model *model, danaus_device *device, int64_t n, const int64_t *offsets,
    const int32_t *ids, float *output)
{
    if (dn_linear_is_open(&model->next))
        return dn_encode_score(model, device, n, offsets, ids, NULL, NULL, output);
    return dn_encode_embed(model, device, n, offsets, ids, output);
}

danaus_status dn_samples_run(
    danaus_model *model, danaus_device *device, const samples *s, int64_t first,
    int64_t n, float *output)
{
    const danaus_model_info *info = &model->info;
    if (s->pixels) {
        int64_t image = info->image_channels * info->image_size * info->image_size;
        return model->arch->viewer->look(
            model, device, n, s->pixels + first * image, info->classes > 0, output);
    }
    int64_t *offsets = dn_calloc((size_t)n + 1, sizeof *offsets);
    if (!offsets)
        return dn_fail_memory((size_t)n * sizeof *offsets, "offsets of a batch");
    for (int64_t i = 0; i <= n; i++)
        offsets[i] = s->offsets[first + i] - s->offsets[first];
    danaus_status status =
        run_tokens(model, device, n, offsets, s->ids + s->offsets[first], output);
    dn_free(offsets);
    return status;
}
