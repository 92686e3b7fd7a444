/* A stand-in for libcublas.so.13: products of matrices by plain loops over the emulated
   driver's memory, with sums in f64. Every function can be told to fail. */
// SPDX-License-Identifier: Apache-2.0
#include "emulator.h"

#include "base/dtype.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* By their numbers in cudaDataType. */
static const danaus_dtype types[] = {
    [0] = DANAUS_F32, [1] = DANAUS_F64,  [2] = DANAUS_F16,
    [4] = DANAUS_C64, [5] = DANAUS_C128, [14] = DANAUS_BF16,
};

typedef struct context {
    void *stream, *workspace;
    void *place; /* the driver's context that it was made in */
} context;

/* ---- the driver ---- */

static void *find(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = driver ? dlsym(driver, name) : NULL;
    if (!found)
        abort();
    return found;
}

static int fails(const char *function)
{
    int (*ask)(const char *);
    void *found = find("emulator_fails");
    memcpy(&ask, &found, sizeof ask);
    return ask(function);
}

static void reach_memory(int access)
{
    void (*reach)(int);
    void *found = find("emulator_memory");
    memcpy(&reach, &found, sizeof reach);
    reach(access);
}

static void enqueue(
    void *stream, void (*run)(const void *), const void *data, size_t bytes)
{
    void (*ask)(void *, void (*)(const void *), const void *, size_t);
    void *found = find("emulator_enqueue");
    memcpy(&ask, &found, sizeof ask);
    ask(stream, run, data, bytes);
}

static void touch(const void *memory, int writes)
{
    void (*ask)(const void *, int);
    void *found = find("emulator_touch");
    memcpy(&ask, &found, sizeof ask);
    ask(memory, writes);
}

static void *place_now(void)
{
    int (*ask)(void **);
    void *found = find("cuCtxGetCurrent"), *place = NULL;
    memcpy(&ask, &found, sizeof ask);
    return ask(&place) ? NULL : place;
}

static emulator_control *control(void) { return find("emulator_control_block"); }

#define BEGIN FAIL_OR_GO_ON(fails)

/* ---- handles ---- */

EXPORT int cublasCreate_v2(context **made);
int cublasCreate_v2(context **made)
{
    BEGIN;
    *made = calloc(1, sizeof **made);
    if (*made)
        (*made)->place = place_now();
    __atomic_add_fetch(&control()->handles, 1, __ATOMIC_SEQ_CST);
    return *made ? 0 : 3;
}

/* What fails here is gone too: nobody could do more about it. */
EXPORT int cublasDestroy_v2(context *c);
int cublasDestroy_v2(context *c)
{
    free(c);
    BEGIN;
    __atomic_sub_fetch(&control()->handles, 1, __ATOMIC_SEQ_CST);
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

/* c = a b, added to c if `add`; ta, tb: of the transposed of a, of b; `count` of them. */
typedef struct products {
    danaus_dtype type, to;
    double add;
    int ta, tb;
    int64_t m, n, k, lda, ldb, ldc, a_step, b_step, c_step, count;
    const char *a, *b;
    char *c;
    void *workspace;
} products;

static void multiply(const products *p, const char *a, const char *b, char *c)
{
    for (int64_t column = 0; column < p->n; column++)
        for (int64_t row = 0; row < p->m; row++) {
            double sum[2] = { 0, 0 }, u[2], v[2];
            if (p->add != 0)
                dn_load(p->to, c, column * p->ldc + row, sum);
            for (int64_t i = 0; i < p->k; i++) {
                dn_load(p->type, a, p->ta ? row * p->lda + i : i * p->lda + row, u);
                dn_load(
                    p->type, b, p->tb ? i * p->ldb + column : column * p->ldb + i, v);
                sum[0] += u[0] * v[0] - u[1] * v[1];
                sum[1] += u[0] * v[1] + u[1] * v[0];
            }
            dn_store(p->to, c, column * p->ldc + row, sum);
        }
}

static void run_products(const void *data)
{
    const products *p = data;
    int64_t size = (int64_t)danaus_dtype_size(p->type);
    int64_t cell = (int64_t)danaus_dtype_size(p->to);
    reach_memory(1);
    touch(p->a, 0);
    touch(p->b, 0);
    touch(p->c, 1);
    touch(p->workspace, 1);
    for (int64_t i = 0; i < p->count; i++)
        multiply(
            p, p->a + i * p->a_step * size, p->b + i * p->b_step * size,
            p->c + i * p->c_step * cell);
    control()->products++;
    reach_memory(0);
}

int cublasGemmStridedBatchedEx_64(
    context *h, int ta, int tb, int64_t m, int64_t n, int64_t k, const void *alpha,
    const void *a, int a_type, int64_t lda, long long a_step, const void *b, int b_type,
    int64_t ldb, long long b_step, const void *beta, void *c, int c_type, int64_t ldc,
    long long c_step, int64_t count, int compute, int algorithm)
{
    BEGIN;
    danaus_dtype type = types[a_type];
    int wide = type == DANAUS_F64 || type == DANAUS_C128;
    int computes = compute == (wide ? 70 : 68) || (type == DANAUS_F32 && compute == 77);
    double one = wide ? *(const double *)alpha : *(const float *)alpha;
    double zero = wide ? *(const double *)beta : *(const float *)beta;
    danaus_dtype to = types[c_type];
    if (b_type != a_type || (to != type && to != dn_sum_type(type)) ||
        algorithm != -1 || one != 1 || (zero != 0 && zero != 1) || !computes ||
        !h->workspace || h->place != place_now() || lda < (ta ? k : m) ||
        ldb < (tb ? n : k) || ldc < m)
        return 7;
    products p = { type, to,     zero,   ta,     tb,    m, n, k, lda,         ldb,
                   ldc,  a_step, b_step, c_step, count, a, b, c, h->workspace };
    enqueue(h->stream, run_products, &p, sizeof p);
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
