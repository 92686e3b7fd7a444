/* Writing a file in one step: it appears complete or not at all. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_REPLACE_H
#define DN_BASE_REPLACE_H

#include "danaus/base.h"

typedef struct file_part {
    const void *data; /* may be NULL when bytes is 0 */
    size_t bytes;
} file_part;

/* Makes the file `path` of the parts, one after the other. On failure an older
   file of that name is as it was and nothing else is left behind. A path that
   leads to something other than a regular file is refused. */
danaus_status dn_replace_file(const char *path, const file_part *parts, int count);

#endif
