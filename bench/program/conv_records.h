/* Records of danaus-bench conv: objects whose fields docs/formats.md lists. */
// SPDX-License-Identifier: Apache-2.0
#ifndef PROGRAM_CONV_RECORDS_H
#define PROGRAM_CONV_RECORDS_H

#include <jansson.h>

/* One line for people. */
void conv_record_print(const json_t *record);

/* Median and least of the ratios to FFTW, median and greatest of those to the model. */
json_t *conv_records_summarise(const json_t *records);
void conv_summary_print(const json_t *summary);

#endif
