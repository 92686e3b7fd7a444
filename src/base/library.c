/* Where libraries that are opened when they are first needed are found. */
// SPDX-License-Identifier: Apache-2.0
#include "base/library.h"

#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"

#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOST_SYMBOLS 64

typedef void (*symbol)(void);

/* dlsym's void pointer to a function, by its bytes as POSIX means it. */
static symbol find_symbol(void *handle, const char *name)
{
    void *found = dlsym(handle, name);
    symbol s;
    memcpy(&s, &found, sizeof s);
    return s;
}

static int is_folder(const char *path)
{
    struct stat s;
    return !stat(path, &s) && S_ISDIR(s.st_mode);
}

/* The file `place`, or the first of those names in the folder `place`. What it needs
   beside it, the library finds by its own path. */
static void *open_there(const late_library *l, const char *place)
{
    void *handle = NULL;
    if (!is_folder(place))
        return dlopen(place, RTLD_NOW | RTLD_LOCAL);
    for (const char *const *file = l->files; *file && !handle; file++) {
        char path[PATH_MAX];
        if (!strchr(*file, '/') &&
            snprintf(path, sizeof path, "%s/%s", place, *file) < PATH_MAX)
            handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return handle;
}

static void *open_anywhere(const late_library *l)
{
    static const int ways[] = { RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD,
                                RTLD_NOW | RTLD_LOCAL };
    void *handle = NULL;
    for (int way = 0; way < 2; way++)
        for (const char *const *file = l->files; *file && !handle; file++)
            handle = dlopen(*file, ways[way]);
    return handle;
}

static danaus_status open_handle(const late_library *l, void **handle)
{
    const char *wish = l->variable ? getenv(l->variable) : NULL;
    const char *place = wish && *wish ? wish : l->place;
    *handle = place ? open_there(l, place) : open_anywhere(l);
    if (*handle)
        return DANAUS_OK;
    if (place)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "%s cannot be opened in %s, which %s names: %s",
            l->files[0], place, place == wish ? l->variable : "danaus_library_locate",
            l->advice);
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED, "%s cannot be opened: %s", l->files[0], l->advice);
}

static danaus_status fill_table(const late_library *l, void *handle)
{
    symbol symbols[MOST_SYMBOLS];
    assert(l->count <= MOST_SYMBOLS);
    for (int i = 0; i < l->count; i++) {
        symbols[i] = find_symbol(handle, l->symbols[i]);
        if (!symbols[i] && i < l->count - l->optional)
            return dn_fail(
                DANAUS_ERR_UNSUPPORTED, "%s has no %s: %s", l->files[0], l->symbols[i],
                l->advice);
    }
    memcpy(l->table, symbols, (size_t)l->count * sizeof *symbols);
    return l->start ? l->start() : DANAUS_OK;
}

static danaus_status open_library(late_library *l)
{
    void *handle;
    TRY(open_handle(l, &handle));
    danaus_status status = fill_table(l, handle);
    l->is_open = status == DANAUS_OK;
    if (!l->is_open)
        dlclose(handle);
    return status;
}

danaus_status dn_library_open(late_library *l)
{
    dn_lock_process();
    danaus_status status = l->is_open ? DANAUS_OK : open_library(l);
    dn_unlock_process();
    return status;
}

static danaus_status locate(late_library *l, const char *place)
{
    struct stat s;
    if (l->is_open)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%s is open already", l->files[0]);
    if (place && stat(place, &s))
        return dn_fail(DANAUS_ERR_IO, "there is no %s", place);
    char *copy = place ? dn_copy_text(place) : NULL;
    if (place && !copy)
        return dn_fail_memory(strlen(place) + 1, "a path");
    dn_free(l->place);
    l->place = copy;
    return DANAUS_OK;
}

danaus_status dn_library_locate(late_library *l, const char *place)
{
    dn_lock_process();
    danaus_status status = locate(l, place);
    dn_unlock_process();
    return status;
}
