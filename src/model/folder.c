/* The folder of a model: names in it, and whether a model may be written there. */
// SPDX-License-Identifier: Apache-2.0
#include "model/folder.h"

#include "base/numbers.h"
#include "base/status.h"
#include "danaus/file.h"
#include "model/config.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

danaus_status dn_folder_name(span name, const char *where)
{
    if (name.length && *name.text != '.' && !memchr(name.text, '/', name.length) &&
        !memchr(name.text, '\0', name.length))
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_FORMAT, "%s: \"%.*s\" is no name of a file or folder beside it",
        where, (int)MIN(name.length, 80), name.text);
}

static danaus_status cannot(const char *what, const char *path)
{
    return dn_fail(DANAUS_ERR_IO, "cannot %s %.200s: %s", what, path, strerror(errno));
}

/* *empty: 1 if all names in the folder begin with a dot, as those of version control do. */
static danaus_status find_empty(const char *path, int *empty)
{
    const struct dirent *entry;
    DIR *folder = opendir(path);
    if (!folder)
        return cannot("read", path);
    *empty = 1;
    while ((entry = readdir(folder)))
        *empty &= *entry->d_name == '.';
    closedir(folder);
    return DANAUS_OK;
}

static int is_ours(const char *path)
{
    char weights[PATH_MAX];
    danaus_file *file;
    if (dn_config_path(path, "model.safetensors", weights, sizeof weights) ||
        danaus_file_open(weights, &file))
        return 0;
    int found = danaus_file_metadata(file, FOLDER_MARK) != NULL;
    danaus_file_close(file);
    return found;
}

danaus_status dn_folder_check(const char *path)
{
    struct stat s;
    int empty = 0;
    if (stat(path, &s)) {
        if (mkdir(path, 0777) || rmdir(path))
            return cannot("make the folder", path);
        return DANAUS_OK;
    }
    if (!S_ISDIR(s.st_mode))
        return dn_fail(DANAUS_ERR_IO, "%.200s is not a folder", path);
    if (eaccess(path, W_OK | X_OK))
        return cannot("write into", path);
    TRY(find_empty(path, &empty));
    if (empty || is_ours(path))
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_ARGUMENT,
        "%.200s holds files, and no model that danaus wrote: name a new folder or an "
        "empty one",
        path);
}
