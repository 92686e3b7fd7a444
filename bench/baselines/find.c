/* The loops for an element type and an instruction set. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/baselines/loops.h"

#include <string.h>

#define TYPES 4

extern const loops loops_plain[TYPES];
#if defined __x86_64__
extern const loops loops_avx2[TYPES], loops_avx512[TYPES];
#endif

const loops *loops_find(danaus_dtype dtype, const char *instructions)
{
    const loops *table = loops_plain;
#if defined __x86_64__
    if (!strcmp(instructions, "avx512"))
        table = loops_avx512;
    else if (!strcmp(instructions, "avx2"))
        table = loops_avx2;
#else
    (void)instructions;
#endif
    for (int i = 0; i < TYPES; i++)
        if (table[i].dtype == dtype)
            return &table[i];
    return NULL;
}
