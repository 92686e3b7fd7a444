/* Reading and writing bundles. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/gpu.h"
#include "gpu/run/images/bundle.h"

#include "base/mem.h"
#include "base/replace.h"
#include "base/status.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INSTRUCTIONS (sizeof((danaus_kernels_info *)NULL)->instructions)

typedef struct bundle_head {
    char magic[16];
    uint64_t count, bytes; /* bytes: of the file */
    hash128 index;         /* of the rows */
} bundle_head;

typedef struct bundle_row {
    image_head of_image;
    uint64_t at; /* bytes from where the file begins */
} bundle_row;

static const char magic[16] = "danaus bundle 2";
static const char old_magic[16] = "danaus kernels\n";

static void write_instructions(char to[INSTRUCTIONS], uint64_t arch)
{
    if (arch < GPU_LEAST_CUDA)
        snprintf(to, INSTRUCTIONS, "opencl");
    else
        snprintf(to, INSTRUCTIONS, "sm_%" PRIu64, arch);
}

/* ---- reading ---- */

static int compare(hash128 a, hash128 b)
{
    int half = a.part[0] == b.part[0];
    return (a.part[half] > b.part[half]) - (a.part[half] < b.part[half]);
}

static bundle_row row_of(const bundle *b, uint64_t i)
{
    bundle_row row;
    memcpy(&row, b->file.data + sizeof(bundle_head) + i * sizeof row, sizeof row);
    return row;
}

/* Keys rise, and images follow each other up to the end of the file. */
static danaus_status check_rows(const bundle *b)
{
    uint64_t size = b->file.size;
    uint64_t end = sizeof(bundle_head) + b->count * sizeof(bundle_row); /* <= size */
    hash128 last = { { 0, 0 } };
    for (uint64_t i = 0; i < b->count; i++) {
        bundle_row row = row_of(b, i);
        if ((i && compare(last, row.of_image.key) >= 0) || row.at != end ||
            row.of_image.bytes > size - end)
            return dn_fail(
                DANAUS_ERR_FORMAT, "row %" PRIu64 " of %" PRIu64 " has a wrong place",
                i, b->count);
        last = row.of_image.key;
        end += row.of_image.bytes;
    }
    if (end != size)
        return dn_fail(
            DANAUS_ERR_FORMAT, "%" PRIu64 " bytes follow the last kernel", size - end);
    return DANAUS_OK;
}

static danaus_status read_head(map file, bundle_head *h)
{
    if (file.size >= sizeof magic && !memcmp(file.data, old_magic, sizeof magic))
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "this file of kernels is of an older danaus: export them again");
    if (file.size < sizeof *h || memcmp(file.data, magic, sizeof magic))
        return dn_fail(DANAUS_ERR_FORMAT, "this is no file of compiled kernels");
    memcpy(h, file.data, sizeof *h);
    if (h->bytes != file.size ||
        h->count > (file.size - sizeof *h) / sizeof(bundle_row))
        return dn_fail(
            DANAUS_ERR_FORMAT,
            "the file has %zu bytes, its head says %" PRIu64 " of %" PRIu64 " kernels",
            file.size, h->bytes, h->count);
    return DANAUS_OK;
}

danaus_status dn_bundle_read(map file, bundle *b)
{
    bundle_head h;
    TRY(read_head(file, &h));
    hash128 index =
        dn_hash(DN_HASH_START, file.data + sizeof h, h.count * sizeof(bundle_row));
    if (!dn_hash_equal(h.index, index))
        return dn_fail(DANAUS_ERR_FORMAT, "the index of the kernels is damaged");
    bundle found = { file, h.count, index };
    TRY(check_rows(&found));
    *b = found;
    return DANAUS_OK;
}

danaus_status dn_bundle_open(const char *path, bundle *b)
{
    map m;
    TRY(dn_map_open(path, &m));
    danaus_status status = dn_bundle_read(m, b);
    if (status == DANAUS_OK)
        return status;
    dn_map_close(&m);
    return dn_fail_in(status, path);
}

cache_entry dn_bundle_entry(const bundle *b, uint64_t i)
{
    bundle_row row = row_of(b, i);
    return (cache_entry){ row.of_image, b->file.data + row.at };
}

int dn_bundle_find(const bundle *b, hash128 key, cache_entry *entry)
{
    uint64_t low = 0, high = b->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (compare(row_of(b, middle).of_image.key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == b->count || !dn_hash_equal(row_of(b, low).of_image.key, key))
        return 0;
    *entry = dn_bundle_entry(b, low);
    return 1;
}

danaus_status dn_bundle_check(const bundle *b)
{
    for (uint64_t i = 0; i < b->count; i++) {
        cache_entry e = dn_bundle_entry(b, i);
        if (!dn_cache_is_whole(&e))
            return dn_fail(
                DANAUS_ERR_FORMAT, "kernel %" PRIu64 " of %" PRIu64 " is damaged", i,
                b->count);
    }
    return DANAUS_OK;
}

static danaus_status import(const bundle *b, const char *path)
{
    if (b->file.size > (size_t)dn_cache_most())
        return dn_fail(
            DANAUS_ERR_MEMORY,
            "%s has %zu bytes, the cache may hold %" PRId64
            ": DANAUS_CACHE_MIB allows more",
            path, b->file.size, dn_cache_most());
    TRY(dn_bundle_check(b));
    for (uint64_t i = 0; i < b->count; i++) {
        cache_entry e = dn_bundle_entry(b, i);
        TRY(dn_cache_store(e.head.key, (int)e.head.arch, e.image, e.head.bytes));
    }
    return DANAUS_OK;
}

danaus_status dn_bundle_import(const char *path, int64_t *count)
{
    bundle b;
    TRY(dn_bundle_open(path, &b));
    danaus_status status = import(&b, path);
    if (status == DANAUS_OK)
        *count = (int64_t)b.count;
    dn_map_close(&b.file);
    return status;
}

/* ---- what a bundle holds ---- */

static int by_kind(const void *x, const void *y)
{
    const image_head *a = x, *b = y;
    int order = memcmp(a->version, b->version, sizeof a->version);
    return order ? order : (a->arch > b->arch) - (a->arch < b->arch);
}

static danaus_kernels_info sum_up(const image_head *heads, uint64_t count)
{
    danaus_kernels_info info = { .count = (int64_t)count };
    snprintf(
        info.version, sizeof info.version, "%.*s", (int)sizeof heads->version,
        heads->version);
    write_instructions(info.instructions, heads->arch);
    for (uint64_t i = 0; i < count; i++)
        info.bytes += (int64_t)heads[i].bytes;
    return info;
}

/* Describes kind number `index`: the kernels of one version and architecture. */
static danaus_status list(const bundle *b, int index, danaus_kernels_info *info)
{
    size_t bytes = b->count * sizeof(image_head);
    image_head *heads = dn_alloc(bytes);
    int kinds = 0;
    if (!heads)
        return dn_fail_memory(bytes, "a list of kernels");
    for (uint64_t i = 0; i < b->count; i++)
        heads[i] = row_of(b, i).of_image;
    qsort(heads, b->count, sizeof *heads, by_kind);
    for (uint64_t i = 0, end; i < b->count && kinds <= index; i = end, kinds++) {
        for (end = i + 1; end < b->count && !by_kind(&heads[i], &heads[end]); end++)
            ;
        if (kinds == index)
            *info = sum_up(heads + i, end - i);
    }
    dn_free(heads);
    return kinds > index ? DANAUS_OK
                         : dn_fail(
                               DANAUS_ERR_ARGUMENT,
                               "these are %d kinds of kernels, from 0", kinds);
}

danaus_status dn_bundle_list(const char *path, int index, danaus_kernels_info *info)
{
    bundle b;
    TRY(dn_bundle_open(path, &b));
    danaus_status status = list(&b, index, info);
    dn_map_close(&b.file);
    return status;
}

/* ---- writing ---- */

/* A file of the cache that goes into a bundle. */
typedef struct chosen {
    map file;
    cache_entry entry;
} chosen;

typedef struct selection {
    chosen *files;
    size_t count, capacity;
} selection;

static void release(selection *s)
{
    for (size_t i = 0; i < s->count; i++)
        dn_map_close(&s->files[i].file);
    dn_free(s->files);
}

/* Whole, of this version, and for those instructions. */
static int is_wanted(const map *m, const char *instructions, cache_entry *e)
{
    char own[INSTRUCTIONS];
    if (!m->size || !dn_cache_parse(m->data, m->size, e))
        return 0;
    write_instructions(own, e->head.arch);
    return !strcmp(e->head.version, danaus_version()) &&
           (!instructions || !strcmp(own, instructions));
}

static danaus_status add_file(
    selection *s, const char *folder, const char *name, const char *instructions)
{
    char path[PATH_MAX];
    chosen c;
    if (!dn_cache_is_ours(name) ||
        snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH_MAX)
        return DANAUS_OK;
    TRY(dn_reserve(
        &s->files, s->count, &s->capacity, sizeof *s->files, "a list of files"));
    if (dn_map_open(path, &c.file)) /* it has gone meanwhile */
        return DANAUS_OK;
    if (is_wanted(&c.file, instructions, &c.entry))
        s->files[s->count++] = c;
    else
        dn_map_close(&c.file);
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

static int by_key(const void *x, const void *y)
{
    const chosen *a = x, *b = y;
    return compare(a->entry.head.key, b->entry.head.key);
}

/* Two files of one key, one of them by another name, are one kernel. */
static void sort(selection *s)
{
    size_t kept = 0;
    qsort(s->files, s->count, sizeof *s->files, by_key);
    for (size_t i = 0; i < s->count; i++)
        if (i && !by_key(&s->files[i], &s->files[kept - 1]))
            dn_map_close(&s->files[i].file);
        else
            s->files[kept++] = s->files[i];
    s->count = kept;
}

/* The head, the rows, the images. */
static danaus_status write_parts(
    const selection *s, const char *path, bundle_row *rows, file_part *parts)
{
    size_t bytes = s->count * sizeof *rows, end = sizeof(bundle_head) + bytes;
    for (size_t i = 0; i < s->count; i++) {
        const cache_entry *e = &s->files[i].entry;
        rows[i] = (bundle_row){ e->head, end };
        parts[2 + i] = (file_part){ e->image, e->head.bytes };
        end += e->head.bytes;
    }
    bundle_head h = { .count = s->count, .bytes = end };
    memcpy(h.magic, magic, sizeof magic);
    h.index = dn_hash(DN_HASH_START, rows, bytes);
    parts[0] = (file_part){ &h, sizeof h };
    parts[1] = (file_part){ rows, bytes };
    return dn_replace_file(path, parts, 2 + (int)s->count);
}

static danaus_status write_files(const selection *s, const char *path)
{
    bundle_row *rows = dn_alloc(s->count * sizeof *rows);
    file_part *parts = dn_alloc((2 + s->count) * sizeof *parts);
    danaus_status status =
        rows && parts ? write_parts(s, path, rows, parts)
                      : dn_fail_memory(s->count * sizeof *rows, "an index of kernels");
    dn_free(parts);
    dn_free(rows);
    return status;
}

danaus_status dn_bundle_export(
    const char *instructions, const char *path, int64_t *count)
{
    selection s = { 0 };
    danaus_status status = select_files(instructions, &s);
    if (status == DANAUS_OK) {
        sort(&s);
        status = write_files(&s, path);
    }
    if (status == DANAUS_OK)
        *count = (int64_t)s.count;
    release(&s);
    return status;
}
