/* A file mapped for reading. */
// SPDX-License-Identifier: Apache-2.0
#include "base/map.h"

#include "base/place.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static danaus_status check_kind(const char *path, const struct stat *s)
{
    const char *kind = dn_kind_of_file(s->st_mode);
    return kind ? dn_fail(
                      DANAUS_ERR_IO, "cannot read %s: it is %s, not a regular file",
                      path, kind)
                : DANAUS_OK;
}

static danaus_status map_descriptor(int fd, const char *path, map *m)
{
    struct stat s;
    if (fstat(fd, &s))
        return dn_fail(DANAUS_ERR_IO, "cannot examine %s: %s", path, strerror(errno));
    TRY(check_kind(path, &s));
    m->data = NULL;
    m->size = (size_t)s.st_size;
    if (m->size == 0)
        return DANAUS_OK;
    void *data = mmap(NULL, m->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return dn_fail(DANAUS_ERR_IO, "cannot map %s: %s", path, strerror(errno));
    m->data = data;
    return DANAUS_OK;
}

danaus_status dn_map_open(const char *path, map *m)
{
    struct stat s;
    if (!*path)
        return dn_fail(DANAUS_ERR_IO, "cannot open a file whose name is empty");
    if (!stat(path, &s)) /* before a device is opened */
        TRY(check_kind(path, &s));
    int fd =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe may be there now */
    if (fd < 0)
        return dn_fail(DANAUS_ERR_IO, "cannot open %s: %s", path, strerror(errno));
    danaus_status status = map_descriptor(fd, path, m);
    close(fd);
    return status;
}

void dn_map_close(map *m)
{
    if (m->data)
        munmap((void *)(uintptr_t)m->data, m->size);
    m->data = NULL;
    m->size = 0;
}

void dn_map_forget(const map *m)
{
    if (m->data)
        madvise((void *)(uintptr_t)m->data, m->size, MADV_DONTNEED);
}
