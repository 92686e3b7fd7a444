/* Dense complex matrices in plain loops, to compare factorizations with: products,
   norms, singular values by one-sided Jacobi rotations, factors and their supports. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_MATRIX_H
#define TEST_SUPPORT_MATRIX_H

#include "support/rng.h"

#include "danaus/ks.h"

#include <complex.h>
#undef complex /* is a name here */

#ifndef CMPLX /* clang 14 does not get it from glibc */
#    define CMPLX(re, im) __builtin_complex((double)(re), (double)(im))
#endif

typedef double _Complex number;

typedef struct matrix {
    int64_t rows, cols;
    number *at; /* row-major */
} matrix;

matrix matrix_make(int64_t rows, int64_t cols); /* zeros */
matrix matrix_copy(matrix a);
void matrix_free(matrix *a);
double rng_gauss(rng *r);
matrix matrix_gauss(rng *r, int64_t rows, int64_t cols, int complex);
matrix matrix_times(matrix a, matrix b);
matrix matrix_transposed(matrix a); /* without conjugation */
matrix matrix_kronecker(matrix a, matrix b);
void matrix_add(matrix *a, number s, matrix b); /* a += s b */
double matrix_norm(matrix a);
double matrix_distance(matrix a, matrix b);
double relative_distance(matrix a, matrix b);          /* ||a - b|| / ||b|| */
matrix matrix_columns(matrix a, const int64_t *order); /* column p is a's order[p] */

/* Descending; min(rows, cols) of them. */
void matrix_singular_values(matrix a, double *s);

/* The elements as an array of type `dtype`, and back. */
void *matrix_pack(matrix a, danaus_dtype dtype);
matrix matrix_unpack(danaus_dtype dtype, const void *from, int64_t rows, int64_t cols);

/* w[a][b][c][d] as a matrix, K x, and the product K_1 .. K_count of weights in the
   public order. */
matrix factor_dense(danaus_pattern p, const number *w);
matrix factor_times(danaus_pattern p, const number *w, matrix x);
matrix chain_product(const danaus_pattern *p, number *const *w, int count);

/* Random weights, and a product of factors with such weights. */
number *factor_random(rng *r, danaus_pattern p, int complex);
matrix product_random(rng *r, const danaus_pattern *p, int count, int complex);

/* The product of a chain's factors. */
matrix chain_matrix(danaus_chain *chain);

/* ||Y - X K^T - bias|| / ||Y|| of inputs and targets, a row each. */
double chain_fit_error(danaus_chain *chain, matrix x, matrix y);

/* True if (row, col) is in the support of p. */
int in_support(danaus_pattern p, int64_t row, int64_t col);

/* A chainable chain: radices up to `radix`, ranks up to `rank`, sizes up to 150; with
   `ends` sometimes a_1 > 1 or d_L > 1. Returns count patterns. */
void random_chainable(
    rng *r, int count, int64_t radix, int64_t rank, int ends, danaus_pattern *p);

#endif
