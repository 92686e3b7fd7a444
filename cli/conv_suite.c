/* Suites of convolutions: files of problems to measure. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/conv_suite.h"

#include "cli/args.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const conv_kind_names[3] = { "causal", "circular", "bidirectional" };

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

static int find_kind(const char *name)
{
    for (int k = 0; k < 3; k++)
        if (!strcmp(name, conv_kind_names[k]))
            return k;
    return -1;
}

static int parse_line(const char *line, conv_problem *p)
{
    char kind[16], extras[8];
    int read = sscanf(
        line, "%15[a-z],%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%7[a-z]", kind,
        &p->length, &p->taps, &p->batch, &p->channels, extras);
    int number = read == 6 ? find_kind(kind) : -1;
    if (number < 0)
        return 0;
    p->kind = (danaus_conv_kind)number;
    p->gated = !strcmp(extras, "gated");
    p->sparse = !strcmp(extras, "sparse");
    if (!p->gated && !p->sparse && strcmp(extras, "plain"))
        return 0;
    return p->length > 0 && p->taps > 0 && p->batch > 0 && p->channels > 0;
}

static int read_lines(const char *path, FILE *file, conv_suite *s)
{
    char line[256];
    for (int number = 1; fgets(line, sizeof line, file); number++) {
        conv_problem p;
        if (*line == '#' || *line == '\n' || !strncmp(line, "kind,", 5))
            continue;
        if (!parse_line(line, &p))
            return failure(
                "%s, line %d: a problem is "
                "kind,length,taps,batch,channels,plain|gated|sparse",
                path, number);
        conv_problem *more =
            realloc(s->problems, (size_t)(s->count + 1) * sizeof *more);
        if (!more)
            return failure("no memory for %s", path);
        s->problems = more;
        s->problems[s->count++] = p;
    }
    return STATUS_OK;
}

int conv_suite_read(const char *path, conv_suite *s)
{
    *s = (conv_suite){ 0 };
    FILE *file = fopen(path, "r");
    if (!file)
        return failure("cannot read %s: %s", path, strerror(errno));
    int status = read_lines(path, file, s);
    fclose(file);
    if (!status && !s->count)
        status = failure("%s has no problems", path);
    return status;
}

void conv_suite_free(conv_suite *s) { free(s->problems); }
