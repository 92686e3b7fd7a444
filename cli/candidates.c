/* A line, or an object, for each candidate. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/candidates.h"

#include "cli/commands.h"
#include "common/facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    danaus_candidates kind;
} kinds[] = {
    { "dense", DANAUS_TRY_DENSE },
    { "low-rank", DANAUS_TRY_LOW_RANK },
    { "column-groups", DANAUS_TRY_COLUMN_GROUPS },
    { "row-groups", DANAUS_TRY_ROW_GROUPS },
    { "monarch", DANAUS_TRY_MONARCH },
    { "fitted", DANAUS_TRY_FITTED },
    { "sum", DANAUS_TRY_SUM },
    { "sums", DANAUS_TRY_SUMS },
};

enum { KINDS = sizeof kinds / sizeof *kinds };

static const char *kind_name(danaus_candidates kind)
{
    for (int n = 0; n < KINDS; n++)
        if (kinds[n].kind == kind)
            return kinds[n].name;
    return "unknown";
}

int candidates_of_layers(const char *text, uint32_t *found)
{
    const uint32_t possible =
        (2 * DANAUS_TRY_SUM - 1) & ~(uint32_t)(DANAUS_TRY_DENSE | DANAUS_TRY_LOW_RANK);
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        int n = 0;
        while (n < KINDS &&
               (strlen(kinds[n].name) != length || strncmp(kinds[n].name, at, length)))
            n++;
        if (n == KINDS || !(kinds[n].kind & possible))
            return usage_error(
                "--candidates takes column-groups, row-groups, monarch, fitted or sum, "
                "with commas between them, not \"%.*s\"",
                (int)(length < 60 ? length : 60), at);
        *found |= kinds[n].kind;
        at += length;
        if (!*at)
            return STATUS_OK;
    }
}

/* The patterns of each chain, with a plus between two. */
static void format_terms(const danaus_candidate *c, char *text, size_t size)
{
    const danaus_pattern *p = c->patterns;
    size_t at = 0;
    for (int n = 0; n < DANAUS_CANDIDATE_TERMS && c->counts[n]; n++) {
        at += (size_t)snprintf(text + at, size - at, "%s", n ? " + " : "");
        format_patterns(p, c->counts[n], text + at, size - at);
        at += strlen(text + at);
        p += c->counts[n];
    }
}

void candidates_print(const danaus_candidate *candidates, int count)
{
    printf("  candidate      parameters  error      passes  time      patterns\n");
    for (int n = 0; n < count; n++) {
        const danaus_candidate *c = &candidates[n];
        char patterns[800];
        format_terms(c, patterns, sizeof patterns);
        printf(
            "%c %-13s  %10" PRId64 "  %.3e  %6d  %-8.3g  %s\n", c->taken ? '*' : ' ',
            kind_name(c->kind), c->parameters, c->error, c->passes, c->seconds,
            patterns);
    }
}

json_t *candidates_json(const danaus_candidate *candidates, int count)
{
    json_t *list = json_array();
    for (int n = 0; n < count; n++) {
        const danaus_candidate *c = &candidates[n];
        json_t *of_chains = json_array();
        for (int k = 0; k < DANAUS_CANDIDATE_TERMS && c->counts[k]; k++)
            json_array_append_new(of_chains, json_integer(c->counts[k]));
        json_array_append_new(
            list,
            facts_of(
                "kind:t patterns:o counts:o parameters:i error:n passes:d seconds:n "
                "taken:b",
                kind_name(c->kind), json_patterns(c->patterns, c->count), of_chains,
                c->parameters, c->error, c->passes, c->seconds, c->taken));
    }
    return list;
}
