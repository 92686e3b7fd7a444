/* The limits of a GPU, measured through danaus. */
// SPDX-License-Identifier: Apache-2.0
#ifndef PROGRAM_GPU_LIMITS_H
#define PROGRAM_GPU_LIMITS_H

#include "bench/machine.h"

#include "danaus/danaus.h"

/* Bytes copied per second, and operations per second of a dense product in this type,
   which is entered for every type. Returns an exit status. */
int gpu_limits(
    danaus_device *device, danaus_dtype dtype, danaus_math math,
    machine_limits *limits);

#endif
