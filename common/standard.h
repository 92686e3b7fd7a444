/* Standard input and output in place of files: the name "-". */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_STANDARD_H
#define COMMON_STANDARD_H

#include <limits.h>

/* Replaces the name "-" by one under which standard input can be opened, mapped and read
   anew; what comes through a pipe is kept in a file without a name. Only one name may be
   "-". Returns an exit status. */
int standard_input(const char **name);

/* A file that a command writes. */
typedef struct output {
    const char *name; /* as it was given; "-": standard output */
    char path
        [PATH_MAX]; /* where to write: for "-", a file that goes with output_close() */
} output;

/* Fails unless the file may be written, before work that takes long; name NULL fails, too.
   Returns an exit status. */
int output_open(output *o, const char *name);
int output_maybe(output *o, const char *name); /* name NULL: there is no output */
int output_is_standard(const output *o);

/* Copies to standard output what was written there, if status is STATUS_OK. Returns an exit
   status, that one or a failure's. An output that is all zeros is fine. */
int output_close(output *o, int status);

#endif
