/* The candidates that danaus_compress() tried, for people and for machines. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_CANDIDATES_H
#define CLI_CANDIDATES_H

#include "danaus/danaus.h"
#include <jansson.h>

void candidates_print(const danaus_candidate *candidates, int count);
json_t *candidates_json(const danaus_candidate *candidates, int count);

#endif
