/* Truncated singular value decomposition of one block, by the cheapest method that
   is exact for its shape.

   b[m][n] ~= u[m][rank] v[rank][n], row-major, elements f64 or pairs of f64. u has
   orthonormal columns and v holds Sigma V^H, or the other way round. The entries
   must not be so small or large that their squares leave the range of f64. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MATH_SVD_H
#define DN_MATH_SVD_H

#include "danaus/base.h"
#include "math/dense.h"

typedef enum dn_sigma {                     /* where the singular values go */
                        DN_SIGMA_RIGHT = 0, /* u orthonormal */
                        DN_SIGMA_LEFT,      /* v orthonormal */
                        DN_SIGMA_BOTH       /* square roots on both sides */
} dn_sigma;

typedef struct dn_svd {
    int complex;
    int fast;           /* may iterate: near the optimum, not at it */
    int64_t m, n, rank; /* rank <= min(m, n) */
    dn_sigma sigma;
    int method, work; /* set by dn_svd_plan() */
    int64_t basis;
    int64_t scratch; /* doubles that each dn_svd_run() needs */
} dn_svd;

/* Chooses the method; sizes fit in an int. DANAUS_ERR_UNSUPPORTED where LAPACK's own
   sizes would not. */
danaus_status dn_svd_plan(dn_svd *svd);

/* *dropped = ||b - u v||^2, summed from what is dropped. Nonzero: LAPACK did not
   converge. */
int dn_svd_run(
    const dn_svd *svd, dn_matrix b, dn_matrix u, dn_matrix v, double *dropped,
    double *scratch);

#endif
