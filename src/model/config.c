/* Files of JSON in a model's folder, and fields that architectures have in common. */
// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include "base/map.h"
#include "base/numbers.h"
#include "base/status.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

danaus_status dn_config_path(
    const char *folder, const char *name, char *path, size_t size)
{
    if (!*folder)
        return dn_fail(DANAUS_ERR_ARGUMENT, "the name of a folder is empty");
    int length = snprintf(path, size, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= size)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "the name of folder %.60s... is too long", folder);
    return DANAUS_OK;
}

danaus_status dn_config_load(
    const char *folder, const char *name, int optional, json_t **config)
{
    char path[PATH_MAX];
    TRY(dn_config_path(folder, name, path, sizeof path));
    if (optional && access(path, F_OK)) {
        *config = NULL;
        return DANAUS_OK;
    }
    map m;
    TRY(dn_map_open(path, &m));
    danaus_status status =
        dn_json_parse((span){ (const char *)m.data, m.size }, config);
    dn_map_close(&m);
    return status == DANAUS_OK ? status : dn_fail_in(status, path);
}

danaus_status dn_config_size(
    const json_t *config, const char *field, int64_t most, int64_t *value)
{
    TRY(dn_json_integer(config, field, value));
    const json_t *found = json_object_get(config, field);
    if (!*value && (!found || json_is_null(found)))
        return dn_fail(
            DANAUS_ERR_FORMAT, "\"%s\" is missing: an integer from 1 to %" PRId64,
            field, most);
    if (*value < 1 || *value > most)
        return dn_fail(
            DANAUS_ERR_FORMAT, "\"%s\" is %" PRId64 " and has to be from 1 to %" PRId64,
            field, *value, most);
    return DANAUS_OK;
}

danaus_status dn_config_activation(
    const json_t *config, const char *field, danaus_activation *activation)
{
    static const struct {
        const char *name;
        danaus_activation activation;
    } known[] = {
        { "gelu", DANAUS_GELU },          { "relu", DANAUS_RELU },
        { "silu", DANAUS_SILU },          { "swish", DANAUS_SILU },
        { "gelu_new", DANAUS_GELU_TANH }, { "gelu_pytorch_tanh", DANAUS_GELU_TANH }
    };
    span name = { "gelu", strlen("gelu") };
    TRY(dn_json_text(config, field, &name));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (dn_span_is(name, known[i].name)) {
            *activation = known[i].activation;
            return DANAUS_OK;
        }
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED, "%s \"%.*s\" is not one of gelu, relu, silu, gelu_new",
        field, (int)MIN(name.length, 40), name.text);
}

danaus_status dn_config_blocks(const json_t *config, block_sizes *s)
{
    static const block_fields usual = { .width = "hidden_size",
                                        .inner = "intermediate_size",
                                        .layers = "num_hidden_layers",
                                        .heads = "num_attention_heads",
                                        .epsilon = "layer_norm_eps",
                                        .activation = "hidden_act",
                                        .positions = "max_position_embeddings" };
    const block_fields *f = s->fields ? s->fields : &usual;
    s->fields = f;
    TRY(dn_config_size(config, f->width, MOST_WIDTH, &s->width));
    TRY(dn_config_size(config, f->inner, MOST_WIDTH, &s->inner));
    TRY(dn_config_size(config, f->layers, MOST_LAYERS, &s->layers));
    TRY(dn_json_number(config, f->epsilon, &s->epsilon));
    return dn_config_activation(config, f->activation, &s->activation);
}
