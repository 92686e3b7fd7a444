/* The calls of danaus/model.h: the part that is the same for all architectures. */
// SPDX-License-Identifier: Apache-2.0
#include "model/arch.h"

#include "base/status.h"
#include "device/backend.h"
#include "model/compress/compress.h"
#include "model/encode.h"

#include <inttypes.h>
#include <string.h>

danaus_status danaus_model_describe(const danaus_model *model, danaus_model_info *info)
{
    if (!model || !info)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a model and a place for what it is are "
                                 "needed");
    *info = model->info;
    return DANAUS_OK;
}

danaus_status danaus_model_layer_at(
    const danaus_model *model, int index, danaus_model_layer *layer)
{
    if (!model || !layer)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a model and a place for a layer are needed");
    if (index < 0 || index >= model->linears)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "the model has %d linear layers and no number %d",
            model->linears, index);
    const linear *found = &model->linear[index];
    char steps[DANAUS_MAX_FACTORS * 200];
    *steps = 0;
    if (found->plan)
        danaus_ks_plan_describe(found->plan, steps, sizeof steps);
    *layer = (danaus_model_layer){ .name = found->name,
                                   .rows = found->rows,
                                   .cols = found->cols,
                                   .parameters = found->parameters,
                                   .factors = found->factors,
                                   .error = found->fitted.error,
                                   .patterns = found->patterns,
                                   .merged = strstr(steps, " merged") != NULL,
                                   .lower_bound = found->fitted.lower_bound,
                                   .speedup = found->speedup,
                                   .int8 = found->shape.int8 };
    return DANAUS_OK;
}

/* It can run, on such a device. */
static danaus_status check_model(const danaus_model *model, const danaus_device *device)
{
    TRY(dn_check_place(device, model->device_name));
    return model->memory.outline
               ? dn_fail(
                     DANAUS_ERR_ARGUMENT, "the model is an outline, without weights")
               : DANAUS_OK;
}

static danaus_status check_sequence(
    const danaus_model *model, int64_t number, int64_t length, const int32_t *ids)
{
    if (length < 1 || length > model->info.max_length)
        return dn_fail(
            DANAUS_ERR_SHAPE,
            "sequence %" PRId64 " has %" PRId64 " tokens; 1 to %" PRId64
            " are possible",
            number, length, model->info.max_length);
    for (int64_t t = 0; t < length; t++)
        if (ids[t] < 0 || ids[t] >= model->info.vocabulary)
            return dn_fail(
                DANAUS_ERR_ARGUMENT,
                "token %" PRId64 " of sequence %" PRId64 " is %d; the vocabulary "
                "has %" PRId64,
                t, number, ids[t], model->info.vocabulary);
    return DANAUS_OK;
}

/* Offsets and ids are good, and the model is for such a device. */
static danaus_status check_sequences(
    const danaus_model *model, const danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids)
{
    if (!model || !device || sequences < 0 || !offsets || (sequences && !ids))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a model, a device, offsets and ids are needed");
    TRY(check_model(model, device));
    if (!model->arch->encoder)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "a model of kind \"%s\" takes no tokens",
            model->arch->name);
    if (offsets[0])
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "offsets begin with %" PRId64 ", not 0", offsets[0]);
    for (int64_t i = 0; i < sequences; i++) {
        int64_t length;
        if (__builtin_sub_overflow(offsets[i + 1], offsets[i], &length))
            return dn_fail(DANAUS_ERR_SHAPE, "offset %" PRId64 " is too large", i + 1);
        TRY(check_sequence(model, i, length, ids + offsets[i]));
    }
    return DANAUS_OK;
}

danaus_status danaus_model_embed(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, float *embeddings)
{
    TRY(check_sequences(model, device, sequences, offsets, ids));
    if (sequences && !embeddings)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a place for embeddings is needed");
    return dn_encode_embed(model, device, sequences, offsets, ids, embeddings);
}

danaus_status danaus_model_estimate(
    danaus_model *model, danaus_device *device, int64_t sequences, int64_t length,
    danaus_model_cost *cost)
{
    const viewer *eye = model ? model->arch->viewer : NULL;
    if (!model || !device || !cost || sequences < 1 || (length < 1 && !eye))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a model, a device, numbers of sequences and tokens "
                                 "and a place for what they cost are needed");
    TRY(dn_check_place(device, model->device_name));
    if (eye) {
        danaus_model_cost found = { 0 };
        TRY(eye->cost(model, device, sequences, &found));
        *cost = found;
        return DANAUS_OK;
    }
    if (length > model->info.max_length)
        return dn_fail(
            DANAUS_ERR_SHAPE, "%" PRId64 " tokens; at most %" PRId64 " are possible",
            length, model->info.max_length);
    return dn_encode_cost(model, device, sequences, length, cost);
}

static danaus_status check_places(int64_t length, int64_t count, const int64_t *places)
{
    for (int64_t i = 0; i < count; i++)
        if (places[i] < 0 || places[i] >= length)
            return dn_fail(
                DANAUS_ERR_ARGUMENT,
                "place %" PRId64 " is token %" PRId64 " of a sequence of %" PRId64, i,
                places[i], length);
    return DANAUS_OK;
}

danaus_status danaus_model_fill(
    danaus_model *model, danaus_device *device, int64_t length, const int32_t *ids,
    int64_t count, const int64_t *places, float *scores)
{
    const int64_t offsets[] = { 0, length };
    TRY(check_sequences(model, device, 1, offsets, ids));
    if (count < 0 || (count && (!places || !scores)))
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "at least 0 places and memory for their scores are "
                                 "needed");
    TRY(check_places(length, count, places));
    if (!model->head.words)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "the model has no head for masked words");
    return dn_encode_fill(model, device, length, ids, count, places, scores);
}

static danaus_status check_images(
    const danaus_model *model, const danaus_device *device, int64_t images,
    const float *pixels)
{
    if (!model || !device || images < 0 || (images && !pixels))
        return dn_fail(DANAUS_ERR_ARGUMENT, "a model, a device and images are needed");
    TRY(check_model(model, device));
    return model->arch->viewer
               ? DANAUS_OK
               : dn_fail(DANAUS_ERR_UNSUPPORTED, "the model takes no images");
}

static danaus_status look(
    danaus_model *model, danaus_device *device, int64_t images, const float *pixels,
    int classify, float *to)
{
    TRY(check_images(model, device, images, pixels));
    if (images && !to)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a place for what is found in images is needed");
    if (classify && !model->info.classes)
        return dn_fail(DANAUS_ERR_UNSUPPORTED, "the model has no classifier");
    if (!images)
        return DANAUS_OK;
    return model->arch->viewer->look(model, device, images, pixels, classify, to);
}

danaus_status danaus_model_embed_images(
    danaus_model *model, danaus_device *device, int64_t images, const float *pixels,
    float *embeddings)
{
    return look(model, device, images, pixels, 0, embeddings);
}

danaus_status danaus_model_classify(
    danaus_model *model, danaus_device *device, int64_t images, const float *pixels,
    float *scores)
{
    return look(model, device, images, pixels, 1, scores);
}

danaus_status danaus_model_score(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, danaus_progress_fn progress, void *user,
    float *scores)
{
    TRY(check_sequences(model, device, sequences, offsets, ids));
    if (sequences && !scores)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a place for scores is needed");
    if (!dn_linear_is_open(&model->next))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "models of architecture %s do not say what follows tokens",
            model->arch->name);
    return dn_encode_score(
        model, device, sequences, offsets, ids, progress, user, scores);
}

/* A field of a description has to be from 0 to `most`; NaN is not. */
static danaus_status check_range(const char *field, double value, double most)
{
    return value >= 0 && value <= most
               ? DANAUS_OK
               : dn_fail(
                     DANAUS_ERR_ARGUMENT, "%s is %g and has to be from 0 to %g", field,
                     value, most);
}

static danaus_status check_count(const char *field, int64_t value)
{
    return value >= 0 ? DANAUS_OK
                      : dn_fail(
                            DANAUS_ERR_ARGUMENT,
                            "%s is %" PRId64 " and has to be 0 or more", field, value);
}

static danaus_status check_sampling(const danaus_sampling *how)
{
    if (!how)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a description of sampling is needed");
    TRY(check_count("max_tokens", how->max_tokens));
    TRY(check_count("top_k", how->top_k));
    TRY(check_range("temperature", how->temperature, 1e6));
    TRY(check_range("top_p", how->top_p, 1));
    return dn_check_reserved(how->reserved, sizeof how->reserved);
}

danaus_status danaus_model_generate(
    danaus_model *model, danaus_device *device, const int32_t *prompt, int64_t n,
    const danaus_sampling *sampling, danaus_token_fn on_token, void *user)
{
    const int64_t offsets[] = { 0, n };
    TRY(check_sequences(model, device, 1, offsets, prompt));
    TRY(check_sampling(sampling));
    if (!on_token)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a function for tokens is needed");
    if (!model->arch->generate)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "models of architecture %s generate no tokens",
            model->arch->name);
    return model->arch->generate(model, device, prompt, n, sampling, on_token, user);
}

static danaus_status check_compression(
    const danaus_device *device, const danaus_model_compression *how)
{
    if (!how)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a description of compression is needed");
    TRY(check_range("ridge", how->ridge, 1e6));
    TRY(dn_compression_check(how));
    return device->backend->on_host
               ? DANAUS_OK
               : dn_fail(
                     DANAUS_ERR_UNSUPPORTED,
                     "models are compressed on a CPU, not on %s", device->name);
}

danaus_status danaus_model_compress(
    danaus_model *model, danaus_device *device, int64_t sequences,
    const int64_t *offsets, const int32_t *ids, const danaus_model_compression *how)
{
    const samples s = { .count = sequences, .offsets = offsets, .ids = ids };
    TRY(check_sequences(model, device, sequences, offsets, ids));
    TRY(check_compression(device, how));
    if (sequences && model->arch->compress)
        TRY(model->arch->compress(model, device, sequences, offsets, ids, how));
    else
        TRY(dn_compress(model, device, &s, how));
    dn_model_fill_info(model);
    return DANAUS_OK;
}

danaus_status danaus_model_compress_images(
    danaus_model *model, danaus_device *device, int64_t images, const float *pixels,
    const danaus_model_compression *how)
{
    const samples s = { .count = images, .pixels = pixels };
    TRY(check_images(model, device, images, pixels));
    TRY(check_compression(device, how));
    TRY(dn_compress(model, device, &s, how));
    dn_model_fill_info(model);
    return DANAUS_OK;
}
