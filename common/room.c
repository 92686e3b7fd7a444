/* Memory whose size files and arguments say. */
// SPDX-License-Identifier: Apache-2.0
#include "common/room.h"

#include "common/args.h"

#include <inttypes.h>
#include <stdlib.h>

int room_check(
    int64_t rows, int64_t elements, size_t element, const char *name, size_t *bytes)
{
    size_t all;
    if (rows < 0 || elements < 0 ||
        __builtin_mul_overflow((size_t)rows, (size_t)elements, &all) ||
        __builtin_mul_overflow(all, element, &all) || all >= PTRDIFF_MAX)
        return failure(
            "no memory for %s: %" PRId64 " x %" PRId64 " values of %zu bytes", name,
            rows, elements, element);
    *bytes = all;
    return library(danaus_memory_check(all, name));
}

void *room_make(int64_t rows, int64_t elements, size_t element, const char *name)
{
    size_t bytes = 0;
    if (room_check(rows, elements, element, name, &bytes))
        return NULL;
    void *memory = calloc(bytes + 1, 1);
    if (!memory)
        failure("no memory for %s of %zu bytes", name, bytes);
    return memory;
}

int room_resize(void **memory, size_t elements, size_t element, const char *name)
{
    size_t bytes = 0;
    TRY(room_check(1, (int64_t)elements, element, name, &bytes));
    void *grown = realloc(*memory, bytes + 1);
    TRY(fail_if(!grown, "no memory for %s of %zu bytes", name, bytes));
    *memory = grown;
    return STATUS_OK;
}
