/* Lines of text, which end with LF, CR LF or CR. */
// SPDX-License-Identifier: Apache-2.0
#include "common/lines.h"

int next_byte(FILE *file)
{
    int c = getc(file);
    if (c != '\r')
        return c;
    int next = getc(file);
    if (next != '\n' && next != EOF)
        ungetc(next, file);
    return '\n';
}

long next_line(FILE *file, char *line, long size)
{
    long length = 0;
    int c = next_byte(file);
    if (c == EOF)
        return -1;
    for (; c != '\n' && c != EOF; c = next_byte(file)) {
        if (length == size - 1)
            return size;
        line[length++] = (char)c;
    }
    line[length] = '\0';
    return length;
}

size_t line_length(const char *text, size_t size, size_t *after)
{
    size_t length = 0;
    while (length < size && text[length] != '\n' && text[length] != '\r')
        length++;
    size_t end = length < size;
    if (end && text[length] == '\r' && length + 1 < size && text[length + 1] == '\n')
        end = 2;
    *after = length + end;
    return length;
}
