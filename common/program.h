/* A program that is a table of commands. */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_PROGRAM_H
#define COMMON_PROGRAM_H

/* A command gets its own arguments, with its name as argv[0], and returns the exit status. */
typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help; /* a line */
} command;

typedef struct program {
    const char *name, *about;
    const command *commands; /* ends with a row whose name is NULL */
} program;

/* main() of it: help and version, of a command too, or a command. */
int program_main(const program *p, int argc, char **argv);

#endif
