/* What a fuzz target is made of: libFuzzer's entry, bytes as a file, and the reading
   of arrays from bytes. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Runs the target once on these bytes; returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the program: the library broke a promise. */
#define expect(truth)                                                                  \
    do {                                                                               \
        if (!(truth))                                                                  \
            abort();                                                                   \
    } while (0)

/* The path of a file in memory that holds these bytes until the next call. */
const char *fuzz_file(const uint8_t *data, size_t size);

/* Reads the bytes as a file of arrays, in memory, where a sanitizer sees a read past
   their end, and then every byte of every tensor; or sees them refused with a
   sentence. */
void fuzz_read(const uint8_t *data, size_t size);

#endif
