/* What a map of the bulk copy engine says, where the engine is emulated: a view of three
   axes, the fastest first, and the box that is copied at once. In C and C++. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_EMULATOR_MAP_H
#define TEST_EMULATOR_MAP_H

#include <stdint.h>

typedef struct tensor_map {
    const void *memory;
    int64_t element; /* bytes */
    int64_t size[3], stride[3];
    int box[3], swizzle;
} tensor_map;

#endif
