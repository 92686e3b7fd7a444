/* A small vision transformer with random weights, as a folder that danaus loads. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_VIT_H
#define TEST_SUPPORT_VIT_H

#include "danaus/danaus.h"
#include "support/rng.h"

enum { VIT_SIZE = 7, VIT_CHANNELS = 2, VIT_WIDTH = 12, VIT_CLASSES = 5 };

/* Numbers of an image. */
#define VIT_IMAGE (VIT_CHANNELS * VIT_SIZE * VIT_SIZE)

/* Writes it into the folder of files.h, and loads it. */
danaus_model *vit_load(rng *r, danaus_device *device);

/* The same in a type, with every weight moved by a random part of `unit`, relatively. noise: or
   NULL. */
danaus_model *vit_load_near(
    rng *r, danaus_device *device, danaus_dtype dtype, rng *noise, double unit);

#endif
