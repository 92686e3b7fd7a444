/* What vision transformers share: squares of images, which a linear layer turns into rows, and
   scores of classes from embeddings. Squares follow each other line by line. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_VIT_PICTURES_H
#define DN_MODEL_VIT_PICTURES_H

#include "model/config.h"
#include "model/linear.h"

typedef struct pictures {
    int64_t channels, size, patch, across; /* squares along a side of `size` pixels */
    int64_t width;                         /* of rows */
    danaus_dtype dtype;                    /* of squares and their rows */
    linear patches, classes; /* classes: without a plan if there are none */
} pictures;

static inline int64_t dn_pictures_patches(const pictures *p)
{
    return p->across * p->across;
}

/* Reads image_size, patch_size and num_channels; those of ViT-B/16 where they are missing. */
danaus_status dn_pictures_config(pictures *p, const json_t *config);

/* The convolution NAME of squares is a matrix [width][channels patch patch]. */
danaus_status dn_pictures_open_patches(pictures *p, binder *b, const char *name);

/* NAME, where the file has it; else *classes stays. */
danaus_status dn_pictures_open_classes(
    pictures *p, binder *b, const char *name, int64_t *classes);

/* Adds the weights of both layers to the binder's parameters. */
void dn_pictures_count(const pictures *p, binder *b);
int64_t dn_pictures_packed(const pictures *p);
void dn_pictures_close(pictures *p);

/* Device memory for images that go through together. */
typedef struct picture_room {
    int64_t images;
    float *pixels; /* of the images, on a GPU; else they lie where they are */
    void *squares; /* [images][patches][channels patch patch] */
    float *embeddings, *scores; /* [images][width], [images][classes] */
} picture_room;

/* Images of so many tokens that go through together. */
int64_t dn_pictures_together(
    const danaus_device *device, int64_t tokens, int64_t images);

/* Cuts the room of room->images off (dn_cut()). */
void dn_pictures_lay(
    const pictures *p, const danaus_device *device, uintptr_t *at, picture_room *room);

/* rows[images][patches][width] of pixels on the host. */
danaus_status dn_pictures_rows(
    const pictures *p, danaus_device *device, const picture_room *room, int64_t images,
    const float *pixels, void *rows);

/* Makes embeddings of at most room->images images. */
typedef danaus_status embed_pictures(
    const void *user, int64_t images, const float *pixels);

/* As `look` of a viewer. */
danaus_status dn_pictures_look(
    const pictures *p, danaus_device *device, const picture_room *room,
    embed_pictures *embed, const void *user, int64_t images, const float *pixels,
    int classify, float *to);

/* Operations of both layers. */
double dn_pictures_operations(const pictures *p, int64_t images);

#endif
