/* danaus_model_load(): a folder becomes a model, or its outline. */
// SPDX-License-Identifier: Apache-2.0
#include "model/arch.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "device/backend.h"
#include "io/file.h"
#include "model/shards.h"
#include "model/structure.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static const arch *const archs[] = {
#define X(name) &dn_arch_##name,
#include "model/archs.def"
#undef X
};

/* True if config.json is that of a model of this architecture. */
static int describes(const json_t *config, span type, const arch *of)
{
    for (const model_type *t = of->types; t->name; t++)
        if (dn_span_is(type, t->name) &&
            (!t->field || json_object_get(config, t->field)))
            return 1;
    return 0;
}

static danaus_status find_arch(const json_t *config, const arch **found)
{
    span type = { 0 };
    if (!json_is_object(config))
        return dn_fail(DANAUS_ERR_FORMAT, "config.json: this is not an object");
    if (!json_object_get(config, "model_type"))
        return dn_fail(DANAUS_ERR_FORMAT, "config.json: \"model_type\" is missing");
    TRY(dn_json_text(config, "model_type", &type));
    for (size_t i = 0; type.text && i < sizeof archs / sizeof *archs; i++)
        if (describes(config, type, archs[i])) {
            *found = archs[i];
            return DANAUS_OK;
        }
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED,
        "config.json: model_type \"%.*s\" is not one that danaus runs",
        (int)MIN(type.length, 40), type.text ? type.text : "");
}

void dn_model_fill_info(danaus_model *model)
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
    if (model->int8 && !model->memory.device->backend->on_host)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "8-bit numbers are multiplied on CPUs, not on %s",
            model->device_name);
    if (model->dtype == DANAUS_F32)
        return DANAUS_OK;
    if (!dn_has_16_bits(model->dtype))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "models run in f32, f16 and bf16, not in %s",
            danaus_dtype_name(model->dtype));
    if (model->memory.device->backend->on_host)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "models run in f32 on %s, not in %s",
            model->device_name, danaus_dtype_name(model->dtype));
    return DANAUS_OK;
}

/* ---- architectures ---- */

void *dn_model_blocks(danaus_model *model, int64_t layers, size_t size, int linears)
{
    model->linears = (int)layers * linears;
    model->linear = dn_calloc((size_t)model->linears, sizeof *model->linear);
    void *blocks = model->linear ? dn_calloc((size_t)layers, size) : NULL;
    if (!blocks)
        dn_fail_memory((size_t)model->linears * sizeof(linear), "a table of layers");
    return blocks;
}

danaus_status dn_model_tensor(
    const danaus_model *model, const linear *layer, const char *part, danaus_tensor *t)
{
    const tensor_name path = dn_name("%s%s.%s", model->prefix, layer->name, part);
    return danaus_file_find(model->file, path.text, t);
}

static danaus_status configure(danaus_model *model, const json_t *config)
{
    const arch *of = model->arch;
    model->blocks = dn_calloc(1, of->mixer->size);
    if (of->size)
        model->own = dn_calloc(1, of->size);
    if (!model->blocks || (of->size && !model->own))
        return dn_fail_memory(of->mixer->size + of->size, "a model");
    return of->configure(model, config);
}

static danaus_status bind(danaus_model *model, const json_t *config)
{
    static const char *const none[] = { NULL };
    const arch *of = model->arch;
    binder b;
    TRY(dn_binder_open(&b, model->file, &model->memory, model->dtype));
    b.int8 = model->int8;
    danaus_status status = of->bind(model, config, &b);
    if (status == DANAUS_OK)
        status = dn_binder_settle(&b, of->others ? of->others : none);
    model->others = b.parameters;
    model->prefix = b.prefix;
    dn_binder_close(&b);
    return status;
}

static void close_arch(danaus_model *model)
{
    if (model->blocks)
        model->arch->mixer->close(model->blocks);
    if (model->own && model->arch->close)
        model->arch->close(model->own);
    dn_free(model->blocks);
    dn_free(model->own);
}

/* ---- models ---- */

static danaus_status open_model(
    danaus_model *model, const char *path, const json_t *config)
{
    char file[PATH_MAX];
    TRY(find_arch(config, &model->arch));
    TRY(check_type(model));
    TRY(dn_structure_check(config));
    TRY(dn_pooling_read(path, &model->pooling));
    TRY(dn_shards_open(path, &model->file, file, sizeof file));
    danaus_status status = configure(model, config);
    if (status != DANAUS_OK)
        return dn_fail_in(status, "config.json");
    status = bind(model, config);
    if (status != DANAUS_OK)
        return dn_fail_in(status, file);
    dn_model_fill_info(model);
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
    danaus_device *device, const char *path, const danaus_model_desc *how,
    danaus_model **model)
{
    danaus_model *made = dn_calloc(1, sizeof *made);
    if (!made)
        return dn_fail_memory(sizeof *made, "a model");
    made->memory.device = device;
    made->memory.outline = how->outline;
    made->dtype = how->dtype ? how->dtype : DANAUS_F32;
    made->int8 = how->int8;
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
    danaus_model_desc sketch = how;
    sketch.outline = 1;
    TRY(make_model(device, path, &sketch, &outline));
    if (how.outline) {
        *model = outline;
        return DANAUS_OK;
    }
    danaus_status status = dn_need_memory(device, outline->info.memory, "the weights");
    danaus_model_destroy(outline);
    return status == DANAUS_OK ? make_model(device, path, &how, model) : status;
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
    close_arch(model);
    dn_memory_free(&model->memory);
    danaus_file_close(model->file);
    dn_free(model->path);
    dn_free(model);
}
