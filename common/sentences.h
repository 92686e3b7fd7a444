/* Sentences on standard error, and the exit statuses that go with them. */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_SENTENCES_H
#define COMMON_SENTENCES_H

#include <stddef.h>

/* Exit statuses of the program. */
enum { STATUS_OK = 0, STATUS_FAILURE = 1, STATUS_USAGE = 2 };

/* Forwards an exit status that is a failure's. */
#define TRY(call)                                                                      \
    do {                                                                               \
        int try_status = (call);                                                       \
        if (try_status != STATUS_OK)                                                   \
            return try_status;                                                         \
    } while (0)

/* Names the program, until a command's options are parsed. */
void sentences_begin(const char *program);

/* Names the command whose options are parsed, and the command that runs, "apply". */
void sentences_of(const char *command);
const char *sentences_command(void);

/* "danaus COMMAND" */
const char *sentences_subject(void);

/* Sentences say a file's given name where they would say its path, which is kept. */
void sentences_name(const char *path, const char *given);

/* Print "danaus COMMAND: sentence" to standard error and return the status. fail_if() and
   refuse_if() print nothing and return STATUS_OK if all is well. Their condition must not set
   a value that the sentence prints, for example errno: arguments are evaluated in any order. */
int usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
int failure(const char *format, ...) __attribute__((format(printf, 1, 2)));
int fail_if(int failed, const char *format, ...) __attribute__((format(printf, 2, 3)));
int refuse_if(int wrong, const char *format, ...) __attribute__((format(printf, 2, 3)));
int library_failure(void); /* with the library's own sentence */
int library(_Bool failed); /* library_failure() if a call of the library failed */
void warning(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
