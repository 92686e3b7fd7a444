/* Files of JSON in a model's folder. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_CONFIG_H
#define DN_MODEL_CONFIG_H

#include "io/json.h"

/* FOLDER/NAME in a buffer of this size. */
danaus_status dn_config_path(
    const char *folder, const char *name, char *path, size_t size);

/* A file of a folder, whole. Missing files are DANAUS_ERR_IO, or, where `optional`, NULL. */
danaus_status dn_config_load(
    const char *folder, const char *name, int optional, json_t **config);

/* A field in [1, most] that is there, or else *value already. */
danaus_status dn_config_size(
    const json_t *config, const char *field, int64_t most, int64_t *value);

#endif
