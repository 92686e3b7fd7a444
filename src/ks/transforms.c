/* Known transforms as exact chains (docs/ks.md, section 7).

   Fourier. For radices N_1 .. N_L with product N, m_l = N_{l+1} .. N_L and the digit
   reversal P, F_N P^T = B = K_1 .. K_L on the patterns (N_1..N_{l-1}, N_l, N_l, m_l);
   block (i, j) of K_l does not depend on i:
       K_l[k, n] = exp(-2 pi i (k m_l + j) n / (N_l m_l)).

   Cosine and sine. With the columns in the order 0, 2, 4, .., 5, 3, 1 each is
   Re(diag(alpha) F_N diag(beta)) for numbers of modulus one. A complex number as a
   real 2 x 2 matrix makes B a real chain of block rank 2; alpha and the real part are
   absorbed by the first factor, beta and the real input by the last.

   Circulant. C = (1/N) conj(B) diag(P F v) B^T; the factors in the middle are one. */
// SPDX-License-Identifier: Apache-2.0
#include "ks/transforms.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/dft.h"

#include <inttypes.h>
#include <string.h>

enum { LARGEST_PRIME = 61 };

typedef struct root {
    double re, im;
} root;

static root times(root x, root y)
{
    return (root){ x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re };
}

/* exp(-2 pi i num / den) */
static root unit_root(int64_t num, int64_t den)
{
    double z[2];
    dn_unit(num, den, z);
    return (root){ z[0], -z[1] };
}

/* ---- one chain being filled ---- */

/* How a complex index is laid out in a factor's rows or columns. */
typedef enum side {
    PLAIN, /* one number: complex, or the end of a real chain */
    OUTER, /* real and imaginary parts as two runs: t size + index */
    INNER  /* as neighbours: 2 index + t */
} side;

typedef struct fourier {
    danaus_transform transform;
    int64_t n;
    const int64_t *radix;
    int count;
    int64_t before, after; /* radices left and right of the current factor */
    danaus_dtype dtype;
    int complex; /* numbers stay complex; else each becomes a real 2 x 2 matrix */
    danaus_chain *chain;
    root *spectrum; /* of the circulant's column, over N */
} fourier;

static danaus_pattern doubled(danaus_pattern p, side rows, side cols)
{
    p.b *= rows == PLAIN ? 1 : 2;
    p.c *= cols == PLAIN ? 1 : 2;
    return p;
}

static int64_t place(side s, int64_t index, int64_t size, int t)
{
    return s == OUTER ? t * size + index : s == INNER ? 2 * index + t : index;
}

/* Entry (r, k) of block (i, j) of a factor whose complex pattern is p. */
static void put(
    const fourier *f, int factor, danaus_pattern p, side rows, side cols, int64_t i,
    int64_t r, int64_t k, int64_t j, root z)
{
    danaus_pattern q = doubled(p, rows, cols);
    void *w = danaus_chain_weights(f->chain, factor);
    root column[2] = { z, { -z.im, z.re } };
    for (int t = 0; t < (rows == PLAIN ? 1 : 2); t++)
        for (int u = 0; u < (cols == PLAIN ? 1 : 2); u++) {
            int64_t row = place(rows, r, p.b, t), col = place(cols, k, p.c, u);
            double value[2] = { t ? column[u].im : column[u].re,
                                f->complex ? z.im : 0 };
            dn_store(f->dtype, w, ((i * q.b + row) * q.c + col) * q.d + j, value);
        }
}

static void sides_of(const fourier *f, int l, side *rows, side *cols)
{
    *rows = f->complex || l == 0 ? PLAIN : OUTER;
    *cols = f->complex || l == f->count - 1 ? PLAIN : INNER;
}

static danaus_pattern pattern_of(const fourier *f, int l)
{
    danaus_pattern p = { 1, f->radix[l], f->radix[l], 1 };
    for (int x = 0; x < f->count; x++)
        *(x < l ? &p.a : &p.d) *= x == l ? 1 : f->radix[x];
    return p;
}

/* ---- permutations ---- */

/* to[pos] for pos < n: the digit reversal, recursively
   digrev(N_1, rest) = concatenation over n1 of n1 + N_1 digrev(rest). */
static void digit_reversal(const int64_t *radix, int count, int64_t *to)
{
    int64_t n = 1;
    to[0] = 0;
    for (int l = count - 1; l >= 0; l--) {
        for (int64_t n1 = radix[l] - 1; n1 >= 0; n1--)
            for (int64_t x = 0; x < n; x++)
                to[n1 * n + x] = n1 + radix[l] * to[x];
        n *= radix[l];
    }
}

/* Column of the cosine transform at place p of the order 0, 2, 4, .., 5, 3, 1. */
static int64_t folded(int64_t n, int64_t p)
{
    return p < (n + 1) / 2 ? 2 * p : 2 * (n - 1 - p) + 1;
}

/* ---- Fourier, cosine, sine ---- */

/* alpha of row k. */
static root row_phase(const fourier *f, int64_t k)
{
    int64_t n = f->n;
    switch (f->transform) {
    case DANAUS_DCT2: return unit_root(k, 4 * n);
    case DANAUS_DST2: return unit_root(4 * n - (n - 1 - k), 4 * n);
    case DANAUS_DCT4: return unit_root(2 * k + 1, 8 * n);
    default: return (root){ 1, 0 };
    }
}

/* beta of place p of the folded order. */
static root column_phase(const fourier *f, int64_t p)
{
    int64_t n = f->n, half = p < (n + 1) / 2 ? 0 : n;
    switch (f->transform) {
    case DANAUS_DST2: return unit_root(2 * p + half, 2 * n);
    case DANAUS_DCT4: return unit_root(p + half, 2 * n);
    default: return (root){ 1, 0 };
    }
}

static void fill_fourier(const fourier *f, const int64_t *reversal)
{
    for (int l = 0; l < f->count; l++) {
        danaus_pattern p = pattern_of(f, l);
        side rows, cols;
        sides_of(f, l, &rows, &cols);
        for (int64_t i = 0; i < p.a; i++)
            for (int64_t r = 0; r < p.b; r++)
                for (int64_t k = 0; k < p.c; k++)
                    for (int64_t j = 0; j < p.d; j++) {
                        root z = unit_root((r * p.d + j) * k, p.b * p.d);
                        if (l == 0)
                            z = times(z, row_phase(f, r * p.d + j));
                        if (l == f->count - 1)
                            z = times(z, column_phase(f, reversal[i * p.c + k]));
                        put(f, l, p, rows, cols, i, r, k, j, z);
                    }
    }
}

static danaus_status make_fourier(fourier *f, int64_t *permutation)
{
    danaus_pattern p[DANAUS_MAX_FACTORS];
    for (int l = 0; l < f->count; l++) {
        side rows, cols;
        sides_of(f, l, &rows, &cols);
        p[l] = doubled(pattern_of(f, l), rows, cols);
    }
    int64_t *reversal = dn_alloc((size_t)f->n * sizeof *reversal);
    if (!reversal)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for a permutation");
    digit_reversal(f->radix, f->count, reversal);
    danaus_status status = danaus_chain_create(p, f->count, f->dtype, &f->chain);
    if (status == DANAUS_OK) {
        fill_fourier(f, reversal);
        for (int64_t x = 0; x < f->n; x++)
            permutation[x] =
                f->transform == DANAUS_DFT ? reversal[x] : folded(f->n, reversal[x]);
    }
    dn_free(reversal);
    return status;
}

/* ---- circulant ---- */

/* to[k] = sum over m of x[stride m] exp(-2 pi i k m / n) by decimation in time. */
static void transform_column(
    const fourier *f, int l, int64_t n, int64_t stride, const root *x, root *to,
    root *scratch)
{
    if (l == f->count) {
        to[0] = x[0];
        return;
    }
    int64_t q = f->radix[l], m = n / q;
    for (int64_t n1 = 0; n1 < q; n1++)
        transform_column(
            f, l + 1, m, stride * q, x + n1 * stride, to + n1 * m, scratch);
    for (int64_t k = 0; k < n; k++) {
        root sum = { 0 };
        for (int64_t n1 = 0; n1 < q; n1++) {
            root z = times(unit_root(n1 * k, n), to[n1 * m + k % m]);
            sum = (root){ sum.re + z.re, sum.im + z.im };
        }
        scratch[k] = sum;
    }
    memcpy(to, scratch, (size_t)n * sizeof *to);
}

static root conjugate(root z) { return (root){ z.re, -z.im }; }

/* Factor l of conj(B) and, mirrored, factor 2 L - 2 - l, of B^T. */
static void fill_outer_pair(const fourier *f, int l)
{
    danaus_pattern p = pattern_of(f, l);
    side end = f->complex || l == 0 ? PLAIN : OUTER, in = f->complex ? PLAIN : INNER;
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t k = 0; k < p.c; k++)
                for (int64_t j = 0; j < p.d; j++) {
                    root z = unit_root((r * p.d + j) * k, p.b * p.d);
                    put(f, l, p, end, in, i, r, k, j, conjugate(z));
                    put(f, 2 * f->count - 2 - l, p, in, end, i, k, r, j, z);
                }
}

/* conj(K_L) diag(spectrum) K_L^T. */
static void fill_middle(const fourier *f, const int64_t *reversal)
{
    int l = f->count - 1;
    danaus_pattern p = pattern_of(f, l);
    side s = f->complex || l == 0 ? PLAIN : OUTER;
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t k = 0; k < p.c; k++) {
                root sum = { 0 };
                for (int64_t x = 0; x < p.c; x++) {
                    root z = unit_root(k * x + (p.b - r) * x, p.b);
                    z = times(z, f->spectrum[reversal[i * p.c + x]]);
                    sum = (root){ sum.re + z.re, sum.im + z.im };
                }
                put(f, l, p, s, s, i, r, k, 0, sum);
            }
}

static danaus_status fill_circulant(fourier *f, const root *column, int64_t *reversal)
{
    root *scratch = dn_alloc((size_t)f->n * sizeof *scratch);
    f->spectrum = dn_alloc((size_t)f->n * sizeof *f->spectrum);
    danaus_status status = DANAUS_OK;
    if (scratch && f->spectrum) {
        transform_column(f, 0, f->n, 1, column, f->spectrum, scratch);
        for (int64_t k = 0; k < f->n; k++) {
            f->spectrum[k].re /= (double)f->n;
            f->spectrum[k].im /= (double)f->n;
        }
        for (int l = 0; l + 1 < f->count; l++)
            fill_outer_pair(f, l);
        fill_middle(f, reversal);
    } else {
        status = dn_fail(DANAUS_ERR_MEMORY, "no memory for a spectrum");
    }
    dn_free(scratch);
    dn_free(f->spectrum);
    return status;
}

static danaus_status make_circulant(
    fourier *f, const root *column, int64_t *permutation)
{
    danaus_pattern p[DANAUS_MAX_FACTORS];
    int middle = f->count - 1, total = 2 * f->count - 1;
    if (total > DANAUS_MAX_FACTORS)
        return dn_fail(DANAUS_ERR_UNSUPPORTED, "a circulant of too many factors");
    for (int l = 0; l < middle; l++) {
        side end = f->complex || l == 0 ? PLAIN : OUTER,
             in = f->complex ? PLAIN : INNER;
        p[l] = doubled(pattern_of(f, l), end, in);
        p[total - 1 - l] = doubled(pattern_of(f, l), in, end);
    }
    side s = f->complex || middle == 0 ? PLAIN : OUTER;
    p[middle] = doubled(pattern_of(f, middle), s, s);
    TRY(danaus_chain_create(p, total, f->dtype, &f->chain));
    int64_t *reversal = dn_alloc((size_t)f->n * sizeof *reversal);
    danaus_status status = DANAUS_OK;
    if (reversal) {
        digit_reversal(f->radix, f->count, reversal);
        status = fill_circulant(f, column, reversal);
    } else {
        status = dn_fail(DANAUS_ERR_MEMORY, "no memory for a permutation");
    }
    dn_free(reversal);
    if (status != DANAUS_OK)
        danaus_chain_destroy(f->chain);
    for (int64_t x = 0; status == DANAUS_OK && x < f->n; x++)
        permutation[x] = x;
    return status;
}

/* The first column: v itself, or v[n-1 ..], 0, v[0 .. n-2] of a Toeplitz matrix. */
static root *column_of(const fourier *f, const void *values)
{
    root *column = dn_calloc((size_t)f->n, sizeof *column);
    int64_t half = f->n / 2;
    for (int64_t x = 0; column && x < f->n; x++) {
        int64_t from = x;
        if (f->transform == DANAUS_TOEPLITZ)
            from = x < half ? half - 1 + x : x == half ? -1 : x - half - 1;
        double value[2] = { 0 };
        if (from >= 0)
            dn_load(f->dtype, values, from, value);
        column[x] = (root){ value[0], value[1] };
    }
    return column;
}

danaus_status dn_chain_transform(
    danaus_transform transform, int64_t n, const int64_t *radices, int count,
    danaus_dtype dtype, const void *values, danaus_chain **chain, int64_t *permutation)
{
    fourier f = {
        .transform = transform, .n = n, .radix = radices, .count = count, .dtype = dtype
    };
    int circulant = transform == DANAUS_CIRCULANT || transform == DANAUS_TOEPLITZ;
    f.complex = transform == DANAUS_DFT || (circulant && dn_is_complex(dtype));
    if (circulant) {
        root *column = column_of(&f, values);
        if (!column)
            return dn_fail(DANAUS_ERR_MEMORY, "no memory for a column");
        danaus_status status = make_circulant(&f, column, permutation);
        dn_free(column);
        TRY(status);
    } else {
        TRY(make_fourier(&f, permutation));
    }
    *chain = f.chain;
    return DANAUS_OK;
}

/* ---- the door ---- */

/* Prime factors, twos in pairs. An end of 2 makes a chain of rank 2 redundant; with
   `wide_ends` the 2 moves inside, or merges with its neighbour. */
static danaus_status choose_radices(
    int64_t n, int wide_ends, int64_t *radix, int *count)
{
    int64_t rest = n;
    int all = 0;
    for (; rest % 4 == 0; rest /= 4)
        radix[all++] = 4;
    for (int64_t prime = 2; prime <= LARGEST_PRIME; prime++)
        for (; rest % prime == 0; rest /= prime)
            radix[all++] = prime;
    if (rest > 1)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "length %" PRId64 " has a prime factor above %d: no fast chain serves it",
            n, LARGEST_PRIME);
    if (all == 0)
        radix[all++] = 1;
    int first = radix[0] == 2, last = radix[all - 1] == 2;
    if (wide_ends && all == 2 && (first || last)) {
        radix[0] *= radix[1];
        all = 1;
    } else if (wide_ends && all > 2 && (first || last)) {
        int at = first ? 0 : all - 1, inside = first ? 1 : all - 2;
        radix[at] = radix[inside];
        radix[inside] = 2;
    }
    *count = all;
    return DANAUS_OK;
}

/* All blocks [1 1; 1 -1] on the dyadic chain. */
static danaus_status make_hadamard(
    int64_t n, danaus_dtype dtype, danaus_chain **chain, int64_t *permutation)
{
    danaus_chain_desc desc = { .kind = DANAUS_CHAIN_DYADIC, .rows = n, .cols = n };
    danaus_pattern p[DANAUS_MAX_FACTORS] = { { 1, 1, 1, 1 } };
    int count = 1;
    if (n & (n - 1))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "a Walsh-Hadamard transform has a power of two as its length, not %" PRId64,
            n);
    if (n > 1)
        TRY(danaus_patterns_make(&desc, p, DANAUS_MAX_FACTORS, &count));
    danaus_chain *made;
    TRY(danaus_chain_create(p, count, dtype, &made));
    for (int l = 0; l < count; l++)
        for (int64_t at = 0; at < p[l].a * p[l].b * p[l].c * p[l].d; at++) {
            int64_t entry = at / p[l].d % (p[l].b * p[l].c);
            dn_store(
                dtype, danaus_chain_weights(made, l), at,
                (double[2]){ entry == 3 ? -1 : 1, 0 });
        }
    for (int64_t x = 0; x < n; x++)
        permutation[x] = x;
    *chain = made;
    return DANAUS_OK;
}

danaus_status danaus_chain_transform(
    danaus_transform transform, int64_t n, danaus_dtype dtype, const void *values,
    danaus_chain **chain, int64_t *permutation)
{
    if (!chain || !permutation)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "places for a chain and a permutation are needed");
    if (transform < DANAUS_DFT || transform > DANAUS_TOEPLITZ)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no transform", (int)transform);
    if (!dn_dtype(dtype))
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no element type", (int)dtype);
    if (n < 1 || n > INT32_MAX)
        return dn_fail(DANAUS_ERR_SHAPE, "%" PRId64 " is no length of a transform", n);
    int circulant = transform == DANAUS_CIRCULANT || transform == DANAUS_TOEPLITZ;
    if (circulant != (values != NULL))
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "values belong to circulant and Toeplitz matrices, and only to them");
    if (transform == DANAUS_DFT && !dn_is_complex(dtype))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "a Fourier transform needs a complex type, not %s",
            danaus_dtype_name(dtype));
    if (transform == DANAUS_WALSH_HADAMARD)
        return make_hadamard(n, dtype, chain, permutation);
    int64_t size = transform == DANAUS_TOEPLITZ ? 2 * n : n, radix[DANAUS_MAX_FACTORS];
    int count,
        doubled = transform != DANAUS_DFT && !(circulant && dn_is_complex(dtype));
    TRY(choose_radices(size, doubled, radix, &count));
    return dn_chain_transform(
        transform, size, radix, count, dtype, values, chain, permutation);
}
