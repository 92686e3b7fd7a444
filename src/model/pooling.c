/* How tokens become one vector, from modules.json and what it names. */
// SPDX-License-Identifier: Apache-2.0
#include "model/pooling.h"

#include "base/numbers.h"
#include "base/status.h"
#include "model/config.h"
#include "model/folder.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The ways to pool by their names since sentence-transformers 6, and their flags before. */
static const struct {
    const char *name, *flag;
} modes[] = {
    { "cls", "pooling_mode_cls_token" },
    { "mean", "pooling_mode_mean_tokens" },
    { "max", "pooling_mode_max_tokens" },
    { "mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens" },
    { "weightedmean", "pooling_mode_weightedmean_tokens" },
    { "lasttoken", "pooling_mode_lasttoken" },
};

/* The modes of a configuration, one after the other: *count of them, *name the last. */
static danaus_status add_mode(const json_t *mode, size_t *count, span *name)
{
    if (!json_is_string(mode))
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "\"pooling_mode\" is neither a string nor a list of such");
    *name = dn_json_span(mode);
    ++*count;
    return DANAUS_OK;
}

static danaus_status list_modes(const json_t *config, size_t *count, span *name)
{
    size_t i;
    const json_t *given = json_object_get(config, "pooling_mode"), *mode;
    json_array_foreach(given, i, mode) TRY(add_mode(mode, count, name));
    if (given && !json_is_array(given))
        return add_mode(given, count, name);
    for (i = 0; i < sizeof modes / sizeof *modes && !given; i++) {
        int asked = 0;
        TRY(dn_json_flag(config, modes[i].flag, &asked));
        if (asked) {
            *name = (span){ modes[i].name, strlen(modes[i].name) };
            ++*count;
        }
    }
    return DANAUS_OK;
}

/* Without any mode it is the mean, as in sentence-transformers. */
static danaus_status read_modes(const json_t *config, pooling *p)
{
    size_t count = 0;
    span name = { "mean", 4 };
    TRY(list_modes(config, &count, &name));
    p->first = dn_span_is(name, "cls");
    if (count > 1)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "the pooling joins %zu modes; danaus has the mean and the first token, one "
            "at a time",
            count);
    if (!p->first && !dn_span_is(name, "mean"))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "the pooling is \"%.*s\"; danaus has \"mean\" and \"cls\", the first token",
            (int)MIN(name.length, 40), name.text);
    return DANAUS_OK;
}

/* Releases a file's contents, and names the file in a failure. */
static danaus_status end(json_t *config, const char *name, danaus_status status)
{
    json_decref(config);
    return status == DANAUS_OK ? status : dn_fail_in(status, name);
}

static danaus_status read_pooling(const char *folder, pooling *p)
{
    char name[PATH_MAX];
    json_t *config;
    TRY(dn_config_path(p->folder, "config.json", name, sizeof name));
    TRY(dn_config_load(folder, name, 0, &config));
    return end(config, name, read_modes(config, p));
}

/* The last word of a module's type, "Pooling". */
static span kind_of(span type)
{
    for (size_t i = type.length; i-- > 0;)
        if (type.text[i] == '.')
            return (span){ type.text + i + 1, type.length - i - 1 };
    return type;
}

/* Modules come in this order, each at most once. */
static const char *const kinds[] = { "Transformer", "Pooling", "Normalize" };

static danaus_status read_module(
    const char *folder, const json_t *module, size_t *next, pooling *p)
{
    span type = { 0 }, path = { 0 };
    TRY(dn_json_text(module, "type", &type));
    TRY(dn_json_text(module, "path", &path));
    span kind = kind_of(type);
    size_t i = *next;
    while (i < sizeof kinds / sizeof *kinds && !dn_span_is(kind, kinds[i]))
        i++;
    if (i == sizeof kinds / sizeof *kinds)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "modules.json has a module of type \"%.*s\"; danaus runs a Transformer, "
            "then perhaps a Pooling and a Normalize",
            (int)MIN(type.length, 80), type.text ? type.text : "");
    *next = i + 1;
    if (i == 2)
        p->normalize = 1;
    if (i == 0 && path.length)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "modules.json has the transformer in the folder \"%.*s\"; danaus reads it "
            "from beside modules.json",
            (int)MIN(path.length, 80), path.text);
    if (i != 1)
        return DANAUS_OK;
    TRY(dn_folder_name(path, "modules.json"));
    if (path.length >= sizeof p->folder)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "modules.json: the name of the pooling's folder is long");
    snprintf(p->folder, sizeof p->folder, "%.*s", (int)path.length, path.text);
    return read_pooling(folder, p);
}

/* A positive integer of a file that need not be there. */
static danaus_status read_limit(
    const char *folder, const char *name, const char *field, int64_t *limit)
{
    json_t *config;
    TRY(dn_config_load(folder, name, 1, &config));
    return end(config, name, dn_json_integer(config, field, limit));
}

/* Since sentence-transformers 6 the tokenizer has the limit. */
static danaus_status read_length(const char *folder, pooling *p)
{
    TRY(read_limit(folder, "sentence_bert_config.json", "max_seq_length", &p->most));
    if (p->most || !p->given)
        return DANAUS_OK;
    return read_limit(folder, "tokenizer_config.json", "model_max_length", &p->most);
}

static danaus_status check_default(const json_t *config)
{
    span name = { 0 }, prompt = { 0 };
    TRY(dn_json_text(config, "default_prompt_name", &name));
    if (!name.length)
        return DANAUS_OK;
    TRY(dn_json_text(json_object_get(config, "prompts"), name.text, &prompt));
    if (!prompt.length)
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED,
        "\"default_prompt_name\" puts \"%.*s\" before every text, which danaus does "
        "not: set it to null, and begin the texts with the prompt",
        (int)MIN(prompt.length, 80), prompt.text);
}

/* Prompts that a caller chooses by name are the caller's; one for every text is refused. */
static danaus_status check_prompts(const char *folder)
{
    const char *name = "config_sentence_transformers.json";
    json_t *config;
    TRY(dn_config_load(folder, name, 1, &config));
    return end(config, name, check_default(config));
}

static danaus_status read_modules(const char *folder, const json_t *modules, pooling *p)
{
    size_t i, next = 0;
    const json_t *module;
    if (modules && !json_is_array(modules))
        return dn_fail(DANAUS_ERR_FORMAT, "modules.json is no list");
    json_array_foreach(modules, i, module) TRY(read_module(folder, module, &next, p));
    return modules ? check_prompts(folder) : DANAUS_OK;
}

danaus_status dn_pooling_read(const char *folder, pooling *p)
{
    json_t *modules;
    TRY(dn_config_load(folder, "modules.json", 1, &modules));
    pooling found = { .given = modules != NULL, .normalize = !modules };
    danaus_status status = read_modules(folder, modules, &found);
    json_decref(modules);
    TRY(status);
    TRY(read_length(folder, &found));
    *p = found;
    return DANAUS_OK;
}
