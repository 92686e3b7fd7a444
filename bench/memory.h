/* Memory of baselines and of what the machine can do, as the library's own operands
   have it: on cache lines, large blocks on huge pages. */
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_MEMORY_H
#define BENCH_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* `elements` of `size` bytes, 64-byte aligned; NULL when memory is out. To be freed by
   free(). */
void *bench_alloc(int64_t elements, size_t size);

#endif
