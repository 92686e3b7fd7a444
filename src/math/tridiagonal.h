/* The top eigenpair of a symmetric tridiagonal matrix. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MATH_TRIDIAGONAL_H
#define DN_MATH_TRIDIAGONAL_H

/* Diagonal alpha[n], neighbours beta[n-1] > 0. Returns the largest eigenvalue and
   writes its unit vector. scratch: 2 n doubles. */
double dn_tridiagonal_top(
    int n, const double *alpha, const double *beta, double *vector, double *scratch);

#endif
