/* Memory whose size files and arguments say: the product of its sizes is checked, and large
   blocks are compared with the memory there is, before they are made. */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_ROOM_H
#define COMMON_ROOM_H

#include <stddef.h>
#include <stdint.h>

/* The bytes of rows x elements values of so many bytes each, and whether this process can have
   them. Returns an exit status; a sentence calls them `name`. */
int room_check(
    int64_t rows, int64_t elements, size_t element, const char *name, size_t *bytes);

/* So many zeros, to be freed; NULL: a sentence was printed. None are a place of their own. */
void *room_make(int64_t rows, int64_t elements, size_t element, const char *name);

/* Grows or shrinks *memory to so many elements and keeps its contents. Returns an exit status;
   on failure *memory does not change. */
int room_resize(void **memory, size_t elements, size_t element, const char *name);

#endif
