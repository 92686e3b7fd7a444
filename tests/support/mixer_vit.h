/* Small HyenaViTs and M2-ViTs: as a folder that danaus loads, and as plain loops of f64 that
   share no code with the library. Errors are bounded as support/bert.h says. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_MIXER_VIT_H
#define TEST_SUPPORT_MIXER_VIT_H

#include "danaus/danaus.h"
#include "support/filter.h"

#include <stddef.h>

#define MIXER_VIT_MOST 48 /* classes, numbers of a row and between MLPs' layers */

typedef struct small_mixer_vit {
    int m2; /* else it is a HyenaViT */
    int64_t layers, width, inner;
    int64_t channels, size, patch, patches;
    int64_t classes;     /* 0: there is no head */
    int relu;            /* in MLPs, else GELU */
    int64_t order, taps; /* of Hyena */
    int residual, bidirectional, gated;
    int64_t mlp_blocks; /* 0: matrices of MLPs are dense */
    double epsilon;
    small_filter filter;
    named_arrays arrays;
} small_mixer_vit;

/* One of either kind. */
small_mixer_vit mixer_vit_random(rng *r, int m2);

/* A narrow one of one block, with classes, for so many patches along each side. */
small_mixer_vit mixer_vit_of(rng *r, int m2, int64_t across);
void mixer_vit_free(small_mixer_vit *m);

void mixer_vit_config(const small_mixer_vit *m, char *config, size_t size);

/* Writes config.json and model.safetensors into the folder of files.h; and loads them. */
void mixer_vit_write(const small_mixer_vit *m);
danaus_model *mixer_vit_load(const small_mixer_vit *m, danaus_device *device);

/* Numbers of an image. */
int64_t mixer_vit_image(const small_mixer_vit *m);

/* The embedding [width] of an image, and the scores [classes] of an embedding. */
void mixer_vit_embed(
    const small_mixer_vit *m, const float *pixels, double *embedding, rng *noise);
void mixer_vit_scores(
    const small_mixer_vit *m, const double *embedding, double *scores, rng *noise);

#endif
