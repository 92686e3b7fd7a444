/* Text from files and from users, as a terminal may have it. */
// SPDX-License-Identifier: Apache-2.0
#include "common/plain.h"

#include <stdlib.h>
#include <string.h>

size_t utf8_character(const char *text, unsigned *character)
{
    static const unsigned least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    unsigned char first = (unsigned char)*text;
    size_t bytes = first < 0x80   ? 1
                   : first < 0xc0 ? 0
                   : first < 0xe0 ? 2
                   : first < 0xf0 ? 3
                   : first < 0xf8 ? 4
                                  : 0;
    unsigned c = bytes == 1 ? first : first & (0x7fu >> bytes);
    if (!first)
        return 0;
    for (size_t i = 1; i < bytes; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | ((unsigned char)text[i] & 0x3f);
    }
    if (!bytes || c < least[bytes] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    *character = c;
    return bytes;
}

/* True if a terminal may obey the character. */
static int is_obeyed(unsigned c)
{
    return c < ' ' || (c >= 0x7f && c < 0xa0) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2066 && c <= 0x2069);
}

/* Prints, unless `to` is NULL. Returns the characters that are seen. */
static int print(const char *text, const char *allowed, FILE *to)
{
    int seen = 0;
    while (*text) {
        unsigned c = 0xfffd;
        size_t bytes = utf8_character(text, &c);
        int obeyed = is_obeyed(c) && !(c < 0x80 && strchr(allowed, (int)c));
        seen += obeyed ? 6 : 1;
        if (to && obeyed)
            fprintf(to, "\\u%04x", c);
        else if (to)
            fwrite(bytes ? text : "\xef\xbf\xbd", 1, bytes ? bytes : 3, to);
        text += bytes ? bytes : 1;
    }
    return seen;
}

void print_plain(const char *text, FILE *to) { print(text, "", to); }

void print_lines(const char *text, FILE *to) { print(text, "\n\t", to); }

void print_padded(const char *text, int width, FILE *to)
{
    int spaces = abs(width) - print(text, "", NULL);
    if (width > 0 && spaces > 0)
        fprintf(to, "%*s", spaces, "");
    print(text, "", to);
    if (width < 0 && spaces > 0)
        fprintf(to, "%*s", spaces, "");
}
