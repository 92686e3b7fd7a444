/* What tests may ask of the emulated driver (driver.c); found with dlsym. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_EMULATOR_EMULATOR_H
#define TEST_EMULATOR_EMULATOR_H

#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

/* How functions begin: they return the error with which they are to fail, if there is one. */
#define FAIL_OR_GO_ON(fails)                                                           \
    do {                                                                               \
        int error_ = fails(__func__);                                                  \
        if (error_)                                                                    \
            return error_;                                                             \
    } while (0)

typedef struct emulator_control {
    /* The n-th call of this function from now on fails with this error, once. */
    const char *function;
    int number, error;
    /* Alive objects. */
    int contexts, modules, allocations, pushed, handles, events,
        graphs; /* and streams */
    long launches, copies, products;
    long choices, endings;   /* of cublasLt: algorithms asked for, products asked for */
    int no_algorithms;       /* it knows none: it says so (1) or gives none (2) */
    unsigned long functions; /* that were launched, their addresses added up */
    int devices;             /* 0: one */
    int capturing;           /* what cuStreamIsCapturing says */
    int calls;               /* of `function` since it was set */
    int in_capture;          /* something was captured when it failed */
    void *stream;            /* of the latest launch */
    int no_pools;            /* memory is not had in the order of a stream */
    int watching; /* count the next two: where what lies in one block is not shared */
    long races, strays;
    long stalls; /* what waits for all streams */
} emulator_control;

EXPORT extern emulator_control emulator_control_block;

/* For stand-ins of libraries on top of the driver, too: the error with which this function
   is to fail, or 0; device memory for the time of a call, one at a time; work on a stream,
   done now unless the stream is captured; memory that work which is being done touches. */
EXPORT int emulator_fails(const char *function);
EXPORT void emulator_memory(int access);
EXPORT void emulator_enqueue(
    void *stream, void (*run)(const void *data), const void *data, size_t bytes);
EXPORT void emulator_touch(const void *memory, int writes);

#endif
