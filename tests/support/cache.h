/* A folder of compiled kernels for each test, and the emulated compiler, which counts what
   it does. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_CACHE_H
#define TEST_SUPPORT_CACHE_H

#include "danaus/base.h"
#include "emulator/emulator.h"

#include <dirent.h>

extern char cache_folder[64];

/* NULL: this is no emulated compiler, and the tests are to be skipped. */
emulator_control *cache_compiler(void);

/* Fixtures for cmocka: the folder of DANAUS_CACHE. */
int cache_setup(void **state);
int cache_teardown(void **state);

/* A device and a plan, whose kernel is compiled, or read, and loaded. */
danaus_status try_a_kernel(void);
void use_a_kernel(void);
int compilations_of_use(void);

/* The names of kernels in the folder, to be freed; how many there are. */
int cache_list(struct dirent ***entries);
void cache_free_list(struct dirent **entries, int count);
int cache_count(void);

#endif
