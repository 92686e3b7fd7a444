/* Products of small dense matrices: row-major, rows `ld` elements apart, elements
   f64 or (complex) pairs of f64. One thread, no allocation. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MATH_DENSE_H
#define DN_MATH_DENSE_H

#include <stdint.h>

/* A matrix that somebody else owns. */
typedef struct dn_matrix {
    double *at;
    int64_t ld; /* elements from row to row */
} dn_matrix;

/* c[m][n] = a[m][k] b[k][n] */
void dn_times(
    int complex, int64_t m, int64_t n, int64_t k, dn_matrix a, dn_matrix b,
    dn_matrix c);

/* c[m][n] = a[k][m]^H b[k][n] */
void dn_adjoint_times(
    int complex, int64_t m, int64_t n, int64_t k, dn_matrix a, dn_matrix b,
    dn_matrix c);

/* c[m][n] = a[m][k] b[n][k]^H */
void dn_times_adjoint(
    int complex, int64_t m, int64_t n, int64_t k, dn_matrix a, dn_matrix b,
    dn_matrix c);

/* g[m][m] = a a^H for a[m][n]. */
void dn_gram(int complex, int64_t m, int64_t n, dn_matrix a, dn_matrix g);

/* The sum of |b - u v|^2 over b[m][n], u[m][k], v[k][n]. row holds n elements. */
double dn_residual(
    int complex, int64_t m, int64_t n, int64_t k, dn_matrix b, dn_matrix u, dn_matrix v,
    double *row);

/* The sum of |b|^2. */
double dn_energy(int complex, int64_t m, int64_t n, dn_matrix b);

/* x[m][n] becomes x L^-1 for the lower triangle L = lower[n][n]. Where a pivot is
   negligible beside the largest, the column of the solution is zero. */
void dn_solve_lower(int complex, int64_t m, int64_t n, dn_matrix x, dn_matrix lower);

/* to[n][m] = from[m][n]^H */
void dn_adjoint(int complex, int64_t m, int64_t n, dn_matrix from, dn_matrix to);

void dn_copy(int complex, int64_t m, int64_t n, dn_matrix from, dn_matrix to);
void dn_zero(int complex, int64_t m, int64_t n, dn_matrix to);

/* True if this processor has AVX2 and FMA. */
int dn_has_avx2(void);

#endif
