/* Facts, printed for machines or for people. */
// SPDX-License-Identifier: Apache-2.0
#include "common/facts.h"

#include "common/args.h"
#include "common/plain.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *value_of(char kind, va_list *rest)
{
    switch (kind) {
    case 'i': return json_integer(va_arg(*rest, int64_t));
    case 'd': return json_integer(va_arg(*rest, int));
    case 'n': return json_number(va_arg(*rest, double));
    case 't': return json_text(va_arg(*rest, const char *));
    case 'b': return json_boolean(va_arg(*rest, int));
    default: return va_arg(*rest, json_t *);
    }
}

json_t *facts_of(const char *members, ...)
{
    json_t *all = json_object();
    int failed = !all;
    va_list rest;
    va_start(rest, members);
    while (*members) {
        char name[64];
        int length = (int)strcspn(members, ":");
        snprintf(name, sizeof name, "%.*s", length, members);
        failed |= json_object_set_new(all, name, value_of(members[length + 1], &rest));
        members += length + 2;
        members += *members == ' ';
    }
    va_end(rest);
    if (failed)
        json_decref(all);
    return failed ? NULL : all;
}

/* ---- values ---- */

static int says_something(const json_t *value)
{
    return json_is_string(value)    ? json_string_length(value) > 0
           : json_is_integer(value) ? json_integer_value(value) != 0
           : json_is_array(value)   ? json_array_size(value) > 0
                                    : json_is_real(value) || json_is_true(value);
}

static void print_list(const json_t *list, FILE *to)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        if (i)
            fputc(json_is_array(one) ? ' ' : ',', to);
        if (json_is_array(one))
            print_list(one, to);
        else
            fprintf(to, "%" JSON_INTEGER_FORMAT, json_integer_value(one));
    }
}

/* printf() of a value with what stands between % and the length of its type. */
static void print_value(const json_t *value, double scale, const char *how, FILE *to)
{
    char format[40];
    size_t length = strlen(how);
    int real = length && strchr("efg", how[length - 1]);
    json_int_t count = json_is_array(value) ? (json_int_t)json_array_size(value)
                                            : json_integer_value(value);
    if (*how == '#') {
        fprintf(to, "%" JSON_INTEGER_FORMAT " %s%s", count, how + 1, &"s"[count == 1]);
    } else if (json_is_number(value) && (real || json_is_real(value))) {
        snprintf(format, sizeof format, "%%%s%s", how, real ? "" : "g");
        fprintf(to, format, json_number_value(value) * scale);
    } else if (json_is_integer(value)) {
        snprintf(format, sizeof format, "%%%s" JSON_INTEGER_FORMAT, how);
        fprintf(to, format, count);
    } else if (json_is_array(value)) {
        print_list(value, to);
    } else if (real) {
        fprintf(to, "%*s", atoi(how), "-");
    } else if (json_is_string(value) && !strcmp(how, "lines")) {
        print_lines(json_string_value(value), to);
    } else if (json_is_string(value)) {
        print_padded(json_string_value(value), atoi(how), to);
    }
}

/* ---- text ---- */

/* Prints the member of "name.other*scale:how", unless `to` is NULL. Returns whether it says
   something. */
static int print_member(const json_t *facts, const char *text, size_t length, FILE *to)
{
    char word[80], *next = word + (*text == '?');
    snprintf(word, sizeof word, "%.*s", (int)length, text);
    char *path = strsep(&next, ":"), *name = strsep(&path, "*");
    for (char *one; (one = strsep(&name, "."));)
        facts = isdigit((unsigned char)*one) ? json_array_get(facts, (size_t)atoi(one))
                                             : json_object_get(facts, one);
    if (to && *text != '?')
        print_value(facts, path ? strtod(path, NULL) : 1, next ? next : "", to);
    return says_something(facts);
}

static int expand(const json_t *facts, const char *text, size_t length, FILE *to);

/* What ends what a character begins; NULL: it begins nothing. */
static const char *closing(char open)
{
    return open == '{' ? "}" : open == '[' ? "]" : open == '<' ? ">" : NULL;
}

static void expand_each(const json_t *facts, const char *text, size_t length, FILE *to)
{
    char name[64];
    size_t head = strcspn(text, ":");
    snprintf(name, sizeof name, "%.*s", (int)head, text);
    const json_t *list = head ? json_object_get(facts, name) : facts;
    for (size_t i = 0; i < json_array_size(list); i++)
        expand(json_array_get(list, i), text + head + 1, length - head - 1, to);
}

static void expand_choice(
    const json_t *facts, const char *text, size_t length, FILE *to)
{
    size_t some = strcspn(text, "|]"), other = some < length ? some + 1 : length;
    if (expand(facts, text, some, NULL))
        expand(facts, text, some, to);
    else
        expand(facts, text + other, length - other, to);
}

/* Prints text[0 .. length), unless `to` is NULL. Returns whether the first member in it says
   something. */
static int expand(const json_t *facts, const char *text, size_t length, FILE *to)
{
    int first = -1;
    for (size_t at = 0, end; at < length; at = end + 1) {
        const char *inner = text + at + 1, *ends = closing(text[at]);
        end = ends ? at + 1 + strcspn(inner, ends) : at;
        if (text[at] == '{') {
            int says = print_member(facts, inner, end - at - 1, to);
            first = first < 0 ? says : first;
        } else if (to && text[at] == '[') {
            expand_choice(facts, inner, end - at - 1, to);
        } else if (to && text[at] == '<') {
            expand_each(facts, inner, end - at - 1, to);
        } else if (to) {
            fputc(text[at], to);
        }
    }
    return first > 0;
}

void facts_print(const json_t *facts, const char *text)
{
    expand(facts, text, strlen(text), stdout);
}

int facts_report(json_t *facts, int as_json, const output *o, const char *text)
{
    if (o && o->judged)
        json_object_set_new(facts, "non_finite", json_integer(o->non_finite));
    if (as_json || !facts)
        return report_json(facts);
    if (!o || !output_is_standard(o))
        facts_print(facts, text);
    json_decref(facts);
    return STATUS_OK;
}
