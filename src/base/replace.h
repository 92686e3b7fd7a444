/* Writing a file so that it appears complete or not at all. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_REPLACE_H
#define DN_BASE_REPLACE_H

#include "danaus/base.h"

typedef struct file_part {
    const void *data; /* may be NULL when bytes is 0 */
    size_t bytes;
} file_part;

/* Writes the parts to the file `path`, one after the other. On failure an older file of that
   name does not change, and nothing else is left behind. If the path is no regular file, the
   parts are written to it directly (base/place.h). */
danaus_status dn_replace_file(const char *path, const file_part *parts, int count);

/* Fails unless a file can be made at the path. *replaced: 1 if it will be replaced, 0 if it is
   written to. */
danaus_status dn_check_output(const char *path, int *replaced);

/* Removes the new files of calls that are not done. A signal handler may call this, if the
   process then ends. */
void dn_abandon_files(void);

#endif
