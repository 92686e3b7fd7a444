/* LAPACK, which only lapack.c calls; lapack_library.h loads it. Its matrices are column-major, so it
   sees ours transposed. Its sizes have 32 bits, which is checked when a call is planned.
   Elements are f64 or (complex) pairs of f64, with at most INT_MAX rows and columns. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MATH_LAPACK_H
#define DN_MATH_LAPACK_H

#include "danaus/base.h"
#include "math/dense.h"

/* The next `count` doubles of a scratch area. */
static inline double *dn_take(double **scratch, int64_t count)
{
    double *taken = *scratch;
    *scratch += count;
    return taken;
}

/* b[m][n] = u[m][k] diag(s) v[k][n] for k = min(m, n); b is destroyed. `work` elements
   as planned, and dn_gesdd_rest() doubles. Nonzero: it did not converge. */
danaus_status dn_gesdd_plan(int complex, int64_t m, int64_t n, int *work);
int64_t dn_gesdd_rest(int64_t m, int64_t n);
int dn_gesdd(
    int complex, int64_t m, int64_t n, double *b, double *s, double *u, double *v,
    double *work, int lwork, double *rest);

/* The top eigenvector of g[k][k] = g^H, which is destroyed; 40 k fits in an int.
   Nonzero: it did not converge. */
int64_t dn_heevr_scratch(int complex, int64_t k);
int dn_heevr(int complex, int64_t k, double *g, double *vector, double *scratch);

/* All eigenvalues of g[k][k] = g^T, ascending; g is destroyed, and scratch holds
   dn_heevr_scratch(0, k) doubles. Nonzero: they did not converge. */
int dn_eigenvalues(int64_t k, double *g, double *values, double *scratch);

/* a[r][n] = l[r][k] q[k][n], k = min(r, n), with orthonormal rows in q. q is made
   in place of a; l has k columns. Rows of a lie ld apart; scratch is in doubles. */
danaus_status dn_lq_plan(
    int complex, int64_t r, int64_t n, int64_t ld, int64_t *scratch);
int64_t dn_lq_scratch(int complex, int64_t r, int64_t n);
void dn_lq(
    int complex, int64_t r, int64_t n, dn_matrix a, dn_matrix l, double *scratch);

/* c[m][n] = beta c + op(a) op(b) with an inner size of k; op is the adjoint where it is
   said. All sizes and leading dimensions fit in an int. */
typedef struct dn_gemm {
    int complex, adjoint_a, adjoint_b;
    int64_t m, n, k;
    double beta;
} dn_gemm;
void dn_gemm_run(const dn_gemm *g, dn_matrix a, dn_matrix b, dn_matrix c);

/* The lower triangle of g[n][n] = g^H becomes L with L L^H = g; the rest of g is not read.
   Nonzero: g is not positive definite. */
int dn_cholesky(int complex, int64_t n, dn_matrix g);

/* x[m][n] becomes x L^-1 for the lower triangle L = lower[n][n], or x L^-H. */
void dn_triangle_solve(
    int complex, int adjoint, int64_t m, int64_t n, dn_matrix x, dn_matrix lower);

/* at[n][k] holds the columns of a matrix k x n, k <= n. Writes to pivots the k columns that a QR
   factorization with column pivoting takes first, and to `at` the coefficients of all columns,
       a[:, j] = sum over t < k of a[:, pivots[t]] at[j][t],
   which are 1 and zeros for pivots, and zeros behind the numerical rank for the others.
   scratch: as planned, in doubles. */
int64_t dn_interpolate_scratch(int complex, int64_t k, int64_t n);
void dn_interpolate(
    int complex, int64_t k, int64_t n, double *at, int64_t *pivots, double *scratch);

/* L U of a[n][n] in place, with its pivots; nonzero: pivot number so many, from 1, is zero.
   n * DN_LU_WORK fits in an int. */
#define DN_LU_WORK 64
int dn_lu(int complex, int64_t n, double *a, int *pivots);

/* What dn_lu() made becomes the inverse; `work` holds n * DN_LU_WORK elements. */
void dn_lu_invert(int complex, int64_t n, double *a, const int *pivots, double *work);

/* Every row x of rows[count][n] becomes the solution of a z = x. */
void dn_lu_solve(
    int complex, int64_t n, const double *a, const int *pivots, int64_t count,
    double *rows);

/* An estimate of ||a^-1||_1 from below, given ||a||_1; `work` holds 6 n doubles. */
double dn_lu_inverse_norm(
    int complex, int64_t n, const double *a, double norm, double *work);

#endif
