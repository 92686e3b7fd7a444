/* Files that a command writes. */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_OUTPUT_H
#define COMMON_OUTPUT_H

#include <stdint.h>

/* A file that a command writes. */
typedef struct output {
    const char *name;   /* as it was given; "-": standard output */
    const char *path;   /* where to write */
    int replaced;       /* a file appears there; 0: what is there is written to */
    int standard;       /* that is standard output */
    int judged;         /* output_judge() has seen what it will hold (finite.h): */
    int64_t non_finite; /* values that are infinite or NaN */
} output;

/* Fails unless the file may be written, before work that takes long; name NULL fails, too.
   Returns an exit status. */
int output_open(output *o, const char *name);
int output_maybe(output *o, const char *name); /* name NULL: there is no output */
int output_is_standard(const output *o);

#endif
