/* How our own code reports failure: dn_fail() makes the sentence and returns the
   status; TRY forwards one. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_STATUS_H
#define DN_BASE_STATUS_H

#include "danaus/base.h"

#define TRY(call)                                                                      \
    do {                                                                               \
        danaus_status try_status_ = (call);                                            \
        if (try_status_ != DANAUS_OK)                                                  \
            return try_status_;                                                        \
    } while (0)

/* Keeps the formatted sentence for danaus_error_detail() and returns status. */
danaus_status dn_fail(danaus_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts a place, such as the name of a file, before the sentence of this thread's
   latest failure. */
danaus_status dn_fail_in(danaus_status status, const char *where);

/* Refuses reserved words of a caller that are not zero. */
danaus_status dn_check_reserved(const void *words, size_t bytes);

/* The sentence for memory that could not be had. */
danaus_status dn_fail_memory(size_t bytes, const char *what);

#endif
