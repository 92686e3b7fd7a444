/* BLAS for the four element types, row-major. */
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_BLAS_H
#define BENCH_BLAS_H

#include "danaus/base.h"

/* z[m][n] = x[m][k] y[k][n], or x y' for y[n][k] when turned; ldx, ldy, ldz are the
   distances between rows. */
void blas_multiply(
    danaus_dtype dtype, int turned, int64_t m, int64_t n, int64_t k, const void *x,
    int64_t ldx, const void *y, int64_t ldy, void *z, int64_t ldz);

/* y = w x for one vector; w[m][n], and steps between elements. */
void blas_vector(
    danaus_dtype dtype, int64_t m, int64_t n, const void *w, const void *x,
    int64_t x_step, void *y, int64_t y_step);

/* Threads that one call uses; does nothing where BLAS cannot be told. */
void blas_set_threads(int threads);

/* "OpenBLAS 0.3.21 ... SkylakeX", or as much of it as BLAS tells. */
void blas_describe(char *text, size_t size);

#endif
