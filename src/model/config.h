/* Files of JSON in a model's folder, and fields that architectures have in common. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_CONFIG_H
#define DN_MODEL_CONFIG_H

#include "danaus/ks.h"
#include "io/json.h"

#define MOST_WIDTH  ((int64_t)1 << 20)
#define MOST_TOKENS ((int64_t)1 << 24)
#define MOST_LAYERS 1000

/* FOLDER/NAME in a buffer of this size. */
danaus_status dn_config_path(
    const char *folder, const char *name, char *path, size_t size);

/* A file of a folder, whole. Missing files are DANAUS_ERR_IO, or, where `optional`, NULL. */
danaus_status dn_config_load(
    const char *folder, const char *name, int optional, json_t **config);

/* A field in [1, most] that is there, or else *value already. */
danaus_status dn_config_size(
    const json_t *config, const char *field, int64_t most, int64_t *value);

/* Names of fields. */
typedef struct block_fields {
    const char *width, *inner, *layers, *heads, *epsilon, *activation;
    const char *positions; /* of encoders of words */
} block_fields;

/* The blocks of a model. */
typedef struct block_sizes {
    const block_fields *fields;   /* NULL: the usual names, as below */
    int64_t layers, width, inner; /* layers: as many as there are blocks */
    double epsilon;               /* of normalisations */
    danaus_activation activation;
} block_sizes;

/* Reads an activation, or GELU if the field is missing. */
danaus_status dn_config_activation(
    const json_t *config, const char *field, danaus_activation *activation);

/* Reads num_hidden_layers, hidden_size, intermediate_size, layer_norm_eps, which may be missing
   if s->epsilon is there, and hidden_act, or GELU. s->fields becomes the names that were used;
   num_attention_heads is one of them and is read later. */
danaus_status dn_config_blocks(const json_t *config, block_sizes *s);

#endif
