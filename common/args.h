/* Options of a command, from one table: the table is what getopt_long() reads, what --help
   prints and what shells complete. */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_ARGS_H
#define COMMON_ARGS_H

#include "common/sentences.h"
#include "danaus/danaus.h"

/* args_parse() returns ARGS_GO_ON if the command should go on, ARGS_DONE after help. */
enum { ARGS_GO_ON = STATUS_OK, ARGS_DONE = -1 };

typedef enum arg_kind {             /* what the value of an option is stored in */
                        ARG_FLAG,   /* int, set to 1 */
                        ARG_TEXT,   /* const char * */
                        ARG_INPUT,  /* const char *: a file that is read; "-" is
                                       standard input */
                        ARG_OUTPUT, /* const char *: a file that is written */
                        ARG_COUNT,  /* int64_t, at least 0; help says what 0 is */
                        ARG_NUMBER, /* int64_t, at least 1: 0 would mean nothing */
                        ARG_COUNTS, /* counts, "N,N,..." of integers of at least 1 */
                        ARG_REAL,   /* double, above 0, up to 1e300 */
                        ARG_SHARE,  /* double, above 0, up to 1 */
                        ARG_RIDGE,  /* double, above 0, up to 1e6 */
                        ARG_HEAT,   /* double, from 0 to 1e6 */
                        ARG_ANY,    /* double, between -1e300 and 1e300 */
                        ARG_DTYPE,  /* danaus_dtype */
                        ARG_WORD /* int: which of the words in `takes`, "first|last" */
} arg_kind;

typedef struct counts {
    int count;
    int64_t value[16];
} counts;

typedef struct arg {  /* a table of these ends with a row whose name is NULL */
    const char *name; /* without its two hyphens */
    char letter;      /* short form, or 0 */
    arg_kind kind;
    void *value;
    const char *takes; /* how help calls the value */
    const char *help;
} arg;

typedef struct usage {
    const char *synopsis; /* what follows the command */
    const char *about;    /* paragraphs for --help */
    int number[2];        /* of operands: the least, the most */
    const char *operands; /* "a chain file and X", for the error sentence; NULL: none */
    int texts;            /* operands behind so many are text, not files; 0: none is */
    const char *words;    /* what the first operand may be, "ks|conv"; NULL: a file */
} usage;

/* Reads options into the table's values and moves the operands to argv[1 .. *operands], unless
   that is NULL: their number then does not matter. Those that are files may be "-". Returns
   ARGS_GO_ON, ARGS_DONE after help, or an exit status after one sentence about wrong usage or a
   stream that cannot be read. */
int args_parse(
    const usage *use, const arg *table, int argc, char **argv, int *operands);

/* True if a text is an integer of at least 1, which then is *value. */
int args_integer(const char *text, int64_t *value);

/* Which of the words "one|two" a text is; -1: none. */
int args_word(const char *words, const char *text);

/* Refuses the options of a list, "taps,rows", that were given: "--taps WHY". Returns an exit
   status. */
int args_refuse(const char *names, const char *why);

/* Refuses a value of an option above the most. Returns an exit status. */
int args_most(const char *name, int64_t value, int64_t most);

/* Set while tables are looked at: args_parse() hands its table over and returns ARGS_DONE. */
extern void (*args_look)(const usage *use, const arg *table);

#endif
