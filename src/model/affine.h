/* Normalisations of rows; each number is then scaled and shifted. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_AFFINE_H
#define DN_MODEL_AFFINE_H

#include "device/nn.h"
#include "model/bind.h"

typedef struct affine {
    const float *scale, *shift; /* [width] */
    float epsilon;
    danaus_dtype dtype; /* of rows */
    int wide;           /* x, and y in its place, are f32, whatever the type of rows */
} affine;

/* Reads NAME.weight and NAME.bias, or takes zeros for the bias if b->unshifted. */
danaus_status dn_affine_bind(
    affine *norm, binder *b, const char *name, int64_t width, double epsilon);

/* y becomes norm(x + more); more: or NULL; y may be x. */
danaus_status dn_affine_run(
    const affine *norm, danaus_device *device, int64_t rows, int64_t width,
    const void *x, const void *more, void *y);

/* x becomes x + more, y its norm; more: or NULL; y is not x. */
danaus_status dn_affine_add(
    const affine *norm, danaus_device *device, int64_t rows, int64_t width, void *x,
    const void *more, void *y);

#endif
