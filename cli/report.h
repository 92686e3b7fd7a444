/* Results for people and for machines. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include "danaus/danaus.h"
#include <jansson.h>

/* Prints a JSON value with a line end and releases it. */
void report_json(json_t *value);

/* "1,192,48,2 2,48,192,1" of a chain's patterns; cut with "..." when it does
   not fit into size bytes. */
void format_patterns(
    const danaus_pattern *patterns, int count, char *text, size_t size);

/* [[1, 192, 48, 2], [2, 48, 192, 1]] */
json_t *json_patterns(const danaus_pattern *patterns, int count);

/* A number, or null where it is not one. */
json_t *json_number(double value);

/* Copies the patterns of a chain to patterns[0 .. DANAUS_MAX_FACTORS) and
   returns their number. */
int chain_patterns(const danaus_chain *chain, danaus_pattern *patterns);

#endif
