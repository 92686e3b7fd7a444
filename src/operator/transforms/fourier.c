/* Fourier, Hartley, cosine and sine transforms as exact chains (docs/transforms.md).

   Fourier. For radices N_1 .. N_L with product N, m_l = N_{l+1} .. N_L and the digit
   reversal P, F_N P^T = B = K_1 .. K_L on the patterns (N_1..N_{l-1}, N_l, N_l, m_l);
   block (i, j) of K_l does not depend on i:
       K_l[k, n] = exp(-2 pi i (k m_l + j) n / (N_l m_l)).

   The others are Re(diag(alpha) F diag(beta)) with their own order of inputs. A complex
   number as a real 2 x 2 matrix makes B a real chain of block rank 2; alpha and the real
   part are absorbed by the first factor, beta and the real input by the last. So are the
   scales that make a matrix orthogonal. Types III are the adjoints of types II. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/transforms/transforms.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/quota.h"
#include "base/status.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct fourier_job {
    danaus_transform kind; /* of types III that of type II */
    int64_t n;             /* numbers of the transform, not of Fourier's */
    int power; /* of the scales: 0, or 1 makes it orthogonal, 2 its inverse */
    int adjoint;
    fourier f;
    int64_t *reversal;
} fourier_job;

/* ---- what the kinds differ in ---- */

static int64_t fourier_length(danaus_transform kind, int64_t n)
{
    return kind == DANAUS_DCT1 ? 2 * (n - 1) : kind == DANAUS_DST1 ? 2 * (n + 1) : n;
}

/* alpha of row k. */
static root row_phase(const fourier_job *j, int64_t k)
{
    int64_t n = j->n;
    root z = { 1, 0 };
    switch (j->kind) {
    case DANAUS_HARTLEY: return (root){ 1, 1 };
    case DANAUS_DCT2: return dn_root(k, 4 * n);
    case DANAUS_DST2: return dn_root(4 * n - (n - 1 - k), 4 * n);
    case DANAUS_DCT4: return dn_root(2 * k + 1, 8 * n);
    case DANAUS_DST1: return (root){ 0, 1 };
    case DANAUS_DST4:
        z = dn_root(2 * k + 1, 8 * n);
        return k % 2 ? (root){ -z.re, -z.im } : z;
    default: return z;
    }
}

/* beta of number p of Fourier's inputs. */
static root column_phase(const fourier_job *j, int64_t p)
{
    int64_t n = j->n, half = p < (n + 1) / 2 ? 0 : n;
    switch (j->kind) {
    case DANAUS_DST2: return dn_root(2 * p + half, 2 * n);
    case DANAUS_DCT4:
    case DANAUS_DST4: return dn_root(p + half, 2 * n);
    default: return (root){ 1, 0 };
    }
}

/* The squares of the scales that make the matrix orthogonal. */
static double row_square(const fourier_job *j, int64_t k)
{
    double n = (double)j->n;
    switch (j->kind) {
    case DANAUS_DCT1: return (k == 0 || k == j->n - 1 ? 1 : 2) / (n - 1);
    case DANAUS_DCT2: return (k == 0 ? 1 : 2) / n;
    case DANAUS_DST2: return (k == j->n - 1 ? 1 : 2) / n;
    case DANAUS_DST1: return 2 / (n + 1);
    case DANAUS_DCT4:
    case DANAUS_DST4: return 2 / n;
    default: return 1 / n;
    }
}

static double column_square(const fourier_job *j, int64_t p)
{
    return j->kind == DANAUS_DCT1 && (p == 0 || p == j->n - 1) ? 0.5 : 1;
}

static root scaled(const fourier_job *j, root z, double square)
{
    double scale = j->power == 0 ? 1 : j->power == 1 ? sqrt(square) : square;
    return (root){ z.re * scale, z.im * scale };
}

/* Which input is number p of Fourier's; -1: none, it is 0. */
static int64_t input_of(const fourier_job *j, int64_t p)
{
    int64_t n = j->n, folded = p < (n + 1) / 2 ? 2 * p : 2 * (n - 1 - p) + 1;
    switch (j->kind) {
    case DANAUS_DCT1: return p < n ? p : -1;
    case DANAUS_DST1: return p > 0 && p <= n ? p - 1 : -1;
    case DANAUS_DCT2:
    case DANAUS_DST2:
    case DANAUS_DCT4: return folded;
    case DANAUS_DST4: return n - 1 - folded;
    default: return p;
    }
}

/* ---- the chain ---- */

static void sides_of(const fourier *f, int l, side *rows, side *cols)
{
    *rows = f->complex || l == 0 ? PLAIN : OUTER;
    *cols = f->complex || l == f->count - 1 ? PLAIN : INNER;
}

static void fill_factor(const fourier_job *j, int l)
{
    const fourier *f = &j->f;
    danaus_pattern p = dn_radix_pattern(f, l);
    side rows, cols;
    sides_of(f, l, &rows, &cols);
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t k = 0; k < p.c; k++)
                for (int64_t t = 0; t < p.d; t++) {
                    int64_t row = r * p.d + t;
                    root z = dn_root(row * k, p.b * p.d);
                    if (l == 0) {
                        z = dn_times(z, row_phase(j, row));
                        z = scaled(j, z, row_square(j, row));
                    }
                    if (l == f->count - 1) {
                        int64_t number = j->reversal[i * p.c + k];
                        z = dn_times(z, column_phase(j, number));
                        z = scaled(j, z, column_square(j, number));
                    }
                    dn_put(f, l, p, rows, cols, i, r, k, t, z);
                }
}

static danaus_status make_chain(fourier_job *j)
{
    fourier *f = &j->f;
    danaus_pattern p[DANAUS_MAX_FACTORS];
    for (int l = 0; l < f->count; l++) {
        side rows, cols;
        sides_of(f, l, &rows, &cols);
        p[l] = dn_doubled(dn_radix_pattern(f, l), rows, cols);
    }
    TRY(danaus_chain_create(p, f->count, f->dtype, &f->chain));
    for (int l = 0; l < f->count; l++)
        fill_factor(j, l);
    return DANAUS_OK;
}

static danaus_status make_operator(fourier_job *j, danaus_operator **made)
{
    int64_t size = j->f.n;
    int64_t *outputs = dn_alloc((size_t)j->n * sizeof *outputs);
    int64_t *inputs = dn_alloc((size_t)size * sizeof *inputs);
    danaus_status status = outputs && inputs
                               ? make_chain(j)
                               : dn_fail(DANAUS_ERR_MEMORY, "no memory for orders");
    if (status == DANAUS_OK) {
        for (int64_t k = 0; k < j->n; k++)
            outputs[k] = j->kind == DANAUS_DST1 ? k + 1 : k;
        for (int64_t x = 0; x < size; x++)
            inputs[x] = input_of(j, j->reversal[x]);
        status =
            dn_operator_of_chain(j->f.chain, outputs, j->n, inputs, size, j->n, made);
    }
    dn_free(outputs);
    dn_free(inputs);
    return status;
}

danaus_status dn_fourier(
    const danaus_transform_desc *desc, const int64_t *radices, int count,
    danaus_operator **made)
{
    int third = desc->kind == DANAUS_DCT3 || desc->kind == DANAUS_DST3;
    fourier_job j = { .kind = third ? desc->kind - 1 : desc->kind,
                      .n = desc->n,
                      .power = desc->orthonormal ? 1
                               : desc->inverse   ? 2
                                                 : 0,
                      .adjoint = third != (desc->inverse != 0) };
    j.f = (fourier){ .n = fourier_length(j.kind, desc->n),
                     .radix = radices,
                     .count = count,
                     .dtype = desc->dtype,
                     .complex = desc->kind == DANAUS_DFT };
    double numbers = 0; /* of the factors, at the least */
    for (int l = 0; l < count; l++)
        numbers += (double)j.f.n * (double)radices[l];
    TRY(dn_check_room(
        numbers * (double)danaus_dtype_size(desc->dtype),
        "the factors of a transform"));
    j.reversal = dn_alloc((size_t)j.f.n * sizeof *j.reversal);
    if (!j.reversal)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for a permutation");
    dn_digit_reversal(radices, count, j.reversal);
    danaus_operator *o;
    danaus_status status = make_operator(&j, &o);
    dn_free(j.reversal);
    if (status != DANAUS_OK)
        return status;
    if (j.adjoint) {
        danaus_operator *plain = o;
        status = dn_operator_adjoint(plain, &o);
        danaus_operator_destroy(plain);
        TRY(status);
    }
    *made = o;
    return DANAUS_OK;
}

danaus_status dn_fourier_transform(
    const danaus_transform_desc *desc, danaus_operator **made)
{
    if (desc->kind == DANAUS_DCT1 && desc->n < 2)
        return dn_fail(DANAUS_ERR_SHAPE, "a DCT-I has at least two numbers");
    int64_t radices[DANAUS_MAX_FACTORS];
    int count;
    TRY(dn_choose_radices(
        fourier_length(desc->kind, desc->n), desc->kind != DANAUS_DFT, radices,
        &count));
    return dn_fourier(desc, radices, count, made);
}
