/* Products of factors in work order with many columns, and the operations of least squares in
   one factor. Arrays are [rows][count] and never overlap; `at` has room for the results. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_FACTOR_COLUMNS_H
#define DN_FACTOR_COLUMNS_H

#include "factor/hierarchy.h"

typedef struct ks_columns {
    int complex;
    int64_t rows, count;
    double *at;
} ks_columns;

/* y = K x and y = K^H x. */
void dn_columns_times(
    thread_pool *pool, danaus_pattern p, const double *w, const ks_columns *x,
    ks_columns *y);
void dn_columns_adjoint_times(
    thread_pool *pool, danaus_pattern p, const double *w, const ks_columns *x,
    ks_columns *y);

/* y = K_from .. K_{end-1} x; u and v take turns on the way. */
void dn_factors_times(
    thread_pool *pool, const ks_factors *f, int from, int end, const ks_columns *x,
    ks_columns *y, ks_columns *u, ks_columns *v);

/* The most rows that x, y or a product between factors has. */
int64_t dn_factors_widest(const ks_factors *f);

/* g = the entries of y x^H on the support of p, in work order. */
void dn_columns_gradient(
    thread_pool *pool, danaus_pattern p, const ks_columns *y, const ks_columns *x,
    double *g);

/* The c rows of x that each block of a factor multiplies become orthonormal:
   x_block = l_block q_block, lower[a][d][c][c]. For fewer columns than c, x stays and
   every l is the identity. */
danaus_status dn_columns_lq(
    thread_pool *pool, danaus_pattern p, ks_columns *x, double *lower);

void dn_columns_copy(const ks_columns *x, ks_columns *y);
void dn_columns_subtract(const ks_columns *x, ks_columns *y);      /* y = x - y */
void dn_columns_add(double s, const ks_columns *x, ks_columns *y); /* y += s x */
double dn_columns_energy(const ks_columns *x);

#endif
