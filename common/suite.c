/* Suites: files of problems to measure, a line each. */
// SPDX-License-Identifier: Apache-2.0
#include "common/suite.h"

#include "common/args.h"
#include "common/lines.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE 4096

/* A sort of suites: its problems are an array that grows. */
typedef struct sort {
    const char *header;
    size_t size; /* bytes of a problem */
    int (*read)(const char *path, int number, char *line, void *problem);
} sort;

static int read_lines(
    FILE *file, const char *path, const sort *kind, void **problems, int *count)
{
    char line[MAX_LINE];
    int status = STATUS_OK, room = 0;
    long length;
    skip_mark(file);
    for (int number = 1; !status && (length = next_line(file, line, MAX_LINE)) >= 0;
         number++) {
        if (length == MAX_LINE)
            return failure(
                "%s, line %d has more than %d characters", path, number, MAX_LINE - 1);
        if (!length || *line == '#' ||
            !strncmp(line, kind->header, strlen(kind->header)))
            continue;
        if (*count == room) {
            room = room ? 2 * room : 64;
            void *more = realloc(*problems, (size_t)room * kind->size);
            TRY(fail_if(!more, "no memory for the problems of %s", path));
            *problems = more;
        }
        void *problem = (char *)*problems + (size_t)*count * kind->size;
        status = kind->read(path, number, line, problem);
        ++*count;
    }
    TRY(fail_if(!status && ferror(file), "cannot read %s: %s", path, strerror(errno)));
    TRY(fail_if(!status && *count == 0, "%s holds no problem", path));
    return status;
}

static int read_suite(const char *path, const sort *kind, void **problems, int *count)
{
    *problems = NULL;
    *count = 0;
    FILE *file = fopen(path, "r");
    TRY(fail_if(!file, "cannot open %s: %s", path, strerror(errno)));
    int status = read_lines(file, path, kind, problems, count);
    fclose(file);
    if (status) {
        free(*problems);
        *problems = NULL;
        *count = 0;
    }
    return status;
}

/* ---- products ---- */

/* Cuts a line into the problem's text and what follows its comma. */
static int split(char *line, char **problem, char **batch)
{
    char *end = *line == '"' ? strchr(line + 1, '"') : NULL;
    if (!end || (end[1] && end[1] != ','))
        return 0;
    *problem = line + 1;
    *batch = end[1] ? end + 2 : end + 1;
    *end = '\0';
    return 1;
}

static int parse_batch(const char *text, int64_t *batch)
{
    char *end;
    errno = 0;
    *batch = *text ? strtoll(text, &end, 10) : 0;
    return !*text || (!errno && !*end && *batch > 0);
}

static int read_product(const char *path, int number, char *line, void *to)
{
    suite_problem *p = to;
    char *problem, *batch;
    if (!split(line, &problem, &batch))
        return failure(
            "%s, line %d: \"%.40s\" is no problem, which is written "
            "\"a,b,c,d a,b,c,d ...\",batch",
            path, number, line);
    if (danaus_patterns_parse(problem, p->patterns, DANAUS_MAX_FACTORS, &p->count))
        return failure("%s, line %d: %s", path, number, danaus_error_detail());
    return fail_if(
        !parse_batch(batch, &p->batch),
        "%s, line %d: \"%s\" is no batch size: an integer of at least 1", path, number,
        batch);
}

int suite_read(const char *path, suite *s)
{
    static const sort products = { "problem", sizeof(suite_problem), read_product };
    void *problems;
    int status = read_suite(path, &products, &problems, &s->count);
    s->problems = problems;
    return status;
}

void suite_free(suite *s) { free(s->problems); }

/* ---- convolutions ---- */

const char *const conv_kind_names[3] = { "causal", "circular", "bidirectional" };

const char *conv_extras_name(const conv_problem *p)
{
    return p->gated ? "gated" : p->sparse ? "sparse" : "plain";
}

danaus_conv_desc conv_problem_desc(
    const conv_problem *p, danaus_dtype dtype, danaus_effort effort)
{
    return (danaus_conv_desc){
        .channels = p->channels,
        .length = p->length,
        .filter_length = p->taps,
        .kind = p->kind,
        .dtype = dtype,
        .effort = effort,
        .batch = p->batch,
        .keep = { p->sparse ? 4 : 0, p->sparse ? 4 : 0 },
    };
}

static int parse_conv(const char *line, conv_problem *p)
{
    char kind[16], extras[8];
    int end = 0, number = -1;
    int read = sscanf(
        line, "%15[a-z],%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%7[a-z]%n",
        kind, &p->length, &p->taps, &p->batch, &p->channels, extras, &end);
    for (int k = 0; k < 3 && read == 6 && !line[end]; k++)
        if (!strcmp(kind, conv_kind_names[k]))
            number = k;
    if (number < 0)
        return 0;
    p->kind = (danaus_conv_kind)number;
    p->gated = !strcmp(extras, "gated");
    p->sparse = !strcmp(extras, "sparse");
    return !strcmp(extras, conv_extras_name(p)) && p->length > 0 && p->taps > 0 &&
           p->batch > 0 && p->channels > 0;
}

static int read_conv(const char *path, int number, char *line, void *to)
{
    if (parse_conv(line, to))
        return STATUS_OK;
    return failure(
        "%s, line %d: \"%.40s\" is no problem, which is "
        "kind,length,taps,batch,channels,plain|gated|sparse",
        path, number, line);
}

int conv_suite_read(const char *path, conv_suite *s)
{
    static const sort convs = { "kind,", sizeof(conv_problem), read_conv };
    void *problems;
    int status = read_suite(path, &convs, &problems, &s->count);
    s->problems = problems;
    return status;
}

void conv_suite_free(conv_suite *s) { free(s->problems); }
