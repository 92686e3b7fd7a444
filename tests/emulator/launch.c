/* Modules and launches of the emulated driver. Modules are shared libraries that the
   stand-in for NVRTC has made. A launch runs block after block; the threads of a block are
   coroutines that take turns at barriers. What is no library of this machine can be loaded
   and launched too, and does nothing. */
// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include "cuda/driver.h"
#include "gpu/gpu.h"

#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define MOST_THREADS 1024
#define STACK        ((size_t)64 << 10)
#define MOST_ARGS    28
#define MOST_BOX     256 /* elements of a tensor map's box, along each dimension */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- modules ---- */

typedef struct function {
    struct function *next; /* all that were made: what is lost can be found */
    void *context;         /* that it was loaded in: it runs in no other */
    void *library;
    void (*call)(
        int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64,
        int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64,
        int64, int64, int64, int64, int64, int64);
    const char *signature;
    int *thread;
    int64 *block, *blocks;
    unsigned char **shared;
} function;

static function *functions;

/* A library of this machine from memory, or NULL. The image ends with its table of
   sections. */
static void *open_library(const void *image, const Elf64_Ehdr *head)
{
    char path[] = "/tmp/danaus-module-XXXXXX";
    size_t bytes = head->e_shoff + (size_t)head->e_shnum * head->e_shentsize;
    int file = mkstemp(path);
    if (file < 0)
        return NULL;
    int ok = write(file, image, bytes) == (ssize_t)bytes;
    close(file);
    void *library = ok ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    unlink(path);
    return library;
}

EXPORT int cuModuleLoadData(function **module, const void *image);
int cuModuleLoadData(function **module, const void *image)
{
    BEGIN;
    if (emulated_is_forbidden())
        return 900;
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG))
        return 200;
    int is_idle = head.e_machine == EM_CUDA;
    void *library = is_idle ? NULL : open_library(image, &head);
    if (!library && !is_idle)
        return 200;
    function *f = calloc(1, sizeof *f);
    f->library = library;
    f->context = emulated_context();
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
    if (module->library)
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
    *found = module;
    if (!module->library)
        return 0;
    void *symbol = dlsym(module->library, name);
    void (**barrier)(void) = dlsym(module->library, "emulator_barrier");
    module->signature = dlsym(module->library, "emulator_signature");
    module->thread = dlsym(module->library, "emulator_thread");
    module->block = dlsym(module->library, "emulator_block");
    module->blocks = dlsym(module->library, "emulator_blocks");
    module->shared = dlsym(module->library, "emulator_shared");
    if (!symbol || !barrier)
        return 500;
    memcpy(&module->call, &symbol, sizeof symbol);
    *barrier = wait_at_barrier;
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
            a[12], a[13], a[14], a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22],
            a[23], a[24], a[25], a[26], a[27]);
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
    unsigned blocks, threads, shared;
    int has_table; /* in the place of arguments */
    int64 argument[MOST_ARGS], table[GPU_TABLE_BYTES / 8];
} launch;

/* So many bytes for a block, of which nobody knows what they hold. What follows them is a page
   that ends the program of who touches it. */
static unsigned char *shared_memory(size_t bytes)
{
    static unsigned char *end;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!end) {
        size_t all = (MOST_SHARED + page - 1) / page * page;
        unsigned char *begin = mmap(
            NULL, all + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
            0);
        end = begin + all;
        mprotect(end, page, PROT_NONE);
    }
    bytes = (bytes + 15) / 16 * 16;
    return memset(end - bytes, 0x7f, bytes);
}

/* Handles SIGSEGV, an access outside of memory, and SIGILL, a wrong index of an array (nvrtc.c).
   The test cannot go on: the thread that was hit holds the emulator's lock. */
static void end_program(int number)
{
    static const char why[] =
        "a thread of an emulated block touched memory that it does not have\n";
    (void)!write(STDERR_FILENO, why, sizeof why - 1);
    _exit(128 + number);
}

static void run_blocks(const launch *l)
{
    if (!stacks)
        stacks = mmap(
            NULL, STACK * MOST_THREADS, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memcpy(argument, l->argument, sizeof argument);
    if (l->has_table)
        argument[0] = (int64)(intptr_t)l->table;
    launched = l->f;
    *l->f->blocks = l->blocks;
    struct sigaction ends = { .sa_handler = end_program }, before[2];
    sigaction(SIGSEGV, &ends, &before[0]);
    sigaction(SIGILL, &ends, &before[1]);
    for (*l->f->block = 0; *l->f->block < l->blocks; ++*l->f->block) {
        *l->f->shared = shared_memory(l->shared);
        run_block(l->f, (int)l->threads);
    }
    sigaction(SIGSEGV, &before[0], NULL);
    sigaction(SIGILL, &before[1], NULL);
}

static void run_launch(const void *data)
{
    const launch *l = data;
    emulator_memory(1);
    const int64 *words = l->has_table ? l->table : l->argument;
    int count = l->has_table ? GPU_TABLE_BYTES / 8 : MOST_ARGS;
    void *watch = control->watching ? emulated_begin_watch(words, count) : NULL;
    if (l->f->library)
        run_blocks(l);
    if (watch)
        emulated_end_watch(watch, words, count);
    control->launches++;
    control->functions += (unsigned long)l->f;
    emulator_memory(0);
}

static launch launch_of(
    function *f, unsigned blocks, unsigned count, unsigned shared, void **arguments)
{
    launch l = { .f = f, .blocks = blocks, .threads = count, .shared = shared };
    l.has_table = f->library && f->signature[0] == 't';
    if (l.has_table)
        memcpy(l.table, arguments[0], sizeof l.table);
    for (int i = 0; f->library && !l.has_table && f->signature[i]; i++)
        l.argument[i] =
            f->signature[i] == 'i' ? *(int *)arguments[i] : *(int64 *)arguments[i];
    return l;
}

static int enqueue(
    function *f, unsigned blocks, unsigned count, unsigned shared, void *stream,
    void **arguments)
{
    if (!emulated_context() || f->context != emulated_context())
        return 400;
    launch l = launch_of(f, blocks, count, shared, arguments);
    emulator_enqueue(stream, run_launch, &l, sizeof l);
    return 0;
}

EXPORT int cuLaunchKernel(
    function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned shared, void *stream, void **arguments, void **extra);
int cuLaunchKernel(
    function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
    unsigned bz, unsigned shared, void *stream, void **arguments, void **extra)
{
    BEGIN;
    (void)extra;
    int is_line = gy == 1 && gz == 1;
    if (shared > (unsigned)emulated_shared() || !gx || !gy || !gz ||
        (f->library && !is_line) || bx > MOST_THREADS || by != 1 || bz != 1)
        return 1;
    return enqueue(f, gx, bx, shared, stream, arguments);
}

EXPORT int cuLaunchKernelEx(
    const cu_launch *l, function *f, void **arguments, void **extra);
int cuLaunchKernelEx(const cu_launch *l, function *f, void **arguments, void **extra)
{
    BEGIN;
    (void)extra;
    unsigned cluster = l->count ? l->attributes->value.cluster.x : 1;
    if (l->count > 1 || (l->count && l->attributes->id != CU_LAUNCH_CLUSTER) ||
        !cluster || cluster > 8 || !l->grid[0] || l->grid[0] % cluster ||
        l->block[0] > MOST_THREADS || l->shared > (unsigned)emulated_shared())
        return 1;
    return enqueue(f, l->grid[0], l->block[0], l->shared, l->stream, arguments);
}

EXPORT int cuGraphExecKernelNodeSetParams_v2(
    void *made, void *node, const cu_kernel_node *to);
int cuGraphExecKernelNodeSetParams_v2(void *made, void *node, const cu_kernel_node *to)
{
    BEGIN;
    launch *l = emulated_node(made, node, run_launch);
    if (!l)
        return 1;
    *l = launch_of(
        (function *)to->function, to->grid[0], to->block[0], to->shared, to->arguments);
    return 0;
}

/* What the driver's documentation asks of a map, without interleaving. */
EXPORT int cuTensorMapEncodeTiled(
    cu_tensor_map *map, int type, unsigned rank, void *memory, const uint64_t *size,
    const uint64_t *stride, const unsigned *box, const unsigned *step, int interleave,
    int swizzle, int promotion, int fill);
int cuTensorMapEncodeTiled(
    cu_tensor_map *map, int type, unsigned rank, void *memory, const uint64_t *size,
    const uint64_t *stride, const unsigned *box, const unsigned *step, int interleave,
    int swizzle, int promotion, int fill)
{
    BEGIN;
    unsigned element = type == CU_MAP_F64 ? 8 : type == CU_MAP_F32 ? 4 : 2;
    unsigned line = box[0] * element;
    int ok = (uintptr_t)map % 64 == 0 && (uintptr_t)memory % 16 == 0 && rank > 0 &&
             rank <= 5 && !interleave && promotion >= 0 && promotion <= 3 && !fill &&
             line % 16 == 0 && (!swizzle || line <= 16u << swizzle);
    for (unsigned i = 0; i < rank && ok; i++)
        ok = size[i] && size[i] <= (uint64_t)1 << 32 && box[i] && box[i] <= MOST_BOX &&
             step[i] && step[i] <= 8 &&
             (i + 1 == rank || (stride[i] % 16 == 0 && stride[i] < (uint64_t)1 << 40));
    memset(map, 0, sizeof *map);
    return ok ? 0 : 1;
}
