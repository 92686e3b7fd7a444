/* Sentences on standard error. */
// SPDX-License-Identifier: Apache-2.0
#include "common/sentences.h"

#include "common/plain.h"
#include "danaus/danaus.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NAMES 64

static const char *program = "danaus";
static char subject[80] = "danaus";

void sentences_begin(const char *name)
{
    program = name;
    snprintf(subject, sizeof subject, "%s", name);
}

void sentences_of(const char *command)
{
    snprintf(subject, sizeof subject, "%s %s", program, command);
}

const char *sentences_subject(void) { return subject; }

const char *sentences_command(void)
{
    const char *space = strchr(subject, ' ');
    return space ? space + 1 : subject;
}

/* ---- names ---- */

static struct {
    const char *path, *given;
} names[MOST_NAMES];
static int count;

void sentences_name(const char *path, const char *given)
{
    int i = count < MOST_NAMES - 1 ? count++ : MOST_NAMES - 1;
    names[i].path = path;
    names[i].given = given;
}

static void put_names(char *sentence, size_t size)
{
    for (int i = 0; i < count; i++) {
        size_t length = strlen(names[i].path);
        char *at = strstr(sentence, names[i].path);
        if (!at || (at[length] >= '0' && at[length] <= '9'))
            continue;
        char *rest = strdup(at + length);
        snprintf(
            at, size - (size_t)(at - sentence), "%s%s", names[i].given,
            rest ? rest : "");
        free(rest);
    }
}

/* ---- sentences ---- */

static void print_sentence(const char *kind, const char *format, va_list rest)
{
    char sentence[2 * PATH_MAX];
    vsnprintf(sentence, sizeof sentence, format, rest);
    put_names(sentence, sizeof sentence);
    fprintf(stderr, "%s: %s", subject, kind);
    print_plain(sentence, stderr);
    fputc('\n', stderr);
}

int usage_error(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    print_sentence("", format, rest);
    va_end(rest);
    return STATUS_USAGE;
}

int failure(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    print_sentence("", format, rest);
    va_end(rest);
    return STATUS_FAILURE;
}

int refuse_if(int wrong, const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    if (wrong)
        print_sentence("", format, rest);
    va_end(rest);
    return wrong ? STATUS_USAGE : STATUS_OK;
}

int fail_if(int failed, const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    if (failed)
        print_sentence("", format, rest);
    va_end(rest);
    return failed ? STATUS_FAILURE : STATUS_OK;
}

void warning(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    print_sentence("warning: ", format, rest);
    va_end(rest);
}

int library_failure(void) { return failure("%s", danaus_error_detail()); }

int library(_Bool failed) { return failed ? library_failure() : STATUS_OK; }
