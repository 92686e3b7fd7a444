/* The weights of a model's folder: model.safetensors, or the files that
   model.safetensors.index.json lists. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_SHARDS_H
#define DN_MODEL_SHARDS_H

#include "danaus/file.h"
#include "io/json.h"

#define SHARDS_MOST 10000

/* Files that an index names, each once, in the order of its tensors. */
typedef struct shards {
    int count;
    const char **name; /* the index's */
} shards;

/* Reads an index. Names lead into it; they are names of files without a folder. */
danaus_status dn_shards_read(const json_t *index, shards *s);
void dn_shards_free(shards *s);

/* Opens the weights of a folder as one file. `path` is what sentences about it begin with. */
danaus_status dn_shards_open(
    const char *folder, danaus_file **file, char *path, size_t size);

#endif
