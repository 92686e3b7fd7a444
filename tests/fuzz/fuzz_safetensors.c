/* Any text as the header of a safetensors file: the right length is put before it
   and data behind, as many bytes as the first byte of the input says, so that all
   mutations reach the reader of the header. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    size_t header = size - 1, all = 8 + header + data[0];
    uint8_t *bytes = calloc(all, 1);
    expect(bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)header >> 8 * i);
    memcpy(bytes + 8, data + 1, header);
    fuzz_read(bytes, all);
    free(bytes);
    return 0;
}
