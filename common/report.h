/* Results for people and for machines. */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_REPORT_H
#define COMMON_REPORT_H

#include "danaus/danaus.h"
#include <jansson.h>

/* The number of the schema of what --json prints (docs/formats.md). */
#define REPORT_SCHEMA 1

/* Prints schema, version, command and then the members of a JSON object, which is released.
   Returns an exit status. */
int report_json(json_t *value);

/* Text from outside, for example the name of a file. Bytes that are no UTF-8 become U+FFFD; NULL
   becomes null. */
json_t *json_text(const char *text);

/* A number, or null where it is not one. */
json_t *json_number(double value);

/* Writes records as CSV: a line of the first record's names, then a line for each record; null
   is an empty field. The file is replaced in one step; a pipe gets only new lines. Returns an
   exit status. */
int report_csv(const json_t *records, const char *path);

/* "1,192,48,2 2,48,192,1" of a chain's patterns; cut with "..." when it does
   not fit into size bytes. */
void format_patterns(
    const danaus_pattern *patterns, int count, char *text, size_t size);

/* What a plan of products says of itself, on one line. */
void format_plan(const danaus_ks_plan *plan, char *text, size_t size);

/* Lines to one, with semicolons between them. */
void join_lines(char *text);

/* [[1, 192, 48, 2], [2, 48, 192, 1]] */
json_t *json_patterns(const danaus_pattern *patterns, int count);

/* Copies the patterns of a chain to patterns[0 .. DANAUS_MAX_FACTORS) and
   returns their number. */
int chain_patterns(const danaus_chain *chain, danaus_pattern *patterns);

#endif
