/* A stand-in for libcublas.so.13: handles, and products by products.c. Every function can be
   told to fail. */
// SPDX-License-Identifier: Apache-2.0
#include "products.h"

#include "base/dtype.h"

#include <stdlib.h>

#define BEGIN FAIL_OR_GO_ON(products_fail)

/* ---- handles ---- */

EXPORT int cublasCreate_v2(context **made);
int cublasCreate_v2(context **made)
{
    BEGIN;
    *made = calloc(1, sizeof **made);
    if (*made)
        (*made)->place = products_place();
    __atomic_add_fetch(&products_control()->handles, 1, __ATOMIC_SEQ_CST);
    return *made ? 0 : 3;
}

/* What fails here is gone too: nobody could do more about it. */
EXPORT int cublasDestroy_v2(context *c);
int cublasDestroy_v2(context *c)
{
    free(c);
    BEGIN;
    __atomic_sub_fetch(&products_control()->handles, 1, __ATOMIC_SEQ_CST);
    return 0;
}

EXPORT int cublasSetStream_v2(context *c, void *stream);
int cublasSetStream_v2(context *c, void *stream)
{
    BEGIN;
    *c = (context){ stream, NULL, c->place };
    return 0;
}

EXPORT int cublasSetWorkspace_v2(context *c, void *workspace, size_t bytes);
int cublasSetWorkspace_v2(context *c, void *workspace, size_t bytes)
{
    BEGIN;
    if (!workspace || (uintptr_t)workspace % 256 || !bytes)
        return 7;
    c->workspace = workspace;
    return 0;
}

EXPORT int cublasSetMathMode(context *c, int mode);
int cublasSetMathMode(context *c, int mode)
{
    BEGIN;
    (void)c;
    return mode == 16 ? 0 : 7;
}

/* ---- products ---- */

EXPORT int cublasGemmStridedBatchedEx_64(
    context *h, int ta, int tb, int64_t m, int64_t n, int64_t k, const void *alpha,
    const void *a, int a_type, int64_t lda, long long a_step, const void *b, int b_type,
    int64_t ldb, long long b_step, const void *beta, void *c, int c_type, int64_t ldc,
    long long c_step, int64_t count, int compute, int algorithm);

int cublasGemmStridedBatchedEx_64(
    context *h, int ta, int tb, int64_t m, int64_t n, int64_t k, const void *alpha,
    const void *a, int a_type, int64_t lda, long long a_step, const void *b, int b_type,
    int64_t ldb, long long b_step, const void *beta, void *c, int c_type, int64_t ldc,
    long long c_step, int64_t count, int compute, int algorithm)
{
    BEGIN;
    danaus_dtype type = products_type(a_type);
    int wide = type == DANAUS_F64 || type == DANAUS_C128;
    int computes = compute == (wide ? 70 : 68) || (type == DANAUS_F32 && compute == 77);
    double one = wide ? *(const double *)alpha : *(const float *)alpha;
    double zero = wide ? *(const double *)beta : *(const float *)beta;
    danaus_dtype to = products_type(c_type);
    if (b_type != a_type || (to != type && to != dn_sum_type(type)) ||
        algorithm != -1 || one != 1 || (zero != 0 && zero != 1) || !computes ||
        !h->workspace || h->place != products_place() || lda < (ta ? k : m) ||
        ldb < (tb ? n : k) || ldc < m)
        return 7;
    products p = { .type = type,
                   .to = to,
                   .add = zero,
                   .ta = ta,
                   .tb = tb,
                   .m = m,
                   .n = n,
                   .k = k,
                   .lda = lda,
                   .ldb = ldb,
                   .ldc = ldc,
                   .a_step = a_step,
                   .b_step = b_step,
                   .c_step = c_step,
                   .count = count,
                   .a = a,
                   .b = b,
                   .old = c,
                   .c = c,
                   .workspace = h->workspace };
    products_enqueue(h->stream, &p);
    return 0;
}

EXPORT int cublasGemmEx_64(
    context *h, int ta, int tb, int64_t m, int64_t n, int64_t k, const void *alpha,
    const void *a, int a_type, int64_t lda, const void *b, int b_type, int64_t ldb,
    const void *beta, void *c, int c_type, int64_t ldc, int compute, int algorithm);
int cublasGemmEx_64(
    context *h, int ta, int tb, int64_t m, int64_t n, int64_t k, const void *alpha,
    const void *a, int a_type, int64_t lda, const void *b, int b_type, int64_t ldb,
    const void *beta, void *c, int c_type, int64_t ldc, int compute, int algorithm)
{
    BEGIN;
    return cublasGemmStridedBatchedEx_64(
        h, ta, tb, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c,
        c_type, ldc, 0, 1, compute, algorithm);
}
