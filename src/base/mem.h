/* Memory: every allocation of the library passes here, so that tests can make
   the n-th one fail. Blocks are aligned to 64 bytes. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_MEM_H
#define DN_BASE_MEM_H

#include "danaus/base.h"

#define DN_ALIGN 64

static inline size_t dn_aligned(int64_t size)
{
    return (size_t)((size + DN_ALIGN - 1) / DN_ALIGN * DN_ALIGN);
}

void *dn_alloc(size_t bytes); /* NULL if there is none */
void *dn_alloc_aligned(size_t bytes, size_t least);
void *dn_calloc(size_t count, size_t size); /* zeroed; NULL on overflow too */
char *dn_copy_text(const char *text);
void dn_free(void *memory);

/* Makes room for one element more in a growing array of `count` elements of `size` bytes,
   whose pointer is at `array`. A failure speaks of `what`, and the array stays. */
danaus_status dn_reserve(
    void *array, size_t count, size_t *capacity, size_t size, const char *what);

/* Makes room for `more` elements more, at least twice as many as there was room for. */
danaus_status dn_reserve_many(
    void *array, size_t count, size_t more, size_t *capacity, size_t size,
    const char *what);

/* *product = a * b; nonzero if that does not fit in a non-negative int64. */
int dn_mul_overflows(int64_t a, int64_t b, int64_t *product);

/* True if this process may map so many bytes more, and true if its address space has a
   limit (ulimit -v). Libraries that retry without end are asked for nothing else. */
int dn_has_room(size_t bytes);
int dn_address_space_is_limited(void);

/* Tests: the n-th allocation from now on fails, once (0: none). Returns how
   many allocations happened since the last call. Process-wide. */
long dn_alloc_fail_at(long n);

#endif
