/* Calls of the emulated driver that fail, one after the other. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_CALLS_H
#define TEST_SUPPORT_CALLS_H

#include "emulator/emulator.h"
#include "support/element.h"

#define MOST_CALLS 200
#define FAILURE    719 /* what a kernel that goes wrong gives */

/* Names of the functions of the driver and of cuBLAS. */
extern const char *const driver_functions[];
extern const size_t driver_function_count;

/* Those whose failure the caller cannot mend: what they should give back stays. */
int gives_back(const char *function);

/* Those whose failure is mended: an image from the cache that cannot be used is compiled
   again, what cannot be captured or be given other operands is launched, as is what fails
   while it is captured, and what is freed waits for a later time. */
int is_mended(const char *function);

/* Opens a device, does something with results, and closes it. */
typedef danaus_status whole_life(const void *arg, void *results);

/* The 1st call of a function fails, the 2nd, ...: that is heard of or mended, and nothing is
   lost. */
void fail_each_call(
    emulator_control *control, const char *function, whole_life *live, const void *arg,
    const array *expected);

/* All functions, of a life whose results are so many numbers of f32. */
void fail_all_calls(
    emulator_control *control, whole_life *live, const void *arg, int64_t results);

#endif
