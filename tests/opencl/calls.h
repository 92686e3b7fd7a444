/* Calls of OpenCL between danaus and the driver: they are counted, and may fail. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_OPENCL_CALLS_H
#define TEST_OPENCL_CALLS_H

#include "opencl/opencl.h"

typedef struct opencl_control {
    /* The n-th call of this function from now on fails with this error, and so do all later
       calls of it if `lasting`. "": any function. */
    const char *function;
    int number, lasting;
    cl_int error;
    int calls;      /* of `function` since it was set */
    int alive;      /* objects and blocks of memory */
    cl_ulong local; /* what the device says that a group has; 0: what it has */
    int no_f64;     /* the device says that it has none, and compiles nothing of it */
} opencl_control;

extern opencl_control opencl_calls;

/* From now on danaus calls OpenCL through the control. Ends the program with status 77 where
   there is no OpenCL. */
void watch_opencl_calls(void);

/* The functions that danaus uses, "CreateContext"; NULL ends them. */
extern const char *const opencl_function_names[];

#endif
