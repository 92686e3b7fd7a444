/* Images of a file, as a model takes them. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_IMAGES_H
#define CLI_IMAGES_H

#include "danaus/danaus.h"

typedef struct image_file {
    danaus_file *file;
    void *owned; /* pixels, where the file has them otherwise */
    int64_t count;
    const float *pixels; /* [count][channels][size][size] */
} image_file;

/* Reads images x channels x size x size, or one image without the first dimension. Returns an
   exit status. */
int images_read(image_file *i, const char *path, const danaus_model_info *info);
void images_free(image_file *i); /* zeros are fine */

/* Refuses a file without images, and one with infinite or NaN numbers. */
int images_finite(const image_file *i, const char *path, const danaus_model_info *info);

/* Embeddings of the first `count`, to be freed; NULL: a sentence was printed. */
float *images_embed(
    const image_file *i, int64_t count, danaus_model *model, danaus_device *device);

#endif
