/* Algebra of chains: products, sums, stacks, Kronecker products, transposes and inverses
   that are chains again, with the patterns and costs of docs/algebra.md.

   A chain is a matrix W here, as for danaus_chain_to_dense(): its bias is left out, and
   results have none unless that is said. Results are new chains of the operands' element
   type, to be destroyed by the caller. Numbers that are not copied are made in f64 or c128
   and rounded once. Chains that are read may be shared between threads. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DANAUS_ALGEBRA_H
#define DANAUS_ALGEBRA_H

#include "danaus/base.h"
#include "danaus/ks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- one chain ---- */

/* A copy in another element type, with its bias; DANAUS_ERR_ARGUMENT from complex to
   real, and where danaus_convert_check() refuses a factor or the bias. */
DANAUS_API danaus_status danaus_chain_convert(
    const danaus_chain *chain, danaus_dtype dtype, danaus_chain **converted);

/* W^T, or with `conjugate` W^H: factors (a, c, b, d) in the opposite order. Products by
   these need no such chain (danaus_ks_desc.adjoint). */
DANAUS_API danaus_status danaus_chain_transpose(
    const danaus_chain *chain, int conjugate, danaus_chain **transposed);

/* diag(rows) W diag(cols), in the factors that there are. rows has M elements of the
   chain's type and cols N; one that is NULL counts as ones. DANAUS_ERR_ARGUMENT, with the
   factor, where finite numbers have products beyond the range of the type, or where all
   products fall below it and would be 0. */
DANAUS_API danaus_status danaus_chain_scale(
    const danaus_chain *chain, const void *rows, const void *cols,
    danaus_chain **scaled);

/* The same W, bias included, with factors [from, to) multiplied out into one of the
   pattern (g, M / (g h), N / (g h), h), where g and h are the greatest common divisors of
   all their a and d; a diagonal factor (b = c = 1) takes the pattern of its neighbour.
   DANAUS_ERR_SHAPE, with the factor, where that pattern has entries that are zero whatever
   the weights: then the product is not Kronecker-sparse. DANAUS_ERR_ARGUMENT where the
   chain's type cannot hold it, as in danaus_chain_scale(). */
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

/* Makes one chain of `count` >= 1 chains of one element type. Nothing of it is zero that
   was not: it multiplies by as many numbers as its terms together, but for this:

   - Sums and stacks may get a factor of ones in front, (1, 1, n, M), and one behind,
     (1, n, 1, N): sums of two factors that can be factorised (danaus/factorize.h) get
     none, their block ranks add up; those of one factor are added number by number.
   - Kronecker products multiply by each W_i as often as the others' sizes say, in the
     order that is cheapest.

   All terms of a sum, stack or block diagonal have as many factors, and factor l of all
   has the same b, c and d; but c of the first ones may differ where no ones are put in
   front, and b of the last ones where none are put behind. DANAUS_ERR_SHAPE otherwise,
   naming the factor, and where sizes do not fit. A dense matrix is a chain of one factor
   (1, M, N, 1). Sums that exceed the range of the type are DANAUS_ERR_ARGUMENT. */
DANAUS_API danaus_status danaus_chain_combine(
    danaus_combination how, const danaus_chain *const *chains, int count,
    danaus_chain **combined);

/* ---- inverses ---- */

/* How far a chain is from singular: condition numbers ||B||_1 ||B^-1||_1. */
typedef struct danaus_condition {
    double bound;   /* that of W is at most the product of its factors', this one */
    double largest; /* of a block of a factor */
    int64_t i, j;   /* which block that is, i < a and j < d, */
    int factor;     /* and of which factor */
    uint32_t reserved[9]; /* zero */
} danaus_condition;

/* W^-1 of a chain of factors with b = c: a factor is a d blocks of b x b, which LAPACK
   inverts in f64 or c128 on so many threads (0: one for each processor). The result has
   the same patterns in the opposite order. condition may be NULL.

   DANAUS_ERR_SHAPE where a factor has b != c, and DANAUS_ERR_ARGUMENT, with factor and
   block, where a block is singular, which is that elimination meets a zero, or has numbers
   that are not finite, or an inverse whose numbers are not, also in the chain's type. Blocks
   that are singular but for rounding have conditions of 1e15 and more. */
DANAUS_API danaus_status danaus_chain_invert(
    const danaus_chain *chain, int threads, danaus_chain **inverse,
    danaus_condition *condition);

/* x = W^-1 b for `batch` columns, by elimination in the blocks of each factor, without the
   inverse. b and x are on the host, of the chain's type, in one layout, and may be the same.
   Errors are those of danaus_chain_invert(); an x beyond the range of the type is infinite, and
   one that is 0 only because all its numbers fall below it is DANAUS_ERR_ARGUMENT. condition, of estimates that LAPACK makes
   (gecon), costs more than the rest where blocks are small; NULL: none is made. To solve often,
   invert once and plan products with the inverse. */
DANAUS_API danaus_status danaus_chain_solve(
    const danaus_chain *chain, int threads, danaus_layout layout, int64_t batch,
    const void *b, void *x, danaus_condition *condition);

/* det W = (phase[0] + i phase[1]) exp(*log_modulus), of such a chain. phase has modulus 1,
   and is 1 or -1 where W is real; a singular W has phase 0 and log_modulus -infinity. */
DANAUS_API danaus_status danaus_chain_determinant(
    const danaus_chain *chain, int threads, double *log_modulus, double phase[2]);

#ifdef __cplusplus
}
#endif

#endif
