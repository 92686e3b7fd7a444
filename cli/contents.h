/* What a file holds: its arrays and metadata, and the chain, operator or model that they make. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_CONTENTS_H
#define CLI_CONTENTS_H

#include <jansson.h>

/* The facts of a file of arrays, or of the folder of a model. Returns an exit status. */
int contents_of(const char *path, json_t **facts);

/* Prints such facts. */
void contents_print(const json_t *facts);

#endif
