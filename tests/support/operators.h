/* Operators in plain loops: what one is as a matrix, and transforms by their definitions. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_OPERATORS_H
#define TEST_SUPPORT_OPERATORS_H

#include "support/matrix.h"

#include "danaus/transforms.h"

/* The product of its chains and orders, or, of a sum, the sum of its terms. */
matrix operator_matrix(const danaus_operator *made);

/* How far, relative to its norm, such a matrix may be from the exact one, for chains whose
   factors are multiples of isometries: at the head of operators.c. */
double operator_bound(const danaus_operator *made);

/* An operator of random chains, with orders that permute, repeat, select and pad, and
   numbers that pass by. */
danaus_operator *random_operator(rng *r, danaus_dtype dtype);

/* The same of a size, with at most `most` chains; sometimes a chain alone. */
danaus_operator *random_term(
    rng *r, danaus_dtype dtype, int64_t rows, int64_t cols, int most);

/* One of 1 to 3 terms, sometimes with a bias. */
danaus_operator *random_sum(rng *r, danaus_dtype dtype, int64_t rows, int64_t cols);

/* desc->kind of length desc->n by its definition, with desc's values, angles, moments and
   levels, neither scaled nor inverted. values are given as numbers here. */
matrix transform_by_definition(const danaus_transform_desc *desc, const number *values);

/* The scales that make it orthogonal: rows of norm 1, and columns where the kind has
   them. */
void make_orthonormal(danaus_transform kind, matrix *a);

/* Parts of the file of an operator are refused; with bytes changed it is read or refused. The
   file is left damaged. */
void expect_damage_is_refused(const char *path);

#endif
