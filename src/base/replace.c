/* Writing a file in one step: a new file beside the old one is flushed to the disk and then
   renamed over it. Where the file system allows it (O_TMPFILE), the new file has no name while
   it is written. Its name, once it has one, is in a table until it is renamed. */
// SPDX-License-Identifier: Apache-2.0
#include "base/replace.h"

#include "base/place.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ATTEMPTS    100 /* at a name that nobody else has taken */
#define MOST_NAMES  8   /* in the table; further ones are not in it */
#define READER_WAIT 100 /* times 10 ms that a pipe may have no reader */

/* ---- names of new files ---- */

enum { FREE, TAKEN, THERE };

static char names[MOST_NAMES][PATH_MAX];
static atomic_int states[MOST_NAMES];

/* A row of the table, or -1. */
static int take_row(void)
{
    for (int i = 0; i < MOST_NAMES; i++) {
        int is = FREE;
        if (atomic_compare_exchange_strong(&states[i], &is, TAKEN))
            return i;
    }
    return -1;
}

static void enter(int row, const char *name)
{
    if (row < 0)
        return;
    snprintf(names[row], PATH_MAX, "%s", name);
    atomic_store(&states[row], THERE);
}

static void leave(int row)
{
    if (row >= 0)
        atomic_store(&states[row], FREE);
}

void dn_abandon_files(void)
{
    for (int i = 0; i < MOST_NAMES; i++)
        if (atomic_load(&states[i]) == THERE)
            unlink(names[i]);
}

/* ---- a new file ---- */

typedef struct new_file {
    int fd;
    int row;
    int has_name, cannot_link;
    char name[PATH_MAX]; /* that it has, or will have */
} new_file;

/* Length of the folder's part of a path, with its slash. */
static int folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (int)(slash - path) + 1 : 0;
}

/* Chooses a name in the folder of target; nonzero: see errno. */
static int choose_name(const char *target, char name[PATH_MAX])
{
    static atomic_uint number;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int length = snprintf(
        name, PATH_MAX, "%.*s.danaus-%lx-%x-%lx", folder_of(target), target,
        (long)getpid(), atomic_fetch_add(&number, 1), t.tv_nsec);
    errno = ENAMETOOLONG;
    return length < PATH_MAX ? 0 : -1;
}

/* Creates the file of this name, or links the one without a name; nonzero: see errno. */
static int make_name(new_file *f, mode_t mode)
{
    char nameless[64];
    if (f->fd < 0) {
        f->fd = open(f->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        return f->fd < 0 ? -1 : 0;
    }
    snprintf(nameless, sizeof nameless, "/proc/self/fd/%d", f->fd);
    return linkat(AT_FDCWD, nameless, AT_FDCWD, f->name, AT_SYMLINK_FOLLOW);
}

static int give_name(new_file *f, const char *target, mode_t mode)
{
    for (int i = 0; i < ATTEMPTS; i++) {
        if (choose_name(target, f->name))
            return -1;
        enter(f->row, f->name);
        if (!make_name(f, mode)) {
            f->has_name = 1;
            return 0;
        }
        if (errno != EEXIST)
            return -1;
    }
    return -1;
}

/* Opens a new file in the folder of target; nonzero: see errno. A file without a name gets one
   through /proc. */
static int create(new_file *f, const char *target, mode_t mode, int nameless)
{
    char folder[PATH_MAX];
    int length = folder_of(target);
    snprintf(folder, sizeof folder, "%.*s", length ? length : 1, length ? target : ".");
    *f = (new_file){ .fd = -1, .row = take_row() };
    if (nameless && !eaccess("/proc/self/fd", X_OK))
        f->fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
    return f->fd < 0 ? give_name(f, target, mode) : 0;
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

/* ---- content ---- */

/* Nonzero: the descriptor will take no more; see errno. */
static int wait_for_room(int fd)
{
    struct pollfd room = { .fd = fd, .events = POLLOUT };
    return poll(&room, 1, -1) < 0 && errno != EINTR;
}

static int write_part(int fd, file_part part)
{
    const char *at = part.data;
    for (size_t left = part.bytes; left > 0;) {
        ssize_t written = write(fd, at, left);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0 && errno == EAGAIN && !wait_for_room(fd))
            continue;
        if (written < 0)
            return -1;
        at += written;
        left -= (size_t)written;
    }
    return 0;
}

/* Nonzero: they could not be written; see errno. */
static int write_parts(int fd, const file_part *parts, int count)
{
    int failed = 0;
    for (int i = 0; i < count && !failed; i++)
        failed = write_part(fd, parts[i]);
    return failed;
}

/* Closes after a failure, too, whose errno stays. */
static int close_after(int fd, int failed)
{
    int error = errno;
    int lost = close(fd);
    if (failed)
        errno = error;
    return failed || lost;
}

/* Writes, flushes, names and closes; nonzero: see errno. */
static int fill(new_file *f, const place *p, const file_part *parts, int count)
{
    int failed = p->older.st_mode ? keep_access(f->fd, &p->older) : 0;
    failed = failed || write_parts(f->fd, parts, count) || fsync(f->fd);
    if (!failed && !f->has_name) {
        failed = give_name(f, p->path, 0);
        f->cannot_link = failed;
    }
    return close_after(f->fd, failed);
}

/* *again: the file system has files without a name, but cannot give them one. */
static int replace(
    const place *p, const file_part *parts, int count, int nameless, int *again)
{
    new_file f;
    int failed = create(&f, p->path, p->older.st_mode ? 0600 : 0666, nameless);
    failed = failed || fill(&f, p, parts, count) || rename(f.name, p->path);
    int error = errno;
    if (failed && f.has_name)
        unlink(f.name);
    leave(f.row);
    *again = f.cannot_link;
    errno = error;
    return failed;
}

/* ---- targets ---- */

/* Opens without waiting, but for a reader that is about to open the other end. */
static int open_stream(const char *path)
{
    const struct timespec pause = { .tv_nsec = 10000000 };
    int fd = -1;
    for (int i = 0; i < READER_WAIT && fd < 0; i++) {
        fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd >= 0 || errno != ENXIO)
            break;
        nanosleep(&pause, NULL);
        errno = ENXIO;
    }
    return fd;
}

static danaus_status write_to(
    const char *path, const place *p, const file_part *parts, int count)
{
    int own = p->descriptor >= 0;
    int fd = own ? fcntl(p->descriptor, F_DUPFD_CLOEXEC, 0) : open_stream(path);
    if (fd < 0 && errno == ENXIO && S_ISFIFO(p->older.st_mode))
        return dn_fail(
            DANAUS_ERR_IO, "cannot write %s: it is a pipe that nothing reads", path);
    if (fd < 0 || close_after(fd, write_parts(fd, parts, count)))
        return dn_cannot_write(path, errno);
    return DANAUS_OK;
}

danaus_status dn_replace_file(const char *path, const file_part *parts, int count)
{
    place p;
    int again;
    TRY(dn_place_find(path, &p));
    if (p.is_stream)
        return write_to(path, &p, parts, count);
    int failed = replace(&p, parts, count, 1, &again);
    if (failed && again)
        failed = replace(&p, parts, count, 0, &again);
    return failed ? dn_cannot_write(path, errno) : DANAUS_OK;
}

danaus_status dn_check_output(const char *path, int *replaced)
{
    place p;
    char folder[PATH_MAX];
    TRY(dn_place_find(path, &p));
    int length = p.is_stream ? 0 : folder_of(p.path);
    snprintf(folder, sizeof folder, "%.*s", length ? length : 1, length ? p.path : ".");
    if (!p.is_stream && eaccess(folder, W_OK | X_OK))
        return dn_cannot_write(path, errno);
    *replaced = !p.is_stream;
    return DANAUS_OK;
}
