/* Calibrated factors: their starts, and the passes that improve them. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_FACTOR_CALIBRATED_WEIGHTED_H
#define DN_FACTOR_CALIBRATED_WEIGHTED_H

#include "factor/calibrated/calibration.h"

/* The solution of least squares with the columns of each block of the last factor K_L
   made orthonormal for the inputs: matrix = (T L^-1) S, where S has lower[a][d][c][c] in
   the columns of the blocks. Factors of it are factors of the solution once K_L is
   multiplied by S^-1, and the nearest ones are the best for inputs that are correlated
   within blocks only; with a single block, for all. */
typedef struct ks_whitened {
    danaus_pattern last;
    double *matrix, *lower;
} ks_whitened;

danaus_status dn_whiten(
    thread_pool *pool, const ks_calibration *c, danaus_pattern last, ks_whitened *w);
void dn_unwhiten(thread_pool *pool, const ks_whitened *w, ks_factors *factors);
void dn_whitened_free(ks_whitened *w);

/* *error = ||T - K_1 .. K_L L||^2 + floor */
danaus_status dn_weighted_error(
    thread_pool *pool, const ks_calibration *c, const ks_factors *factors,
    double *error);

/* Lowers that error, or leaves it, in at most `sweeps` passes (0: 4) over the factors of
   W. chainable: the chain is so as it stands, not only transposed. Work: that of the whole
   call is `work`. */
danaus_status dn_weighted_refine(
    ks_run *run, const ks_calibration *c, int chainable, int sweeps, double work,
    ks_factors *factors);

/* *error = ||Y - X K^T||^2 for the factors of W, as seen: from the samples if there are
   some, else from T - K L; distance is ||W - K||^2. */
danaus_status dn_calibration_measure(
    thread_pool *pool, const ks_calibration *c, const ks_factors *f, double distance,
    double *error);

#endif
