/* A caller's own use of CUDA: functions of the driver beside those of danaus. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_CALLER_H
#define TEST_SUPPORT_CALLER_H

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

/* The driver as a caller of danaus uses it. */
typedef struct driver {
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_synchronize)(void *stream);
    int (*begin_capture)(void *stream, int mode);
    int (*end_capture)(void *stream, void **graph);
    int (*instantiate)(void **made, void *graph, unsigned long long flags);
    int (*graph_launch)(void *made, void *stream);
    int (*made_destroy)(void *made);
    int (*graph_destroy)(void *graph);
    int (*context_create)(void **context, unsigned flags, int device);
    int (*context_destroy)(void *context);
    int (*context_current)(void **context);
    int (*context_set)(void *context);
    int (*context_push)(void *context);
    int (*context_pop)(void **context);
    int (*primary_retain)(void **context, int device);
    int (*primary_release)(int device);
} driver;

static const char *const symbols[] = {
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
    "cuCtxCreate_v2",
    "cuCtxDestroy_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
};

#define SYMBOLS (sizeof symbols / sizeof *symbols)

static driver d;

/* Functions that this driver lacks are NULL. 0: it does not have all. */
static int open_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *found[SYMBOLS] = { NULL };
    size_t count = 0;
    _Static_assert(sizeof found == sizeof d, "a pointer a row");
    for (size_t i = 0; library && i < SYMBOLS; i++)
        count += (found[i] = dlsym(library, symbols[i])) != NULL;
    memcpy(&d, found, sizeof d);
    return count == SYMBOLS;
}

#endif
