/* Any bytes as an array file, .npy or safetensors by their beginning. */
// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_read(data, size);
    return 0;
}
