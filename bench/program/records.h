/* Records of a benchmark: one JSON object each, all with the same keys, which are
   also the columns of the CSV file (docs/formats.md). */
// SPDX-License-Identifier: Apache-2.0
#ifndef PROGRAM_RECORDS_H
#define PROGRAM_RECORDS_H

#include "bench/program/case.h"
#include "bench/machine.h"
#include "bench/program/rivals.h"

#include <jansson.h>

/* What is the same for all records of a run. */
typedef struct run_facts {
    danaus_device_info device;
    machine_limits limits; /* the best that was seen */
    char blas[256];
} run_facts;

/* What was measured on a case. */
typedef struct findings {
    runner ours, factors;      /* factors.runs is 0 for a single one */
    runner rivals[MAX_RIVALS]; /* as in the rivals */
    double difference[MAX_RIVALS];
    double peak, copy;     /* operations and bytes a second, in the same rounds */
    double error, seconds; /* of ours, seconds of one call */
    double permutations;
    double joules; /* of a call; NAN: not asked */
} findings;

json_t *record_make(
    const run_facts *run, const bench_case *c, const rivals *r, const findings *f);

/* One line for people. */
void record_print(const json_t *record);

/* Medians and extremes over all records, for batches of at least 196 and for
   smaller ones. */
json_t *records_summarise(const json_t *records);
void summary_print(const json_t *summary);

#endif
