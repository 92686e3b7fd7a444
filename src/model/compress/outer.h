/* Sums of outer products over tokens, y^T x, by the kernels of weight gradients: in f32 for the
   tokens of a call, in f64 over calls. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_COMPRESS_OUTER_H
#define DN_MODEL_COMPRESS_OUTER_H

#include "danaus/ks.h"

typedef struct outer {
    danaus_device *device;
    int64_t rows, cols;
    danaus_ks_plan *plan;
    danaus_ks_weights *weights;
    float *products, *sums; /* of a call: [rows][cols], [rows]; on the host */
} outer;

/* For a device on the host. On failure there is nothing to close. */
danaus_status dn_outer_open(
    outer *o, danaus_device *device, int64_t rows, int64_t cols, int64_t tokens);
void dn_outer_close(outer *o);

/* yx[rows][cols] += y^T x, and, where it is not NULL, sum_y[rows] += the sum of y. */
danaus_status dn_outer_add(
    outer *o, int64_t tokens, const float *x, const float *y, double *yx,
    double *sum_y);

#endif
