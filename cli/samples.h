/* Sample inputs of a layer, and what shall come out for them, from files. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_SAMPLES_H
#define CLI_SAMPLES_H

#include "danaus/danaus.h"

/* All zero: there are none. */
typedef struct samples {
    danaus_file *files[2];
    danaus_tensor inputs, targets;
    void *owned[2]; /* converted copies */
} samples;

/* Opens samples x N inputs and, unless NULL, samples x M targets for a matrix of M x N. Both
   return a status of the program. */
int samples_open(
    const char *inputs, const char *targets, const danaus_tensor *matrix, int complex,
    samples *s);

/* Numbers of a type, where there are samples, for a fit. */
int samples_read(samples *s, danaus_dtype dtype, danaus_factorize_desc *fit);
void samples_close(samples *s);

#endif
