/* Writing a file in one step: a new file beside the old one, flushed to the disk,
   then renamed over it. */
// SPDX-License-Identifier: Apache-2.0
#include "base/replace.h"

#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ATTEMPTS 100 /* at a name that nobody else has taken */

static danaus_status cannot_write(const char *path, int error)
{
    return dn_fail(DANAUS_ERR_IO, "cannot write %s: %s", path, strerror(error));
}

/* Where the file lies, with links followed: they stay and what they lead to is
   replaced; *older is what lies there, with mode 0 where nothing does. A file that its
   owner has made read-only stays, too. */
static danaus_status find_target(
    const char *path, char target[PATH_MAX], struct stat *older)
{
    *older = (struct stat){ 0 };
    if (!realpath(path, target)) {
        if (errno != ENOENT)
            return cannot_write(path, errno);
        if (!lstat(path, older))
            return dn_fail(
                DANAUS_ERR_IO, "cannot write %s: it is a link that leads nowhere",
                path);
        if (snprintf(target, PATH_MAX, "%s", path) >= PATH_MAX)
            return cannot_write(path, ENAMETOOLONG);
    } else if (
        stat(target, older) || (S_ISREG(older->st_mode) && eaccess(target, W_OK))) {
        return cannot_write(path, errno);
    } else if (!S_ISREG(older->st_mode)) {
        return dn_fail(
            DANAUS_ERR_IO, "cannot write %s: it is not a regular file", path);
    }
    return DANAUS_OK;
}

/* Owner, group and permissions as they were, as far as the process may; a group that
   is not the old one may do what everybody could. A file system that gives all files
   the same is not asked to. Nonzero: see errno. */
static int keep_access(int fd, const struct stat *older)
{
    struct stat now;
    mode_t mode = older->st_mode & 0777;
    if (fstat(fd, &now))
        return -1;
    int same = now.st_uid == older->st_uid && now.st_gid == older->st_gid;
    if (!same && fchown(fd, older->st_uid, older->st_gid) &&
        fchown(fd, (uid_t)-1, older->st_gid))
        mode = (mode & 0707) | (mode & 07) << 3;
    return (now.st_mode & 0777) == mode ? 0 : fchmod(fd, mode);
}

/* A new file in the directory of target, open for writing; -1: see errno. */
static int create_beside(const char *target, mode_t mode, char name[PATH_MAX])
{
    static atomic_uint number;
    const char *slash = strrchr(target, '/');
    int directory = slash ? (int)(slash - target) + 1 : 0;
    for (int i = 0; i < ATTEMPTS; i++) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        int length = snprintf(
            name, PATH_MAX, "%.*s.danaus-%lx-%x-%lx", directory, target, (long)getpid(),
            atomic_fetch_add(&number, 1), t.tv_nsec);
        if (length >= PATH_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

/* Nonzero: it could not be written; see errno. */
static int write_part(int fd, file_part part)
{
    const char *at = part.data;
    for (size_t left = part.bytes; left > 0;) {
        ssize_t written = write(fd, at, left);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -1;
        at += written;
        left -= (size_t)written;
    }
    return 0;
}

/* Writes, flushes and closes; nonzero: see errno. */
static int write_parts(
    int fd, const struct stat *older, const file_part *parts, int count)
{
    int failed = older->st_mode ? keep_access(fd, older) : 0;
    for (int i = 0; i < count && !failed; i++)
        failed = write_part(fd, parts[i]);
    failed = failed || fsync(fd);
    int error = errno;
    if (close(fd) && !failed)
        return -1;
    errno = error;
    return failed;
}

danaus_status dn_replace_file(const char *path, const file_part *parts, int count)
{
    char target[PATH_MAX], name[PATH_MAX];
    struct stat older;
    TRY(find_target(path, target, &older));
    int fd = create_beside(target, older.st_mode ? 0600 : 0666, name);
    if (fd < 0)
        return cannot_write(path, errno);
    if (write_parts(fd, &older, parts, count) || rename(name, target)) {
        int error = errno;
        unlink(name);
        return cannot_write(path, error);
    }
    return DANAUS_OK;
}
