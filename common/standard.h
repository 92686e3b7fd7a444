/* Files that are no regular files of a name: standard input and output ("-"), pipes, devices. */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_STANDARD_H
#define COMMON_STANDARD_H

#include <stddef.h>
#include <stdint.h>

/* Replaces the name of an input by one under which it can be opened, mapped and read anew:
   "-" by that of standard input, a pipe by that of a nameless file which keeps what came
   through it. Only one name may be "-". Returns an exit status. */
int standard_input(const char **name);

/* Names pipes in a sentence as they were given. */
void standard_names(char *sentence, size_t size);

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
