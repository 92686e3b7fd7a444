/* How tokens become one vector, from modules.json and what it names. */
// SPDX-License-Identifier: Apache-2.0
#include "model/pooling.h"

#include "base/numbers.h"
#include "base/status.h"
#include "model/config.h"
#include "model/folder.h"

#include <limits.h>
#include <stdio.h>

static danaus_status read_modes(const json_t *config, const char *path, pooling *p)
{
    static const char *const unknown[] = { "pooling_mode_max_tokens",
                                           "pooling_mode_mean_sqrt_len_tokens",
                                           "pooling_mode_weightedmean_tokens",
                                           "pooling_mode_lasttoken" };
    int mean = 0, others = 0;
    TRY(dn_json_flag(config, "pooling_mode_cls_token", &p->first));
    TRY(dn_json_flag(config, "pooling_mode_mean_tokens", &mean));
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown && !others; i++)
        TRY(dn_json_flag(config, unknown[i], &others));
    if (others || p->first == mean)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "%s asks for a pooling that is neither the mean nor the first token", path);
    return DANAUS_OK;
}

static danaus_status read_pooling(const char *folder, pooling *p)
{
    char name[PATH_MAX];
    json_t *config;
    TRY(dn_config_path(p->folder, "config.json", name, sizeof name));
    TRY(dn_config_load(folder, name, 0, &config));
    danaus_status status = read_modes(config, name, p);
    json_decref(config);
    return status;
}

/* The last word of a module's type, "Pooling". */
static span kind_of(span type)
{
    for (size_t i = type.length; i-- > 0;)
        if (type.text[i] == '.')
            return (span){ type.text + i + 1, type.length - i - 1 };
    return type;
}

static danaus_status read_module(const char *folder, const json_t *module, pooling *p)
{
    span type = { 0 }, path = { 0 };
    TRY(dn_json_text(module, "type", &type));
    TRY(dn_json_text(module, "path", &path));
    span kind = kind_of(type);
    if (dn_span_is(kind, "Transformer"))
        return DANAUS_OK;
    if (dn_span_is(kind, "Normalize")) {
        p->normalize = 1;
        return DANAUS_OK;
    }
    if (!dn_span_is(kind, "Pooling"))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "modules.json has a module of type \"%.*s\"",
            (int)MIN(type.length, 80), type.text ? type.text : "");
    TRY(dn_folder_name(path, "modules.json"));
    if (path.length >= sizeof p->folder)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "modules.json: the name of the pooling's folder is long");
    snprintf(p->folder, sizeof p->folder, "%.*s", (int)path.length, path.text);
    return read_pooling(folder, p);
}

static danaus_status read_length(const char *folder, pooling *p)
{
    json_t *config;
    TRY(dn_config_load(folder, "sentence_bert_config.json", 1, &config));
    danaus_status status = dn_json_integer(config, "max_seq_length", &p->most);
    json_decref(config);
    return status;
}

danaus_status dn_pooling_read(const char *folder, pooling *p)
{
    json_t *modules;
    TRY(dn_config_load(folder, "modules.json", 1, &modules));
    pooling found = { .given = modules != NULL, .normalize = !modules };
    danaus_status status = DANAUS_OK;
    if (modules && !json_is_array(modules))
        status = dn_fail(DANAUS_ERR_FORMAT, "modules.json is no list");
    for (size_t i = 0; i < json_array_size(modules) && status == DANAUS_OK; i++)
        status = read_module(folder, json_array_get(modules, i), &found);
    json_decref(modules);
    TRY(status);
    TRY(read_length(folder, &found));
    *p = found;
    return DANAUS_OK;
}
