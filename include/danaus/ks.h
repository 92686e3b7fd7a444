/* Kronecker-sparse matrices: patterns, chains of factors, and plans that
   multiply by them.

   A factor of pattern (a, b, c, d) has the support  I_a (x) 1_{b x c} (x) I_d:
   it is (a b d) x (a c d), and entry (r, k) of block (i, j) multiplies
       x[i c d + k d + j]   into   y[i b d + r d + j],
   0 <= i < a, 0 <= r < b, 0 <= k < c, 0 <= j < d. Its weights are a row-major
   array w[a][b][c][d] in every file and call.

   A chain is W = K_1 ... K_L, M x N. Factor 0 of every list here is K_1, the
   leftmost factor, which is applied last. Neighbours are composable when
   a1 c1 d1 = a2 b2 d2. A product needs nothing else.

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

/* The most factors in one chain. */
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

/* Returns DANAUS_OK if neighbours are composable and every size fits in 63 bits.
   Otherwise the sentence names the offending factor. */
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

/* The weights w[a][b][c][d] of a factor, to read or to fill; NULL for a
   factor that does not exist. The memory belongs to the chain. */
DANAUS_API void *danaus_chain_weights(danaus_chain *chain, int factor);
DANAUS_API const void *danaus_chain_weights_const(
    const danaus_chain *chain, int factor);

/* The bias: M elements of the chain's type, added to W x. NULL: none. */
DANAUS_API const void *danaus_chain_bias(const danaus_chain *chain);
DANAUS_API danaus_status danaus_chain_set_bias(danaus_chain *chain, const void *bias);

/* A chain file is safetensors with tensors factor.0, factor.1, ... of shape
   [a, b, c, d] and, if the chain has a bias, bias of shape [M]. Saving replaces
   the file in one step and keeps its permissions. A failure leaves the old file. */
DANAUS_API danaus_status danaus_chain_load(const char *path, danaus_chain **chain);
DANAUS_API danaus_status danaus_chain_save(const danaus_chain *chain, const char *path);

/* The same with weights of 8 bits: integers, and beside factor.N the scales factor.N_scale
   of shape [a, b, 1, d], in f32, as plans with danaus_ks_desc.int8 round them. A factor is
   rounded by at most half a scale, which is the row's greatest magnitude / 127. The bias is
   f32. Such files are read as chains of f32. DANAUS_ERR_UNSUPPORTED for complex chains. */
DANAUS_API danaus_status
danaus_chain_save_int8(const danaus_chain *chain, const char *path);

/* Writes W (without bias) to dense[M][N] in the chain's type. Numbers beyond its range become
   infinite. DANAUS_ERR_ARGUMENT if all numbers fall below its range and would be 0. */
DANAUS_API danaus_status danaus_chain_to_dense(const danaus_chain *chain, void *dense);

/* ---- plans: kernels chosen for patterns ---- */

typedef struct danaus_ks_plan danaus_ks_plan;
typedef struct danaus_ks_weights danaus_ks_weights;

/* A function of every number v of W x. It is applied in the type of sums after scale and
   bias, before v is added to a residual or stored. Phi is the distribution function of the
   normal distribution: v Phi(v) = v (1 + erf(v / sqrt(2))) / 2. PyTorch's names come last.
   GPUs may round v to the type of y before. */
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
    int fresh_weights; /* nonzero: weights change before each run; packing counts */
    int keep_factors;  /* nonzero: never merge neighbouring factors */
    int64_t batch;     /* tune for this batch, 0: large; any batch may be run */
    danaus_activation activation; /* in execute; real types, without gradients */
    int bias; /* nonzero: tune for weights with a bias; weights may have one or not */
    /* y = scale W x + bias; 0 means 1. The weights of one factor are packed times `scale` and
       rounded once, so products are as fast. Plans without gradients. */
    double scale;
    int residual; /* nonzero: only danaus_ks_execute_residual() will be called */
    /* Nonzero: y = activation(u) v, as in gated layers, where u is the first half of the rows
       of scale W x + bias and v the second; y has half as many rows. Returns
       DANAUS_ERR_UNSUPPORTED where no kernel computes this in one launch. Kernels exist for
       GPUs with tensor cores, 16 bits, batch-first and a first factor of even a. No gradients,
       adjoints or residuals. */
    int gated;
    /* Nonzero: a column of the result has the same bits in any batch and at any place in it.
       The exact promise is behind danaus_ks_plan_create(). */
    int batch_invariant;
    /* Nonzero: weights and x are rounded to 8 bits, with one scale for each row (i, r, j) of
       weights, and one for each lane (i, j) of a column of x. Sums are exact. docs/kernels.md has the
       arithmetic and its error. Weights take a quarter of the memory of f32. Types f32, f16 and
       bf16, CPUs only, c <= 131072, without gradients. A number of x that is not finite makes NaN of
       all results of its column and lane. */
    int int8;
    uint32_t reserved[8];
} danaus_ks_desc;

/* desc may be NULL. A plan is immutable: share it between threads and between
   devices of the same name. Destroy plans and weights before the device. */
DANAUS_API danaus_status danaus_ks_plan_create(
    danaus_device *device, const danaus_pattern *patterns, int count,
    const danaus_ks_desc *desc, danaus_ks_plan **plan);
DANAUS_API void danaus_ks_plan_destroy(danaus_ks_plan *plan); /* NULL is fine */

/* With desc.batch_invariant, the bits of a column of the result follow from that column of x and
   of the residual, the weights and the rest of the description. They do not depend on

   - the batch of the call, the place in it, or where operands lie;
   - desc.batch;
   - the number of threads, when planning or when running;
   - tuning tables: estimates alone choose kernels. Efforts other than DANAUS_ESTIMATE are
     refused (DANAUS_ERR_ARGUMENT).

   All plans with the same description agree, on one device and with one version of this library
   and of the driver. This holds for danaus_ks_execute(), danaus_ks_execute_residual(),
   danaus_operator_execute(), and for dx of danaus_ks_gradient(). It does not hold for gradients of
   weights and bias, which are sums over the batch. Nor do plans agree whose descriptions differ
   in anything but `batch`, or calls of which one has the residual in y.

   Such plans never use a library for products (cuBLAS), whose order of sums depends on the
   batch, and have one choice of kernels for all batches. So they may be slower. */

/* Writes what will run, a line for each step, as a string of at most `size`
   bytes. Returns the length of the whole text. */
DANAUS_API size_t
danaus_ks_plan_describe(const danaus_ks_plan *plan, char *text, size_t size);

/* The expected seconds of a product of the plan's batch. They come from what chose the steps:
   tuning table, cost model or, with DANAUS_MEASURE, measurement. Those of the cost model are
   rough, and serve to compare plans of one device. */
DANAUS_API double danaus_ks_plan_seconds(const danaus_ks_plan *plan);

/* Packs a chain for a plan with the same patterns. The chain's type may differ
   from the plan's when both are real or both are complex. Plans that are not
   adjoint add the bias. The chain is copied: it may change or be destroyed.
   Without a chain (NULL) weights are zero and there is no bias, and the call
   prepares the memory and kernels of danaus_ks_weights_update_from(). */
DANAUS_API danaus_status danaus_ks_weights_create(
    const danaus_ks_plan *plan, danaus_device *device, const danaus_chain *chain,
    danaus_ks_weights **weights);

/* Packs again after the chain's weights or bias have changed. No product with
   these weights may run meanwhile. */
DANAUS_API danaus_status danaus_ks_weights_update(
    danaus_ks_weights *weights, danaus_device *device, const danaus_chain *chain);

/* Packs again from device memory: w[l] is the array [a][b][c][d] of factor l, aligned to an
   element. All arrays have the type `dtype`, which may differ from the plan's when both are
   real or both are complex; bias has M elements of it. Numbers are rounded once, like those
   of a chain. A factor whose entry is NULL does not change, nor does any factor if w is NULL,
   nor the bias if bias is NULL. Factors that the plan has merged (danaus_ks_plan_describe()
   says which) must be given together or not at all; otherwise the call fails with
   DANAUS_ERR_ARGUMENT and changes nothing.

   On a GPU the work is enqueued on the device's stream. The call waits for nothing,
   allocates nothing and copies nothing from the host, so it can be captured in a graph, which
   reads the same arrays at each launch. One exception: for weights made from a chain the
   first call prepares what it needs, and is refused while a graph is captured. The arrays
   must stay until the work is done. Products on the same stream run before or after it; no
   product with these weights may run on another stream meanwhile. On a CPU the work is done
   on return. */
DANAUS_API danaus_status danaus_ks_weights_update_from(
    danaus_ks_weights *weights, danaus_device *device, danaus_dtype dtype,
    const void *const *w, const void *bias);

/* Numbers for danaus_ks_weights_update_many(): arguments of danaus_ks_weights_update_from().
   memory: for weights that were created unbound, the block that they are bound to first, without
   a bias unless there is one here; NULL: weights stay where they are. */
typedef struct danaus_ks_update {
    danaus_ks_weights *weights;
    void *memory;
    const void *const *w; /* one array [a][b][c][d] a factor; entries may be NULL */
    const void *bias;
    danaus_dtype dtype;
    void *reserved[4];
} danaus_ks_update;

/* All of these updates, in order, as danaus_ks_weights_update_from() makes each of them: those of
   all layers of a network after a step of training, for example. On a GPU, updates of plans of one
   type that follow each other share launches: each packs what about four layers of two factors
   have. One weights object may be in several updates with a block for each; it stays bound to
   the last. If an update is not valid, the call fails and nothing changes. */
DANAUS_API danaus_status danaus_ks_weights_update_many(
    danaus_device *device, int count, const danaus_ks_update *updates);
DANAUS_API void danaus_ks_weights_destroy(danaus_ks_weights *weights);

/* Packed weights in the caller's memory: device memory of danaus_ks_weights_bytes() bytes,
   aligned to 64 bytes on a CPU and to DANAUS_SCRATCH_ALIGN on a GPU. One unbound object holds
   no numbers and serves any number of such blocks, one after the other. Binding it to a block
   costs no time. It then packs into the block, or runs with what an object for the same plan
   has packed there. Calls that are in a stream already keep the block that was bound when
   they were made. The caller orders packing into a block with reading from it, and keeps the
   block until that is done and as long as graphs that were captured with it.

   Plans without gradients pack alike if they agree in device, patterns, type, layout, math,
   adjoint, scale and the text of danaus_ks_plan_describe(), whatever their batches. Objects
   of one plan then run with what the other has packed. */
DANAUS_API danaus_status
danaus_ks_weights_bytes(const danaus_ks_plan *plan, size_t *bytes);

/* Weights that have no memory until they are bound, ready for
   danaus_ks_weights_update_from(). They own what that needs: maps, and room for products of
   merged factors. */
DANAUS_API danaus_status danaus_ks_weights_create_unbound(
    const danaus_ks_plan *plan, danaus_device *device, danaus_ks_weights **weights);

/* has_bias: nonzero if a bias was packed into this memory; packing a bias sets it too.
   Numbers stay as they are in the memory: all must be packed before the first run. Only for
   weights that were created unbound. No other call with them may run meanwhile. */
DANAUS_API danaus_status
danaus_ks_weights_bind(danaus_ks_weights *weights, void *memory, int has_bias);

/* y = activation(scale W x + bias) for `batch` columns, batch >= 0. x and y are device memory,
   do not overlap and need only the alignment of their elements. The first call for a batch
   size may grow the device's scratch; later calls allocate nothing. The result has the same
   bits for any number of threads. */
DANAUS_API danaus_status danaus_ks_execute(
    const danaus_ks_plan *plan, danaus_device *device, const danaus_ks_weights *weights,
    int64_t batch, const void *x, void *y);

/* The same for plans made with desc.residual:

       y = residual + activation(scale W x + bias),

   which is how layers of transformers end. The residual is device memory of the type and
   layout of y. It is y itself, which the call then adds to, or does not overlap y
   (DANAUS_ERR_ARGUMENT). It may be x if W is square. The sum is computed in the type of sums;
   GPUs may round the other term to the type of y before. The gradient of the residual is
   dy. */
DANAUS_API danaus_status danaus_ks_execute_residual(
    const danaus_ks_plan *plan, danaus_device *device, const danaus_ks_weights *weights,
    int64_t batch, const void *x, const void *residual, void *y);

/* Gradients of a loss whose gradient at y is dy. Members that are NULL are skipped. The others
   are overwritten, not added to, and overlap neither the inputs nor each other. dw and dbias
   have the type of sums: f32 for f32, f16 and bf16, else the plan's type. If `rounded` is
   nonzero they have the plan's type, and sums are rounded once; this is for networks with
   weights of 16 bits. For complex types dx = W^H dy and dw = dy x^H, as in PyTorch. */
typedef struct danaus_ks_gradients {
    void *dx;        /* like x, of the plan's type */
    void *const *dw; /* one array [a][b][c][d] a factor; entries may be NULL */
    void *dbias;     /* M elements; must be NULL for an adjoint plan */
    int rounded;
    void *reserved[4];
} danaus_ks_gradients;

/* Needs a plan made with desc.gradients. Deterministic like execute, wherever x and dy
   are. The caller computes the derivative of an activation: it keeps v = W x + bias from a
   plan without activation, and passes activation'(v) times the gradient of the result as
   dy. */
DANAUS_API danaus_status danaus_ks_gradient(
    const danaus_ks_plan *plan, danaus_device *device, const danaus_ks_weights *weights,
    int64_t batch, const void *x, const void *dy, const danaus_ks_gradients *gradients);

/* Bytes of scratch that execute and gradient need for `batch` columns on this device, with
   its present threads. They work with lent scratch of at least that size. Gradients with
   NULL members may need less. *gradient is 0 for a plan without gradients. Either pointer
   may be NULL. */
DANAUS_API danaus_status danaus_ks_scratch_bytes(
    const danaus_ks_plan *plan, danaus_device *device, int64_t batch, size_t *forward,
    size_t *gradient);

/* Plans, packs, executes and releases: one product with x and y on the host, in
   the chain's type. */
DANAUS_API danaus_status danaus_ks_apply(
    danaus_device *device, const danaus_chain *chain, danaus_layout layout,
    int64_t batch, const void *x, void *y);

#ifdef __cplusplus
}
#endif

#endif
