// SPDX-License-Identifier: Apache-2.0
#include "bench/memory.h"

#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

void *bench_alloc(int64_t elements, size_t size)
{
    size_t bytes = (size_t)elements * size;
    size_t align = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : 64;
    size_t rounded = (bytes + align - 1) / align * align;
    void *memory = aligned_alloc(align, rounded);
    if (memory && align == HUGE_PAGE)
        madvise(memory, rounded, MADV_HUGEPAGE); /* no more than a wish */
    return memory;
}
