/* Results for people and for machines. */
// SPDX-License-Identifier: Apache-2.0
#include "cli/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

void report_json(json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(value);
}

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

json_t *json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

int chain_patterns(const danaus_chain *chain, danaus_pattern *patterns)
{
    int count = danaus_chain_count(chain);
    for (int i = 0; i < count; i++)
        patterns[i] = danaus_chain_pattern(chain, i);
    return count;
}
