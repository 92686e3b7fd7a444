/* Suites: files of problems to measure, a line each. */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_SUITE_H
#define COMMON_SUITE_H

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

/* Reads lines "a,b,c,d a,b,c,d ...",batch where the batch may be missing. Empty lines, lines
   that start with #, and the header "problem,batch" are skipped. Returns an exit status. */
int suite_read(const char *path, suite *s);
void suite_free(suite *s);

typedef struct conv_problem {
    danaus_conv_kind kind;
    int64_t length, taps, batch, channels;
    int gated, sparse;
} conv_problem;

typedef struct conv_suite {
    conv_problem *problems;
    int count;
} conv_suite;

/* Names of kinds, in their order: "causal", ... */
extern const char *const conv_kind_names[3];

/* "gated", "sparse" or "plain". */
const char *conv_extras_name(const conv_problem *p);

/* A description of the problem: all but its operands. */
danaus_conv_desc conv_problem_desc(
    const conv_problem *p, danaus_dtype dtype, danaus_effort effort);

/* Reads lines kind,length,taps,batch,channels,plain|gated|sparse in the same way, with a
   header that starts with "kind,". */
int conv_suite_read(const char *path, conv_suite *s);
void conv_suite_free(conv_suite *s);

#endif
