/* Lines of text, which end with LF, CR LF or CR. */
// SPDX-License-Identifier: Apache-2.0
#include "common/lines.h"

#include <string.h>

static const char mark[] = "\xef\xbb\xbf";

size_t mark_length(const char *text, size_t size)
{
    return size >= 3 && !memcmp(text, mark, 3) ? 3 : 0;
}

void skip_mark(FILE *file)
{
    int c = getc(file), read = 0;
    for (; read < 3 && c == (unsigned char)mark[read]; read++)
        c = getc(file);
    if (c != EOF)
        ungetc(c, file);
    while (read < 3 && read-- > 0) /* it was none */
        ungetc((unsigned char)mark[read], file);
}

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
