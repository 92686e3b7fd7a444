/* Circulant matrices, their inverses and Toeplitz matrices as exact chains.

   C = (1/N) conj(B) diag(P F v) B^T for the chain B and the order P of Fourier's
   (fourier.c); the factors in the middle are one. A Toeplitz matrix is the leading block
   of a circulant of twice its size. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/transforms/transforms.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct circulant_job {
    fourier f;
    const root *column; /* v */
    root *spectrum;     /* of v or of the inverse's column, over N */
    root *scratch;
    int64_t *reversal;
    int inverse;
} circulant_job;

/* ---- the spectrum ---- */

/* to[k] = sum over m of x[stride m] exp(-2 pi i k m / n) by decimation in time. */
static void transform_column(
    const circulant_job *j, int l, int64_t n, int64_t stride, const root *x, root *to)
{
    if (l == j->f.count) {
        to[0] = x[0];
        return;
    }
    int64_t q = j->f.radix[l], m = n / q;
    for (int64_t n1 = 0; n1 < q; n1++)
        transform_column(j, l + 1, m, stride * q, x + n1 * stride, to + n1 * m);
    for (int64_t k = 0; k < n; k++) {
        root sum = { 0 };
        for (int64_t n1 = 0; n1 < q; n1++) {
            root z = dn_times(dn_root(n1 * k, n), to[n1 * m + k % m]);
            sum = (root){ sum.re + z.re, sum.im + z.im };
        }
        j->scratch[k] = sum;
    }
    memcpy(to, j->scratch, (size_t)n * sizeof *to);
}

/* The spectrum's numbers are the eigenvalues: the inverse has their reciprocals. One that
   rounding may have made of 0 is taken for 0. */
static danaus_status invert_spectrum(const circulant_job *j)
{
    double most = 0;
    for (int64_t k = 0; k < j->f.n; k++)
        most = fmax(most, hypot(j->spectrum[k].re, j->spectrum[k].im));
    double least = most * DBL_EPSILON * log2(2 * (double)j->f.n);
    for (int64_t k = 0; k < j->f.n; k++) {
        root z = j->spectrum[k];
        double size = hypot(z.re, z.im);
        if (!(size > least) || !isfinite(most))
            return dn_fail(
                DANAUS_ERR_ARGUMENT,
                "the circulant matrix has no inverse: its eigenvalue %" PRId64
                " is %g, and the greatest %g",
                k, size, most);
        j->spectrum[k] = (root){ z.re / size / size, -z.im / size / size };
    }
    return DANAUS_OK;
}

static danaus_status make_spectrum(const circulant_job *j)
{
    transform_column(j, 0, j->f.n, 1, j->column, j->spectrum);
    if (j->inverse)
        TRY(invert_spectrum(j));
    for (int64_t k = 0; k < j->f.n; k++) {
        j->spectrum[k].re /= (double)j->f.n;
        j->spectrum[k].im /= (double)j->f.n;
    }
    return DANAUS_OK;
}

/* ---- the chain ---- */

/* Factor l of conj(B) and, mirrored, factor 2 L - 2 - l, of B^T. */
static void fill_outer_pair(const circulant_job *j, int l)
{
    const fourier *f = &j->f;
    danaus_pattern p = dn_radix_pattern(f, l);
    side end = f->complex || l == 0 ? PLAIN : OUTER, in = f->complex ? PLAIN : INNER;
    int mirrored = 2 * f->count - 2 - l;
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t k = 0; k < p.c; k++)
                for (int64_t t = 0; t < p.d; t++) {
                    root z = dn_root((r * p.d + t) * k, p.b * p.d);
                    dn_put(f, l, p, end, in, i, r, k, t, dn_conjugate(z));
                    dn_put(f, mirrored, p, in, end, i, k, r, t, z);
                }
}

/* conj(K_L) diag(spectrum) K_L^T. */
static void fill_middle(const circulant_job *j)
{
    const fourier *f = &j->f;
    int l = f->count - 1;
    danaus_pattern p = dn_radix_pattern(f, l);
    side s = f->complex || l == 0 ? PLAIN : OUTER;
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t k = 0; k < p.c; k++) {
                root sum = { 0 };
                for (int64_t x = 0; x < p.c; x++) {
                    root z = dn_root(k * x + (p.b - r) * x, p.b);
                    z = dn_times(z, j->spectrum[j->reversal[i * p.c + x]]);
                    sum = (root){ sum.re + z.re, sum.im + z.im };
                }
                dn_put(f, l, p, s, s, i, r, k, 0, sum);
            }
}

static danaus_status make_chain(circulant_job *j)
{
    fourier *f = &j->f;
    danaus_pattern p[DANAUS_MAX_FACTORS];
    int middle = f->count - 1, total = 2 * f->count - 1;
    if (total > DANAUS_MAX_FACTORS)
        return dn_fail(DANAUS_ERR_UNSUPPORTED, "a circulant of too many factors");
    for (int l = 0; l < middle; l++) {
        side end = f->complex || l == 0 ? PLAIN : OUTER,
             in = f->complex ? PLAIN : INNER;
        p[l] = dn_doubled(dn_radix_pattern(f, l), end, in);
        p[total - 1 - l] = dn_doubled(dn_radix_pattern(f, l), in, end);
    }
    side s = f->complex || middle == 0 ? PLAIN : OUTER;
    p[middle] = dn_doubled(dn_radix_pattern(f, middle), s, s);
    dn_digit_reversal(f->radix, f->count, j->reversal);
    TRY(make_spectrum(j));
    TRY(danaus_chain_create(p, total, f->dtype, &f->chain));
    for (int l = 0; l < middle; l++)
        fill_outer_pair(j, l);
    fill_middle(j);
    return DANAUS_OK;
}

/* Outputs 0 .. n - 1 of size, and inputs with zeros behind them. */
static danaus_status make_operator(
    circulant_job *j, const danaus_transform_desc *desc, danaus_operator **made)
{
    for (int64_t x = 0; x < j->f.n; x++)
        j->reversal[x] = x < desc->n ? x : -1;
    return dn_operator_of_chain(
        j->f.chain, j->reversal, desc->n, j->reversal, j->f.n, desc->n, made);
}

/* The first column: v itself, or v[n-1 ..], 0, v[0 .. n-2] of a Toeplitz matrix. */
static root *column_of(const danaus_transform_desc *desc, int64_t size)
{
    root *column = dn_calloc((size_t)size, sizeof *column);
    int64_t n = desc->n;
    for (int64_t x = 0; column && x < size; x++) {
        int64_t from = x;
        if (desc->kind == DANAUS_TOEPLITZ)
            from = x < n ? n - 1 + x : x == n ? -1 : x - n - 1;
        double value[2] = { 0 };
        if (from >= 0)
            dn_load(desc->dtype, desc->values, from, value);
        column[x] = (root){ value[0], value[1] };
    }
    return column;
}

danaus_status dn_circulant(const danaus_transform_desc *desc, danaus_operator **made)
{
    int64_t radices[DANAUS_MAX_FACTORS],
        size = desc->kind == DANAUS_TOEPLITZ ? 2 * desc->n : desc->n;
    int count, complex = dn_is_complex(desc->dtype);
    if (desc->inverse && desc->kind == DANAUS_TOEPLITZ)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "the inverse of a Toeplitz matrix is none");
    TRY(dn_choose_radices(size, !complex, radices, &count));
    circulant_job j = { .inverse = desc->inverse };
    j.f = (fourier){ .n = size,
                     .radix = radices,
                     .count = count,
                     .dtype = desc->dtype,
                     .complex = complex };
    root *column = column_of(desc, size);
    j.column = column;
    j.spectrum = dn_alloc((size_t)size * sizeof *j.spectrum);
    j.scratch = dn_alloc((size_t)size * sizeof *j.scratch);
    j.reversal = dn_alloc((size_t)size * sizeof *j.reversal);
    danaus_status status = column && j.spectrum && j.scratch && j.reversal
                               ? make_chain(&j)
                               : dn_fail(DANAUS_ERR_MEMORY, "no memory for a spectrum");
    if (status == DANAUS_OK)
        status = make_operator(&j, desc, made);
    dn_free(column);
    dn_free(j.spectrum);
    dn_free(j.scratch);
    dn_free(j.reversal);
    return status;
}
