/* Kinds of candidates by their names, and those that danaus_compress() tried. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_CANDIDATES_H
#define CLI_CANDIDATES_H

#include "danaus/danaus.h"
#include <jansson.h>

void candidates_print(const danaus_candidate *candidates, int count);
json_t *candidates_json(const danaus_candidate *candidates, int count);

/* The bits of the kinds that are tried for layers of models: "NAME,NAME,...". */
int candidates_of_layers(const char *text, uint32_t *found);

#endif
