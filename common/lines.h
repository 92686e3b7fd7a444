/* Lines of text, which end with LF, CR LF or CR. */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_LINES_H
#define COMMON_LINES_H

#include <stdio.h>

/* Skips the byte order mark that a file may begin with. */
void skip_mark(FILE *file);

/* The next byte of a file, '\n' for each end of a line, or EOF. */
int next_byte(FILE *file);

/* Reads a line without its end. Returns its length, -1 where the file has no more, or `size`
   if the line does not fit. */
long next_line(FILE *file, char *line, long size);

/* Bytes of the byte order mark that text[0 .. size) begins with: 3 or 0. */
size_t mark_length(const char *text, size_t size);

/* Bytes of the line that text[0 .. size) begins with; *after: those with its end. */
size_t line_length(const char *text, size_t size, size_t *after);

#endif
