/* Aligned allocation, which tests can make fail. Large blocks ask for huge pages:
   products walk through memory in long strides, one page a step. */
// SPDX-License-Identifier: Apache-2.0
#include "base/mem.h"

#include "base/numbers.h"
#include "base/quota.h"
#include "base/status.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define HUGE_PAGE      ((size_t)2 << 20)
#define LEAST_CAPACITY 16

static atomic_long allocations, failing;

long dn_alloc_fail_at(long n)
{
    long seen = atomic_exchange(&allocations, 0);
    atomic_store(&failing, n);
    return seen;
}

void *dn_alloc(size_t bytes) { return dn_alloc_aligned(bytes, DN_ALIGN); }

void *dn_alloc_aligned(size_t bytes, size_t least)
{
    long number = atomic_fetch_add(&allocations, 1) + 1;
    if (number == atomic_load(&failing))
        return NULL;
    if (bytes > PTRDIFF_MAX - HUGE_PAGE ||
        (bytes >= DN_LARGE_BLOCK && bytes > (uint64_t)dn_memory_room("")))
        return NULL;
    size_t align = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : least;
    size_t rounded = (bytes + align - 1) / align * align;
    void *memory = aligned_alloc(align, rounded ? rounded : align);
    if (memory && align == HUGE_PAGE)
        madvise(memory, rounded, MADV_HUGEPAGE); /* no more than a wish */
    return memory;
}

int dn_has_room(size_t bytes)
{
    void *memory = mmap(
        NULL, bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory != MAP_FAILED && !munmap(memory, bytes);
}

int dn_address_space_is_limited(void)
{
    struct rlimit limit;
    return !getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY;
}

void *dn_calloc(size_t count, size_t size)
{
    if (size && count > PTRDIFF_MAX / size)
        return NULL;
    void *memory = dn_alloc(count * size);
    return memory ? memset(memory, 0, count * size) : NULL;
}

danaus_status dn_reserve_many(
    void *array, size_t count, size_t more, size_t *capacity, size_t size,
    const char *what)
{
    void *old;
    if (more <= *capacity - count)
        return DANAUS_OK;
    size_t room = *capacity ? 2 * *capacity : LEAST_CAPACITY;
    if (more > PTRDIFF_MAX / size - count)
        return dn_fail_memory(PTRDIFF_MAX, what);
    room = MAX(room, count + more);
    void *grown = dn_alloc(room * size);
    if (!grown)
        return dn_fail_memory(room * size, what);
    memcpy(&old, array, sizeof old);
    if (count)
        memcpy(grown, old, count * size);
    dn_free(old);
    memcpy(array, &grown, sizeof grown);
    *capacity = room;
    return DANAUS_OK;
}

danaus_status dn_reserve(
    void *array, size_t count, size_t *capacity, size_t size, const char *what)
{
    return dn_reserve_many(array, count, 1, capacity, size, what);
}

char *dn_copy_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = dn_alloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

void dn_free(void *memory) { free(memory); }

int dn_mul_overflows(int64_t a, int64_t b, int64_t *product)
{
    return __builtin_mul_overflow(a, b, product) || *product < 0;
}
