/* What a path leads to, for files that are read or written. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_PLACE_H
#define DN_BASE_PLACE_H

#include "danaus/base.h"

#include <limits.h>
#include <sys/stat.h>

/* "a folder", "a pipe", ...; NULL for a regular file. */
const char *dn_kind_of_file(mode_t mode);

/* Where a path is written. A regular file that the path names, or a file that is not there
   yet, appears whole. Anything else is written to: a pipe, a device, and what a link of
   /proc leads to, as /dev/stdout and /dev/fd/3 do. */
typedef struct place {
    char path[PATH_MAX]; /* the file, with links followed */
    struct stat older;   /* what is there; mode 0: nothing is */
    int is_stream;       /* it is written to */
    int descriptor;      /* of this process, that the path names; -1: none */
} place;

/* Fails if the path leads to a folder or a socket, or through a link that leads nowhere,
   or if the file may not be written. */
danaus_status dn_place_find(const char *path, place *p);

/* The failure "cannot write PATH: ..." of an errno. */
danaus_status dn_cannot_write(const char *path, int error);

#endif
