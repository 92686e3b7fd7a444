/* The folder of a model: names in it, and whether a model may be written there. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_FOLDER_H
#define DN_MODEL_FOLDER_H

#include "danaus/base.h"
#include "io/json.h"

/* Key of the metadata of model.safetensors in folders that danaus wrote. */
#define FOLDER_MARK "danaus"

/* Fails unless a name in a file of a model can name a file or folder beside that file:
   without a slash or a NUL, and not beginning with a dot. `where`: "modules.json". */
danaus_status dn_folder_name(span name, const char *where);

/* Fails unless the folder can be made, or holds nothing but names that begin with a dot, or holds
   a model that danaus wrote. */
danaus_status dn_folder_check(const char *path);

#endif
