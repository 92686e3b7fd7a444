/* A line, or an object, for each candidate. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/candidates.h"

#include "common/facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *kind_name(danaus_candidates kind)
{
    switch (kind) {
    case DANAUS_TRY_DENSE: return "dense";
    case DANAUS_TRY_LOW_RANK: return "low-rank";
    case DANAUS_TRY_COLUMN_GROUPS: return "column-groups";
    case DANAUS_TRY_ROW_GROUPS: return "row-groups";
    case DANAUS_TRY_MONARCH: return "monarch";
    case DANAUS_TRY_FITTED: return "expected";
    case DANAUS_TRY_SUM: return "sum";
    case DANAUS_TRY_SUMS: return "sums";
    }
    return "unknown";
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
        json_t *counts = json_array();
        for (int k = 0; k < DANAUS_CANDIDATE_TERMS && c->counts[k]; k++)
            json_array_append_new(counts, json_integer(c->counts[k]));
        json_array_append_new(
            list,
            facts_of(
                "kind:t patterns:o counts:o parameters:i error:n passes:d seconds:n "
                "taken:b",
                kind_name(c->kind), json_patterns(c->patterns, c->count), counts,
                c->parameters, c->error, c->passes, c->seconds, c->taken));
    }
    return list;
}
