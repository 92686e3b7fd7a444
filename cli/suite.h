/* Suites: files of problems to measure. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_SUITE_H
#define CLI_SUITE_H

#include "danaus/danaus.h"

typedef struct suite_problem {
    danaus_pattern patterns[DANAUS_MAX_FACTORS];
    int count;
    int64_t batch; /* 0: the suite says nothing */
} suite_problem;

typedef struct suite {
    suite_problem *problems;
    int count;
} suite;

/* Reads lines  "a,b,c,d a,b,c,d ...",batch  where the batch may be missing. Lines
   that start with # and the header line "problem,batch" are passed over. Returns
   an exit status. */
int suite_read(const char *path, suite *s);
void suite_free(suite *s);

#endif
