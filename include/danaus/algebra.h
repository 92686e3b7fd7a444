/* Algebra of chains: products, sums, stacks, Kronecker products, transposes and inverses,
   which are chains again, with the patterns and costs of docs/algebra.md.

   A chain is a matrix W here, as for danaus_chain_to_dense(): its bias is left out, and
   results have no bias unless the function says so. Results are new chains of the operands'
   element type, and the caller destroys them. Numbers that are not copied are computed in
   f64 or c128 and rounded once. Threads may share chains that are read. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DANAUS_ALGEBRA_H
#define DANAUS_ALGEBRA_H

#include "danaus/base.h"
#include "danaus/ks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- one chain ---- */

/* A copy in another element type, with its bias. DANAUS_ERR_ARGUMENT from complex to real,
   or if danaus_convert_check() refuses a factor or the bias. */
DANAUS_API danaus_status danaus_chain_convert(
    const danaus_chain *chain, danaus_dtype dtype, danaus_chain **converted);

/* W^T, or with `conjugate` W^H: factors (a, c, b, d) in the opposite order. Products with
   W^H need no such chain (danaus_ks_desc.adjoint). */
DANAUS_API danaus_status danaus_chain_transpose(
    const danaus_chain *chain, int conjugate, danaus_chain **transposed);

/* diag(rows) W diag(cols), in the factors that exist. rows has M elements of the chain's
   type and cols has N; NULL means ones. DANAUS_ERR_ARGUMENT, naming the factor, if finite
   numbers have products beyond the range of the type, or if all products fall below it and
   would be 0. */
DANAUS_API danaus_status danaus_chain_scale(
    const danaus_chain *chain, const void *rows, const void *cols,
    danaus_chain **scaled);

/* The same W, bias included, with factors [from, to) multiplied out into one of the
   pattern (g, M / (g h), N / (g h), h), where g and h are the greatest common divisors of
   all their a and d; a diagonal factor (b = c = 1) takes the pattern of its neighbour.
   DANAUS_ERR_SHAPE, naming the factor, if that pattern has entries that are zero for all
   weights: the product is then not Kronecker-sparse. DANAUS_ERR_ARGUMENT if the chain's type
   cannot hold the product, as in danaus_chain_scale(). */
DANAUS_API danaus_status
danaus_chain_fuse(const danaus_chain *chain, int from, int to, danaus_chain **fused);

/* ---- many chains ---- */

typedef enum danaus_combination {
    DANAUS_PRODUCT = 0,    /* W_1 W_2 .. W_n */
    DANAUS_SUM,            /* W_1 + W_2 + .. + W_n */
    DANAUS_HSTACK,         /* [W_1 W_2 .. W_n], side by side */
    DANAUS_VSTACK,         /* one above the other */
    DANAUS_BLOCK_DIAGONAL, /* W_1, W_2, .., W_n on the diagonal */
    DANAUS_KRONECKER       /* W_1 (x) W_2 (x) .. (x) W_n */
} danaus_combination;

/* Makes one chain of `count` >= 1 chains of one element type. It adds no zeros: it multiplies
   by as many numbers as its terms together, with these exceptions:

   - Sums and stacks may get a factor of ones in front, (1, 1, n, M), and one behind,
     (1, n, 1, N). Sums of two factors that can be factorised (danaus/factorize.h) get no
     such factors: their block ranks add up. Sums of one factor are added number by number.
   - Kronecker products multiply by each W_i as often as the others' sizes say, in the
     cheapest order.

   All terms of a sum, stack or block diagonal have the same number of factors, and factor l
   of all terms has the same b, c and d. But c of the first factors may differ if no ones are
   put in front, and b of the last factors if none are put behind. Otherwise, or if sizes do
   not fit, DANAUS_ERR_SHAPE, naming the factor. A dense matrix is a chain of one factor
   (1, M, N, 1). DANAUS_ERR_ARGUMENT if a sum exceeds the range of the type. */
DANAUS_API danaus_status danaus_chain_combine(
    danaus_combination how, const danaus_chain *const *chains, int count,
    danaus_chain **combined);

/* ---- inverses ---- */

/* How far a chain is from singular: condition numbers ||B||_1 ||B^-1||_1. */
typedef struct danaus_condition {
    double bound;         /* W's is at most this, the product of its factors' */
    double largest;       /* the largest one of a block of a factor */
    int64_t i, j;         /* that block, i < a and j < d, */
    int factor;           /* and its factor */
    uint32_t reserved[9]; /* zero */
} danaus_condition;

/* W^-1 of a chain of factors with b = c. A factor has a d blocks of b x b, which LAPACK
   inverts in f64 or c128 on `threads` threads (0: one for each processor). The result has
   the same patterns in the opposite order. condition may be NULL.

   DANAUS_ERR_SHAPE if a factor has b != c. DANAUS_ERR_ARGUMENT, naming factor and block, if a
   block is singular (elimination meets a zero), or if numbers of the block, or of its inverse
   in the chain's type, are not finite. Blocks that are singular up to rounding have condition
   numbers of 1e15 and more. */
DANAUS_API danaus_status danaus_chain_invert(
    const danaus_chain *chain, int threads, danaus_chain **inverse,
    danaus_condition *condition);

/* x = W^-1 b for `batch` columns, by elimination in the blocks of each factor, without the
   inverse. b and x are on the host, in the chain's type and one layout, and may be the same
   array. Errors are those of danaus_chain_invert(). Numbers of x beyond the range of the type
   are infinite. DANAUS_ERR_ARGUMENT if all numbers of x fall below the range and would be 0.
   condition gets LAPACK's estimates (gecon), which cost more than the rest where blocks are
   small; NULL: none. To solve often, invert once and plan products with the inverse. */
DANAUS_API danaus_status danaus_chain_solve(
    const danaus_chain *chain, int threads, danaus_layout layout, int64_t batch,
    const void *b, void *x, danaus_condition *condition);

/* det W = (phase[0] + i phase[1]) exp(*log_modulus) of a chain of factors with b = c. phase
   has modulus 1, and is 1 or -1 if W is real. A singular W has phase 0 and log_modulus
   -infinity. */
DANAUS_API danaus_status danaus_chain_determinant(
    const danaus_chain *chain, int threads, double *log_modulus, double phase[2]);

/* ---- orthogonal blocks ---- */

#define DANAUS_CAYLEY_MOST 32 /* rows of a block on a GPU; a CPU takes any number */

/* Cayley transforms of blocks r[count][size][size]:

       q = (I - K) (I + K)^-1,  K = (r - r^T) / 2,

   or its transpose, which is that of -K. q is orthogonal whatever r is, so the blocks of a factor
   stay orthogonal while r is trained (Cayley 1846; BOFT: Liu et al., ICLR 2024, arXiv
   2311.06243). r and q[count][size][size] are arrays of the device's memory, which do not overlap.
   dtype is DANAUS_F32 or, on CPUs, DANAUS_F64. Elimination is in f64 and needs no pivots: all of
   them have a real part of 1 or more. An OpenCL device without f64 eliminates in f32, where errors
   grow with the square of K's norm.

   Errors: DANAUS_ERR_ARGUMENT, DANAUS_ERR_SHAPE (sizes without a size in bytes),
   DANAUS_ERR_UNSUPPORTED (types and sizes that the device does not take). No blocks are fine. */
DANAUS_API danaus_status danaus_cayley(
    danaus_device *device, danaus_dtype dtype, int64_t count, int64_t size,
    int transposed, const void *r, void *q);

/* dr of the gradient dq at q, where q is what danaus_cayley() made:

       dr = (M^T - M) / 4,  M = (q + I)^T dq (q + I)^T,   and of -K -dr.

   dr may be dq, and overlaps nothing else. Errors as above. */
DANAUS_API danaus_status danaus_cayley_gradient(
    danaus_device *device, danaus_dtype dtype, int64_t count, int64_t size,
    int transposed, const void *q, const void *dq, void *dr);

#ifdef __cplusplus
}
#endif

#endif
