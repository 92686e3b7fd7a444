/* Results for people and for machines. */
// SPDX-License-Identifier: Apache-2.0
#include "common/report.h"

#include "common/args.h"
#include "common/plain.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Prints JSON. Only its strings can hold what print_lines() writes as JSON does, too. */
static int dump(const json_t *all)
{
    char *text = json_dumps(all, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    if (text)
        print_lines(text, stdout);
    free(text);
    return !text;
}

int report_json(json_t *value)
{
    json_t *all = json_pack(
        "{s:i, s:s, s:s}", "schema", REPORT_SCHEMA, "version", danaus_version(),
        "command", sentences_command());
    int failed =
        !value || json_object_update(all, value) || dump(all) || putchar('\n') == EOF;
    json_decref(all);
    json_decref(value);
    return failed ? failure("the facts cannot be printed as JSON") : STATUS_OK;
}

json_t *json_text(const char *text)
{
    if (!text)
        return json_null();
    char *mended = malloc(3 * strlen(text) + 1), *to = mended;
    if (!mended)
        return NULL;
    while (*text) {
        unsigned character;
        size_t bytes = utf8_character(text, &character);
        memcpy(to, bytes ? text : "\xef\xbf\xbd", bytes ? bytes : 3);
        to += bytes ? bytes : 3;
        text += bytes ? bytes : 1;
    }
    *to = '\0';
    json_t *value = json_string(mended);
    free(mended);
    return value;
}

json_t *json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* ---- records ---- */

static void write_text(const char *text, FILE *file)
{
    fputc('"', file);
    for (; *text; text++)
        fprintf(file, *text == '"' ? "\"\"" : "%c", *text);
    fputc('"', file);
}

/* The names of a record's members, or what they hold, as a line. */
static void write_record(const json_t *record, int names, FILE *file)
{
    const char *key, *comma = "";
    json_t *value, *members = (json_t *)(uintptr_t)record;
    json_object_foreach(members, key, value)
    {
        fputs(comma, file);
        comma = ",";
        if (names)
            fputs(key, file);
        else if (json_is_string(value))
            write_text(json_string_value(value), file);
        else if (json_is_integer(value))
            fprintf(file, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        else if (json_is_number(value))
            fprintf(file, "%.6g", json_number_value(value));
    }
    fputc('\n', file);
}

int report_csv(const json_t *records, const char *path)
{
    static size_t written; /* of a stream, which is not replaced */
    char *text = NULL;
    size_t bytes = 0;
    int replaced;
    TRY(library(danaus_file_check_output(path, &replaced)));
    FILE *file = open_memstream(&text, &bytes);
    int failed = !file;
    for (size_t i = replaced ? 0 : written; file && i < json_array_size(records); i++) {
        if (i == 0)
            write_record(json_array_get(records, i), 1, file);
        write_record(json_array_get(records, i), 0, file);
    }
    written = json_array_size(records);
    failed = failed || fclose(file);
    int status = failed ? failure("no memory for %s", path)
                 : danaus_file_write(path, text, bytes) ? library_failure()
                                                        : STATUS_OK;
    free(text);
    return status;
}

/* ---- chains ---- */

void format_patterns(const danaus_pattern *patterns, int count, char *text, size_t size)
{
    size_t length = 0;
    for (int i = 0; i < count; i++) {
        danaus_pattern p = patterns[i];
        char one[96];
        int width = snprintf(
            one, sizeof one, "%s%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64,
            i ? " " : "", p.a, p.b, p.c, p.d);
        size_t room = size - length;
        if ((size_t)width + (i + 1 < count ? sizeof " ..." : 1) > room) {
            snprintf(text + length, room, " ...");
            return;
        }
        length += (size_t)snprintf(text + length, room, "%s", one);
    }
}

void join_lines(char *text)
{
    for (char *end = text + strlen(text); end > text && end[-1] == '\n';)
        *--end = '\0';
    for (char *at = text; (at = strchr(at, '\n'));)
        *at = ';';
}

void format_plan(const danaus_ks_plan *plan, char *text, size_t size)
{
    danaus_ks_plan_describe(plan, text, size);
    join_lines(text);
}

json_t *json_patterns(const danaus_pattern *patterns, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(
            list, json_pack(
                      "[I,I,I,I]", (json_int_t)patterns[i].a, (json_int_t)patterns[i].b,
                      (json_int_t)patterns[i].c, (json_int_t)patterns[i].d));
    return list;
}

int chain_patterns(const danaus_chain *chain, danaus_pattern *patterns)
{
    int count = danaus_chain_count(chain);
    for (int i = 0; i < count; i++)
        patterns[i] = danaus_chain_pattern(chain, i);
    return count;
}
