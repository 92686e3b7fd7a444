/* The last failure of each thread, as a sentence. */
// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MOST_PLACE 200 /* bytes of a path */

static _Thread_local char detail[512];

/* Bytes at the beginning that a terminal may obey: a control character, as UTF-8 has those above
   127 too, or one that turns the direction of text. */
static size_t obeyed(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    if (*c < ' ' || *c == 127)
        return 1;
    if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)
        return 2;
    if (c[0] == 0xe2 && c[1] == 0x80 && c[2] >= 0xa8 && c[2] <= 0xae)
        return 3;
    return c[0] == 0xe2 && c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9 ? 3 : 0;
}

danaus_status dn_fail(danaus_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    for (char *c = detail; *c; c++) { /* names in files may hold anything */
        size_t bytes = obeyed(c);
        memset(c, '?', bytes);
        c += bytes ? bytes - 1 : 0;
    }
    return status;
}

/* A long path loses its beginning, so that the name of the file is told. */
danaus_status dn_fail_in(danaus_status status, const char *where)
{
    char sentence[sizeof detail];
    size_t length = strlen(where);
    int is_long = length > MOST_PLACE;
    memcpy(sentence, detail, sizeof detail);
    return dn_fail(
        status, "%s%s: %s", is_long ? "..." : "",
        is_long ? where + length - MOST_PLACE : where, sentence);
}

danaus_status dn_fail_memory(size_t bytes, const char *what)
{
    return dn_fail(DANAUS_ERR_MEMORY, "no memory for %s (%zu bytes)", what, bytes);
}

danaus_status dn_check_reserved(const void *words, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const char *)words)[i])
            return dn_fail(
                DANAUS_ERR_ARGUMENT,
                "reserved words must be zero: they are unset, or for a newer danaus");
    return DANAUS_OK;
}

const char *danaus_error_detail(void) { return detail; }

const char *danaus_status_name(danaus_status status)
{
    static const char *const names[] = { "ok",          "argument", "shape",
                                         "unsupported", "memory",   "io",
                                         "format",      "device",   "cancelled" };
    unsigned index = (unsigned)status;
    return index < sizeof names / sizeof *names ? names[index] : "unknown";
}

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

const char *danaus_version(void)
{
    return TEXT(DANAUS_VERSION_MAJOR) "." TEXT(DANAUS_VERSION_MINOR) "." TEXT(
        DANAUS_VERSION_PATCH);
}
