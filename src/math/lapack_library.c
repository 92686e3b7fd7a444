/* Where LAPACK comes from, and how many threads it has.

   It is loaded when it is first needed, so other programs never wait for its threads or its
   memory. OpenBLAS starts its threads while it is loaded: as many as the environment says, or
   one for each processor. Here it is loaded with one thread unless the user names a number.

   OpenBLAS maps a buffer for each thread inside it and keeps it. Where there is no room, it
   tries forever. Under a limit of address space, buffers are therefore mapped here before
   anything is computed. */
// SPDX-License-Identifier: Apache-2.0
#include "math/lapack_library.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "base/thread.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A buffer of OpenBLAS, with its page: 32 << 22 bytes on x86-64, less elsewhere. */
#define BUFFER_BYTES ((size_t)129 << 20)
#define MOST_BUFFERS 256

typedef void (*symbol)(void);

static danaus_status no_room(int threads)
{
    return dn_fail(
        DANAUS_ERR_MEMORY,
        "LAPACK needs %zu MiB of address space for each of %d threads: raise the limit "
        "(ulimit -v), or take fewer threads",
        BUFFER_BYTES >> 20, threads);
}

#ifdef DANAUS_LINK_LAPACK

#    define X(name, arguments) void name##_ arguments;
#    include "math/lapack.def"
#    undef X

lapack_functions dn_lapack = {
#    define X(name, arguments) name##_,
#    include "math/lapack.def"
#    undef X
};

static danaus_status load(void **handle)
{
    *handle = RTLD_DEFAULT;
    return DANAUS_OK;
}

#else

lapack_functions dn_lapack;

static const char *const names[] = {
#    define X(name, arguments) #    name "_",
#    include "math/lapack.def"
#    undef X
};

#    define SYMBOLS (sizeof names / sizeof *names)

_Static_assert(sizeof(lapack_functions) == SYMBOLS * sizeof(symbol), "one a row");

/* Names that the loader searches for, the best first. */
static const char *const files[] = { DANAUS_LAPACK_FILES };

#    define FILES (sizeof files / sizeof *files)

/* The environment of this process with one line more. The process's own array stays as it
   is, as other threads may read it. */
static char **environment_with(char *line)
{
    size_t count = 0;
    while (environ && environ[count])
        count++;
    char **with = dn_calloc(count + 2, sizeof *with);
    if (with && count)
        memcpy(with, environ, count * sizeof *with);
    if (with)
        with[count] = line;
    return with;
}

/* The number of threads that the user wants OpenBLAS to have; 0: nobody says. */
static int wanted_threads(void)
{
    static const char *const variables[] = { "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS",
                                             "OMP_NUM_THREADS" };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *text = getenv(variables[i]);
        int threads = text ? atoi(text) : 0;
        if (threads > 0)
            return MIN(threads, MOST_BUFFERS);
    }
    return 0;
}

/* The library that this process has already, or else the first that can be loaded. *file
   becomes its name. */
static void *open_first(const char **file)
{
    static const int ways[] = { RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD,
                                RTLD_NOW | RTLD_LOCAL };
    const char *wish = getenv("DANAUS_LAPACK");
    int named = wish && *wish;
    void *handle = NULL;
    for (int way = named; way < 2; way++)
        for (size_t i = 0; i < (named ? 1 : FILES) && !handle; i++)
            handle = dlopen(*file = named ? wish : files[i], ways[way]);
    return handle;
}

static danaus_status find_functions(void *handle, const char *file)
{
    void *found[SYMBOLS];
    for (size_t i = 0; i < SYMBOLS; i++) {
        found[i] = dlsym(handle, names[i]);
        if (!found[i])
            return dn_fail(
                DANAUS_ERR_UNSUPPORTED, "%s is no whole LAPACK: it has no %s", file,
                names[i]);
    }
    memcpy(&dn_lapack, found, sizeof found);
    return DANAUS_OK;
}

static danaus_status load_any(void **handle)
{
    const char *file;
    *handle = open_first(&file);
    if (*handle)
        return find_functions(*handle, file);
    const char *why = dlerror();
    return dn_fail(
        DANAUS_ERR_UNSUPPORTED,
        "this needs a LAPACK, and none can be loaded (%s): install OpenBLAS, or name a "
        "file by DANAUS_LAPACK",
        why ? why : "no memory");
}

static danaus_status load(void **handle)
{
    static char one[] = "OPENBLAS_NUM_THREADS=1";
    static char **ours; /* another thread may read it for a while */
    int threads = wanted_threads();
    if (threads > 1 && !dn_has_room((size_t)threads * BUFFER_BYTES))
        return no_room(threads);
    if (threads)
        return load_any(handle);
    char **theirs = environ;
    dn_free(ours);
    if (!(ours = environment_with(one)))
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for an environment");
    environ = ours;
    danaus_status status = load_any(handle);
    if (environ == ours)
        environ = theirs;
    return status;
}

#endif

/* ---- OpenBLAS ---- */

/* What it has beside LAPACK; other libraries lack these. */
static struct {
    int (*get_threads)(void);
    void (*set_threads)(int threads);
    void *(*alloc)(int position);
    void (*free)(void *buffer);
} openblas;

static int is_open;
static int callers, mapped; /* threads that may be inside LAPACK, buffers for them */

static void find_openblas(void *handle)
{
    void *found[] = { dlsym(handle, "openblas_get_num_threads"),
                      dlsym(handle, "openblas_set_num_threads"),
                      dlsym(handle, "blas_memory_alloc"),
                      dlsym(handle, "blas_memory_free") };
    _Static_assert(sizeof found == sizeof openblas, "one each");
    if (found[0] && found[1] && found[2] && found[3])
        memcpy(&openblas, found, sizeof found);
}

static danaus_status open_lapack(void)
{
    void *handle;
    if (is_open)
        return DANAUS_OK;
    TRY(load(&handle));
    find_openblas(handle);
    is_open = 1;
    return DANAUS_OK;
}

/* Takes as many buffers as may be needed at once, and gives them back: they stay. */
static danaus_status map_buffers(void)
{
    if (!openblas.alloc || !dn_address_space_is_limited())
        return DANAUS_OK;
    void *buffers[MOST_BUFFERS];
    int need = MIN(callers + openblas.get_threads() - 1, MOST_BUFFERS), count = 0;
    if (need <= mapped)
        return DANAUS_OK;
    if (!dn_has_room((size_t)(need - mapped) * BUFFER_BYTES))
        return no_room(need);
    while (count < need && (buffers[count] = openblas.alloc(0)))
        count++;
    while (count > 0)
        openblas.free(buffers[--count]);
    mapped = need;
    return DANAUS_OK;
}

danaus_status dn_lapack_begin(int threads)
{
    dn_lock_process();
    danaus_status status = open_lapack();
    callers += threads;
    if (status == DANAUS_OK)
        status = map_buffers();
    if (status != DANAUS_OK)
        callers -= threads;
    dn_unlock_process();
    return status;
}

void dn_lapack_end(int threads)
{
    dn_lock_process();
    callers -= threads;
    dn_unlock_process();
}

/* ---- one thread each ---- */

static int alone, threads_before;

static void change_alone(int by)
{
    if (!openblas.get_threads)
        return;
    dn_lock_process();
    if (alone == 0)
        threads_before = openblas.get_threads();
    alone += by;
    if (threads_before != 1)
        openblas.set_threads(alone ? 1 : threads_before);
    dn_unlock_process();
}

void dn_lapack_alone(void) { change_alone(1); }

void dn_lapack_as_before(void) { change_alone(-1); }
