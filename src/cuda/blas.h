/* cuBLAS, as blas.c opens it, for products that end with a bias and an activation
   (epilogue.c). */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CUDA_BLAS_H
#define DN_CUDA_BLAS_H

#include "cuda/cuda.h"

/* From cublasLt.h: an algorithm, and what the heuristic says about it. */
typedef struct lt_algorithm {
    uint64_t data[8];
} lt_algorithm;

typedef struct lt_choice {
    lt_algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} lt_choice;

/* The functions of cublasLt, which cuBLAS brings along. */
typedef struct blas_lt {
#define X(name, symbol, arguments) int(*name) arguments;
#include "cuda/blas_lt.def"
#undef X
} blas_lt;

/* From library_types.h and cublas_api.h. */
enum {
    BLAS_PLAIN = 0,
    BLAS_TRANSPOSED = 1,
    BLAS_R_32F = 0,
    BLAS_INVALID_VALUE = 7,
    BLAS_NOT_SUPPORTED = 15
};

danaus_status dn_blas_status(int error, const char *call);

#define BLAS_TRY(b, call)                                                              \
    do {                                                                               \
        int blas_error_ = (b)->call;                                                   \
        if (blas_error_)                                                               \
            return dn_blas_status(blas_error_, #call);                                 \
    } while (0)

/* cuBLAS' names for a type, of numbers and of sums, and one and zero of the latter. */
typedef struct blas_numbers {
    int type, compute;
    const void *one, *zero;
} blas_numbers;

/* cuBLAS counts by columns: c (m x n) = a b, `count` of them. Batch-first that is y = w x,
   its columns s; batch-last y^T = x^T w^T, its columns r. */
typedef struct gemm {
    int transpose_a, transpose_b;
    int64_t m, n, depth, count;
    const char *a, *b;
    const char *residual; /* that is added to c, and lies like it; or c; NULL: none */
    char *c;
    gpu_lines to_a, to_b, to_c;
    blas_numbers numbers;
} gemm;

/* Makes products with what follows them, if the library has a kernel for that: *made. Which
   one it is was chosen when planning, or is now. */
danaus_status dn_blas_multiply_and_end(
    cuda_device *d, const blas_lt *lt, const gemm *g, const gpu_ending *ending,
    int *made);

/* Chooses for operands that are aligned as allocations are. */
danaus_status dn_blas_choose_ending(
    cuda_device *d, const blas_lt *lt, const gemm *g, const gpu_ending *ending);

/* What was chosen, for a GPU. */
danaus_status dn_blas_open_choices(cuda_blas *own);

#endif
