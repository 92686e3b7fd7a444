/* Compiled kernels kept on the disk. A file is a head and the image; the head repeats
   the key and holds the image's size and hash. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cache.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/replace.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BYTES ((int64_t)256 << 20)
#define SUFFIX     ".cubin"

typedef struct head {
    char magic[16];
    cache_key key, hash;
    uint64_t bytes;
} head;

static const char magic[16] = "danaus cubin 1\n";

/* FNV-1a of 128 bits. */
__extension__ typedef unsigned __int128 wide;

#define BASIS ((wide)0x6c62272e07bb0142u << 64 | 0x62b821756295c58du)
#define PRIME ((wide)1 << 88 | 0x13b)

static wide hash_more(wide hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * PRIME;
    return hash;
}

static cache_key key_of(wide hash)
{
    return (cache_key){ { (uint64_t)(hash >> 64), (uint64_t)hash } };
}

/* Pieces are hashed with their ends, so that cutting them elsewhere is another key. */
cache_key dn_cache_key(const char *const *pieces)
{
    wide hash = BASIS;
    for (; *pieces; pieces++)
        hash = hash_more(hash, *pieces, strlen(*pieces) + 1);
    return key_of(hash);
}

static int set_folder(char folder[PATH_MAX], const char *base, const char *rest)
{
    return base && *base && snprintf(folder, PATH_MAX, "%s%s", base, rest) < PATH_MAX;
}

/* 0: there is to be no cache. */
static int find_folder(char folder[PATH_MAX])
{
    const char *own = getenv("DANAUS_CACHE");
    return own ? set_folder(folder, own, "")
               : set_folder(folder, getenv("XDG_CACHE_HOME"), "/danaus") ||
                     set_folder(folder, getenv("HOME"), "/.cache/danaus");
}

static int find_file(cache_key key, char folder[PATH_MAX], char path[PATH_MAX])
{
    return find_folder(folder) && snprintf(
                                      path, PATH_MAX, "%s/%016llx%016llx" SUFFIX,
                                      folder, (unsigned long long)key.part[0],
                                      (unsigned long long)key.part[1]) < PATH_MAX;
}

static int is_whole(const map *m, cache_key key, head *h)
{
    if (m->size < sizeof *h)
        return 0;
    memcpy(h, m->data, sizeof *h);
    cache_key hash = key_of(hash_more(BASIS, m->data + sizeof *h, m->size - sizeof *h));
    return !memcmp(h->magic, magic, sizeof magic) && h->bytes == m->size - sizeof *h &&
           !memcmp(&h->key, &key, sizeof key) && !memcmp(&h->hash, &hash, sizeof hash);
}

int dn_cache_load(cache_key key, void **image, size_t *bytes)
{
    char folder[PATH_MAX], path[PATH_MAX];
    struct stat s;
    map m;
    head h;
    if (!find_file(key, folder, path) || stat(path, &s) || dn_map_open(path, &m))
        return 0;
    void *copy = is_whole(&m, key, &h) ? dn_alloc(h.bytes) : NULL;
    if (copy) {
        *bytes = h.bytes;
        *image = memcpy(copy, m.data + sizeof h, h.bytes);
    }
    dn_map_close(&m);
    return copy != NULL;
}

int dn_cache_has(cache_key key)
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

typedef struct survey {
    int64_t bytes;
    char oldest[PATH_MAX];
    struct timespec time;
} survey;

static int is_before(struct timespec a, struct timespec b)
{
    return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

/* All our files in the folder together, and the oldest of them. */
static int take_survey(const char *folder, survey *all)
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
        size_t length = strlen(entry->d_name);
        if (length < sizeof SUFFIX ||
            strcmp(entry->d_name + length - (sizeof SUFFIX - 1), SUFFIX) ||
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

static int64_t most_bytes(void)
{
    const char *text = getenv("DANAUS_CACHE_MIB");
    long long mib = text ? atoll(text) : 0;
    return mib > 0 && mib < 1 << 30 ? (int64_t)mib << 20 : MOST_BYTES;
}

void dn_cache_store(cache_key key, const void *image, size_t bytes)
{
    char folder[PATH_MAX], path[PATH_MAX];
    head h = { .key = key,
               .hash = key_of(hash_more(BASIS, image, bytes)),
               .bytes = bytes };
    memcpy(h.magic, magic, sizeof magic);
    if (!find_file(key, folder, path))
        return;
    make_folder(folder);
    const file_part parts[] = { { &h, sizeof h }, { image, bytes } };
    if (dn_replace_file(path, parts, 2))
        return;
    survey all;
    while (take_survey(folder, &all) && all.bytes > most_bytes() &&
           strcmp(all.oldest, path) && !unlink(all.oldest))
        ;
}
