/* Any text as the header of a safetensors file: the right length is put before it
   and some data behind, so that all mutations reach the reader of the header. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include <string.h>

#define DATA_BYTES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = calloc(8 + size + DATA_BYTES, 1);
    expect(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)size >> 8 * i);
    if (size)
        memcpy(bytes + 8, data, size);
    fuzz_open(fuzz_file(bytes, 8 + size + DATA_BYTES));
    free(bytes);
    return 0;
}
