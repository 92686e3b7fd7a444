/* Kronecker-sparse matrices: patterns, chains of factors, and plans that
   multiply by them.

   A factor of pattern (a, b, c, d) has the support  I_a (x) 1_{b x c} (x) I_d:
   it is (a b d) x (a c d), and entry (r, k) of block (i, j) multiplies
       x[i c d + k d + j]   into   y[i b d + r d + j],
   0 <= i < a, 0 <= r < b, 0 <= k < c, 0 <= j < d. Its weights are a row-major
   array w[a][b][c][d], in every file and call.

   A chain is W = K_1 ... K_L, M x N. Factor 0 of every list here is K_1, the
   leftmost, which is applied last. Neighbours are composable when
   a1 c1 d1 = a2 b2 d2; that is all that a product needs.

   Source: Gonon, Zheng, Carrivain, Le, Fast Inference with Kronecker-Sparse
   Matrices, ICML 2025 (arXiv 2405.15013), section 2. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DANAUS_KS_H
#define DANAUS_KS_H

#include "danaus/base.h"
#include "danaus/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Factors in one chain, at most. */
#define DANAUS_MAX_FACTORS 64

typedef struct danaus_pattern {
    int64_t a, b, c, d; /* each at least 1 */
} danaus_pattern;

typedef enum danaus_layout {
    DANAUS_BATCH_FIRST = 0, /* x[batch][N], y[batch][M] */
    DANAUS_BATCH_LAST       /* x[N][batch], y[M][batch] */
} danaus_layout;

/* Reads "a,b,c,d a,b,c,d ..." (spaces between factors) into patterns[0 ..
   *count). A chain of more than `capacity` factors is refused. */
DANAUS_API danaus_status danaus_patterns_parse(
    const char *text, danaus_pattern *patterns, int capacity, int *count);

/* OK when neighbours are composable and every size fits in 63 bits; the
   sentence names the offending factor otherwise. */
DANAUS_API danaus_status
danaus_patterns_check(const danaus_pattern *patterns, int count);

/* ---- chains: patterns and weights, on the host ---- */

typedef struct danaus_chain danaus_chain;

/* Makes a chain with all weights zero and no bias. */
DANAUS_API danaus_status danaus_chain_create(
    const danaus_pattern *patterns, int count, danaus_dtype dtype,
    danaus_chain **chain);
DANAUS_API void danaus_chain_destroy(danaus_chain *chain); /* NULL is fine */

DANAUS_API int danaus_chain_count(const danaus_chain *chain);
DANAUS_API danaus_dtype danaus_chain_dtype(const danaus_chain *chain);
DANAUS_API int64_t danaus_chain_rows(const danaus_chain *chain);       /* M */
DANAUS_API int64_t danaus_chain_cols(const danaus_chain *chain);       /* N */
DANAUS_API int64_t danaus_chain_parameters(const danaus_chain *chain); /* sum abcd */
DANAUS_API danaus_pattern danaus_chain_pattern(const danaus_chain *chain, int factor);

/* The weights w[a][b][c][d] of a factor, to be read or filled; NULL for a
   factor that does not exist. The memory belongs to the chain. */
DANAUS_API void *danaus_chain_weights(danaus_chain *chain, int factor);
DANAUS_API const void *danaus_chain_weights_const(
    const danaus_chain *chain, int factor);

/* The bias: M elements of the chain's type, added to W x. NULL: none. */
DANAUS_API const void *danaus_chain_bias(const danaus_chain *chain);
DANAUS_API danaus_status danaus_chain_set_bias(danaus_chain *chain, const void *bias);

/* A chain file is safetensors with tensors factor.0, factor.1, ... of shape
   [a, b, c, d] and, if there is one, bias of shape [M]. Saving replaces the
   file in one step, with the permissions of the old one: a failure leaves that. */
DANAUS_API danaus_status danaus_chain_load(const char *path, danaus_chain **chain);
DANAUS_API danaus_status danaus_chain_save(const danaus_chain *chain, const char *path);

/* Writes W (without bias) to dense[M][N], of the chain's type: beyond its range numbers are
   infinite, and DANAUS_ERR_ARGUMENT where all fall below it and would be 0. */
DANAUS_API danaus_status danaus_chain_to_dense(const danaus_chain *chain, void *dense);

/* ---- plans: kernels chosen for patterns ---- */

typedef struct danaus_ks_plan danaus_ks_plan;
typedef struct danaus_ks_weights danaus_ks_weights;

/* What is applied to every number v of W x after scale and bias, in the type of sums,
   before it is added to a residual or stored. Phi is the distribution function of the normal
   distribution, so that v Phi(v) = v (1 + erf(v / sqrt(2))) / 2; PyTorch's names are behind. GPUs may have
   rounded v to the type of y. */
typedef enum danaus_activation {
    DANAUS_ACTIVATION_NONE = 0,
    DANAUS_RELU,     /* max(v, 0): ReLU() */
    DANAUS_GELU,     /* v Phi(v), exact: GELU() */
    DANAUS_SILU,     /* v / (1 + exp(-v)): SiLU() */
    DANAUS_GELU_TANH /* v (1 + tanh(sqrt(2 / pi) (v + 0.044715 v^3))) / 2:
                        GELU(approximate="tanh") */
} danaus_activation;

/* All-zero is the default of every field. */
typedef struct danaus_ks_desc {
    danaus_layout layout;
    danaus_dtype dtype; /* of x, y and bias; 0: f32 */
    danaus_math math;
    danaus_effort effort;
    int adjoint;       /* nonzero: y = W^H x (transposed, conjugate if complex) */
    int gradients;     /* nonzero: danaus_ks_gradient() will be called */
    int fresh_weights; /* nonzero: they change before each run; packing counts */
    int keep_factors;  /* nonzero: never merge neighbouring factors */
    int64_t batch;     /* tune for this batch, 0: large; any batch may be run */
    danaus_activation activation; /* of execute; real types, without gradients */
    int bias; /* nonzero: expect weights with a bias; any may have one, or none */
    /* y = scale W x + bias; 0: 1. Weights of one factor are packed times `scale`, rounded
       once, so that no product takes longer. Plans without gradients. */
    double scale;
    int residual; /* nonzero: danaus_ks_execute_residual() will be called, and it alone */
    /* Nonzero: y = activation(u) v, u the first half of the rows of scale W x + bias and v the
       second, as layers with gates have it: y has half as many rows. Of what no kernel makes
       in one launch DANAUS_ERR_UNSUPPORTED tells: there are such kernels for GPUs with tensor cores,
       16 bits, batch-first and first factors of an even a. No gradients, adjoints, residuals. */
    int gated;
    uint32_t reserved[8];
} danaus_ks_desc;

/* desc may be NULL. A plan is immutable: share it between threads and between
   devices of the same name. Destroy plans and weights before the device. */
DANAUS_API danaus_status danaus_ks_plan_create(
    danaus_device *device, const danaus_pattern *patterns, int count,
    const danaus_ks_desc *desc, danaus_ks_plan **plan);
DANAUS_API void danaus_ks_plan_destroy(danaus_ks_plan *plan); /* NULL is fine */

/* Writes what will run, a line for each step, as a string of at most `size`
   bytes; returns the length that the whole text has. */
DANAUS_API size_t
danaus_ks_plan_describe(const danaus_ks_plan *plan, char *text, size_t size);

/* Seconds that a product of the plan's batch is expected to take: what its steps were chosen
   by, tuning table, cost model or, with DANAUS_MEASURE, measurement. The cost model's are
   rough: they are for comparing plans of a device. */
DANAUS_API double danaus_ks_plan_seconds(const danaus_ks_plan *plan);

/* Packs a chain for a plan with the same patterns. The chain's type may differ
   from the plan's when both are real or both are complex. A bias is added by
   plans that are not adjoint. The chain is copied: it may change or go. Without a chain
   (NULL) weights are zero, there is no bias, and everything that
   danaus_ks_weights_update_from() needs is made ready: memory, kernels. */
DANAUS_API danaus_status danaus_ks_weights_create(
    const danaus_ks_plan *plan, danaus_device *device, const danaus_chain *chain,
    danaus_ks_weights **weights);

/* Packs again, after the chain's weights or bias have changed. No product with
   these weights may run meanwhile. */
DANAUS_API danaus_status danaus_ks_weights_update(
    danaus_ks_weights *weights, danaus_device *device, const danaus_chain *chain);

/* Packs again, from device memory: w[l] is factor l's array [a][b][c][d], aligned to an
   element, all of the type `dtype`, which may differ from the plan's when both are real or
   both are complex; bias has M elements of it. Numbers are rounded once, as those of a chain
   are. Factors whose entry is NULL stay as they are, all of them if w is NULL; so does a
   bias that is NULL. Factors that the plan has merged (danaus_ks_plan_describe() says
   which) are given all or none: the error is DANAUS_ERR_ARGUMENT, and nothing changes.

   On a GPU the work is enqueued on the device's stream. The call waits for nothing,
   allocates nothing and copies nothing from the host, so it can be captured in a graph that
   reads the same arrays again each time; but for weights made from a chain the first such
   call makes ready what it needs, and is refused while a graph is captured. The arrays must
   stay until the work is done. Products on the same stream come before or after; on other
   streams none with these weights may run meanwhile. A CPU's work is done on return. */
DANAUS_API danaus_status danaus_ks_weights_update_from(
    danaus_ks_weights *weights, danaus_device *device, danaus_dtype dtype,
    const void *const *w, const void *bias);
DANAUS_API void danaus_ks_weights_destroy(danaus_ks_weights *weights);

/* Packed weights in memory of the caller's: of the device's, of danaus_ks_weights_bytes(),
   aligned to 64 bytes on a CPU and to DANAUS_SCRATCH_ALIGN on a GPU. One object, which holds no numbers,
   serves any number of such blocks, one after the other: it is bound to one in no time,
   and packs into it, or runs with what an object for the same plan has packed there. Calls
   that are in a stream already stay with the block that was bound when they were made.
   The caller orders what packs into a block with what reads it, and keeps it until that is
   done, and as long as graphs that were captured with it.

   Plans without gradients that agree in device, patterns, type, layout, math, adjoint, scale
   and in what danaus_ks_plan_describe() says pack alike, whatever their batches: what one has
   packed, objects of the other run with. */
DANAUS_API danaus_status
danaus_ks_weights_bytes(const danaus_ks_plan *plan, size_t *bytes);

/* Weights that have no memory until they are bound, ready for
   danaus_ks_weights_update_from(). What they need for that, maps and room for products of
   merged factors, is theirs. */
DANAUS_API danaus_status danaus_ks_weights_create_unbound(
    const danaus_ks_plan *plan, danaus_device *device, danaus_ks_weights **weights);

/* has_bias: whether a bias was packed into this memory; packing one says so too. Numbers
   are as they lie there: before the first run they are all packed. Only for weights that
   were created unbound; no other call with them may be going on. */
DANAUS_API danaus_status
danaus_ks_weights_bind(danaus_ks_weights *weights, void *memory, int has_bias);

/* y = activation(scale W x + bias) for `batch` columns, batch >= 0. x and y are device memory,
   do not overlap and need no alignment beyond their element's. The first call
   for a batch size may grow the device's scratch; later ones allocate nothing.
   The result has the same bits for any number of threads. */
DANAUS_API danaus_status danaus_ks_execute(
    const danaus_ks_plan *plan, danaus_device *device, const danaus_ks_weights *weights,
    int64_t batch, const void *x, void *y);

/* The same of plans made with desc.residual:

       y = residual + activation(scale W x + bias),

   as layers of transformers end. The residual is device memory and lies like y, of its
   type and layout. It is y itself, which is then added to, or does not overlap it
   (DANAUS_ERR_ARGUMENT); it may be x where W is square. The sum is made in the type of sums;
   GPUs may have rounded what is added to the type of y before. Its gradient is dy. */
DANAUS_API danaus_status danaus_ks_execute_residual(
    const danaus_ks_plan *plan, danaus_device *device, const danaus_ks_weights *weights,
    int64_t batch, const void *x, const void *residual, void *y);

/* Gradients of a loss that reached y as dy: members that are NULL are skipped. The others
   are overwritten, not added to, and overlap neither the inputs nor each other. dw and
   dbias have the type that sums have, f32 for f32, f16 and bf16, else the plan's own; or,
   if `rounded`, always the plan's: sums are then rounded once, as networks want them whose
   weights are of 16 bits. For complex types dx = W^H dy and dw = dy x^H, as in PyTorch. */
typedef struct danaus_ks_gradients {
    void *dx;        /* like x, of the plan's type */
    void *const *dw; /* one array [a][b][c][d] a factor; entries may be NULL */
    void *dbias;     /* M elements; must be NULL for an adjoint plan */
    int rounded;
    void *reserved[4];
} danaus_ks_gradients;

/* Needs a plan made with desc.gradients. Deterministic like execute, wherever x and dy
   lie. The derivative of an activation is the caller's: training keeps v = W x + bias of
   a plan without one, and passes activation'(v) times the gradient of its result as dy. */
DANAUS_API danaus_status danaus_ks_gradient(
    const danaus_ks_plan *plan, danaus_device *device, const danaus_ks_weights *weights,
    int64_t batch, const void *x, const void *dy, const danaus_ks_gradients *gradients);

/* Bytes of scratch that execute and gradient of so many columns need on this device, with
   the threads that it has now: lent so much, or more, they work. Gradients of which
   some are NULL may need less; 0 for a plan without them. Either place may be NULL. */
DANAUS_API danaus_status danaus_ks_scratch_bytes(
    const danaus_ks_plan *plan, danaus_device *device, int64_t batch, size_t *forward,
    size_t *gradient);

/* Plan, pack, execute and release: one product with x and y on the host, of
   the chain's own type. */
DANAUS_API danaus_status danaus_ks_apply(
    danaus_device *device, const danaus_chain *chain, danaus_layout layout,
    int64_t batch, const void *x, void *y);

#ifdef __cplusplus
}
#endif

#endif
