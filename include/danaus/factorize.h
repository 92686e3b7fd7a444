/* Factorization of a dense matrix into a chain of Kronecker-sparse factors, with
   a certified error; and patterns to choose from.

   Source: Zheng, Riccietti, Gribonval, Efficient Identification of Butterfly
   Sparse Matrix Factorizations (arXiv 2110.01230); Le et al., Butterfly
   Factorization with Error Guarantees (arXiv 2411.04506); docs/ks.md. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DANAUS_FACTORIZE_H
#define DANAUS_FACTORIZE_H

#include "danaus/base.h"
#include "danaus/ks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- patterns to choose from ---- */

typedef enum danaus_chain_kind {
    DANAUS_CHAIN_DENSE = 0,       /* (1, M, N, 1) */
    DANAUS_CHAIN_LOW_RANK,        /* (1, M, r, 1) (1, r, N, 1); rank */
    DANAUS_CHAIN_DYADIC,          /* (2^(l-1), 2, 2, 2^(L-l)); M = N = 2^L */
    DANAUS_CHAIN_BLOCK_BUTTERFLY, /* (2^(l-1), 2t, 2t, 2^(L-l)); M = N = 2^L t; rank t */
    DANAUS_CHAIN_MONARCH,      /* `order` factors, any M x N, blocks of rank `rank` */
    DANAUS_CHAIN_KALEIDOSCOPE, /* dyadic, then dyadic transposed: products only */
    DANAUS_CHAIN_RADICES       /* row_radices x col_radices, ranks: every chain that can
                                  be factorised, deformable butterflies among them */
} danaus_chain_kind;

/* All-zero is the default of every field but the sizes. */
typedef struct danaus_chain_desc {
    danaus_chain_kind kind;
    int64_t rows, cols; /* M, N */
    int order;          /* Monarch: number of factors, 0: 2; radices: their number */
    int64_t rank;       /* 0: 1 */
    /* `order` each; NULL: as equal as can be */
    const int64_t *row_radices, *col_radices;
    const int64_t *ranks; /* order - 1 block ranks between neighbours; NULL: rank */
    uint32_t reserved[8];
} danaus_chain_desc;

/* Writes the patterns of a named chain to patterns[0 .. *count). */
DANAUS_API danaus_status danaus_patterns_make(
    const danaus_chain_desc *desc, danaus_pattern *patterns, int capacity, int *count);

/* The chain for an M x N matrix with at most `parameters` weights that should approximate
   best. The candidates are the cheapest chains of every number of factors, each with the
   largest block rank that the budget allows. The function takes the candidate that keeps
   most of a matrix without structure. Sizes that share no structure get a low-rank chain. */
DANAUS_API danaus_status danaus_patterns_fit(
    int64_t rows, int64_t cols, int64_t parameters, danaus_pattern *patterns,
    int capacity, int *count);

/* Returns DANAUS_OK if a matrix can be factorised into the chain or its transpose:
   neighbours are composable, a1 | a2, d2 | d1 and a2 | a1 c1. The sentence names the pair
   and the condition that fails. */
DANAUS_API danaus_status
danaus_patterns_check_chainable(const danaus_pattern *patterns, int count);

/* Degrees of freedom of the products of a chain that danaus_patterns_check_chainable()
   accepts: its weights, less r^2 for each block of rank r of every split (docs/ks.md,
   section 2). */
DANAUS_API danaus_status
danaus_patterns_freedom(const danaus_pattern *patterns, int count, int64_t *numbers);

/* ---- factorization ---- */

typedef enum danaus_order {
    DANAUS_ORDER_AUTO = 0, /* the cheaper of the two sweeps */
    DANAUS_ORDER_LEFT_TO_RIGHT,
    DANAUS_ORDER_RIGHT_TO_LEFT,
    DANAUS_ORDER_BALANCED
} danaus_order;

/* Sums over any number of sample inputs x (rows of X) and targets y (rows of Y) of a
   layer. A fit needs nothing else about the samples. Numbers are f64, or c128 for complex
   matrices; only the lower triangle of gram is read. Errors below 1e-8 cannot be computed
   from sums. */
typedef struct danaus_calibration {
    int64_t samples;
    void *gram;    /* [N][N]: X^T conj(X) */
    void *cross;   /* [M][N]: Y^T conj(X); NULL: the targets are X W^T */
    double energy; /* ||Y||^2; not read without cross */
    void *input_sum,
        *target_sum; /* [N], [M]: sums of x and y, for a bias; the second is
                                     not read without cross */
    uint32_t reserved[8];
} danaus_calibration;

/* Adds samples: inputs[samples][N] and targets[samples][M] of type `dtype`: f32, f64, c64 or
   c128. targets may be NULL if sums->cross is NULL. The caller's arrays begin with zeros;
   sums that are NULL are not computed. */
DANAUS_API danaus_status danaus_calibration_add(
    danaus_calibration *sums, danaus_dtype dtype, int64_t rows, int64_t cols,
    int64_t samples, const void *inputs, const void *targets);

/* All-zero is the default of every field.

   Without inputs and calibration the factors minimise ||W - K_1..K_L||. With one of them
   they minimise ||Y - X (K_1..K_L)^T||^2 + lambda ||W - K_1..K_L||^2. The targets Y are
   X W^T unless they are given. lambda is `ridge` times the mean of the N columns'
   ||x_k||^2; the ridge decides in directions that the inputs do not have (docs/ks.md,
   section 6). With `bias` the chain gets the best bias, mean(y) - K_1..K_L mean(x).
   Numbers may have any magnitude; DANAUS_ERR_ARGUMENT if W and the chains for such targets
   are further apart than 2^200. */
typedef struct danaus_factorize_desc {
    danaus_order order;
    int fast;           /* nonzero: iterative SVDs, and no lower bound */
    int refine;         /* pair sweeps after the factorization; with inputs at most so
                           many passes over the factors, 0: 4 */
    int square_roots;   /* nonzero: split with square roots and never orthonormalise,
                           like older programs: larger errors, no bounds */
    int threads;        /* 0: one for each processor */
    const void *inputs; /* calibration X[samples][N] of dense's type, or NULL */
    int64_t samples;
    danaus_progress_fn progress; /* or NULL */
    void *user;
    const void
        *targets; /* Y[samples][M] of dense's type, with inputs, or NULL: X W^T */
    const danaus_calibration *calibration; /* instead of inputs, or NULL */
    double ridge;                          /* up to 1e6; 0: 1e-6 */
    int bias;                              /* nonzero: fit one, with calibration */
    danaus_dtype
        chain_dtype; /* the chain's type: f32 or f64 for a real matrix, c64 or c128 for a
                                 complex one; 0: dense's type. Errors and bounds are those
                                 of that chain for the given matrix. A matrix whose numbers
                                 the type does not hold is refused. */
    uint32_t reserved[8];
} danaus_factorize_desc;

/* Frobenius norms relative to ||W||; with inputs or calibration, to ||Y||. */
typedef struct danaus_factorize_result {
    double error; /* ||W - K_1..K_L||, or ||Y - X (K_1..K_L)^T||, of the chain as it is
                           stored, with its bias */
    double
        lower_bound; /* no factors of these patterns have a smaller error; -1: unknown */
    double
        upper_bound; /* the bound by the split errors; calibrated, the error before the
                           passes, with its ridge; at least `error` */
    double off_support; /* the part of W that no weights can reach; included in error */
    double dense_error; /* ||W - K_1..K_L|| / ||W||, also when calibrated */
    double seconds;
    int64_t parameters;   /* without the bias */
    uint64_t reserved[9]; /* zero */
} danaus_factorize_result;

/* Factorises dense[M][N], row-major, f32, f64, c64 or c128, into a new chain of the same type,
   unless desc->chain_dtype is another. desc and result may be NULL. NaN and infinities in W
   are refused; the sentence names the first. DANAUS_ERR_UNSUPPORTED if LAPACK's sizes of 32
   bits do not hold the matrix, the samples or the work space for a block (docs/ks.md). */
DANAUS_API danaus_status danaus_factorize(
    const void *dense, danaus_dtype dtype, const danaus_pattern *patterns, int count,
    const danaus_factorize_desc *desc, danaus_chain **chain,
    danaus_factorize_result *result);

/* ---- sums of chains ---- */

#define DANAUS_MAX_TERMS 16

/* All-zero is the default of every field. */
typedef struct danaus_sum_desc {
    int rounds;      /* rounds of fits of all terms after the first; 0: 4; -1: none */
    int lower_bound; /* nonzero: compute one, by more decompositions, where theory has one */
    const danaus_factorize_desc
        *fit; /* inputs, bias, ...; NULL: ||W - K_1 - K_2 - ..|| */
    uint32_t reserved[8];
} danaus_sum_desc;

/* Factorises dense[M][N] into a sum of `terms` chains of its type, W ~ K_1 + K_2 + ..:
   term k has the next counts[k] of `patterns`, and chains[k] becomes its chain. The first
   round is greedy: each term is fitted, as by danaus_factorize(), to what the terms before it
   leave. Each later round fits every term to what all others leave. The fit starts from the
   present term and is kept if the error falls, so the error never rises. Rounds end early if
   one gains less than a thousandth. Terms of two factors that differ only in their block
   ranks are fitted at once, as the one chain that is their sum, and split. Calibrated, the
   first term's chain has the bias.

   steps (or NULL) gets a result for each term after the first round. Its error is that of the
   terms so far and its bounds are those of its own fit, all relative to ||W|| (calibrated,
   ||Y||). Terms that were fitted as one share a result. In `result` (or NULL) error <=
   upper_bound, which is the last step's; lower_bound holds for every sum of such terms, and
   is -1 if none is known (docs/ks.md, section 6). Calibrated, the error is computed from sums
   over samples, and is never reported below 3e-6. The result has the same bits for any number
   of threads. Errors are those of danaus_factorize(). */
DANAUS_API danaus_status danaus_factorize_sum(
    const void *dense, danaus_dtype dtype, const danaus_pattern *patterns,
    const int *counts, int terms, const danaus_sum_desc *desc, danaus_chain **chains,
    danaus_factorize_result *result, danaus_factorize_result *steps);

/* ---- the best of many chains ---- */

typedef enum danaus_candidates { /* bits */
                                 DANAUS_TRY_DENSE = 1,
                                 DANAUS_TRY_LOW_RANK = 2,
                                 DANAUS_TRY_COLUMN_GROUPS =
                                     4, /* (1, M, p r, 1) (p, r, N/p, 1): a low-rank matrix for
                                     each of p groups of inputs */
                                 DANAUS_TRY_ROW_GROUPS =
                                     8, /* (1, M/q, r, q) (1, r q, N, 1): groups of outputs */
                                 DANAUS_TRY_MONARCH =
                                     16, /* (1, M/q, p r, q) (p, q r, N/p, 1): groups of both */
                                 DANAUS_TRY_FITTED =
                                     32, /* the chain of danaus_patterns_fit() */
                                 DANAUS_TRY_SUM =
                                     64, /* low rank and blocks on the diagonal, or low rank and
                                     Monarch, as a sum of two chains */
                                 DANAUS_TRY_SUMS =
                                     128 /* for danaus_compress_sum(): Monarch and its transpose's
                                     patterns, Monarch of two sizes, two of the chain of
                                     danaus_patterns_fit(), also with low rank; and
                                     Monarch of more sizes alone */
} danaus_candidates;

/* All-zero is the default of every field but `parameters`. */
typedef struct danaus_compress_desc {
    int64_t parameters;  /* at most so many numbers, without the bias */
    int reduced;         /* nonzero: count degrees of freedom, and reduce the chains */
    uint32_t candidates; /* danaus_candidates to try; 0: all but sums */
    const danaus_factorize_desc *fit; /* inputs, targets, ...; NULL: ||W - K_1..K_L|| */
    uint32_t reserved[8];
} danaus_compress_desc;

#define DANAUS_CANDIDATE_FACTORS 8
#define DANAUS_CANDIDATE_TERMS   3

/* The result of a candidate. */
typedef struct danaus_candidate {
    danaus_candidates kind;
    int count;  /* of patterns */
    int first;  /* patterns of the first chain: `count`, except for sums */
    int passes; /* over its factors; the best candidates get more */
    danaus_pattern patterns[DANAUS_CANDIDATE_FACTORS];
    int64_t parameters; /* as the budget counts them */
    double error;       /* as in danaus_factorize_result */
    double seconds;
    int taken; /* nonzero for the one that was returned */
    /* patterns of each chain; 0: no further chain */
    int counts[DANAUS_CANDIDATE_TERMS];
    uint32_t reserved[8];
} danaus_candidate;

/* Fits candidates for a matrix dense[rows][cols], as danaus_factorize() does, within a budget
   of parameters. chains[0] becomes the chain of the smallest error, with the bias if one is
   fitted. If a sum is best, chains[1] becomes its second chain, and W ~ K_1 + K_2; otherwise
   it becomes NULL. Errors of sums are never reported below 3e-6. Each candidate gets one pass
   over its factors, and the best few get desc->fit->refine passes. result, report and count
   may be NULL. *count is the number of candidates; at most `capacity` are written to report.
   result->seconds is the time of the whole call. DANAUS_ERR_ARGUMENT if no candidate fits in
   the budget. */
DANAUS_API danaus_status danaus_compress(
    const void *dense, danaus_dtype dtype, int64_t rows, int64_t cols,
    const danaus_compress_desc *desc, danaus_chain *chains[2],
    danaus_factorize_result *result, danaus_candidate *report, int capacity,
    int *count);

/* Like danaus_compress(), but tries sums of up to `most` chains, 1 to DANAUS_CANDIDATE_TERMS;
   desc->candidates 0 means all kinds. The best candidate is the sum of the *terms chains in
   chains[0 .. *terms); the first one has the bias. Other entries do not change. */
DANAUS_API danaus_status danaus_compress_sum(
    const void *dense, danaus_dtype dtype, int64_t rows, int64_t cols,
    const danaus_compress_desc *desc, danaus_chain **chains, int most, int *terms,
    danaus_factorize_result *result, danaus_candidate *report, int capacity,
    int *count);

/* Writes the same product with as few numbers as it has degrees of freedom. In every block
   of rank r of a split between K_l and K_{l+1}, the r rows of K_{l+1} become (I c) up to an
   order of columns that is chosen for accuracy, and K_l takes the rest. A low-rank chain u v
   of rank r becomes u' (I c) P: it remains to store r (M + N - r) numbers and which columns
   are those of I. For chains that can be factorised only transposed, left and right are
   exchanged. Products change by rounding. f32, f64, c64 and c128. Not parallel.
   DANAUS_ERR_ARGUMENT if the type cannot hold a factor of the reduced chain, which has the
   magnitude of the product. */
DANAUS_API danaus_status danaus_chain_reduce(danaus_chain *chain);

/* ---- permutations in which a matrix has structure ---- */

/* All-zero is the default of every field. */
typedef struct danaus_permute_desc {
    int keep_rows, keep_cols; /* nonzero: they stay where they are */
    const int64_t *row_classes,
        *col_classes; /* M and N numbers, or NULL: only rows (columns) of the same number
                         trade places, for example those of a head of attention */
    int rounds;       /* the most rounds of the search; 0: 100 */
    int threads;      /* 0: one for each processor */
    uint32_t reserved[8];
} danaus_permute_desc;

/* Searches permutations of rows and columns of dense[M][N], f32, f64, c64 or c128, that bring
   it near to a chain of two factors (1, b1, c1, q) (p, b2, c2, 1), for example Monarch. The
   matrix to factorise is then

       permuted[i][j] = dense[row_permutation[i]][col_permutation[j]],

   and y = dense x is y[row_permutation[i]] = (K_1 K_2 x')[i] with x'[j] =
   x[col_permutation[j]]. The call writes M and N numbers. errors[0] is the relative Frobenius
   distance of the given matrix from such chains, errors[1] that of the permuted matrix. errors
   may be NULL.

   Rows and columns in turn trade places between the chain's q groups of rows and p groups of
   columns, by the part of each row or column outside a group's subspace (docs/ks.md, section
   6; k-subspaces: Bradley, Mangasarian, k-Plane Clustering, J. Global Optimization 16, 2000).
   errors[1] <= errors[0]. The search usually finds a shuffled Monarch matrix, but may end
   elsewhere. The same arguments give the same permutations for any number of threads. To
   weigh rows and columns by a layer's inputs, scale the matrix first.
   DANAUS_ERR_UNSUPPORTED for other chains, and for sizes as in danaus_factorize(). */
DANAUS_API danaus_status danaus_find_permutations(
    const void *dense, danaus_dtype dtype, const danaus_pattern *patterns, int count,
    const danaus_permute_desc *desc, int64_t *row_permutation, int64_t *col_permutation,
    double errors[2]);

#ifdef __cplusplus
}
#endif

#endif
