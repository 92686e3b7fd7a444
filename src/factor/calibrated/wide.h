/* Products and triangular systems of large matrices, by rows in parallel: their bits do
   not depend on the number of threads. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_FACTOR_CALIBRATED_WIDE_H
#define DN_FACTOR_CALIBRATED_WIDE_H

#include "base/thread.h"
#include "math/lapack.h"

/* c[m][n] = beta c + a[m][k] b[k][n], or a b[n][k]^H with adjoint_b; g->adjoint_a is
   zero. */
void dn_wide_times(
    thread_pool *pool, const dn_gemm *g, dn_matrix a, dn_matrix b, dn_matrix c);

/* x[m][n] becomes x L^-1, or x L^-H. */
void dn_wide_solve(
    thread_pool *pool, int complex, int adjoint, int64_t m, int64_t n, dn_matrix x,
    dn_matrix lower);

#endif
