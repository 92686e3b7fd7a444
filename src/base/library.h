/* Libraries that are opened when they are first needed, so that danaus runs without them. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_BASE_LIBRARY_H
#define DN_BASE_LIBRARY_H

#include "danaus/base.h"

/* One such library; each has a single variable of this type. `files` are names that the
   loader searches for, and paths; the first is the usual one. */
typedef struct late_library {
    const char *const *files; /* ends with NULL */
    const char *const *symbols;
    int count, optional; /* number of symbols; the last `optional` may be missing */
    void *table;         /* gets a pointer to a function for each, in their order */
    const char *advice;  /* ends the sentence of a failure */
    danaus_status (*start)(void); /* called once, with the table filled; or NULL */
    const char *name, *variable;  /* "nvrtc", "DANAUS_NVRTC"; NULL: nobody says where */
    char *place;                  /* what danaus_library_locate has said, or NULL */
    int is_open;
} late_library;

/* Opens it unless it is open: from where the environment variable says, else from
   `place`, else what this process has already, else the first of `files` that is there. */
danaus_status dn_library_open(late_library *library);

/* danaus_library_locate() for one that is not open yet; NULL: it is searched for again. */
danaus_status dn_library_locate(late_library *library, const char *place);

#endif
