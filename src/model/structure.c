/* The structure of layers in config.json:

       "quantization_config": { "quant_method": "danaus", "version": 1, "layers": { NAME: .. } }

   where a layer is one of

       { "kind": "chain", "patterns": [[a, b, c, d], ..], "bias": true, "int8": true }
       { "kind": "sum", "first": CHAIN, "second": CHAIN }
       { "kind": "interpolated", "basis": CHAIN, "others": CHAIN } */
// SPDX-License-Identifier: Apache-2.0
#include "model/structure.h"

#include "base/numbers.h"
#include "base/replace.h"
#include "base/status.h"
#include "model/arch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY   "quantization_config"
#define METHOD  "danaus"
#define VERSION 1

/* ---- reading ---- */

/* A chain's option has its usual value, or is left out. */
static danaus_status check_option(
    const json_t *chain, const char *name, const char *option, const char *usual)
{
    span value = { 0 };
    TRY(dn_json_text(chain, option, &value));
    if (!value.text || dn_span_is(value, usual))
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED, "the layer %.80s has the %s \"%.*s\"; \"%s\" is run",
        name, option, (int)MIN(value.length, 40), value.text, usual);
}

static danaus_status check_layer(const json_t *layer, const char *name)
{
    static const char *const parts[] = { "first", "second", "basis", "others" };
    TRY(check_option(layer, name, "activation", "none"));
    TRY(check_option(layer, name, "layout", "batch_first"));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const json_t *part = json_object_get(layer, parts[i]);
        if (part)
            TRY(check_layer(part, name));
    }
    return DANAUS_OK;
}

danaus_status dn_structure_check(const json_t *config)
{
    const char *name;
    json_t *layer, *entry = json_object_get(config, ENTRY);
    span method = { 0 };
    int64_t version = VERSION;
    if (!entry || json_is_null(entry))
        return DANAUS_OK;
    TRY(dn_json_text(entry, "quant_method", &method));
    if (!method.text || !dn_span_is(method, METHOD))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            ENTRY
            " has the quant_method \"%.*s\"; models are run whose weights are not "
            "quantised",
            (int)MIN(method.length, 40), method.text ? method.text : "");
    if (json_object_get(entry, "version"))
        TRY(dn_json_integer(entry, "version", &version));
    if (version > VERSION)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, ENTRY " is of version %d; up to %d are read",
            (int)MIN(version, INT_MAX), VERSION);
    danaus_status status = DANAUS_OK;
    json_object_foreach(json_object_get(entry, "layers"), name, layer)
    {
        if (status == DANAUS_OK)
            status = check_layer(layer, name);
    }
    return status;
}

/* ---- writing ---- */

int dn_structure_has(const linear *layer)
{
    return layer->shape.int8 ||
           (layer->fitted.basis ? !layer->fitted.dense : layer->is_chain);
}

static json_t *chain_of(const danaus_pattern *p, int64_t count, int bias, int int8)
{
    json_t *patterns = json_array();
    for (int64_t i = 0; i < count; i++)
        json_array_append_new(
            patterns, json_pack(
                          "[I, I, I, I]", (json_int_t)p[i].a, (json_int_t)p[i].b,
                          (json_int_t)p[i].c, (json_int_t)p[i].d));
    json_t *chain = json_pack(
        "{s:s, s:o, s:b}", "kind", "chain", "patterns", patterns, "bias", bias);
    if (int8)
        json_object_set_new(chain, "int8", json_true());
    return chain;
}

static json_t *layer_of(const linear *layer)
{
    const fit *f = &layer->fitted;
    const danaus_pattern basis = { 1, f->rank, f->cols, 1 },
                         others = { 1, f->rows - f->rank, f->rank, 1 };
    int64_t first = layer->first;
    int int8 = layer->shape.int8;
    if (f->basis && !f->chain[0] && !f->dense)
        return json_pack(
            "{s:s, s:o, s:o}", "kind", "interpolated", "basis",
            chain_of(&basis, 1, 1, int8), "others", chain_of(&others, 1, 1, int8));
    if (!first)
        return chain_of(
            layer->patterns, layer->factors, layer->biased || f->dense, int8);
    return json_pack(
        "{s:s, s:o, s:o}", "kind", "sum", "first",
        chain_of(layer->patterns, first, layer->biased, int8), "second",
        chain_of(layer->patterns + first, layer->factors - first, 0, int8));
}

/* The entry, or NULL: there is no memory. */
static json_t *entry_of(const danaus_model *model)
{
    json_t *layers = json_object();
    for (int i = 0; i < model->linears; i++) {
        const linear *layer = &model->linear[i];
        if (!dn_structure_has(layer))
            continue;
        const tensor_name name = dn_name("%s%s", model->prefix, layer->name);
        if (json_object_set_new(layers, name.text, layer_of(layer))) {
            json_decref(layers);
            return NULL;
        }
    }
    return json_pack(
        "{s:s, s:i, s:o}", "quant_method", METHOD, "version", VERSION, "layers",
        layers);
}

static danaus_status write_config(const json_t *config, const char *path)
{
    char file[PATH_MAX];
    TRY(dn_config_path(path, "config.json", file, sizeof file));
    char *made = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (!made)
        return dn_fail_memory(1, "config.json");
    danaus_status status = dn_replace_file(file, &(file_part){ made, strlen(made) }, 1);
    free(made);
    return status;
}

int dn_structure_count(const danaus_model *model)
{
    int count = 0;
    for (int i = 0; i < model->linears; i++)
        count += dn_structure_has(&model->linear[i]);
    return count;
}

danaus_status dn_structure_write(const danaus_model *model, const char *path)
{
    json_t *config;
    TRY(dn_config_load(model->path, "config.json", 0, &config));
    json_t *entry = entry_of(model);
    danaus_status status = entry && !json_object_set(config, ENTRY, entry)
                               ? write_config(config, path)
                               : dn_fail_memory(1, "config.json");
    json_decref(entry);
    json_decref(config);
    return status;
}
