/* Bundles that this process searches first: those that DANAUS_KERNELS names, then those of
   danaus_kernels_use(). They stay mapped until the process ends. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/images/bundle.h"

#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SUFFIX ".kernels"

/* Under the lock of the process. */
static struct {
    bundle *list;
    size_t count, capacity;
    int is_read; /* DANAUS_KERNELS */
} shipped;

static int is_known(const bundle *b)
{
    for (size_t i = 0; i < shipped.count; i++)
        if (dn_hash_equal(shipped.list[i].index, b->index))
            return 1;
    return 0;
}

static danaus_status use_file(const char *path)
{
    bundle b;
    TRY(dn_reserve(
        &shipped.list, shipped.count, &shipped.capacity, sizeof b,
        "a list of files of kernels"));
    TRY(dn_bundle_open(path, &b));
    if (is_known(&b))
        dn_map_close(&b.file);
    else
        shipped.list[shipped.count++] = b;
    return DANAUS_OK;
}

static int is_bundle(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name), end = sizeof SUFFIX - 1;
    return length > end && !strcmp(entry->d_name + length - end, SUFFIX);
}

/* In the order of names; the status is the first failure. */
static danaus_status use_folder(const char *folder)
{
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, is_bundle, alphasort);
    danaus_status status =
        count > 0
            ? DANAUS_OK
            : dn_fail(DANAUS_ERR_IO, "%s is no folder with files *" SUFFIX, folder);
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        int fits =
            snprintf(path, PATH_MAX, "%s/%s", folder, entries[i]->d_name) < PATH_MAX;
        danaus_status one =
            fits ? use_file(path) : dn_fail(DANAUS_ERR_IO, "a path is too long");
        status = status == DANAUS_OK ? one : status;
        free(entries[i]);
    }
    free(entries);
    return status;
}

static danaus_status use(const char *path)
{
    struct stat s;
    return !stat(path, &s) && S_ISDIR(s.st_mode) ? use_folder(path) : use_file(path);
}

/* What cannot be read is passed over. */
static void read_environment(void)
{
    const char *at = shipped.is_read ? NULL : getenv("DANAUS_KERNELS");
    shipped.is_read = 1;
    while (at && *at) {
        char path[PATH_MAX];
        size_t length = strcspn(at, ":");
        if (length && length < sizeof path) {
            memcpy(path, at, length);
            path[length] = '\0';
            use(path);
        }
        at += length + (at[length] == ':');
    }
}

danaus_status dn_shipped_use(const char *path)
{
    dn_lock_process();
    read_environment();
    danaus_status status = use(path);
    dn_unlock_process();
    return status;
}

static int find(hash128 key, cache_entry *e)
{
    int found = 0;
    dn_lock_process();
    read_environment();
    for (size_t i = 0; i < shipped.count && !found; i++)
        found = dn_bundle_find(&shipped.list[i], key, e);
    dn_unlock_process();
    return found;
}

int dn_shipped_has(hash128 key)
{
    cache_entry e;
    return find(key, &e);
}

int dn_shipped_load(hash128 key, void **image, size_t *bytes)
{
    cache_entry e;
    void *copy = find(key, &e) ? dn_cache_copy(&e) : NULL;
    if (!copy)
        return 0;
    *image = copy;
    *bytes = e.head.bytes;
    return 1;
}
