/* Files of low-rank layers that are stored as r of their rows, the basis, and the coefficients
   that give the other rows (fit.h). docs/models.md has the tensors. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_INTERPOLATED_H
#define DN_MODEL_INTERPOLATED_H

#include "model/bind.h"
#include "model/compress/fit.h"

/* The rank of such a layer; 0: the file has none of this name. */
int64_t dn_interpolated_rank(binder *b, const char *name);

/* Reads a layer of that rank. If tensors do not fit, complains and leaves *good 0 and nothing
   to free. In an outline only checks shapes, and leaves *f alone. */
danaus_status dn_interpolated_read(
    binder *b, const char *name, int64_t rows, int64_t cols, int64_t rank, fit *f,
    int *good);

/* Arrays that are written beside the basis: the other rows [M - r][r] in terms of the basis;
   their bias, less these rows times the basis' bias; the bias of the basis [r]; and the place
   of each row when the basis comes first [M]. */
typedef struct interpolated_rest {
    double *rows, *bias, *kept_bias, *place;
} interpolated_rest;

void dn_interpolated_rest(const fit *f, const interpolated_rest *to);

#endif
