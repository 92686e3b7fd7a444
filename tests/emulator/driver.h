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

/* What a node of a graph that was made is to run, NULL: something else than `run`. */
void *emulated_node(void *made, const void *node, void (*run)(const void *data));

/* The compute capability that devices pretend to have, ten times: EMULATED_ARCH of the
   environment. Of others than 7.5 kernels do nothing. */
int emulated_arch(void);

#endif
