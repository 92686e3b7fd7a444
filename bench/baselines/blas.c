/* BLAS for the four element types, row-major. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/baselines/blas.h"

#include <cblas.h>
#include <dlfcn.h>
#include <stdio.h>

static const double one[2] = { 1, 0 }, zero[2] = { 0, 0 };
static const float one_f[2] = { 1, 0 }, zero_f[2] = { 0, 0 };

void blas_multiply(
    danaus_dtype dtype, int turned, int64_t m, int64_t n, int64_t k, const void *x,
    int64_t ldx, const void *y, int64_t ldy, void *z, int64_t ldz)
{
    CBLAS_TRANSPOSE turn = turned ? CblasTrans : CblasNoTrans;
    int M = (int)m, N = (int)n, K = (int)k, X = (int)ldx, Y = (int)ldy, Z = (int)ldz;
    switch (dtype) {
    case DANAUS_F32:
        cblas_sgemm(CblasRowMajor, CblasNoTrans, turn, M, N, K, 1, x, X, y, Y, 0, z, Z);
        break;
    case DANAUS_F64:
        cblas_dgemm(CblasRowMajor, CblasNoTrans, turn, M, N, K, 1, x, X, y, Y, 0, z, Z);
        break;
    case DANAUS_C64:
        cblas_cgemm(
            CblasRowMajor, CblasNoTrans, turn, M, N, K, one_f, x, X, y, Y, zero_f, z,
            Z);
        break;
    default:
        cblas_zgemm(
            CblasRowMajor, CblasNoTrans, turn, M, N, K, one, x, X, y, Y, zero, z, Z);
    }
}

void blas_vector(
    danaus_dtype dtype, int64_t m, int64_t n, const void *w, const void *x,
    int64_t x_step, void *y, int64_t y_step)
{
    int M = (int)m, N = (int)n, X = (int)x_step, Y = (int)y_step;
    switch (dtype) {
    case DANAUS_F32:
        cblas_sgemv(CblasRowMajor, CblasNoTrans, M, N, 1, w, N, x, X, 0, y, Y);
        break;
    case DANAUS_F64:
        cblas_dgemv(CblasRowMajor, CblasNoTrans, M, N, 1, w, N, x, X, 0, y, Y);
        break;
    case DANAUS_C64:
        cblas_cgemv(CblasRowMajor, CblasNoTrans, M, N, one_f, w, N, x, X, zero_f, y, Y);
        break;
    default:
        cblas_zgemv(CblasRowMajor, CblasNoTrans, M, N, one, w, N, x, X, zero, y, Y);
    }
}

void blas_set_threads(int threads)
{
    static void (*set)(int);
    if (!set)
        *(void **)&set = dlsym(RTLD_DEFAULT, "openblas_set_num_threads");
    if (set)
        set(threads);
}

void blas_describe(char *text, size_t size)
{
    char *(*config)(void), *(*core)(void);
    *(void **)&config = dlsym(RTLD_DEFAULT, "openblas_get_config");
    *(void **)&core = dlsym(RTLD_DEFAULT, "openblas_get_corename");
    snprintf(
        text, size, "%s, core %s", config ? config() : "BLAS",
        core ? core() : "unknown");
}
