/* A stand-in for libcuda.so.1: GPUs, emulated on the processor. Here are devices, contexts
   and memory; graphs.c has graphs and events, launch.c modules and launches.

   Device memory is a range of addresses that the host may touch only inside the calls of
   the driver. Every function can be told to fail. */
// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA       ((size_t)1 << 30)
#define MOST_BLOCKS 4096

emulator_control emulator_control_block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- failing ---- */

int emulator_fails(const char *function)
{
    if (!control->function || strcmp(control->function, function))
        return 0;
    pthread_mutex_lock(&lock);
    int number = ++control->calls;
    pthread_mutex_unlock(&lock);
    if (number != control->number)
        return 0;
    control->in_capture = emulated_captures() > 0;
    return control->error;
}

/* ---- memory ---- */

typedef struct piece {
    size_t from, to;
    history h;
} piece;

static char *arena;
static piece pieces[MOST_BLOCKS]; /* in order */
static int piece_count;

static void open_arena(int access)
{
    if (arena)
        mprotect(arena, ARENA, access ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void emulator_memory(int access)
{
    if (access)
        pthread_mutex_lock(&lock);
    open_arena(access);
    if (!access)
        pthread_mutex_unlock(&lock);
}

/* The block that an address lies in; NULL: none, though it may be the arena's. */
static piece *find_piece(uintptr_t address)
{
    uintptr_t from = (uintptr_t)arena;
    for (int i = 0; i < piece_count; i++)
        if (address >= from + pieces[i].from && address < from + pieces[i].to)
            return &pieces[i];
    return NULL;
}

static int is_stray(uintptr_t address)
{
    uintptr_t from = (uintptr_t)arena;
    return arena && address >= from && address < from + ARENA && !find_piece(address);
}

static int allocate(uintptr_t *memory, size_t bytes)
{
    if (!arena) {
        arena = mmap(
            NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED)
            arena = NULL;
        else /* what calls open and shut are then few pages */
            madvise(arena, ARENA, MADV_HUGEPAGE);
    }
    size_t need = bytes > ARENA ? ARENA + 1 : (bytes + 511) / 256 * 256, from = 0;
    int at = 0;
    while (at < piece_count && pieces[at].from - from < need)
        from = pieces[at++].to;
    if (!arena || piece_count == MOST_BLOCKS || need > ARENA - from)
        return 2;
    memmove(&pieces[at + 1], &pieces[at], (size_t)(piece_count - at) * sizeof *pieces);
    pieces[at] = (piece){ .from = from, .to = from + need };
    emulated_begin_life(&pieces[at].h);
    piece_count++;
    control->allocations++;
    *memory = (uintptr_t)(arena + from);
    open_arena(1);
    memset(arena + from, 0xff, need);
    open_arena(0);
    return 0;
}

static int release(uintptr_t memory)
{
    piece *p = find_piece(memory);
    if (!p || (uintptr_t)(arena + p->from) != memory)
        return 1;
    emulated_touch(&p->h, 1);
    piece_count--;
    memmove(p, p + 1, (size_t)(pieces + piece_count - p) * sizeof *p);
    control->allocations--;
    return 0;
}

/* Everything waits for the whole device, and may not be while something is captured. */
EXPORT int cuMemAlloc_v2(uintptr_t *memory, size_t bytes);
int cuMemAlloc_v2(uintptr_t *memory, size_t bytes)
{
    BEGIN;
    if (emulated_is_forbidden())
        return 900;
    pthread_mutex_lock(&lock);
    emulated_wait_for_all();
    emulated_work_on(NULL);
    int error = allocate(memory, bytes);
    emulated_wait_for(NULL);
    pthread_mutex_unlock(&lock);
    return error;
}

EXPORT int cuMemFree_v2(uintptr_t memory);
int cuMemFree_v2(uintptr_t memory)
{
    BEGIN;
    if (emulated_is_forbidden())
        return 900;
    pthread_mutex_lock(&lock);
    emulated_wait_for_all();
    emulated_work_on(NULL);
    int error = release(memory);
    pthread_mutex_unlock(&lock);
    return error;
}

EXPORT int cuMemAllocAsync(uintptr_t *memory, size_t bytes, void *stream);
int cuMemAllocAsync(uintptr_t *memory, size_t bytes, void *stream)
{
    BEGIN;
    if (emulated_is_captured(stream) || control->no_pools)
        return 801;
    pthread_mutex_lock(&lock);
    emulated_work_on(stream);
    int error = allocate(memory, bytes);
    pthread_mutex_unlock(&lock);
    return error;
}

EXPORT int cuMemFreeAsync(uintptr_t memory, void *stream);
int cuMemFreeAsync(uintptr_t memory, void *stream)
{
    BEGIN;
    if (emulated_is_captured(stream) || control->no_pools)
        return 801;
    pthread_mutex_lock(&lock);
    emulated_work_on(stream);
    int error = release(memory);
    pthread_mutex_unlock(&lock);
    return error;
}

/* The lock is held. */
static void touch(uintptr_t address, int writes)
{
    piece *p = control->watching ? find_piece(address) : NULL;
    if (p)
        emulated_touch(&p->h, writes);
    else if (control->watching && is_stray(address))
        control->strays++;
}

void emulator_touch(const void *memory, int writes)
{
    touch((uintptr_t)memory, writes);
}

void *emulated_begin_watch(const int64 *addresses, int count)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++) {
        const piece *p = find_piece((uintptr_t)addresses[i]);
        bytes += p ? p->to - p->from : 0;
    }
    char *copy = malloc(bytes + 1), *at = copy;
    for (int i = 0; i < count; i++) {
        const piece *p = find_piece((uintptr_t)addresses[i]);
        if (p) {
            memcpy(at, arena + p->from, p->to - p->from);
            at += p->to - p->from;
        }
    }
    return copy;
}

void emulated_end_watch(void *watch, const int64 *addresses, int count)
{
    const char *at = watch;
    for (int i = 0; i < count; i++) {
        const piece *p = find_piece((uintptr_t)addresses[i]);
        int changed = p && memcmp(at, arena + p->from, p->to - p->from);
        at += p ? p->to - p->from : 0;
        touch((uintptr_t)addresses[i], changed);
    }
    free(watch);
}

/* Memory of the host that cannot move: any is. */
EXPORT int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags);
int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    BEGIN;
    (void)flags;
    *memory = malloc(bytes);
    if (!*memory)
        return 2;
    __atomic_add_fetch(&control->handles, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT int cuMemFreeHost(void *memory);
int cuMemFreeHost(void *memory)
{
    free(memory);
    __atomic_sub_fetch(&control->handles, 1, __ATOMIC_SEQ_CST);
    BEGIN;
    return 0;
}

/* Answers for memory of the device alone. */
EXPORT int cuPointerGetAttribute(void *value, int attribute, uintptr_t memory);
int cuPointerGetAttribute(void *value, int attribute, uintptr_t memory)
{
    BEGIN;
    (void)attribute;
    pthread_mutex_lock(&lock);
    int known = find_piece(memory) != NULL;
    pthread_mutex_unlock(&lock);
    if (known)
        *(unsigned *)value = 2;
    return !known;
}

EXPORT int cuMemcpyAsync(uintptr_t to, uintptr_t from, size_t bytes, void *stream);
int cuMemcpyAsync(uintptr_t to, uintptr_t from, size_t bytes, void *stream)
{
    BEGIN;
    pthread_mutex_lock(&lock);
    emulated_work_on(stream);
    touch(to, 1);
    touch(from, 0);
    open_arena(1);
    memmove((void *)to, (const void *)from, bytes);
    control->copies++;
    open_arena(0);
    pthread_mutex_unlock(&lock);
    return 0;
}

EXPORT int cuMemsetD8Async(
    uintptr_t to, unsigned char value, size_t bytes, void *stream);
int cuMemsetD8Async(uintptr_t to, unsigned char value, size_t bytes, void *stream)
{
    BEGIN;
    pthread_mutex_lock(&lock);
    emulated_work_on(stream);
    touch(to, 1);
    open_arena(1);
    memset((void *)to, value, bytes);
    open_arena(0);
    pthread_mutex_unlock(&lock);
    return 0;
}

/* ---- the device and its context ---- */

EXPORT int cuInit(unsigned flags);
int cuInit(unsigned flags)
{
    BEGIN;
    return flags != 0;
}

EXPORT int cuGetErrorString(int error, const char **text);
int cuGetErrorString(int error, const char **text)
{
    BEGIN;
    *text = error == 2 ? "out of memory" : "emulated failure";
    return 0;
}

EXPORT int cuDeviceGetCount(int *count);
int cuDeviceGetCount(int *count)
{
    BEGIN;
    *count = control->devices ? control->devices : 1;
    return 0;
}

EXPORT int cuDeviceGet(int *device, int ordinal);
int cuDeviceGet(int *device, int ordinal)
{
    BEGIN;
    *device = ordinal;
    return ordinal < (control->devices ? control->devices : 1) ? 0 : 101;
}

/* NVIDIA's NVRTC looks for tables here, and does without. */
EXPORT int cuGetExportTable(const void **table, const void *id);
int cuGetExportTable(const void **table, const void *id)
{
    (void)id;
    *table = NULL;
    return 500;
}

EXPORT int cuDeviceGetName(char *name, int size, int device);
int cuDeviceGetName(char *name, int size, int device)
{
    BEGIN;
    snprintf(name, (size_t)size, "emulated GPU %d", device);
    return 0;
}

EXPORT int cuDeviceGetPCIBusId(char *id, int size, int device);
int cuDeviceGetPCIBusId(char *id, int size, int device)
{
    BEGIN;
    (void)device;
    snprintf(id, (size_t)size, "0000:0E:00.0");
    return 0;
}

/* What plans hang on. */
typedef struct gpu {
    const char *name; /* of EMULATED_GPU */
    int arch, units, shared, l2;
    int clock, memory_clock, bus; /* kHz, kHz, bits */
    size_t memory;                /* of which there is no more than the arena */
} gpu;

static const gpu gpus[] = {
    { "h100", 90, 132, MOST_SHARED, 50 << 20, 1980000, 2619000, 5120,
      (size_t)80 << 30 },
    { "h200", 90, 132, MOST_SHARED, 60 << 20, 1980000, 3201000, 6144,
      (size_t)140 << 30 },
};

/* That of EMULATED_GPU, or else a small one of EMULATED_ARCH. */
static gpu emulated_gpu(void)
{
    const char *name = getenv("EMULATED_GPU"), *given = getenv("EMULATED_ARCH");
    int arch = given ? atoi(given) : 75, large = arch >= 90;
    for (size_t i = 0; name && i < sizeof gpus / sizeof *gpus; i++)
        if (!strcmp(gpus[i].name, name))
            return gpus[i];
    return (gpu){ "",        arch,    large ? 132 : 2, large ? MOST_SHARED : 64 << 10,
                  256 << 10, 1500000, 5000000,         256,
                  ARENA };
}

int emulated_arch(void) { return emulated_gpu().arch; }

int emulated_shared(void) { return emulated_gpu().shared; }

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    BEGIN;
    (void)device;
    gpu g = emulated_gpu();
    const int facts[][2] = {
        { 75, g.arch / 10 },    { 76, g.arch % 10 }, { 16, g.units },
        { 97, g.shared },       { 38, g.l2 },        { 13, g.clock },
        { 36, g.memory_clock }, { 37, g.bus },       { 115, !control->no_pools },
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (facts[i][0] == attribute) {
            *value = facts[i][1];
            return 0;
        }
    return 1;
}

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    BEGIN;
    (void)device;
    *bytes = emulated_gpu().memory;
    return 0;
}

static char primary[16]; /* one of each device */
static __thread void *current[16];
static __thread int depth;

void *emulated_context(void) { return depth ? current[depth - 1] : NULL; }

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRetain(void **context, int device)
{
    BEGIN;
    __atomic_add_fetch(&control->contexts, 1, __ATOMIC_SEQ_CST);
    *context = &primary[device];
    return 0;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxRelease_v2(int device)
{
    BEGIN;
    (void)device;
    __atomic_sub_fetch(&control->contexts, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT int cuCtxGetCurrent(void **context);
int cuCtxGetCurrent(void **context)
{
    BEGIN;
    *context = emulated_context();
    return 0;
}

EXPORT int cuCtxPushCurrent_v2(void *context);
int cuCtxPushCurrent_v2(void *context)
{
    BEGIN;
    if (depth == 16)
        return 1;
    current[depth++] = context;
    __atomic_add_fetch(&control->pushed, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT int cuCtxPopCurrent_v2(void **context);
int cuCtxPopCurrent_v2(void **context)
{
    BEGIN;
    if (!depth)
        return 201;
    *context = current[--depth];
    __atomic_sub_fetch(&control->pushed, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT int cuStreamSynchronize(void *stream);
int cuStreamSynchronize(void *stream)
{
    BEGIN;
    if (emulated_is_captured(stream))
        return 900;
    emulated_wait_for(stream);
    return depth ? 0 : 201;
}
