/* The weights of a model's folder, in one file or several. */
// SPDX-License-Identifier: Apache-2.0
#include "model/shards.h"

#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "base/text.h"
#include "io/file.h"
#include "model/config.h"
#include "model/folder.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

/* The most names in a message about tensors that are not where the index says. */
#define MOST_TOLD 10

/* ---- the index ---- */

static const json_t *map_of(const json_t *index)
{
    return json_object_get(index, "weight_map");
}

static danaus_status check_name(const json_t *value)
{
    if (!json_is_string(value))
        return dn_fail(DANAUS_ERR_FORMAT, "\"weight_map\" has a value that is no text");
    return dn_folder_name(dn_json_span(value), "\"weight_map\"");
}

static int index_of(const shards *s, const char *name)
{
    for (int i = s->count; i-- > 0;) /* neighbours are in one file */
        if (!strcmp(s->name[i], name))
            return i;
    return -1;
}

static danaus_status add_name(shards *s, const json_t *value)
{
    TRY(check_name(value));
    if (index_of(s, json_string_value(value)) >= 0)
        return DANAUS_OK;
    if (s->count == SHARDS_MOST)
        return dn_fail(
            DANAUS_ERR_FORMAT, "the index names more than %d files", SHARDS_MOST);
    s->name[s->count++] = json_string_value(value);
    return DANAUS_OK;
}

danaus_status dn_shards_read(const json_t *index, shards *s)
{
    const char *name;
    json_t *value;
    const json_t *files = map_of(index);
    *s = (shards){ 0 };
    if (!json_object_size(files))
        return dn_fail(DANAUS_ERR_FORMAT, "\"weight_map\" is no object with tensors");
    size_t most = MIN(json_object_size(files), SHARDS_MOST);
    s->name = dn_calloc(most, sizeof *s->name);
    if (!s->name)
        return dn_fail_memory(most * sizeof *s->name, "names of files");
    danaus_status status = DANAUS_OK;
    json_object_foreach(
        (json_t *)(uintptr_t)files, name, value) if (status == DANAUS_OK) status =
        add_name(s, value);
    if (status != DANAUS_OK)
        dn_shards_free(s);
    return status;
}

void dn_shards_free(shards *s)
{
    dn_free(s->name);
    *s = (shards){ 0 };
}

/* ---- the files ---- */

static int has(const danaus_file *file, const char *name)
{
    const char *found;
    for (int i = 0; (found = dn_file_name(file, i)); i++)
        if (!strcmp(found, name))
            return 1;
    return 0;
}

/* Fails unless all tensors are where the index says; the message names those that are not. */
static danaus_status check_places(
    const json_t *index, const shards *s, danaus_file *const *parts)
{
    char told[600];
    text t = { told, sizeof told, 0 };
    int64_t wrong = 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map_of(index), name, value)
    {
        const char *file = json_string_value(value);
        if (has(parts[index_of(s, file)], name))
            continue;
        if (wrong++ < MOST_TOLD)
            dn_text(&t, "%s%.80s is not in %.80s", wrong > 1 ? "; " : "", name, file);
    }
    return wrong ? dn_fail(
                       DANAUS_ERR_FORMAT, "%" PRId64 " tensor%s: %s", wrong,
                       wrong > 1 ? "s" : "", told)
                 : DANAUS_OK;
}

static void close_parts(danaus_file **parts, int count)
{
    for (int i = 0; parts && i < count; i++)
        danaus_file_close(parts[i]);
    dn_free(parts);
}

static danaus_status open_parts(
    const char *folder, const json_t *index, const shards *s, danaus_file **file)
{
    char path[PATH_MAX];
    danaus_file **parts = dn_calloc((size_t)s->count, sizeof *parts);
    danaus_status status = DANAUS_OK;
    if (!parts)
        return dn_fail_memory((size_t)s->count * sizeof *parts, "a table of files");
    for (int i = 0; i < s->count && status == DANAUS_OK; i++) {
        status = dn_config_path(folder, s->name[i], path, sizeof path);
        if (status == DANAUS_OK)
            status = danaus_file_open(path, &parts[i]);
    }
    if (status == DANAUS_OK)
        status = check_places(index, s, parts);
    if (status == DANAUS_OK)
        status = dn_file_join(parts, s->count, file);
    if (status != DANAUS_OK)
        close_parts(parts, s->count);
    return status;
}

static danaus_status open_index(
    const char *folder, const char *name, danaus_file **file)
{
    json_t *index;
    shards s;
    TRY(dn_config_load(folder, name, 0, &index));
    danaus_status status = dn_shards_read(index, &s);
    if (status == DANAUS_OK) {
        status = open_parts(folder, index, &s, file);
        dn_shards_free(&s);
    }
    json_decref(index);
    return status;
}

danaus_status dn_shards_open(
    const char *folder, danaus_file **file, char *path, size_t size)
{
    static const char index[] = "model.safetensors.index.json";
    char other[PATH_MAX];
    TRY(dn_config_path(folder, "model.safetensors", path, size));
    TRY(dn_config_path(folder, index, other, sizeof other));
    if (!access(path, F_OK) || access(other, F_OK))
        return danaus_file_open(path, file);
    TRY(dn_config_path(folder, index, path, size));
    danaus_status status = open_index(folder, index, file);
    return status == DANAUS_OK ? status : dn_fail_in(status, path);
}
