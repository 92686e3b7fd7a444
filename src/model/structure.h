/* Linear layers of a folder that are no dense matrices, as config.json describes them.

   Readers that do not know such layers would initialise missing weights. They refuse the folder
   instead, because it names a method that they lack, and because each layer has a placeholder,
   an empty tensor NAME.weight. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_STRUCTURE_H
#define DN_MODEL_STRUCTURE_H

#include "danaus/file.h"
#include "danaus/model.h"
#include "io/json.h"
#include "model/linear.h"

/* Fails if config.json names layers that this library does not run: layers of another method,
   or with an activation or layout of their own. */
danaus_status dn_structure_check(const json_t *config);

/* True for layers that have a placeholder in a folder. */
int dn_structure_has(const linear *layer);

/* How many layers of a model these are. */
int dn_structure_count(const danaus_model *model);

/* Copies config.json into another folder, with the structure that the model has now. */
danaus_status dn_structure_write(const danaus_model *model, const char *path);

#endif
