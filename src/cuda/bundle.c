/* Many compiled kernels in one file, for machines without the compiler: a head, and files
   of the cache one after the other, by their keys. docs/formats.md has the format. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cache.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/replace.h"
#include "base/status.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_FILES 64

typedef struct head {
    char magic[16];
    uint64_t count, bytes;
} head;

static const char magic[16] = "danaus kernels\n";

/* ---- reading ---- */

static danaus_status check_head(const unsigned char *data, size_t size, head *h)
{
    if (size < sizeof *h || memcmp(data, magic, sizeof magic))
        return dn_fail(DANAUS_ERR_FORMAT, "this is no file of compiled kernels");
    memcpy(h, data, sizeof *h);
    if (h->bytes != size - sizeof *h)
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "the file has %zu bytes of kernels, its head says %" PRIu64,
            size - sizeof *h, h->bytes);
    return DANAUS_OK;
}

static danaus_status walk(
    const unsigned char *data, size_t size, const head *h,
    danaus_status (*take)(const cache_entry *entry))
{
    size_t at = sizeof *h;
    for (uint64_t i = 0; i < h->count; i++) {
        cache_entry e;
        size_t length = dn_cache_parse(data + at, size - at, &e);
        if (!length)
            return dn_fail(
                DANAUS_ERR_FORMAT, "kernel %" PRIu64 " of %" PRIu64 " is damaged", i,
                h->count);
        if (take)
            TRY(take(&e));
        at += length;
    }
    if (at != size)
        return dn_fail(
            DANAUS_ERR_FORMAT, "%zu bytes follow the last kernel", size - at);
    return DANAUS_OK;
}

danaus_status dn_bundle_read(
    const unsigned char *data, size_t size,
    danaus_status (*take)(const cache_entry *entry), int64_t *count)
{
    head h;
    TRY(check_head(data, size, &h));
    TRY(walk(data, size, &h, NULL));
    if (take)
        TRY(walk(data, size, &h, take));
    *count = (int64_t)h.count;
    return DANAUS_OK;
}

static danaus_status store(const cache_entry *e)
{
    return dn_cache_store(e->key, e->arch, e->image, e->bytes);
}

danaus_status dn_bundle_import(const char *path, int64_t *count)
{
    map m;
    TRY(dn_map_open(path, &m));
    danaus_status status = m.size > (size_t)dn_cache_most()
                               ? dn_fail(
                                     DANAUS_ERR_MEMORY,
                                     "%s has %zu bytes, the cache may hold %" PRId64
                                     ": DANAUS_CACHE_MIB allows more",
                                     path, m.size, dn_cache_most())
                               : dn_bundle_read(m.data, m.size, store, count);
    dn_map_close(&m);
    return status;
}

/* ---- writing ---- */

/* Files of the cache that go into a bundle. */
typedef struct selection {
    map *files;
    size_t count, capacity;
} selection;

static void release(selection *s)
{
    for (size_t i = 0; i < s->count; i++)
        dn_map_close(&s->files[i]);
    dn_free(s->files);
}

static danaus_status reserve(selection *s)
{
    if (s->count < s->capacity)
        return DANAUS_OK;
    size_t more = s->capacity ? 2 * s->capacity : LEAST_FILES;
    map *grown = dn_grow(s->files, s->count * sizeof *grown, more * sizeof *grown);
    if (!grown)
        return dn_fail_memory(more * sizeof *grown, "a list of files");
    s->files = grown;
    s->capacity = more;
    return DANAUS_OK;
}

/* Whole, of this version, and for those instructions. */
static int is_wanted(const map *m, const char *instructions)
{
    char own[16];
    cache_entry e;
    if (!m->size || dn_cache_parse(m->data, m->size, &e) != m->size)
        return 0;
    snprintf(own, sizeof own, "sm_%d", e.arch);
    return !strcmp(e.version, danaus_version()) &&
           (!instructions || !strcmp(own, instructions));
}

static danaus_status add_file(
    selection *s, const char *folder, const char *name, const char *instructions)
{
    char path[PATH_MAX];
    map m;
    if (!dn_cache_is_ours(name) ||
        snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH_MAX)
        return DANAUS_OK;
    TRY(reserve(s));
    if (dn_map_open(path, &m)) /* it has gone meanwhile */
        return DANAUS_OK;
    if (is_wanted(&m, instructions))
        s->files[s->count++] = m;
    else
        dn_map_close(&m);
    return DANAUS_OK;
}

static danaus_status select_files(const char *instructions, selection *s)
{
    char folder[PATH_MAX];
    struct dirent *entry;
    DIR *directory = dn_cache_folder(folder) ? opendir(folder) : NULL;
    danaus_status status = DANAUS_OK;
    while (directory && status == DANAUS_OK && (entry = readdir(directory)))
        status = add_file(s, folder, entry->d_name, instructions);
    if (directory)
        closedir(directory);
    if (status == DANAUS_OK && !s->count)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "the cache holds no kernels of this version%s%s: run or plan the products "
            "once on a machine that has the compiler",
            instructions ? " for " : "", instructions ? instructions : "");
    return status;
}

/* By the whole head, in which only keys differ first. */
static int by_key(const void *a, const void *b)
{
    return memcmp(((const map *)a)->data, ((const map *)b)->data, 32);
}

static danaus_status write_files(selection *s, const char *path)
{
    head h = { .count = s->count };
    file_part *parts = dn_alloc((s->count + 1) * sizeof *parts);
    if (!parts)
        return dn_fail_memory((s->count + 1) * sizeof *parts, "a list of files");
    memcpy(h.magic, magic, sizeof magic);
    qsort(s->files, s->count, sizeof *s->files, by_key);
    for (size_t i = 0; i < s->count; i++) {
        parts[i + 1] = (file_part){ s->files[i].data, s->files[i].size };
        h.bytes += s->files[i].size;
    }
    parts[0] = (file_part){ &h, sizeof h };
    danaus_status status = dn_replace_file(path, parts, (int)s->count + 1);
    dn_free(parts);
    return status;
}

danaus_status dn_bundle_export(
    const char *instructions, const char *path, int64_t *count)
{
    selection s = { 0 };
    danaus_status status = select_files(instructions, &s);
    if (status == DANAUS_OK)
        status = write_files(&s, path);
    if (status == DANAUS_OK)
        *count = (int64_t)s.count;
    release(&s);
    return status;
}
