/* Suites of convolutions: files of problems to measure. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_CONV_SUITE_H
#define CLI_CONV_SUITE_H

#include "danaus/danaus.h"

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

/* A description of the problem: all but its operands. */
danaus_conv_desc conv_problem_desc(
    const conv_problem *p, danaus_dtype dtype, danaus_effort effort);

/* Reads lines kind,length,taps,batch,channels,plain|gated|sparse. Lines that start with # and
   the header are passed over. Returns an exit status. */
int conv_suite_read(const char *path, conv_suite *s);
void conv_suite_free(conv_suite *s);

#endif
