/* Known transforms as exact chains, with the orders of numbers that they need.

   An operator is a matrix A, M x N, that consists of chains with orders around them:

       A = S_0 (K_1 + I) S_1 (K_2 + I) ... (K_C + I) S_C

   where K_i is a chain, and + I means that numbers beyond its columns are copied behind its
   rows. An order picks numbers: (S v)[p] = v[order[p]], and 0 where order[p] is -1. It may
   permute, select, repeat and pad. S_0 gives the M outputs in their order and S_C takes the N
   inputs. A chain alone is the operator whose orders change nothing. Most transforms are one
   chain between two orders; a wavelet has one chain for each level. A sum of operators is an
   operator too; their patterns need not agree, and a product costs as much as those of all
   terms. A plan multiplies by any operator and reads x and writes y once.

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
   count + 1 orders of lengths[0 .. count]; lengths[0] is M. Order i + 1 gives the inputs of
   chain i and the numbers that pass it by, so lengths[i + 1] is at least the columns of chain
   i. Entries of order i are -1 or places among the outputs of chain i and the numbers that
   pass by; those of the last order are places among the N = cols inputs. orders and its
   entries may be NULL: such orders change nothing, and their lengths are not read. Orders are
   copied. On success the chains belong to the operator; on failure they stay the caller's. */
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
   that does not exist. length may be NULL. The chains of a sum are those of its terms, one
   term after the other; a sum has no orders of its own. */
DANAUS_API const danaus_chain *danaus_operator_chain(
    const danaus_operator *made, int chain);
DANAUS_API const int64_t *danaus_operator_order(
    const danaus_operator *made, int order, int64_t *length);

/* T_1 + T_2 + .. + T_n, n >= 1, for operators of one type and size. On success they belong to
   the sum; on failure they stay the caller's. A term that is itself a sum is replaced by its
   terms, and biases are added up. A sum has at most DANAUS_MAX_FACTORS chains. */
DANAUS_API danaus_status
danaus_operator_add(danaus_operator *const *terms, int count, danaus_operator **sum);

/* The number of terms of a sum, at least 2, and its term 0, 1, ..., which belongs to it. An
   operator that is no sum has 1 term, itself. NULL if there is no such term. */
DANAUS_API int danaus_operator_terms(const danaus_operator *made);
DANAUS_API const danaus_operator *danaus_operator_term(
    const danaus_operator *made, int term);

/* The bias: M elements of the operator's type, which plans add to A x. NULL: none. */
DANAUS_API const void *danaus_operator_bias(const danaus_operator *made);
DANAUS_API danaus_status
danaus_operator_set_bias(danaus_operator *made, const void *bias);

/* y = A x + bias, or A^H x with `adjoint`, for x and y on the host, in the operator's type,
   laid out as by danaus_ks_apply(). The call makes a plan and releases it. */
DANAUS_API danaus_status danaus_operator_apply(
    danaus_device *device, const danaus_operator *made, int adjoint,
    danaus_layout layout, int64_t batch, const void *x, void *y);

/* Writes A to dense[M][N] in the operator's type, with sums in f64. */
DANAUS_API danaus_status
danaus_operator_to_dense(const danaus_operator *made, void *dense);

/* ---- plans of operators ---- */

/* A plan has the operator's weights and bias packed for a device, and the memory that runs
   need beside the device's scratch. One call at a time; destroy it before the device. On a
   CPU, slabs of columns pass through all terms and orders while they are in the cache, so x
   is read and y written once. On a GPU terms follow each other on the stream. */
typedef struct danaus_operator_plan danaus_operator_plan;

/* desc is as for danaus_ks_plan_create(), except for its type: 0 is the operator's type, and
   another type is possible when both are real or both are complex. desc.bias has no effect: a
   plan adds the operator's bias unless it is adjoint. scale and residual are not supported.
   The operator is copied: it may change or be destroyed. */
DANAUS_API danaus_status danaus_operator_plan_create(
    danaus_device *device, const danaus_operator *made, const danaus_ks_desc *desc,
    danaus_operator_plan **plan);
DANAUS_API void danaus_operator_plan_destroy(
    danaus_operator_plan *plan); /* NULL is fine */

/* Writes what will run, a line for each step, as danaus_ks_plan_describe() does. */
DANAUS_API size_t danaus_operator_plan_describe(
    const danaus_operator_plan *plan, char *text, size_t size);

/* The sum of danaus_ks_plan_seconds() over all chains; 0 for NULL. */
DANAUS_API double danaus_operator_plan_seconds(const danaus_operator_plan *plan);

/* Packs again from device memory, like danaus_ks_weights_update_from(). w[l] is factor l,
   counted through all chains in order (danaus_operator_chain). */
DANAUS_API danaus_status danaus_operator_plan_update(
    danaus_operator_plan *plan, danaus_device *device, danaus_dtype dtype,
    const void *const *w, const void *bias);

/* y = activation(A x + bias) for `batch` columns, batch >= 0. x and y are device memory in the
   plan's type and layout, and do not overlap. Each term is rounded to the plan's type once,
   and so is each sum. Results have the same bits for any number of threads. The first call
   for a batch may allocate. */
DANAUS_API danaus_status danaus_operator_execute(
    danaus_operator_plan *plan, danaus_device *device, int64_t batch, const void *x,
    void *y);

/* Gradients as by danaus_ks_gradient(); dw has an entry for each factor of all chains. The
   call needs a plan made with desc.gradients, and memory for all columns of the intermediate
   results between the chains of one term. */
DANAUS_API danaus_status danaus_operator_gradient(
    danaus_operator_plan *plan, danaus_device *device, int64_t batch, const void *x,
    const void *dy, const danaus_ks_gradients *gradients);

/* ---- files of operators ---- */

/* An operator's file is a chain file of format 2 (docs/formats.md), with orders beside the
   factors. Sums, and operators with a bias, have format 3, with the factors and orders of each
   term. danaus_chain_load() refuses both formats, because it would lose orders and terms. An
   operator that is a chain alone is written and read as a plain chain file, with its bias if
   the file has one. Saving replaces the file in one step. */
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
    /* Nonzero: rows, and columns of DCT-I, DCT-III and DST-III, are scaled so that the matrix
       is orthogonal (unitary). For DFT, Walsh-Hadamard, Hartley, DCT and DST. Noiselets,
       rotations and wavelets are always orthogonal; circulants and Toeplitz matrices never. */
    int orthonormal;
    /* Nonzero: the inverse of the matrix. The inverse of an orthonormal transform is again one
       of these: DCT-II and DCT-III are inverses of each other, as are DST-II and DST-III, and
       Walsh-Hadamard, Hartley, DCT-I, DCT-IV, DST-I and DST-IV are their own inverses. The
       inverse of a circulant is a circulant; a singular circulant is refused. Toeplitz
       matrices have no such inverse: see danaus_toeplitz_solve(). */
    int inverse;
    const void *values; /* of circulant and Toeplitz matrices, in the type dtype */
    const double
        *angles; /* of rotations, L N / 2 angles in radians; the block (i, j) of factor
                             l, 0 <= i < 2^l, 0 <= j < 2^(L-1-l), is [cos -sin; sin cos] of
                             angles[l N/2 + i 2^(L-1-l) + j] */
    int moments; /* of wavelets: K of dbK, which has 2K taps; 0: 1, Haar's */
    int levels;  /* of wavelets: N is a multiple of 2^levels; 0: as many as N allows */
    uint32_t reserved[8];
} danaus_transform_desc;

/* Makes a transform. Fourier, Hartley, cosine, sine, circulant and Toeplitz transforms need
   lengths whose prime factors are at most 61 (N - 1 for DCT-I, N + 1 for DST-I);
   DANAUS_ERR_UNSUPPORTED for other lengths.

   Wavelets: one level turns n numbers into n/2 averages a[k] = sum_m h[m] x[(2k+m) mod n] and
   n/2 details d[k] = sum_m g[m] x[(2k+m) mod n], g[m] = (-1)^m h[2K-1-m], where h is
   Daubechies' filter of minimal phase and norm 1. The next level takes the averages. The
   result is a of the last level, then d of the last level to the first. */
DANAUS_API danaus_status
danaus_operator_transform(const danaus_transform_desc *desc, danaus_operator **made);

/* The name in the program and in Python, "dct2"; NULL if there is no such transform. */
DANAUS_API const char *danaus_transform_name(danaus_transform kind);

/* Daubechies' h[0 .. 2 moments), correct to a few units in the last place of f64. */
DANAUS_API danaus_status danaus_wavelet_filter(int moments, double *h);

/* x = T^-1 b for a Toeplitz matrix T[k][m] = v[k - m + n - 1], v of 2n - 1 values, and `batch`
   columns. values, b and x have type `dtype`. b and x are laid out as by danaus_ks_apply() and
   may be the same array. n is any size. Fourier matrices of n points turn T into a Cauchy-like
   matrix, which is eliminated with partial pivoting in n^2 operations in f64 or c128 and 8 n^2
   bytes (Gohberg, Kailath, Olshevsky, Math. Comp. 64, 1995). As with any elimination with
   pivots, the residual ||T x - b|| is about n eps ||T|| ||x|| unless intermediate numbers
   grow. DANAUS_ERR_ARGUMENT if a pivot is 0 up to rounding; x then does not change. */
DANAUS_API danaus_status danaus_toeplitz_solve(
    danaus_dtype dtype, int64_t n, const void *values, danaus_layout layout,
    int64_t batch, const void *b, void *x);

/* ---- non-uniform Fourier transforms ---- */

/* N modes k = -floor(N/2) .. and M points x_j in radians, of one dimension:

       type 1    F[k] = sum over j of c[j] exp(i k x_j)
       type 2    c[j] = sum over k of F[k] exp(i k x_j)

   by a window on a grid of 2 N to 4 N places. Errors are at most tolerance (sum over j of
   |c[j]|), for type 2 tolerance (sum over k of |F[k]|). Rounding adds its own: N |x_j| 2^-53
   from the points, and that of the type. */
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

/* A plan has the points in the order of the grid, the weights of their windows, and the memory
   for running: M (16 + w) numbers and 6 grids, where w is log10(20 / tolerance) rounded up.
   One call at a time. Results have the same bits for any number of threads and on every
   run. */
DANAUS_API danaus_status
danaus_nufft_plan_create(const danaus_nufft_desc *desc, danaus_nufft_plan **plan);
DANAUS_API void danaus_nufft_plan_destroy(danaus_nufft_plan *plan); /* NULL is fine */

/* numbers are c[M] and modes are F[N], complex and in the plan's type; they do not overlap. */
DANAUS_API danaus_status
danaus_nufft_type1(danaus_nufft_plan *plan, const void *numbers, void *modes);
DANAUS_API danaus_status
danaus_nufft_type2(danaus_nufft_plan *plan, const void *modes, void *numbers);

#ifdef __cplusplus
}
#endif

#endif
