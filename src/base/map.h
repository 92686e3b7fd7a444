/* A file mapped for reading. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_MAP_H
#define DN_BASE_MAP_H

#include "danaus/base.h"

typedef struct map {
    const unsigned char *data; /* NULL for an empty file */
    size_t size;
} map;

danaus_status dn_map_open(const char *path, map *m);
void dn_map_close(map *m);

/* Lets the pages that were read go: they are read again when they are used. */
void dn_map_forget(const map *m);

#endif
