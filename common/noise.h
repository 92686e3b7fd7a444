/* Numbers to measure with. */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_NOISE_H
#define COMMON_NOISE_H

#include "danaus/danaus.h"

/* `count` numbers, uniform in [-scale, scale), as elements of a type; the same ones for the
   same seed. */
danaus_status noise_fill(
    void *to, int64_t count, danaus_dtype dtype, double scale, uint64_t seed);

/* Such numbers in memory of the device that the caller frees. */
danaus_status noise_on_device(
    danaus_device *device, int64_t count, danaus_dtype dtype, uint64_t seed, void **to);

#endif
