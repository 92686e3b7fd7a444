/* Standard input and pipes in place of files. */
// SPDX-License-Identifier: Apache-2.0
#include "common/standard.h"

#include "common/sentences.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITER_WAIT 1000 /* ms that a pipe may have no writer */
#define MOST_PIPES  64

/* Paths stay: sentences and maps use them until the program ends. */
static const char *name_pipe(const char *given, int fd)
{
    static char paths[MOST_PIPES][32];
    static int count;
    char *path = paths[count < MOST_PIPES - 1 ? count++ : MOST_PIPES - 1];
    snprintf(path, sizeof *paths, "/dev/fd/%d", fd);
    sentences_name(path, given);
    return path;
}

/* The descriptor that a name of /dev means; -1: it means none. */
static int descriptor_of(const char *name)
{
    int fd = -1, end = 0;
    if (!strcmp(name, "/dev/stdin"))
        return STDIN_FILENO;
    if (sscanf(name, "/dev/fd/%d%n", &fd, &end) == 1 && !name[end])
        return fd;
    if (sscanf(name, "/proc/self/fd/%d%n", &fd, &end) == 1 && !name[end])
        return fd;
    return -1;
}

/* read() that waits for a pipe which has a writer; 0 at its end, or if it has none. */
static ssize_t read_some(int fd, char *block, size_t room)
{
    struct pollfd more = { .fd = fd, .events = POLLIN };
    for (int wait = WRITER_WAIT;; wait = -1) {
        poll(&more, 1, wait);
        ssize_t got = read(fd, block, room);
        if (got >= 0 || (errno != EAGAIN && errno != EINTR))
            return got;
    }
}

/* What a stream gives, in a file without a name; NULL: see errno. */
static FILE *keep(int fd, int64_t *bytes)
{
    char block[1 << 16];
    FILE *kept = tmpfile();
    ssize_t got = 0;
    *bytes = 0;
    while (kept && (got = read_some(fd, block, sizeof block)) > 0) {
        *bytes += got;
        if (fwrite(block, 1, (size_t)got, kept) != (size_t)got)
            break;
    }
    if (kept && !got && !fflush(kept))
        return kept;
    int error = errno;
    if (kept)
        fclose(kept);
    errno = error;
    return NULL;
}

/* True if reading it ends. Of devices that holds for terminals and /dev/null. */
static int is_stream(const struct stat *s, int fd)
{
    struct stat null;
    return S_ISFIFO(s->st_mode) || S_ISSOCK(s->st_mode) || isatty(fd) ||
           (!stat("/dev/null", &null) && S_ISCHR(s->st_mode) &&
            null.st_rdev == s->st_rdev);
}

/* Reads a stream to its end and gives it another name, unless its own means a descriptor. */
static int take_stream(const char **name, const struct stat *s)
{
    int64_t bytes;
    int own = descriptor_of(*name);
    int fd = own < 0 ? open(*name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : own;
    if (fd < 0)
        return failure("cannot read %s: %s", *name, strerror(errno));
    if (!is_stream(s, fd))
        return failure("cannot read %s: it is a device, not a file or a pipe", *name);
    FILE *kept = keep(fd, &bytes);
    if (!kept || dup2(fileno(kept), fd) < 0)
        return failure("cannot read %s: %s", *name, strerror(errno));
    fclose(kept);
    if (!bytes && own < 0 && S_ISFIFO(s->st_mode))
        return failure("cannot read %s: it is a pipe that nothing writes to", *name);
    if (own < 0)
        *name = name_pipe(*name, fd);
    return STATUS_OK;
}

int standard_input(const char **name)
{
    static int taken;
    struct stat s;
    if (!strcmp(*name, "-")) {
        TRY(refuse_if(
            taken++, "standard input can be read once: only one file may be -"));
        *name = "/dev/stdin";
    }
    int fd = descriptor_of(*name);
    if ((fd < 0 ? stat(*name, &s) : fstat(fd, &s)) || S_ISREG(s.st_mode) ||
        S_ISDIR(s.st_mode))
        return STATUS_OK;
    return take_stream(name, &s);
}
