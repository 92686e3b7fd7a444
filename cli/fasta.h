/* Records of a FASTA file, as the tokens of their letters. A record is a line that begins with
   > and its name, then lines of any length, which
   end with LF, CR LF or CR; blanks and lines that begin with ; are left out. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_FASTA_H
#define CLI_FASTA_H

#include <stdint.h>
#include <stdio.h>

#define FASTA_NAME                                                                     \
    256 /* bytes of a name with its end; the rest of a longer one is cut off */

typedef struct fasta {
    FILE *file;
    const char *path;
    const int32_t *tokens; /* of each byte; -1: it is no letter */
    char name[FASTA_NAME]; /* of the record, up to the first blank */
    int64_t line;          /* from 1 */
    int at_start;          /* of a line */
    int found, any;        /* a record begins here; one has begun */
} fasta;

/* Opens a file for letters of a table tokens[256], which stays the caller's. Returns an exit
   status. */
int fasta_open(fasta *f, const char *path, const int32_t *tokens);
void fasta_close(fasta *f); /* zeros are fine */

/* Goes to the next record: 1. 0: there is none; -1: a sentence was printed. */
int fasta_next(fasta *f);

/* The tokens of the record's next letters, at most `room`; returns how many. 0: it has no more;
   -1: a sentence was printed. */
int64_t fasta_read(fasta *f, int32_t *tokens, int64_t room);

#endif
