/* Text from files and from users, as a terminal may have it. */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_PLAIN_H
#define COMMON_PLAIN_H

#include <stdio.h>

/* Prints UTF-8 with what a terminal would obey, not show, as \u001b: control characters, and
   those that turn the direction of text. A byte that is no UTF-8 is printed as U+FFFD. */
void print_plain(const char *text, FILE *to);

/* The same with spaces before it, or behind it for a negative width, as printf() does. */
void print_padded(const char *text, int width, FILE *to);

/* Prints text of many lines: newlines and tabs are as they are. */
void print_lines(const char *text, FILE *to);

/* Bytes of the character of UTF-8 that the text begins with, and its number; 0: it begins with
   none. */
size_t utf8_character(const char *text, unsigned *character);

#endif
