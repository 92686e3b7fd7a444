/* Records of danaus bench conv: objects whose fields docs/formats.md lists. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_CONV_RECORDS_H
#define CLI_CONV_RECORDS_H

#include <jansson.h>
#include <stdio.h>

/* One line for people. */
void conv_record_print(const json_t *record);

/* One line of CSV, after a line of names if it is the first. */
void conv_record_write(const json_t *record, int first, FILE *file);

/* Median and least of the ratios to FFTW, median and greatest of those to the model. */
json_t *conv_records_summarise(const json_t *records);
void conv_summary_print(const json_t *summary);

#endif
