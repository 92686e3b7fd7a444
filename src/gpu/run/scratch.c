/* Scratch that the caller gives, on devices of all drivers. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/run/run.h"

#include "base/status.h"

void dn_gpu_set_scratch(
    gpu_device *d, void *lent, size_t bytes, const danaus_allocator *allocator)
{
    d->callers = (gpu_scratch){ .lent = lent, .bytes = bytes };
    if (allocator)
        d->callers.allocator = *allocator;
}

static danaus_status ask_allocator(
    const danaus_allocator *a, size_t bytes, void *stream, void **memory)
{
    void *m = NULL;
    danaus_status status = a->alloc(a->user, bytes, stream, &m);
    if (status != DANAUS_OK)
        return dn_fail(
            status, "the allocator did not give %zu bytes of scratch", bytes);
    if (m && (uintptr_t)m % DANAUS_SCRATCH_ALIGN == 0) {
        *memory = m;
        return DANAUS_OK;
    }
    a->free(a->user, m, stream);
    return dn_fail(
        DANAUS_ERR_ARGUMENT, "scratch of an allocator must be aligned to %d bytes",
        DANAUS_SCRATCH_ALIGN);
}

danaus_status dn_gpu_ask_scratch(
    const gpu_device *d, size_t bytes, void *stream, void **memory)
{
    const gpu_scratch *s = &d->callers;
    *memory = s->lent;
    if (s->allocator.alloc)
        return ask_allocator(&s->allocator, bytes, stream, memory);
    if (s->lent && bytes > s->bytes)
        return dn_fail(
            DANAUS_ERR_MEMORY,
            "this product needs %zu bytes of scratch, the device was lent %zu", bytes,
            s->bytes);
    return DANAUS_OK;
}

void dn_gpu_give_scratch(gpu_device *d, void *stream)
{
    const danaus_allocator *a = &d->callers.allocator;
    if (a->free && d->scratch)
        a->free(a->user, d->scratch, stream);
    d->scratch = NULL;
}
