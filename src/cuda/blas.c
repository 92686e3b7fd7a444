/* Products by cuBLAS, which is opened with the first device. The devices of a GPU share one
   handle, which one thread uses at a time. The workspace is scratch of a call, so calls neither
   allocate nor wait. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/blas.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/thread.h"
#include "math/pattern.h"

#include <string.h>

#define FUNCTIONS "cuda/blas.def"
#include "base/library.inc"

enum {
    LT = 0
#define X(name, symbol, arguments) +1
#include "cuda/blas_lt.def"
#undef X
};

/* Sizes of 64 bits came with 12. */
static const char *const files[] = {
    "libcublas.so.13",
    "libcublas.so.12",
    "libcublas.so",
    "/usr/local/cuda/lib64/libcublas.so.13",
    "/usr/local/cuda/lib64/libcublas.so.12",
    "/usr/local/cuda/lib64/libcublas.so",
    NULL,
};

/* From cublas_api.h and library_types.h. */
enum {
    R_32F = BLAS_R_32F,
    R_64F = 1,
    R_16F = 2,
    C_32F = 4,
    C_64F = 5,
    R_16BF = 14,

    COMPUTE_32F = 68,
    COMPUTE_64F = 70,
    COMPUTE_TF32 = 77,
    ALGORITHM_DEFAULT = -1,
    MATH_SUMS_OF_32_BITS = 16, /* also where parts of a sum meet */

    ALLOC_FAILED = 3,
    ARCH_MISMATCH = 8
};

/* What NVIDIA recommends. */
#define WORKSPACE_90 ((size_t)32 << 20)
#define WORKSPACE    ((size_t)4 << 20)

danaus_status dn_blas_status(int error, const char *call)
{
    danaus_status status = error == ALLOC_FAILED ? DANAUS_ERR_MEMORY
                           : error == ARCH_MISMATCH || error == BLAS_NOT_SUPPORTED
                               ? DANAUS_ERR_UNSUPPORTED
                               : DANAUS_ERR_DEVICE;
    int length = (int)strcspn(call, "(");
    return dn_fail(status, "cuBLAS %.*s: error %d", length, call, error);
}

/* The functions of cublasLt, if all of them are there. */
static blas_lt lt;

static danaus_status start(void)
{
    void (*found[LT])(void);
    int there = 0;
    memcpy(found, &opened.LtDescribe, sizeof found);
    for (int i = 0; i < LT; i++)
        there += found[i] != NULL;
    if (there == LT)
        memcpy(&lt, found, sizeof lt);
    return DANAUS_OK;
}

late_library dn_cuda_cublas = {
    .files = files,
    .symbols = names,
    .count = SYMBOLS,
    .optional = LT,
    .table = &opened,
    .start = start,
    .advice = "install cuBLAS 12 or later, from the CUDA toolkit or with pip install "
              "nvidia-cublas, and name its folder in DANAUS_CUBLAS",
    .name = "cublas",
    .variable = "DANAUS_CUBLAS",
};

static danaus_status get_blas(const functions **b)
{
    TRY(dn_library_open(&dn_cuda_cublas));
    *b = &opened;
    return DANAUS_OK;
}

danaus_status dn_cuda_find_blas(int *epilogues)
{
    const functions *b;
    TRY(get_blas(&b));
    *epilogues = lt.LtMultiply != NULL;
    return DANAUS_OK;
}

/* ---- the handle ---- */

size_t dn_cuda_workspace_bytes(const cuda_device *d)
{
    return d->gpu.facts.arch == 90 ? WORKSPACE_90 : WORKSPACE;
}

static danaus_status make_handle(cuda_blas *own, const functions *b)
{
    BLAS_TRY(b, Create(&own->handle));
    BLAS_TRY(b, SetMathMode(own->handle, MATH_SUMS_OF_32_BITS));
    return lt.LtMultiply ? dn_blas_open_choices(own) : DANAUS_OK;
}

void dn_cuda_close_blas(cuda_gpu *g)
{
    const functions *b;
    if (g->blas.handle && get_blas(&b) == DANAUS_OK)
        b->Destroy(g->blas.handle);
    dn_free(g->blas.choices);
    g->blas = (cuda_blas){ 0 };
}

/* The lock is held. */
static danaus_status open_locked(cuda_device *d, const functions *b)
{
    int capturing = 0;
    cuda_blas *own = &d->shared->blas;
    if (own->handle)
        return DANAUS_OK;
    CUDA_TRY(d->driver, StreamIsCapturing(d->stream, &capturing));
    if (capturing)
        return dn_fail(
            DANAUS_ERR_MEMORY,
            "cuBLAS cannot be started while a graph is captured: run this product once "
            "before");
    int mode = dn_cuda_set_capture_mode(d->driver, CAPTURE_RELAXED);
    danaus_status status = make_handle(own, b);
    if (status != DANAUS_OK)
        dn_cuda_close_blas(d->shared);
    dn_cuda_set_capture_mode(d->driver, mode);
    return status;
}

/* The handle on the stream of the device. Setting the stream takes the workspace away. */
static danaus_status ready(cuda_device *d, const functions *b)
{
    cuda_blas *own = &d->shared->blas;
    TRY(open_locked(d, b));
    if (own->stream == d->stream && own->workspace == d->workspace)
        return DANAUS_OK;
    own->workspace = NULL;
    BLAS_TRY(b, SetStream(own->handle, d->stream));
    BLAS_TRY(b, SetWorkspace(own->handle, d->workspace, dn_cuda_workspace_bytes(d)));
    own->stream = d->stream;
    own->workspace = d->workspace;
    return DANAUS_OK;
}

/* ---- products ---- */

static blas_numbers numbers_of(danaus_dtype dtype, int tf32)
{
    static const float one_32[2] = { 1, 0 }, zero_32[2] = { 0, 0 };
    static const double one_64[2] = { 1, 0 }, zero_64[2] = { 0, 0 };
    static const int types[] = {
        [DANAUS_F32] = R_32F, [DANAUS_F16] = R_16F, [DANAUS_BF16] = R_16BF,
        [DANAUS_F64] = R_64F, [DANAUS_C64] = C_32F, [DANAUS_C128] = C_64F,
    };
    if (dtype == DANAUS_F64 || dtype == DANAUS_C128)
        return (blas_numbers){ types[dtype], COMPUTE_64F, one_64, zero_64 };
    return (blas_numbers){ types[dtype], tf32 ? COMPUTE_TF32 : COMPUTE_32F, one_32,
                           zero_32 };
}

static gemm gemm_of(
    const problem *p, const gpu_products *q, int64_t batch, const void *w,
    const void *x, void *y)
{
    int turned = q->w_turned ? BLAS_TRANSPOSED : BLAS_PLAIN;
    int other = q->w_turned ? BLAS_PLAIN : BLAS_TRANSPOSED;
    gemm g = { .depth = q->depth,
               .count = q->count[0],
               .c = y,
               .to_c = q->y,
               .numbers = numbers_of(p->dtype, q->tf32) };
    if (p->layout == DANAUS_BATCH_LAST) {
        g.transpose_b = turned;
        g.m = batch, g.n = q->rows;
        g.a = x, g.to_a = q->x;
        g.b = w, g.to_b = q->w;
    } else {
        g.transpose_a = other;
        g.m = q->rows, g.n = batch;
        g.a = w, g.to_a = q->w;
        g.b = x, g.to_b = q->x;
    }
    return g;
}

static danaus_status multiply(const cuda_device *d, const functions *b, const gemm *g)
{
    const blas_numbers *t = &g->numbers;
    const void *beta = g->residual ? t->one : t->zero;
    if (g->count == 1)
        BLAS_TRY(
            b, Gemm(
                   d->shared->blas.handle, g->transpose_a, g->transpose_b, g->m, g->n,
                   g->depth, t->one, g->a, t->type, g->to_a.line, g->b, t->type,
                   g->to_b.line, beta, g->c, t->type, g->to_c.line, t->compute,
                   ALGORITHM_DEFAULT));
    else
        BLAS_TRY(
            b, GemmBatched(
                   d->shared->blas.handle, g->transpose_a, g->transpose_b, g->m, g->n,
                   g->depth, t->one, g->a, t->type, g->to_a.line, g->to_a.step[0], g->b,
                   t->type, g->to_b.line, g->to_b.step[0], beta, g->c, t->type,
                   g->to_c.line, g->to_c.step[0], g->count, t->compute,
                   ALGORITHM_DEFAULT));
    return DANAUS_OK;
}

/* True if the library can apply the ending within the one call that computes the products. */
static int may_end(
    const problem *p, const gpu_products *q, int64_t batch, const gpu_ending *e)
{
    return lt.LtMultiply && e && (e->rounded_bias || !e->bias) &&
           (e->bias || e->activation || e->residual) && q->count[1] == 1 &&
           dn_gpu_library_ends(p, batch, e->bias != NULL, e->activation);
}

/* To y, which other calls add to. */
static danaus_status copy_residual(
    cuda_device *d, const problem *p, const gpu_call *call)
{
    int64_t bytes = dn_pattern_rows(p->pattern) * call->batch * dn_size_of(p->dtype);
    CUDA_TRY(
        d->driver,
        MemcpyAsync(
            (cu_pointer)(uintptr_t)call->y, (cu_pointer)(uintptr_t)call->residual,
            (size_t)bytes, d->stream));
    return DANAUS_OK;
}

static danaus_status make_products(
    cuda_device *d, const functions *b, const ks_step *step, const void *packed,
    const gpu_call *call, const gpu_ending *ending, int *ended)
{
    const problem *p = &step->p;
    gpu_products q;
    TRY(ready(d, b));
    dn_gpu_family(step->kernel)->products(step->kernel, p, call, &q);
    int64_t size = dn_size_of(p->dtype);
    gemm g = gemm_of(p, &q, call->batch, packed, call->x, (void *)(uintptr_t)call->y);
    g.residual = call->residual;
    if (may_end(p, &q, call->batch, ending))
        TRY(dn_blas_multiply_and_end(d, &lt, &g, ending, ended));
    if (!*ended && g.residual && g.residual != g.c)
        TRY(copy_residual(d, p, call));
    for (int64_t i = 0; i < q.count[1] && !*ended; i++) {
        TRY(multiply(d, b, &g));
        g.a += g.to_a.step[1] * size;
        g.b += g.to_b.step[1] * size;
        g.c += g.to_c.step[1] * size;
    }
    return DANAUS_OK;
}

/* As many endings as a plan's hints let expect. Where there is nothing to end, or no
   library for it, there is nothing to choose. */
static danaus_status choose_ending(cuda_device *d, const ks_step *step)
{
    const problem *p = &step->p;
    const void *somewhere = (const void *)(uintptr_t)DANAUS_SCRATCH_ALIGN;
    gpu_call call = { .batch = p->batch };
    gpu_ending ending = { .activation = p->activation,
                          .residual = p->residual ? somewhere : NULL };
    gpu_products q;
    dn_gpu_family(step->kernel)->products(step->kernel, p, &call, &q);
    gemm g = gemm_of(p, &q, p->batch, NULL, NULL, NULL);
    g.residual = ending.residual;
    if (p->bias)
        ending.bias = ending.rounded_bias = somewhere;
    return may_end(p, &q, p->batch, &ending)
               ? dn_blas_choose_ending(d, &lt, &g, &ending)
               : DANAUS_OK;
}

danaus_status dn_cuda_open_products(gpu_device *dev, const ks_step *step)
{
    cuda_device *d = (cuda_device *)dev;
    const functions *b;
    TRY(get_blas(&b));
    dn_lock(d->shared->base.lock);
    danaus_status status = open_locked(d, b);
    if (status == DANAUS_OK && dn_gpu_family(step->kernel)->products)
        status = choose_ending(d, step);
    dn_unlock(d->shared->base.lock);
    return status;
}

danaus_status dn_cuda_products(
    gpu_device *dev, const ks_step *step, const void *packed, const gpu_call *call,
    const gpu_ending *ending, int *ended)
{
    cuda_device *d = (cuda_device *)dev;
    const functions *b;
    TRY(get_blas(&b));
    dn_lock(d->shared->base.lock);
    danaus_status status = make_products(d, b, step, packed, call, ending, ended);
    dn_unlock(d->shared->base.lock);
    return status;
}

/* What weight gradients are made of: so many products, and elements from one to the next
   of x, of dy and of the result. */
typedef struct axis {
    int64_t count, x, dy, w;
} axis;

static danaus_status make_weight_products(
    cuda_device *d, const functions *b, const problem *p, int64_t batch, gpu_slabs s,
    const void *x, const void *dy, void *to, int add)
{
    danaus_pattern q = p->pattern;
    int last = p->layout == DANAUS_BATCH_LAST;
    int64_t cols = q.a * q.c, rows = q.a * q.b; /* of d = 1 */
    axis axes[] = {
        { q.a, last ? q.c * q.d * batch : q.c, last ? q.b * q.d * batch : q.b,
          q.d * q.b * q.c },
        { q.d, batch, batch, q.b * q.c },
        { s.count, last ? s.width : s.width * cols, last ? s.width : s.width * rows,
          dn_pattern_weights(q) },
    };
    for (int i = 1; i < 3; i++)
        if (axes[i].count > axes[0].count) {
            axis longest = axes[i];
            axes[i] = axes[0];
            axes[0] = longest;
        }
    int64_t size = dn_size_of(p->dtype);
    int64_t cell = dn_size_of(dn_sum_type(p->dtype));
    blas_numbers t = numbers_of(p->dtype, p->math == DANAUS_MATH_TF32);
    int sums = numbers_of(dn_sum_type(p->dtype), 0).type;
    TRY(ready(d, b));
    for (int64_t i = 0; i < axes[1].count * axes[2].count; i++) {
        int64_t u = i % axes[1].count, v = i / axes[1].count;
        BLAS_TRY(
            b, GemmBatched(
                   d->shared->blas.handle, last ? BLAS_TRANSPOSED : BLAS_PLAIN,
                   last ? BLAS_PLAIN : BLAS_TRANSPOSED, q.c, q.b, s.width, t.one,
                   (const char *)x + (u * axes[1].x + v * axes[2].x) * size, t.type,
                   last ? q.d * batch : cols, axes[0].x,
                   (const char *)dy + (u * axes[1].dy + v * axes[2].dy) * size, t.type,
                   last ? q.d * batch : rows, axes[0].dy, add ? t.one : t.zero,
                   (char *)to + (u * axes[1].w + v * axes[2].w) * cell, sums, q.c,
                   axes[0].w, axes[0].count, t.compute, ALGORITHM_DEFAULT));
    }
    return DANAUS_OK;
}

danaus_status dn_cuda_weight_products(
    gpu_device *dev, const problem *p, int64_t batch, gpu_slabs s, const void *x,
    const void *dy, void *to, int add)
{
    cuda_device *d = (cuda_device *)dev;
    const functions *b;
    TRY(get_blas(&b));
    dn_lock(d->shared->base.lock);
    danaus_status status = make_weight_products(d, b, p, batch, s, x, dy, to, add);
    dn_unlock(d->shared->base.lock);
    return status;
}
