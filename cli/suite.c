/* Suites: files of problems to measure. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/suite.h"

#include "cli/args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE 4096

/* Cuts a line into the problem's text and what follows its comma. */
static int split(char *line, char **problem, char **batch)
{
    line[strcspn(line, "\r\n")] = '\0';
    if (*line != '"')
        return 0;
    char *end = strchr(line + 1, '"');
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

static int read_line(const char *path, int number, char *line, suite *s)
{
    char *problem, *batch;
    suite_problem *p = &s->problems[s->count];
    if (!split(line, &problem, &batch))
        return failure(
            "%s, line %d: a problem is written \"a,b,c,d a,b,c,d ...\",batch", path,
            number);
    if (danaus_patterns_parse(problem, p->patterns, DANAUS_MAX_FACTORS, &p->count))
        return failure("%s, line %d: %s", path, number, danaus_error_detail());
    if (!parse_batch(batch, &p->batch))
        return failure("%s, line %d: \"%s\" is no batch size", path, number, batch);
    s->count++;
    return STATUS_OK;
}

static int grow(suite *s, int *room)
{
    if (s->count < *room)
        return 1;
    int more = *room ? 2 * *room : 64;
    suite_problem *problems = realloc(s->problems, (size_t)more * sizeof *problems);
    if (!problems)
        return 0;
    s->problems = problems;
    *room = more;
    return 1;
}

static int read_all(FILE *file, const char *path, suite *s)
{
    char line[MAX_LINE];
    int status = STATUS_OK, room = 0;
    for (int number = 1; status == STATUS_OK && fgets(line, sizeof line, file);
         number++) {
        if (!strchr(line, '\n') && !feof(file))
            return failure("%s, line %d is too long", path, number);
        if (strchr("#\r\n", *line) || !strncmp(line, "problem", 7))
            continue;
        if (!grow(s, &room))
            return failure("no memory for the problems of %s", path);
        status = read_line(path, number, line, s);
    }
    if (status == STATUS_OK && ferror(file))
        return failure("cannot read %s: %s", path, strerror(errno));
    if (status == STATUS_OK && s->count == 0)
        return failure("%s holds no problem", path);
    return status;
}

int suite_read(const char *path, suite *s)
{
    *s = (suite){ 0 };
    FILE *file = fopen(path, "r");
    if (!file)
        return failure("cannot open %s: %s", path, strerror(errno));
    int status = read_all(file, path, s);
    fclose(file);
    if (status != STATUS_OK)
        suite_free(s);
    return status;
}

void suite_free(suite *s)
{
    free(s->problems);
    *s = (suite){ 0 };
}
