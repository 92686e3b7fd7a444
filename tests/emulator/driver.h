/* What the files of the emulated driver know of each other. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_EMULATOR_DRIVER_H
#define TEST_EMULATOR_DRIVER_H

#include "emulator.h"

#include <stddef.h>
#include <stdint.h>

typedef long long int64;

static emulator_control *const control = &emulator_control_block;

/* Every function begins so. Returns from it when it is to fail. */
#define BEGIN FAIL_OR_GO_ON(emulator_fails)

/* The context that is current in this thread, NULL: none. */
void *emulated_context(void);

/* ---- order.c ---- */

#define EMULATED_STREAMS 64

typedef struct clocks {
    long at[EMULATED_STREAMS];
} clocks;

/* The accesses to a block of memory. */
typedef struct history {
    int writer;
    long written;
    clocks read;
} history;

/* This thread does work of a stream from now on; the host waits for one, for all. */
void emulated_work_on(const void *stream);
void emulated_wait_for(const void *stream);
void emulated_wait_for_all(void);

/* The work that is done makes a block, or touches it. */
void emulated_begin_life(history *h);
void emulated_touch(history *h, int writes);

/* ---- the others ---- */

int emulated_is_captured(const void *stream);

/* A stream waits for one that is captured: it becomes a branch of that, or, if it is the one
   that the capture began with, the other need not be waited for any more. */
void emulated_join(const void *stream, const void *other);
int emulated_captures(void); /* how many streams are captured */

/* Nonzero: a capture forbids what this thread is about to do, and is spoilt by it. */
int emulated_is_forbidden(void);

/* A copy of the blocks that these addresses lie in, and how they were touched since. */
void *emulated_begin_watch(const int64 *addresses, int count);
void emulated_end_watch(void *watch, const int64 *addresses, int count);

/* What a node of a graph that was made is to run, NULL: something else than `run`. */
void *emulated_node(void *made, const void *node, void (*run)(const void *data));

/* The compute capability that devices pretend to have, ten times: that of EMULATED_GPU of
   the environment, which driver.c has a table of, or EMULATED_ARCH. Of others than 7.5
   kernels do nothing. */
int emulated_arch(void);

/* Bytes of shared memory that a block may have, and the most of any GPU. */
#define MOST_SHARED (227 << 10)
int emulated_shared(void);

#endif
