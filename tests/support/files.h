/* Files that tests make, and byte strings that should be or fail to be files. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_FILES_H
#define TEST_SUPPORT_FILES_H

#include "support/rng.h"

#include "danaus/base.h"

#include <stddef.h>

/* Bytes in a block of exactly that size, so that sanitizers see a read past it;
   the block is aligned to 64 bytes. */
typedef struct bytes {
    unsigned char *data;
    size_t size;
} bytes;

bytes bytes_of(const void *data, size_t size);
bytes bytes_part(const bytes *b, size_t size); /* the first of them, copied */
void bytes_append(bytes *b, const void *data, size_t size);
void bytes_free(bytes *b);

/* A copy with one to four random changes: a flipped bit, another byte, a digit, a
   byte inserted or removed, a part copied over another, the end cut off. */
bytes bytes_mutated(rng *r, const bytes *b);

/* A directory of this process's own for the length of a test group: fixtures for
   cmocka. The second removes the directory and all files in it. */
int scratch_setup(void **state);
int scratch_teardown(void **state);
const char *scratch_directory(void);
const char *scratch_path(const char *name); /* the last four stay valid */
int scratch_count(void);                    /* files in it */

bytes file_bytes(const char *path);
void file_write(const char *path, const void *data, size_t size);

/* A file of tensors: one that ends early is of no format, wherever it ends. */
void expect_cuts_are_refused(const bytes *whole);
danaus_status file_open_and_close(void *path);

#endif
