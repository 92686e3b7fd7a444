/* The factorization in any order of splits, on matrices; and what it is judged by:
   the errors of the best two-factor approximations, found by Jacobi rotations in
   rectangles that are found from the supports alone. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_FACTORS_H
#define TEST_SUPPORT_FACTORS_H

#include "factor/hierarchy.h"
#include "support/matrix.h"

/* A matrix as the factorization reads it; packed is f64 or c128 memory to free. */
typedef struct readable {
    void *packed;
    ks_view view;
} readable;

readable readable_make(matrix w, int complex, danaus_pattern product);
void readable_free(readable *r);

/* Factors of w, splits in the given order; delta may be NULL. */
ks_factors factorised(
    matrix w, int complex, const danaus_pattern *p, int count, const int *order,
    ks_how how, double *delta);

/* Left to right. */
ks_factors swept(
    matrix w, int complex, const danaus_pattern *p, int count, double *delta);

matrix factors_matrix(const ks_factors *f);

/* Work arrays with the weights given in the public order. */
ks_factors factors_from(
    const danaus_pattern *p, number *const *w, int count, int complex);

/* The distance of the product to w, over entries in the support of the product. */
double distance_on_support(matrix w, const ks_factors *f);

/* The distance of w to the nearest product X Y, X and Y with the products of the
   patterns left and right of split s; over the support. */
double split_error(matrix w, const danaus_pattern *p, int count, int s);
double largest_split_error(matrix w, const danaus_pattern *p, int count);

/* Pre-orders of all binary trees over factors lo .. hi-1; returns their number, at
   most 42 for up to six factors. */
int tree_orders(int lo, int hi, int right_first, int (*orders)[8]);

/* The bound of a depth-first run: hypot(delta, first child) + second child. */
double tree_bound(const int *order, int right_first, int count, const double *delta);

#endif
