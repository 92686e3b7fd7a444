/* A line, or an object, for each candidate. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/candidates.h"

#include "common/report.h"

#include <inttypes.h>
#include <stdio.h>

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

void candidates_print(const danaus_candidate *candidates, int count)
{
    printf("  candidate      parameters  error      passes  time      patterns\n");
    for (int n = 0; n < count; n++) {
        const danaus_candidate *c = &candidates[n];
        char patterns[400];
        format_patterns(c->patterns, c->count, patterns, sizeof patterns);
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
        json_array_append_new(
            list, json_pack(
                      "{s:s, s:o, s:I, s:o, s:i, s:f, s:b}", "kind", kind_name(c->kind),
                      "patterns", json_patterns(c->patterns, c->count), "parameters",
                      (json_int_t)c->parameters, "error", json_number(c->error),
                      "passes", c->passes, "seconds", c->seconds, "taken", c->taken));
    }
    return list;
}
