/* Known transforms as exact chains, with the orders of numbers that they need.

   An operator is a matrix A, M x N, that is chains with orders around them:

       A = S_0 (K_1 + I) S_1 (K_2 + I) ... (K_C + I) S_C

   where K_i is a chain and + I says that numbers beyond its columns pass by, behind its
   rows. An order picks numbers: (S v)[p] = v[order[p]], and 0 where order[p] is -1. It
   may be a permutation, select, repeat and pad. S_0 gives the M outputs in their order and
   S_C takes the N inputs. A chain alone is the operator whose orders change nothing; most
   transforms are one chain between two orders, wavelets one chain for each level. A sum of
   operators, whose patterns need not agree, is an operator too, and multiplies at the cost
   of its terms together. A plan makes products with any of them, reading x and writing y
   once.

   docs/transforms.md has the definitions, lengths and numbers of parameters. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DANAUS_TRANSFORMS_H
#define DANAUS_TRANSFORMS_H

#include "danaus/base.h"
#include "danaus/ks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- operators ---- */

typedef struct danaus_operator danaus_operator;

/* Makes an operator of `count` chains of one type, without biases, the leftmost first, and
   count + 1 orders of lengths[0 .. count]; lengths[0] is M. Order i has the numbers that
   chain i takes and those that pass by, so that lengths[i + 1] is at least the columns of
   chain i; its entries are -1 or places among what comes out of chain i + 1, the last
   order's among the N = cols inputs. orders may be NULL, and so may entries: they change
   nothing then, and their lengths are not read. Orders are copied. The chains belong to the
   operator on success, and stay the caller's on failure. */
DANAUS_API danaus_status danaus_operator_create(
    danaus_chain *const *chains, int count, const int64_t *const *orders,
    const int64_t *lengths, int64_t cols, danaus_operator **made);
DANAUS_API void danaus_operator_destroy(danaus_operator *made); /* NULL is fine */

DANAUS_API int64_t danaus_operator_rows(const danaus_operator *made); /* M */
DANAUS_API int64_t danaus_operator_cols(const danaus_operator *made); /* N */
DANAUS_API int danaus_operator_count(const danaus_operator *made);    /* chains */
DANAUS_API danaus_dtype danaus_operator_dtype(const danaus_operator *made);
/* The weights of all chains. */
DANAUS_API int64_t danaus_operator_parameters(const danaus_operator *made);

/* Chain 0 .. count - 1 and order 0 .. count, which belong to the operator; NULL for one
   that does not exist. *length may be NULL. The chains of a sum are those of its terms, one
   term after the other; it has no orders of its own. */
DANAUS_API const danaus_chain *danaus_operator_chain(
    const danaus_operator *made, int chain);
DANAUS_API const int64_t *danaus_operator_order(
    const danaus_operator *made, int order, int64_t *length);

/* T_1 + T_2 + .. + T_n, n >= 1, of operators of one type and size, which belong to the sum on
   success, and stay the caller's on failure. The terms of a sum are taken in its place, and
   biases added up. A sum has at most DANAUS_MAX_FACTORS chains. */
DANAUS_API danaus_status
danaus_operator_add(danaus_operator *const *terms, int count, danaus_operator **sum);

/* How many terms a sum has, at least 2, and term 0, 1, ..., which belongs to it; 1 and the
   operator itself where it is no sum. NULL: there is no such term. */
DANAUS_API int danaus_operator_terms(const danaus_operator *made);
DANAUS_API const danaus_operator *danaus_operator_term(
    const danaus_operator *made, int term);

/* The bias: M elements of the operator's type, which plans add to A x. NULL: none. */
DANAUS_API const void *danaus_operator_bias(const danaus_operator *made);
DANAUS_API danaus_status
danaus_operator_set_bias(danaus_operator *made, const void *bias);

/* y = A x + bias, or A^H x with `adjoint`, for x and y on the host, of the operator's type,
   laid out as by danaus_ks_apply(): a plan and what else it takes is made for this call and
   released after it. */
DANAUS_API danaus_status danaus_operator_apply(
    danaus_device *device, const danaus_operator *made, int adjoint,
    danaus_layout layout, int64_t batch, const void *x, void *y);

/* Writes A to dense[M][N], elements of the operator's type, in sums of f64. */
DANAUS_API danaus_status
danaus_operator_to_dense(const danaus_operator *made, void *dense);

/* ---- plans of operators ---- */

/* A plan has the operator's weights and bias packed for a device, and the memory that runs
   take beside the device's scratch. One call at a time; destroy it before the device. On a
   CPU, x is read and y written once, by slabs of columns that pass through all terms and
   orders while they are in the cache; on a GPU terms follow each other on the stream. */
typedef struct danaus_operator_plan danaus_operator_plan;

/* desc as for danaus_ks_plan_create(), but for its type, of which 0 is the operator's; it may
   differ where both are real or both are complex. desc.bias does not count: a bias is added
   where there is one, but by adjoint plans. There is neither scale nor residual. The operator
   is copied: it may change or go. */
DANAUS_API danaus_status danaus_operator_plan_create(
    danaus_device *device, const danaus_operator *made, const danaus_ks_desc *desc,
    danaus_operator_plan **plan);
DANAUS_API void danaus_operator_plan_destroy(
    danaus_operator_plan *plan); /* NULL is fine */

/* Writes what will run, a line for each step, as danaus_ks_plan_describe() does. */
DANAUS_API size_t danaus_operator_plan_describe(
    const danaus_operator_plan *plan, char *text, size_t size);

/* Packs again, from the device's memory, as danaus_ks_weights_update_from(): w[l] is factor
   l, counted through all chains in order (danaus_operator_chain). */
DANAUS_API danaus_status danaus_operator_plan_update(
    danaus_operator_plan *plan, danaus_device *device, danaus_dtype dtype,
    const void *const *w, const void *bias);

/* y = activation(A x + bias) for `batch` columns of the plan's type and layout, batch >= 0,
   in device memory, which do not overlap. Each term is rounded to the plan's type once, and
   so is each sum; results have the same bits for any number of threads. The first call for a
   batch may allocate. */
DANAUS_API danaus_status danaus_operator_execute(
    danaus_operator_plan *plan, danaus_device *device, int64_t batch, const void *x,
    void *y);

/* Gradients as by danaus_ks_gradient(), dw having an entry for each factor of all chains.
   Needs a plan made with desc.gradients, and memory for what lies between the chains of
   one term, of all columns. */
DANAUS_API danaus_status danaus_operator_gradient(
    danaus_operator_plan *plan, danaus_device *device, int64_t batch, const void *x,
    const void *dy, const danaus_ks_gradients *gradients);

/* ---- files of operators ---- */

/* A file of an operator is a chain file of format 2 (docs/formats.md), with an order beside
   the factors, or, for sums and with a bias, of format 3, with the factors and orders of each
   term: danaus_chain_load() refuses both, so that nothing is forgotten. An operator that is a
   chain alone is written, and read, as a plain chain file; one of these with a bias is read
   with it. Saving replaces the file in one step. */
DANAUS_API danaus_status danaus_operator_load(const char *path, danaus_operator **made);
DANAUS_API danaus_status
danaus_operator_save(const danaus_operator *made, const char *path);

/* ---- transforms ---- */

/* Entry [k][n], 0 <= k, n < N. */
typedef enum danaus_transform {
    DANAUS_DFT = 0,        /* exp(-2 pi i k n / N); complex types */
    DANAUS_WALSH_HADAMARD, /* natural (Sylvester) order; N = 2^L */
    DANAUS_HARTLEY,        /* cos(2 pi k n / N) + sin(2 pi k n / N) */
    DANAUS_DCT1,           /* cos(pi k n / (N-1)); N >= 2 */
    DANAUS_DCT2,           /* cos(pi k (2n+1) / 2N) */
    DANAUS_DCT3,           /* cos(pi (2k+1) n / 2N) */
    DANAUS_DCT4,           /* cos(pi (2k+1) (2n+1) / 4N) */
    DANAUS_DST1,           /* sin(pi (k+1) (n+1) / (N+1)) */
    DANAUS_DST2,           /* sin(pi (k+1) (2n+1) / 2N) */
    DANAUS_DST3,           /* sin(pi (2k+1) (n+1) / 2N) */
    DANAUS_DST4,           /* sin(pi (2k+1) (2n+1) / 4N) */
    DANAUS_NOISELET, /* 2^-L product over bits b of 1 - i (-1)^(k_b + n_(L-1-b)); N = 2^L,
                        complex types; unitary */
    DANAUS_GIVENS,   /* a butterfly of rotations by `angles`; N = 2^L, orthogonal */
    DANAUS_WAVELET,   /* Daubechies' of `moments`, periodic, `levels`; orthogonal */
    DANAUS_CIRCULANT, /* v[(k - n) mod N], v of N `values` */
    DANAUS_TOEPLITZ   /* v[k - n + N - 1], v of 2N - 1 `values` */
} danaus_transform;

/* Daubechies' wavelets have at most so many vanishing moments here. */
#define DANAUS_MOST_MOMENTS 20

/* All-zero is the default of every field but `kind` and `n`. */
typedef struct danaus_transform_desc {
    danaus_transform kind;
    danaus_dtype dtype; /* of the factors; 0: f64, or c128 where it is complex */
    int64_t n;          /* N */
    /* Nonzero: with rows, and columns of DCT-I, DCT-III and DST-III, scaled so that the
       matrix is orthogonal (unitary): of DFT, Walsh-Hadamard, Hartley, DCT and DST.
       Noiselets, rotations and wavelets always are; circulants and Toeplitz matrices are
       never. */
    int orthonormal;
    /* Nonzero: the inverse of the matrix. Of orthonormal ones it is again of the family: of
       DCT-II the DCT-III and the other way round, of DST-II the DST-III, and of
       Walsh-Hadamard, Hartley, DCT-I, DCT-IV, DST-I and DST-IV themselves. That of a
       circulant is one; a singular one is refused. Toeplitz matrices have no such
       inverse: danaus_toeplitz_solve(). */
    int inverse;
    const void *values; /* of circulant and Toeplitz matrices, of the type dtype */
    const double
        *angles; /* of rotations, in radians: L N / 2 of them; the block (i, j) of
                             factor l, 0 <= i < 2^l, 0 <= j < 2^(L-1-l), is
                             [cos -sin; sin cos] of angles[l N/2 + i 2^(L-1-l) + j] */
    int moments; /* of wavelets: K of dbK, which has 2K taps; 0: 1, Haar's */
    int levels;  /* of wavelets: N is a multiple of 2^levels; 0: as many as N allows */
    uint32_t reserved[8];
} danaus_transform_desc;

/* Makes a transform. Fourier's, Hartley's, cosine, sine, circulant and Toeplitz
   transforms have lengths whose prime factors are at most 61 (of DCT-I N - 1, of DST-I
   N + 1), others are DANAUS_ERR_UNSUPPORTED.

   Wavelets: one level of n numbers makes n/2 averages a[k] = sum_m h[m] x[(2k+m) mod n] and
   n/2 details d[k] = sum_m g[m] x[(2k+m) mod n], g[m] = (-1)^m h[2K-1-m], where h is
   Daubechies' filter of minimal phase and norm 1. The next level takes the averages. The
   result is a of the last level, then d of the last to the first. */
DANAUS_API danaus_status
danaus_operator_transform(const danaus_transform_desc *desc, danaus_operator **made);

/* "dct2": how the program and Python call it; NULL for none. */
DANAUS_API const char *danaus_transform_name(danaus_transform kind);

/* Daubechies' h[0 .. 2 moments), to within a few units of the last place of f64. */
DANAUS_API danaus_status danaus_wavelet_filter(int moments, double *h);

/* x = T^-1 b for a Toeplitz matrix T[k][m] = v[k - m + n - 1], v of 2n - 1 values, and `batch`
   columns; values, b and x are of type `dtype`, b and x laid out as by danaus_ks_apply(), and
   they may be the same. Fourier's matrices of n points make T a Cauchy-like matrix, which
   is eliminated with partial pivoting in n^2 operations, of f64 or c128, and 8 n^2 bytes
   (Gohberg, Kailath, Olshevsky, Math. Comp. 64, 1995). Any n will do. As by elimination with
   pivots the residual is small, ||T x - b|| about n eps ||T|| ||x||, unless numbers grow on
   the way. DANAUS_ERR_ARGUMENT where a pivot is 0 but for rounding; x then stays as it is. */
DANAUS_API danaus_status danaus_toeplitz_solve(
    danaus_dtype dtype, int64_t n, const void *values, danaus_layout layout,
    int64_t batch, const void *b, void *x);

/* ---- non-uniform Fourier transforms ---- */

/* N modes k = -floor(N/2) .. and M points x_j in radians, of one dimension:

       type 1    F[k] = sum over j of c[j] exp(i k x_j)
       type 2    c[j] = sum over k of F[k] exp(i k x_j)

   by a window on a grid of 2 N to 4 N places, with errors of at most
   tolerance (sum over j of |c[j]|), or of |F[k]|, beside those that rounding does: of x_j, N
   |x_j| 2^-53, and of the type's. */
typedef struct danaus_nufft_plan danaus_nufft_plan;

/* All-zero is the default of every field but n, points and x. */
typedef struct danaus_nufft_desc {
    int64_t n;          /* N modes, at most 2^28 */
    int64_t points;     /* M */
    const double *x;    /* [M], any finite numbers; they are copied */
    double tolerance;   /* 1e-13 (c64: 1e-6) to 0.1; 0: 1e-6 */
    danaus_dtype dtype; /* c64 or c128; 0: c128 */
    int negative;       /* nonzero: exp(-i k x_j) */
    int threads;        /* 0: one for each processor */
    uint32_t reserved[9];
} danaus_nufft_desc;

/* A plan has the points in the order of the grid with the weights of their windows, and
   the memory that running takes: M (16 + w) numbers and 6 grids, w being
   log10(20 / tolerance), rounded up. One call at a time. Results have the same bits for any number of
   threads and on every run. */
DANAUS_API danaus_status
danaus_nufft_plan_create(const danaus_nufft_desc *desc, danaus_nufft_plan **plan);
DANAUS_API void danaus_nufft_plan_destroy(danaus_nufft_plan *plan); /* NULL is fine */

/* numbers are c[M] and modes F[N], complex, of the plan's type; they do not overlap. */
DANAUS_API danaus_status
danaus_nufft_type1(danaus_nufft_plan *plan, const void *numbers, void *modes);
DANAUS_API danaus_status
danaus_nufft_type2(danaus_nufft_plan *plan, const void *modes, void *numbers);

#ifdef __cplusplus
}
#endif

#endif
