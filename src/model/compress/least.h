/* The least error of linear layers of a rank (fit.h), whatever rows they read.

   K X + bias, centred, has no higher rank than K. So ||Y - K X - bias||^2 is at least what the
   nearest matrix of that rank leaves of the centred targets: the sum of the squares of their
   singular values behind the first `rank` (Eckart, Young, Psychometrika 1, 1936). That is
   reached where Y = W X. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MODEL_COMPRESS_LEAST_H
#define DN_MODEL_COMPRESS_LEAST_H

#include "model/compress/fit.h"

/* Sums over `count` rows of t and t t^T, where y = Q t and Q has orthonormal columns: t has the
   singular values of y. Arrays in one block of host memory. */
typedef struct targets {
    int64_t size, count;
    double *tt, *t; /* [size][size], [size] */
} targets;

danaus_status dn_targets_make(int64_t size, int64_t count, targets *t);
void dn_targets_free(targets *t);

/* Sums of the targets of a dense layer weight[rows][cols], whose bias does not count: y = W x
   for `count` rows with the sums x[cols] and xx[cols][cols]. */
danaus_status dn_targets_map(
    int64_t rows, int64_t cols, const double *weight, int64_t count, const double *x,
    const double *xx, targets *t);

/* Writes the fit's lower bound. tt goes. */
danaus_status dn_targets_bound(targets *t, fit *f);

#endif
