/* The calls of danaus/model.h: the part that is the same for all architectures. */
// SPDX-License-Identifier: Apache-2.0
#include "model/arch.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "device/nn.h"
#include "io/file.h"
#include "model/compress/compress.h"
#include "model/encode.h"
#include "model/shards.h"
#include "model/structure.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const arch *const archs[] = {
#define X(name) &dn_arch_##name,
#include "model/archs.def"
#undef X
};

static danaus_status find_arch(const json_t *config, const arch **found)
{
    span type = { 0 };
    if (!json_is_object(config))
        return dn_fail(DANAUS_ERR_FORMAT, "config.json: this is not an object");
    if (!json_object_get(config, "model_type"))
        return dn_fail(DANAUS_ERR_FORMAT, "config.json: \"model_type\" is missing");
    TRY(dn_json_text(config, "model_type", &type));
    for (size_t i = 0; type.text && i < sizeof archs / sizeof *archs; i++)
        if (archs[i]->recognizes(config, type)) {
            *found = archs[i];
            return DANAUS_OK;
        }
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED,
        "config.json: model_type \"%.*s\" is not one that danaus runs",
        (int)MIN(type.length, 40), type.text ? type.text : "");
}

static void fill_info(danaus_model *model)
{
    danaus_model_info *info = &model->info;
    info->fills = model->head.words > 0;
    info->dtype = model->dtype;
    snprintf(info->architecture, sizeof info->architecture, "%s", model->arch->name);
    info->memory = model->memory.bytes + model->packed + model->pooler.packed +
                   model->head.dense.packed + model->next.packed;
    info->linear_parameters = info->dense_parameters = 0;
    for (int i = 0; i < model->linears; i++) {
        const linear *layer = &model->linear[i];
        info->memory += layer->packed;
        info->linear_parameters += layer->parameters;
        info->dense_parameters += layer->rows * layer->cols;
    }
    info->parameters = model->others + info->linear_parameters;
    if (model->pooling.most)
        info->max_length = MIN(info->max_length, model->pooling.most);
}

/* So few bytes are not worth looking how many there are. */
#define FEW_BYTES ((int64_t)64 << 20)

danaus_status dn_need_memory(
    const danaus_device *device, int64_t bytes, const char *what)
{
    int64_t room = bytes > FEW_BYTES ? device->backend->room(device) : bytes;
    if (bytes <= room)
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_MEMORY, "%s would take %.1f GB; %s can give %.1f GB", what,
        (double)bytes / 1e9, device->name, (double)room / 1e9);
}

static danaus_status check_type(const danaus_model *model)
{
    if (model->dtype == DANAUS_F32)
        return DANAUS_OK;
    if (model->dtype != DANAUS_F16 && model->dtype != DANAUS_BF16)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "models run in f32, f16 and bf16, not in %s",
            danaus_dtype_name(model->dtype));
    if (model->memory.device->backend->on_host)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "models run in f32 on %s, not in %s",
            model->device_name, danaus_dtype_name(model->dtype));
    return DANAUS_OK;
}

static danaus_status open_model(
    danaus_model *model, const char *path, const json_t *config)
{
    char file[PATH_MAX];
    TRY(find_arch(config, &model->arch));
    TRY(check_type(model));
    TRY(dn_structure_check(config));
    TRY(dn_pooling_read(path, &model->pooling));
    TRY(dn_shards_open(path, &model->file, file, sizeof file));
    danaus_status status = model->arch->open(model, config);
    if (status != DANAUS_OK)
        return dn_fail_in(status, model->configured ? file : "config.json");
    fill_info(model);
    dn_file_forget(model->file); /* what was packed is not read again */
    return DANAUS_OK;
}

static danaus_status fill_model(danaus_model *model, const char *path)
{
    json_t *config;
    model->path = dn_copy_text(path);
    if (!model->path)
        return dn_fail_memory(strlen(path), "the name of a folder");
    TRY(dn_config_load(path, "config.json", 0, &config));
    danaus_status status = open_model(model, path, config);
    json_decref(config);
    return status;
}

/* A model, or its outline. */
static danaus_status make_model(
    danaus_device *device, const char *path, danaus_dtype dtype, int outline,
    danaus_model **model)
{
    danaus_model *made = dn_calloc(1, sizeof *made);
    if (!made)
        return dn_fail_memory(sizeof *made, "a model");
    made->memory.device = device;
    made->memory.outline = outline;
    made->dtype = dtype;
    snprintf(made->device_name, sizeof made->device_name, "%s", device->name);
    danaus_status status = fill_model(made, path);
    if (status == DANAUS_OK)
        *model = made;
    else
        danaus_model_destroy(made);
    return status;
}

danaus_status danaus_model_load_as(
    danaus_device *device, const char *path, const danaus_model_desc *desc,
    danaus_model **model)
{
    danaus_model_desc how = { 0 };
    danaus_model *outline;
    if (!device || !path || !model)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a device, a folder and a place for the "
                                 "model are needed");
    if (!device->backend->nn)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "models do not run on device %s", device->name);
    if (desc)
        how = *desc;
    TRY(dn_check_reserved(how.reserved, sizeof how.reserved));
    danaus_dtype dtype = how.dtype ? how.dtype : DANAUS_F32;
    TRY(make_model(device, path, dtype, 1, &outline));
    if (how.outline) {
        *model = outline;
        return DANAUS_OK;
    }
    danaus_status status = dn_need_memory(device, outline->info.memory, "the weights");
    danaus_model_destroy(outline);
    return status == DANAUS_OK ? make_model(device, path, dtype, 0, model) : status;
}

danaus_status danaus_model_load(
    danaus_device *device, const char *path, danaus_model **model)
{
    return danaus_model_load_as(device, path, NULL, model);
}

void danaus_model_destroy(danaus_model *model)
{
    if (!model)
        return;
    for (int i = 0; model->linear && i < model->linears; i++)
        dn_linear_close(&model->linear[i]);
    dn_free(model->linear);
    dn_linear_close(&model->pooler);
    dn_head_close(&model->head);
    dn_linear_close(&model->next);
    if (model->arch)
        model->arch->close(model);
    dn_blocks_free(&model->memory);
    danaus_file_close(model->file);
    dn_free(model->path);
    dn_free(model);
}

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
                                   .speedup = found->speedup };
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
            DANAUS_ERR_UNSUPPORTED, "the model has no head for masked words "
                                    "(cls.predictions.*)");
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
    fill_info(model);
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
    fill_info(model);
    return DANAUS_OK;
}
