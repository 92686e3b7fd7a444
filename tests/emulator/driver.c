/* A stand-in for libcuda.so.1: GPUs, emulated on the processor.

   Device memory is a range of addresses that the host may touch only inside the calls of
   the driver. Modules are shared libraries that the stand-in for NVRTC has made. A launch
   runs block after block; the threads of a block are coroutines that take turns at
   barriers. Every function can be told to fail. */
// SPDX-License-Identifier: Apache-2.0
#include "emulator.h"

#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

#define ARENA        ((size_t)1 << 30)
#define PAGE         ((size_t)4096)
#define MOST_BLOCKS  4096
#define MOST_THREADS 1024
#define STACK        ((size_t)64 << 10)
#define MOST_ARGS    16

typedef long long int64;

EXPORT emulator_control emulator_control_block;

static emulator_control *const control = &emulator_control_block;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- failing ---- */

/* Every function begins so. Returns from it when it is to fail. */
#define BEGIN                                                                          \
    do {                                                                               \
        int error_ = emulator_fails(__func__);                                         \
        if (error_)                                                                    \
            return error_;                                                             \
    } while (0)

EXPORT int emulator_fails(const char *function);
int emulator_fails(const char *function)
{
    if (!control->function || strcmp(control->function, function))
        return 0;
    pthread_mutex_lock(&lock);
    int number = ++control->calls;
    pthread_mutex_unlock(&lock);
    return number == control->number ? control->error : 0;
}

/* ---- memory ---- */

typedef struct piece {
    size_t from, to;
} piece;

static char *arena;
static piece pieces[MOST_BLOCKS]; /* in order */
static int piece_count;

static void open_arena(int access)
{
    if (arena)
        mprotect(arena, ARENA, access ? PROT_READ | PROT_WRITE : PROT_NONE);
}

EXPORT void emulator_memory(int access);
void emulator_memory(int access)
{
    if (access)
        pthread_mutex_lock(&lock);
    open_arena(access);
    if (!access)
        pthread_mutex_unlock(&lock);
}

EXPORT int cuMemAlloc_v2(uintptr_t *memory, size_t bytes);
int cuMemAlloc_v2(uintptr_t *memory, size_t bytes)
{
    BEGIN;
    pthread_mutex_lock(&lock);
    if (!arena) {
        arena = mmap(
            NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED)
            arena = NULL;
    }
    size_t need = bytes > ARENA ? ARENA + 1 : (bytes + 511) / 256 * 256, from = 0;
    int at = 0;
    while (at < piece_count && pieces[at].from - from < need)
        from = pieces[at++].to;
    int ok = arena && piece_count < MOST_BLOCKS && need <= ARENA - from;
    if (ok) {
        memmove(
            &pieces[at + 1], &pieces[at], (size_t)(piece_count - at) * sizeof *pieces);
        pieces[at] = (piece){ from, from + need };
        piece_count++;
        control->allocations++;
        *memory = (uintptr_t)(arena + from);
        open_arena(1);
        memset(arena + from, 0xff, need);
        open_arena(0);
    }
    pthread_mutex_unlock(&lock);
    return ok ? 0 : 2;
}

EXPORT int cuMemFree_v2(uintptr_t memory);
int cuMemFree_v2(uintptr_t memory)
{
    BEGIN;
    pthread_mutex_lock(&lock);
    int at = 0;
    while (at < piece_count && (uintptr_t)(arena + pieces[at].from) != memory)
        at++;
    int found = at < piece_count;
    if (found) {
        piece_count--;
        memmove(
            &pieces[at], &pieces[at + 1], (size_t)(piece_count - at) * sizeof *pieces);
        control->allocations--;
    }
    pthread_mutex_unlock(&lock);
    return found ? 0 : 1;
}

EXPORT int cuMemcpyAsync(uintptr_t to, uintptr_t from, size_t bytes, void *stream);
int cuMemcpyAsync(uintptr_t to, uintptr_t from, size_t bytes, void *stream)
{
    BEGIN;
    (void)stream;
    pthread_mutex_lock(&lock);
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
    (void)stream;
    pthread_mutex_lock(&lock);
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

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    BEGIN;
    (void)device;
    static const int facts[][2] = {
        { 75, 7 },         { 76, 5 },       { 16, 2 },       { 97, 65536 },
        { 38, 256 << 10 }, { 13, 1500000 }, { 36, 5000000 }, { 37, 256 },
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
    *bytes = ARENA;
    return 0;
}

static char primary[16]; /* one of each device */
static __thread void *current[16];
static __thread int depth;

static void *context_now(void) { return depth ? current[depth - 1] : NULL; }

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
    *context = context_now();
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
    (void)stream;
    return depth ? 0 : 201;
}

/* ---- graphs: work that is done later, in its order ---- */

typedef struct work {
    struct work *next;
    void (*run)(const void *data);
    _Alignas(16) char data[];
} work;

typedef struct graph {
    work *first, **end;
} graph;

/* What this thread captures. A graph that is instantiated gives its work away. */
static __thread void *captured;
static __thread graph *capture;

static graph *make_graph(void)
{
    graph *g = calloc(1, sizeof *g);
    g->end = &g->first;
    __atomic_add_fetch(&control->graphs, 1, __ATOMIC_SEQ_CST);
    return g;
}

static void free_graph(graph *g)
{
    for (work *w = g->first, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    free(g);
    __atomic_sub_fetch(&control->graphs, 1, __ATOMIC_SEQ_CST);
}

EXPORT int emulator_record(
    void *stream, void (*run)(const void *data), const void *data, size_t bytes);
int emulator_record(
    void *stream, void (*run)(const void *data), const void *data, size_t bytes)
{
    if (!stream || stream != captured)
        return 0;
    work *w = calloc(1, sizeof *w + bytes);
    w->run = run;
    memcpy(w->data, data, bytes);
    *capture->end = w;
    capture->end = &w->next;
    return 1;
}

EXPORT int cuStreamIsCapturing(void *stream, int *capturing);
int cuStreamIsCapturing(void *stream, int *capturing)
{
    BEGIN;
    *capturing = control->capturing || (stream && stream == captured);
    return 0;
}

EXPORT int cuStreamCreate(void **stream, unsigned flags);
int cuStreamCreate(void **stream, unsigned flags)
{
    BEGIN;
    *stream = malloc(1 + flags);
    __atomic_add_fetch(&control->graphs, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT int cuStreamDestroy_v2(void *stream);
int cuStreamDestroy_v2(void *stream)
{
    free(stream);
    BEGIN;
    __atomic_sub_fetch(&control->graphs, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamBeginCapture_v2(void *stream, int mode)
{
    BEGIN;
    if (captured || !stream || mode < 0 || mode > 2)
        return 1;
    captured = stream;
    capture = make_graph();
    return 0;
}

EXPORT int cuStreamEndCapture(void *stream, graph **made);
int cuStreamEndCapture(void *stream, graph **made)
{
    graph *g = stream == captured ? capture : NULL;
    int error = emulator_fails(__func__);
    captured = NULL;
    *made = NULL;
    if (error && g)
        free_graph(g);
    else
        *made = g;
    return error ? error : g == NULL;
}

EXPORT int cuGraphInstantiateWithFlags(
    graph **made, graph *from, unsigned long long flags);
int cuGraphInstantiateWithFlags(graph **made, graph *from, unsigned long long flags)
{
    BEGIN;
    if (flags)
        return 1;
    *made = make_graph();
    (*made)->first = from->first;
    from->first = NULL;
    return 0;
}

EXPORT int cuGraphLaunch(graph *made, void *stream);
int cuGraphLaunch(graph *made, void *stream)
{
    BEGIN;
    for (const work *w = made->first; w; w = w->next)
        w->run(w->data);
    control->stream = stream;
    return depth ? 0 : 201;
}

EXPORT int cuGraphDestroy(graph *g);
int cuGraphDestroy(graph *g)
{
    int error = emulator_fails(__func__);
    free_graph(g);
    return error;
}

EXPORT int cuGraphExecDestroy(graph *made);
int cuGraphExecDestroy(graph *made)
{
    int error = emulator_fails(__func__);
    free_graph(made);
    return error;
}

/* ---- events ---- */

EXPORT int cuEventCreate(struct timespec **event, unsigned flags);
int cuEventCreate(struct timespec **event, unsigned flags)
{
    BEGIN;
    *event = flags ? NULL : calloc(1, sizeof **event);
    if (!*event)
        return 1;
    __atomic_add_fetch(&control->events, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT int cuEventDestroy_v2(struct timespec *event);
int cuEventDestroy_v2(struct timespec *event)
{
    free(event); /* when this is to fail, too: what is lost is counted */
    BEGIN;
    __atomic_sub_fetch(&control->events, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT int cuEventRecord(struct timespec *event, void *stream);
int cuEventRecord(struct timespec *event, void *stream)
{
    BEGIN;
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, event);
    return depth ? 0 : 201;
}

EXPORT int cuEventElapsedTime(
    float *milliseconds, const struct timespec *first, const struct timespec *last);
int cuEventElapsedTime(
    float *milliseconds, const struct timespec *first, const struct timespec *last)
{
    BEGIN;
    *milliseconds = (float)(last->tv_sec - first->tv_sec) * 1e3f +
                    (float)(last->tv_nsec - first->tv_nsec) * 1e-6f;
    return 0;
}

/* ---- modules ---- */

typedef struct function {
    struct function *next; /* all that were made: what is lost can be found */
    void *context;         /* that it was loaded in: it runs in no other */
    void *library;
    void (*call)(
        int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64,
        int64, int64, int64, int64, int64);
    const char *signature;
    int *thread;
    int64 *block, *blocks;
} function;

static function *functions;

/* The image ends with its table of sections. */
static size_t image_bytes(const void *image)
{
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG))
        return 0;
    return head.e_shoff + (size_t)head.e_shnum * head.e_shentsize;
}

EXPORT int cuModuleLoadData(function **module, const void *image);
int cuModuleLoadData(function **module, const void *image)
{
    BEGIN;
    char path[] = "/tmp/danaus-module-XXXXXX";
    size_t bytes = image_bytes(image);
    int file = bytes ? mkstemp(path) : -1;
    if (file < 0)
        return 200;
    int ok = write(file, image, bytes) == (ssize_t)bytes;
    close(file);
    function *f = calloc(1, sizeof *f);
    f->library = ok ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    unlink(path);
    if (!f->library) {
        free(f);
        return 200;
    }
    f->context = context_now();
    __atomic_add_fetch(&control->modules, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&lock);
    f->next = functions;
    functions = f;
    pthread_mutex_unlock(&lock);
    *module = f;
    return 0;
}

EXPORT int cuModuleUnload(function *module);
int cuModuleUnload(function *module)
{
    BEGIN;
    pthread_mutex_lock(&lock);
    for (function **at = &functions; *at; at = &(*at)->next)
        if (*at == module) {
            *at = module->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    dlclose(module->library);
    free(module);
    __atomic_sub_fetch(&control->modules, 1, __ATOMIC_SEQ_CST);
    return 0;
}

/* The threads of the block that runs are coroutines, made once, each on a stack of its
   own; the lock is held meanwhile. */
typedef struct coroutine {
    void *here[5]; /* __builtin_setjmp: no system calls, and no sanitizer looks */
    int is_made, is_done;
} coroutine;

static coroutine threads[MOST_THREADS];
static void *scheduler[5];
static char *stacks;
static int running;
static const function *launched;
static int64 argument[MOST_ARGS];

/* These two return when they are resumed. */
__attribute__((noinline)) static void leave(void) { __builtin_longjmp(scheduler, 1); }

__attribute__((noinline)) static void wait_at_barrier(void)
{
    if (__builtin_setjmp(threads[running].here) == 0)
        leave();
}

EXPORT int cuModuleGetFunction(function **found, function *module, const char *name);
int cuModuleGetFunction(function **found, function *module, const char *name)
{
    BEGIN;
    void *symbol = dlsym(module->library, name);
    void (**barrier)(void) = dlsym(module->library, "emulator_barrier");
    module->signature = dlsym(module->library, "emulator_signature");
    module->thread = dlsym(module->library, "emulator_thread");
    module->block = dlsym(module->library, "emulator_block");
    module->blocks = dlsym(module->library, "emulator_blocks");
    if (!symbol || !barrier)
        return 500;
    memcpy(&module->call, &symbol, sizeof symbol);
    *barrier = wait_at_barrier;
    *found = module;
    return 0;
}

EXPORT int cuFuncGetAttribute(int *value, int attribute, function *f);
int cuFuncGetAttribute(int *value, int attribute, function *f)
{
    BEGIN;
    (void)attribute;
    (void)f;
    *value = 0;
    return 0;
}

EXPORT int cuFuncSetAttribute(function *f, int attribute, int value);
int cuFuncSetAttribute(function *f, int attribute, int value)
{
    BEGIN;
    (void)f;
    (void)attribute;
    (void)value;
    return 0;
}

/* ---- launches ---- */

/* The life of a coroutine: a thread of each block that runs. */
static void run_threads(void)
{
    const int64 *a = argument;
    for (;;) {
        launched->call(
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11],
            a[12], a[13], a[14], a[15]);
        threads[running].is_done = 1;
        wait_at_barrier();
    }
}

static void make_coroutine(int t)
{
    static ucontext_t made;
    getcontext(&made);
    made.uc_stack.ss_sp = stacks + (size_t)t * STACK;
    made.uc_stack.ss_size = STACK;
    makecontext(&made, run_threads, 0);
    threads[t].is_made = 1;
    setcontext(&made);
}

__attribute__((noinline)) static void enter(int t)
{
    if (threads[t].is_made)
        __builtin_longjmp(threads[t].here, 1);
    make_coroutine(t);
}

__attribute__((noinline)) static void resume(int t)
{
    if (__builtin_setjmp(scheduler) == 0)
        enter(t);
}

static void run_block(const function *f, int count)
{
    for (int t = 0; t < count; t++)
        threads[t].is_done = 0;
    for (int left = count; left;) {
        left = 0;
        for (int t = 0; t < count; t++) {
            if (threads[t].is_done)
                continue;
            running = *f->thread = t;
            resume(t);
            left += !threads[t].is_done;
        }
    }
}

typedef struct launch {
    function *f;
    unsigned blocks, threads;
    int64 argument[MOST_ARGS];
} launch;

static void run_launch(const void *data)
{
    const launch *l = data;
    pthread_mutex_lock(&lock);
    if (!stacks)
        stacks = mmap(
            NULL, STACK * MOST_THREADS, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memcpy(argument, l->argument, sizeof argument);
    open_arena(1);
    launched = l->f;
    *l->f->blocks = l->blocks;
    for (*l->f->block = 0; *l->f->block < l->blocks; ++*l->f->block)
        run_block(l->f, (int)l->threads);
    control->launches++;
    open_arena(0);
    pthread_mutex_unlock(&lock);
}

EXPORT int cuLaunchKernel(
    function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned shared, void *stream, void **arguments, void **extra);
int cuLaunchKernel(
    function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned shared, void *stream, void **arguments, void **extra)
{
    BEGIN;
    (void)shared;
    (void)extra;
    if (!gx || gy != 1 || gz != 1 || bx > MOST_THREADS || by != 1 || bz != 1)
        return 1;
    if (!depth || f->context != context_now())
        return 400;
    launch l = { .f = f, .blocks = gx, .threads = bx };
    for (int i = 0; f->signature[i]; i++)
        l.argument[i] =
            f->signature[i] == 'i' ? *(int *)arguments[i] : *(int64 *)arguments[i];
    if (!emulator_record(stream, run_launch, &l, sizeof l)) {
        run_launch(&l);
        control->stream = stream;
    }
    return 0;
}
