/* What the kinds of transforms share, and how danaus_operator_transform() makes each. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_OPERATOR_TRANSFORMS_TRANSFORMS_H
#define DN_OPERATOR_TRANSFORMS_TRANSFORMS_H

#include "operator/operator.h"

typedef struct root {
    double re, im;
} root;

static inline root dn_times(root x, root y)
{
    return (root){ x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re };
}

static inline root dn_conjugate(root z) { return (root){ z.re, -z.im }; }

/* exp(-2 pi i num / den) */
root dn_root(int64_t num, int64_t den);

/* ---- chains of radices ---- */

/* How a complex index is laid out in a factor's rows or columns. */
typedef enum side {
    PLAIN, /* one number: complex, or the end of a real chain */
    OUTER, /* real and imaginary parts as two runs: t size + index */
    INNER  /* as neighbours: 2 index + t */
} side;

/* A chain of Fourier's being filled. */
typedef struct fourier {
    int64_t n; /* product of the radices */
    const int64_t *radix;
    int count;
    danaus_dtype dtype;
    int complex; /* numbers stay complex; else each becomes a real 2 x 2 matrix */
    danaus_chain *chain;
} fourier;

/* Prime factors, twos in pairs. An end of 2 makes a real chain redundant; with `wide_ends`
   the 2 moves inside, or merges with its neighbour. */
danaus_status dn_choose_radices(int64_t n, int wide_ends, int64_t *radix, int *count);

/* The complex pattern of factor l, and as it is stored with such sides. */
danaus_pattern dn_radix_pattern(const fourier *f, int l);
danaus_pattern dn_doubled(danaus_pattern p, side rows, side cols);

/* Entry (r, k) of block (i, j) of a factor whose complex pattern is p. */
void dn_put(
    const fourier *f, int factor, danaus_pattern p, side rows, side cols, int64_t i,
    int64_t r, int64_t k, int64_t j, root z);

/* to[pos] for pos < n: the digit reversal. */
void dn_digit_reversal(const int64_t *radix, int count, int64_t *to);

/* ---- the kinds; desc is checked but for what its kind alone asks for ---- */

/* Radices of these, whose product is the length of the Fourier transform. */
danaus_status dn_fourier(
    const danaus_transform_desc *desc, const int64_t *radices, int count,
    danaus_operator **made);
danaus_status dn_fourier_transform(
    const danaus_transform_desc *desc, danaus_operator **made);
danaus_status dn_circulant(const danaus_transform_desc *desc, danaus_operator **made);
danaus_status dn_butterfly(const danaus_transform_desc *desc, danaus_operator **made);
danaus_status dn_wavelet(const danaus_transform_desc *desc, danaus_operator **made);

#endif
