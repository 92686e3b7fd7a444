/* What a path leads to. Links are followed one by one, because a link in /proc leads to an open
   file and not to a name. */
// SPDX-License-Identifier: Apache-2.0
#include "base/place.h"

#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_LINKS 40 /* as the kernel follows */

danaus_status dn_cannot_write(const char *path, int error)
{
    return dn_fail(DANAUS_ERR_IO, "cannot write %s: %s", path, strerror(error));
}

const char *dn_kind_of_file(mode_t mode)
{
    return S_ISREG(mode)    ? NULL
           : S_ISDIR(mode)  ? "a folder"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

/* ---- links of /proc ---- */

/* Cuts a path into its folder, with links followed, and its last name; 0: there is no such
   folder. */
static int split(const char *path, char folder[PATH_MAX], const char **name)
{
    char head[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int length = slash ? (int)(slash - path) + 1 : 1;
    *name = slash ? slash + 1 : path;
    return snprintf(head, sizeof head, "%.*s", length, slash ? path : ".") < PATH_MAX &&
           realpath(head, folder);
}

/* True if the folder holds the descriptors of this process. */
static int is_own(const char *folder)
{
    static const char *const folders[] = { "/proc/self/fd", "/proc/thread-self/fd" };
    char own[PATH_MAX];
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (realpath(folders[i], own) && !strcmp(folder, own))
            return 1;
    return 0;
}

static int number_of(const char *name)
{
    char *end;
    long number = strtol(name, &end, 10);
    return *name >= '0' && *name <= '9' && !*end && number <= INT_MAX ? (int)number
                                                                      : -1;
}

/* Finds a link of /proc at the end of the path, or at the end of links that begin there. */
static void find_proc(const char *path, place *p)
{
    char at[PATH_MAX], folder[PATH_MAX], link[PATH_MAX];
    const char *name;
    if (snprintf(at, sizeof at, "%s", path) >= PATH_MAX)
        return;
    for (int i = 0; i < MOST_LINKS && split(at, folder, &name); i++) {
        ssize_t length = readlink(at, link, sizeof link - 1);
        if (length < 0)
            return;
        link[length] = '\0';
        p->is_stream = !strncmp(folder, "/proc/", 6);
        if (p->is_stream) {
            p->descriptor = is_own(folder) ? number_of(name) : -1;
            return;
        }
        if (snprintf(
                at, sizeof at, "%s%s%s", *link == '/' ? "" : folder,
                *link == '/' ? "" : "/", link) >= PATH_MAX)
            return;
    }
}

/* ---- the place ---- */

static danaus_status find_new(const char *path, place *p)
{
    struct stat link;
    if (!*path)
        return dn_fail(DANAUS_ERR_IO, "cannot write a file whose name is empty");
    if (!lstat(path, &link))
        return dn_fail(
            DANAUS_ERR_IO, "cannot write %s: it is a link that leads nowhere", path);
    if (snprintf(p->path, PATH_MAX, "%s", path) >= PATH_MAX)
        return dn_cannot_write(path, ENAMETOOLONG);
    return DANAUS_OK;
}

/* A file that its owner has made read-only stays as it is. */
danaus_status dn_place_find(const char *path, place *p)
{
    *p = (place){ .descriptor = -1 };
    find_proc(path, p);
    if (stat(path, &p->older))
        return errno == ENOENT ? find_new(path, p) : dn_cannot_write(path, errno);
    const char *kind = dn_kind_of_file(p->older.st_mode);
    if (S_ISDIR(p->older.st_mode) || S_ISSOCK(p->older.st_mode))
        return dn_fail(
            DANAUS_ERR_IO, "cannot write %s: it is %s, not a regular file", path, kind);
    p->is_stream = p->is_stream || kind;
    if (p->descriptor < 0 && eaccess(path, W_OK))
        return dn_cannot_write(path, errno);
    if (!p->is_stream && !realpath(path, p->path))
        return dn_cannot_write(path, errno);
    return DANAUS_OK;
}
