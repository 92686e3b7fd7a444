/* Calls whose allocations fail, one after the other. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_FAILING_H
#define TEST_SUPPORT_FAILING_H

#include "danaus/base.h"

/* Calls attempt(arg) with the 1st allocation failing, with the 2nd, ..., until none
   is left to fail. Every call must fail with DANAUS_ERR_MEMORY and a sentence, and
   the last one succeed. Returns how many calls failed. */
int expect_memory_errors(danaus_status (*attempt)(void *arg), void *arg);

/* From now on jansson allocates through the library, so that its allocations fail,
   too. */
void fail_in_jansson(void);

#endif
