/* What a product must be, computed from the definition

       y[i b d + r d + j] += w[i][r][k][j] x[i c d + k d + j]

   in plain loops of f64, together with a bound on the error of any method that
   computes in the type of sums and rounds to the storage type at the end.

   The bound. Let n be the number of real products in a sum: c terms, 2 c for one
   part of a complex sum, and one more for a bias. Whatever the order, with or
   without fused multiply-add, a computed sum differs from the exact one by at
   most gamma_n m, where m is the sum of |w| |x| and gamma_n = n u / (1 - n u) for
   the unit roundoff u of the sums; for a complex number this holds for each part,
   as |wr xr| + |wi xi| <= |w| |x|. Storing adds unit |y| + tiny. Errors of the
   input pass through |w|. The oracle's own rounding is the same with u = 2^-53. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_SUPPORT_ORACLE_H
#define TEST_SUPPORT_ORACLE_H

#include "support/element.h"

#include "danaus/ks.h"

/* Numbers [size][batch], each with the sum m of the magnitudes that made it and
   the bound e of its error. */
typedef struct signal {
    int64_t size, batch;
    value *v;
    double *m, *e;
} signal;

int64_t rows_of(danaus_pattern p);
int64_t cols_of(danaus_pattern p);
int64_t weights_of(danaus_pattern p);

/* Exact numbers from an array in a layout. */
signal signal_read(const array *a, danaus_layout layout, int64_t size, int64_t batch);
signal signal_copy(const signal *s);
void signal_free(signal *s);

/* K x, or K^H x, summed in the type of sums of `dtype`; not yet rounded. */
signal signal_times(
    danaus_pattern p, const array *w, int adjoint, const signal *x, danaus_dtype dtype);

void signal_add_bias(signal *y, const array *bias, danaus_dtype dtype);

/* An activation of y in the type of sums. None has a slope above 1.13, and each may be
   computed as  v times something of size 1  with an error of 8 units of v. */
void signal_activate(signal *y, danaus_activation activation, danaus_dtype dtype);

/* activation(u) v as stored in this type, u and v the halves of real z; activation(u) may be
   stored before. */
signal signal_gate(const signal *z, danaus_activation activation, danaus_dtype dtype);

/* y times a number, as it is when weights are, and rounded to type_between(). */
void signal_scale(signal *y, double scale, danaus_dtype dtype);

/* Sums of so many terms in y may begin with a residual, which is then added to it. */
void signal_begin_with(
    signal *y, const array *residual, danaus_layout layout, danaus_dtype dtype,
    int64_t terms);

/* y plus a residual in a layout. Parts may have been rounded to type_between() in any order. */
void signal_add_residual(
    signal *y, const array *residual, danaus_layout layout, danaus_dtype dtype);

/* Stored in the type. */
void signal_round(signal *s, danaus_dtype dtype);

/* y = K x was made with weights rounded to the type. */
void signal_round_weights(
    signal *y, danaus_pattern p, int adjoint, const signal *x, danaus_dtype dtype);

/* dw[i][r][k][j] = sum over the batch of dy conj(x): a signal of abcd rows and
   batch 1. dbias = sum of dy. */
signal signal_dw(
    danaus_pattern p, const signal *x, const signal *dy, danaus_dtype dtype);
signal signal_dbias(const signal *dy, danaus_dtype dtype);

/* Fails the test, naming the first wrong element, unless `a` is within e or the
   number may be beyond the largest of its type. */
void expect_signal(
    const array *a, danaus_layout layout, const signal *expected, const char *what);

#endif
