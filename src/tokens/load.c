/* Where the files of a tokenizer are. */
// SPDX-License-Identifier: Apache-2.0
#include "base/map.h"
#include "base/mem.h"
#include "base/status.h"
#include "tokens/tokens.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKENIZER "tokenizer.json"
#define WORDS     "vocab.txt"
#define CONFIG    "tokenizer_config.json"
#define ADDED     "added_tokens.json"

/* The path of a file in a folder, or beside a file; to be freed. */
static char *path_in(const char *folder, size_t length, const char *name)
{
    size_t bytes = length + strlen(name) + 2;
    char *path = dn_alloc(bytes);
    if (path) {
        text t = { path, bytes, 0 };
        dn_text(&t, "%.*s%s%s", (int)length, folder, length ? "/" : "", name);
    }
    return path;
}

static int exists(const char *path) { return access(path, F_OK) == 0; }

static int is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static span map_span(const map *m) { return (span){ (const char *)m->data, m->size }; }

static danaus_status load_json(const char *path, danaus_tokenizer **tokenizer)
{
    map m;
    TRY(dn_map_open(path, &m));
    danaus_status status = dn_tokenizer_read(map_span(&m), tokenizer);
    dn_map_close(&m);
    return status == DANAUS_OK ? status : dn_fail_in(status, path);
}

static danaus_status load_words(
    const char *path, const char *config_path, danaus_tokenizer **tokenizer)
{
    map words, config;
    int in_words = 0;
    TRY(dn_map_open(path, &words));
    danaus_status status = dn_map_open(config_path, &config);
    if (status == DANAUS_OK) {
        status = dn_tokenizer_read_words(
            map_span(&words), map_span(&config), tokenizer, &in_words);
        if (status != DANAUS_OK)
            dn_fail_in(status, in_words ? path : config_path);
        dn_map_close(&config);
    }
    dn_map_close(&words);
    return status;
}

/* Tokens of added_tokens.json would be missed. */
static danaus_status load_words_beside(const char *path, danaus_tokenizer **tokenizer)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash == path ? 1 : slash ? (size_t)(slash - path) : 0;
    char *config = path_in(path, length, CONFIG), *added = path_in(path, length, ADDED);
    danaus_status status;
    if (!config || !added)
        status = dn_fail_memory(strlen(path), "a path");
    else if (exists(added))
        status = dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "%s is there; only " TOKENIZER " may have such tokens", added);
    else
        status = load_words(path, config, tokenizer);
    dn_free(config);
    dn_free(added);
    return status;
}

static danaus_status load_file(const char *path, danaus_tokenizer **tokenizer)
{
    size_t length = strlen(path), end = strlen(".json");
    int is_json = length > end && !strcmp(path + length - end, ".json");
    return is_json ? load_json(path, tokenizer) : load_words_beside(path, tokenizer);
}

static danaus_status load_characters(const char *path, danaus_tokenizer **tokenizer)
{
    map m;
    TRY(dn_map_open(path, &m));
    danaus_status status = dn_tokenizer_read_characters(map_span(&m), tokenizer);
    dn_map_close(&m);
    return status == DANAUS_OK ? status : dn_fail_in(status, path);
}

static danaus_status load_folder(const char *path, danaus_tokenizer **tokenizer)
{
    char *json = path_in(path, strlen(path), TOKENIZER);
    char *words = path_in(path, strlen(path), WORDS);
    char *config = path_in(path, strlen(path), CONFIG);
    danaus_status status;
    if (!json || !words || !config)
        status = dn_fail_memory(strlen(path), "a path");
    else if (exists(json) || exists(words))
        status = load_file(exists(json) ? json : words, tokenizer);
    else if (exists(config))
        status = load_characters(config, tokenizer);
    else
        status = dn_fail(
            DANAUS_ERR_IO, "there is neither " TOKENIZER " nor " WORDS " in %s", path);
    dn_free(json);
    dn_free(words);
    dn_free(config);
    return status;
}

danaus_status danaus_tokenizer_load(const char *path, danaus_tokenizer **tokenizer)
{
    if (!path || !tokenizer)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a path and a place for the tokenizer are needed");
    return is_folder(path) ? load_folder(path, tokenizer) : load_file(path, tokenizer);
}
