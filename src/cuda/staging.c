/* Copies of large host arrays to a GPU. A copy engine reads only pinned memory. From pageable
   memory a driver copies to pinned memory with one thread, at a sixth of the engine's rate.
   Here several threads do that, a part at a time, while the engine copies the part before. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda.h"

#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"

#include <string.h>

#define PART         ((size_t)4 << 20)
#define PARTS        2
#define SLICE        ((size_t)256 << 10) /* that a thread takes */
#define MOST_THREADS 8

struct cuda_staging {
    char *memory; /* of the host, which cannot move: PARTS */
    cu_event sent[PARTS];
    thread_pool *pool;
};

void dn_cuda_close_staging(cuda_device *d)
{
    cuda_staging *s = d->staging;
    if (!s)
        return;
    for (int i = 0; i < PARTS; i++)
        if (s->sent[i])
            d->driver->EventDestroy(s->sent[i]);
    if (s->memory)
        d->driver->MemFreeHost(s->memory);
    dn_pool_destroy(s->pool);
    dn_free(s);
    d->staging = NULL;
}

/* 0: it cannot be had, and copies go as they are. */
static int open_staging(cuda_device *d)
{
    if (d->staging)
        return 1;
    cuda_staging *s = d->staging = dn_calloc(1, sizeof *s);
    void *memory = NULL;
    if (!s)
        return 0;
    int failed = d->driver->MemHostAlloc(&memory, PARTS * PART, 0) != 0;
    s->memory = memory;
    for (int i = 0; i < PARTS && !failed; i++)
        failed = d->driver->EventCreate(&s->sent[i], CU_WITHOUT_TIMING) != 0;
    int threads = MIN(dn_thread_count(), MOST_THREADS);
    failed = failed || dn_pool_create(threads, &s->pool) != DANAUS_OK;
    if (failed)
        dn_cuda_close_staging(d);
    return !failed;
}

typedef struct staged_part {
    char *to;
    const char *from;
    size_t bytes;
} staged_part;

static void copy_slice(void *arg, int i)
{
    const staged_part *p = arg;
    size_t at = (size_t)i * SLICE;
    memcpy(p->to + at, p->from + at, MIN(p->bytes - at, SLICE));
}

int dn_cuda_can_stage(cuda_device *d, const void *from, size_t bytes)
{
    unsigned type;
    if (bytes < PART)
        return 0;
    cu_result known =
        d->driver->PointerGetAttribute(&type, CU_POINTER_TYPE, (cu_pointer)from);
    return known == CU_INVALID_VALUE && open_staging(d);
}

danaus_status dn_cuda_stage(cuda_device *d, void *to, const void *from, size_t bytes)
{
    cuda_staging *s = d->staging;
    for (size_t at = 0, i = 0; at < bytes; at += PART, i = (i + 1) % PARTS) {
        staged_part p = { s->memory + i * PART, (const char *)from + at,
                          MIN(bytes - at, PART) };
        CUDA_TRY(d->driver, EventSynchronize(s->sent[i]));
        dn_pool_run(s->pool, (int)CEIL_DIV(p.bytes, SLICE), copy_slice, &p);
        CUDA_TRY(
            d->driver,
            MemcpyAsync((cu_pointer)to + at, (cu_pointer)p.to, p.bytes, d->stream));
        CUDA_TRY(d->driver, EventRecord(s->sent[i], d->stream));
    }
    return DANAUS_OK;
}
