/* Compiled kernels kept on the disk. A file is a head and the image. The head has the key,
   the image's size and hash, and the architecture that it was compiled for. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/images/cache.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/replace.h"
#include "base/status.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BYTES ((int64_t)256 << 20)
#define SUFFIX     ".cubin"

typedef struct file_head {
    char magic[16];
    image_head of_image;
} file_head;

static const char magic[16] = "danaus cubin 3\n";

static int set_folder(char folder[PATH_MAX], const char *base, const char *rest)
{
    return base && *base && snprintf(folder, PATH_MAX, "%s%s", base, rest) < PATH_MAX;
}

int dn_cache_folder(char *folder)
{
    const char *own = getenv("DANAUS_CACHE");
    return own ? set_folder(folder, own, "")
               : set_folder(folder, getenv("XDG_CACHE_HOME"), "/danaus") ||
                     set_folder(folder, getenv("HOME"), "/.cache/danaus");
}

static int find_file(hash128 key, char folder[PATH_MAX], char path[PATH_MAX])
{
    return dn_cache_folder(folder) && snprintf(
                                          path, PATH_MAX, "%s/%016llx%016llx" SUFFIX,
                                          folder, (unsigned long long)key.part[0],
                                          (unsigned long long)key.part[1]) < PATH_MAX;
}

int dn_cache_is_whole(const cache_entry *e)
{
    const image_head *h = &e->head;
    return h->arch <= INT_MAX && !h->version[sizeof h->version - 1] &&
           dn_hash_equal(h->hash, dn_hash(DN_HASH_START, e->image, h->bytes));
}

void *dn_cache_copy(const cache_entry *e)
{
    void *copy = dn_cache_is_whole(e) ? dn_alloc(e->head.bytes) : NULL;
    return copy ? memcpy(copy, e->image, e->head.bytes) : NULL;
}

/* All but the hash. */
static int read_file(const unsigned char *data, size_t size, cache_entry *entry)
{
    file_head h;
    if (size < sizeof h)
        return 0;
    memcpy(&h, data, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) || h.of_image.bytes != size - sizeof h)
        return 0;
    *entry = (cache_entry){ h.of_image, data + sizeof h };
    return 1;
}

int dn_cache_parse(const unsigned char *data, size_t size, cache_entry *entry)
{
    return read_file(data, size, entry) && dn_cache_is_whole(entry);
}

int dn_cache_load(hash128 key, void **image, size_t *bytes)
{
    char folder[PATH_MAX], path[PATH_MAX];
    struct stat s;
    map m;
    cache_entry e;
    if (!find_file(key, folder, path) || stat(path, &s) || dn_map_open(path, &m))
        return 0;
    void *copy = read_file(m.data, m.size, &e) && dn_hash_equal(e.head.key, key)
                     ? dn_cache_copy(&e)
                     : NULL;
    if (copy) {
        *bytes = e.head.bytes;
        *image = copy;
    }
    dn_map_close(&m);
    return copy != NULL;
}

int dn_cache_has(hash128 key)
{
    char folder[PATH_MAX], path[PATH_MAX];
    return find_file(key, folder, path) && access(path, R_OK) == 0;
}

/* Makes the folder and those above it. */
static void make_folder(char *folder)
{
    for (char *at = folder + 1; *at; at++)
        if (*at == '/') {
            *at = '\0';
            mkdir(folder, 0700);
            *at = '/';
        }
    mkdir(folder, 0700);
}

typedef struct cache_survey {
    int64_t bytes;
    char oldest[PATH_MAX];
    struct timespec time;
} cache_survey;

static int is_before(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

int dn_cache_is_ours(const char *name)
{
    size_t length = strlen(name), end = sizeof SUFFIX - 1;
    return length > end && !strcmp(name + length - end, SUFFIX);
}

/* All our files in the folder together, and the oldest of them. */
static int take_survey(const char *folder, cache_survey *all)
{
    DIR *directory = opendir(folder);
    struct dirent *entry;
    if (!directory)
        return 0;
    all->bytes = 0;
    all->oldest[0] = '\0';
    while ((entry = readdir(directory))) {
        char path[PATH_MAX];
        struct stat s;
        if (!dn_cache_is_ours(entry->d_name) ||
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= PATH_MAX ||
            stat(path, &s))
            continue;
        all->bytes += (int64_t)s.st_size;
        if (!all->oldest[0] || is_before(s.st_mtim, all->time)) {
            memcpy(all->oldest, path, sizeof path);
            all->time = s.st_mtim;
        }
    }
    closedir(directory);
    return all->oldest[0] != '\0';
}

int64_t dn_cache_most(void)
{
    const char *text = getenv("DANAUS_CACHE_MIB");
    long long mib = text ? atoll(text) : 0;
    return mib > 0 && mib < 1 << 30 ? (int64_t)mib << 20 : MOST_BYTES;
}

danaus_status dn_cache_store(hash128 key, int arch, const void *image, size_t bytes)
{
    char folder[PATH_MAX], path[PATH_MAX];
    file_head h = { .of_image = { .key = key,
                                  .hash = dn_hash(DN_HASH_START, image, bytes),
                                  .bytes = bytes,
                                  .arch = (uint64_t)arch } };
    memcpy(h.magic, magic, sizeof magic);
    snprintf(h.of_image.version, sizeof h.of_image.version, "%s", danaus_version());
    if (!find_file(key, folder, path))
        return dn_fail(DANAUS_ERR_ARGUMENT, "DANAUS_CACHE is empty: there is no cache");
    make_folder(folder);
    const file_part parts[] = { { &h, sizeof h }, { image, bytes } };
    TRY(dn_replace_file(path, parts, 2));
    cache_survey all;
    while (take_survey(folder, &all) && all.bytes > dn_cache_most() &&
           strcmp(all.oldest, path) && !unlink(all.oldest))
        ;
    return DANAUS_OK;
}
