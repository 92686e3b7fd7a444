/* Neighbouring factors multiplied out into one Kronecker-sparse factor.

   The product of a p-factor and a q-factor has the pattern dn_pattern_product(p, q), so
   every composable pair can be merged; at worst this gives the dense pattern
   (1, M, N, 1). Sums are computed in f64, and packing rounds them once. */
// SPDX-License-Identifier: Apache-2.0
#include "product/chain.h"
#include "product/patterns.h"

#include "base/dtype.h"
#include "base/holds.h"
#include "base/mem.h"
#include "base/quota.h"
#include "base/status.h"
#include "math/pattern.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

/* A factor in f64 or c128 with its pattern. */
typedef struct wide_factor {
    danaus_pattern p;
    double *w;
    int parts; /* 1 real, 2 complex */
} wide_factor;

static danaus_status allocate(danaus_pattern p, int parts, wide_factor *f)
{
    TRY(danaus_patterns_check(&p, 1));
    size_t weights = (size_t)dn_pattern_weights(p) * (size_t)parts;
    f->p = p;
    f->parts = parts;
    f->w = dn_calloc(weights, sizeof *f->w);
    return f->w ? DANAUS_OK : dn_fail_memory(weights * sizeof *f->w, "a product");
}

static danaus_status widen(const chain_numbers *n, int factor, wide_factor *f)
{
    int complex = dn_is_complex(n->dtype);
    TRY(allocate(n->patterns[factor], complex ? 2 : 1, f));
    dn_convert(
        n->dtype, n->w[factor], complex ? DANAUS_C128 : DANAUS_F64, f->w,
        dn_pattern_weights(f->p));
    return DANAUS_OK;
}

/* target[col] += value times row `row` of f, where the target is the row of a
   factor of pattern t that element (i, r, ., j) belongs to. */
static void add_row(
    const wide_factor *f, int64_t row, const double *value, const wide_factor *t,
    double *target)
{
    danaus_pattern q = f->p;
    int64_t i = row / (q.b * q.d), r = row / q.d % q.b, j = row % q.d;
    for (int64_t k = 0; k < q.c; k++) {
        const double *w = f->w + (((i * q.b + r) * q.c + k) * q.d + j) * f->parts;
        int64_t col = (i * q.c + k) * q.d + j;
        double *to = target + col / t->p.d % t->p.c * t->p.d * f->parts;
        to[0] += value[0] * w[0];
        if (f->parts == 2) {
            to[0] -= value[1] * w[1];
            to[1] += value[0] * w[1] + value[1] * w[0];
        }
    }
}

static void multiply(
    const wide_factor *left, const wide_factor *right, wide_factor *out)
{
    danaus_pattern p = left->p, t = out->p;
    const double *w = left->w;
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t k = 0; k < p.c; k++)
                for (int64_t j = 0; j < p.d; j++, w += left->parts) {
                    int64_t row = (i * p.b + r) * p.d + j;
                    int64_t middle = (i * p.c + k) * p.d + j;
                    int64_t at = row / t.d * t.c * t.d + row % t.d;
                    add_row(right, middle, w, out, out->w + at * out->parts);
                }
}

static double weights(danaus_pattern p)
{
    return (double)p.a * (double)p.b * (double)p.c * (double)p.d;
}

double dn_chain_product_bytes(
    const danaus_pattern *patterns, int from, int to, danaus_dtype dtype)
{
    danaus_pattern left = patterns[from];
    double most = weights(left);
    for (int i = from + 1; i < to; i++) {
        danaus_pattern out = dn_pattern_product(left, patterns[i]);
        most = fmax(most, weights(left) + weights(patterns[i]) + weights(out));
        left = out;
    }
    return most * sizeof(double) * (dn_is_complex(dtype) ? 2 : 1);
}

danaus_status dn_chain_product(
    const chain_numbers *n, int from, int to, double **product)
{
    wide_factor left = { 0 }, right = { 0 }, out = { 0 };
    TRY(dn_check_room(
        dn_chain_product_bytes(n->patterns, from, to, n->dtype),
        "factors that are multiplied out"));
    danaus_status status = widen(n, from, &left);
    for (int i = from + 1; status == DANAUS_OK && i < to; i++) {
        status = widen(n, i, &right);
        if (status == DANAUS_OK)
            status = allocate(dn_pattern_product(left.p, right.p), left.parts, &out);
        if (status == DANAUS_OK) {
            multiply(&left, &right, &out);
            dn_free(left.w);
            left = out;
            out.w = NULL;
        }
        dn_free(right.w);
        right.w = NULL;
    }
    if (status == DANAUS_OK)
        *product = left.w;
    else
        dn_free(left.w);
    return status;
}

static int are_finite(const chain_numbers *n, int from, int to)
{
    int finite = 1;
    for (int l = from; l < to && finite; l++)
        finite = dn_all_finite(n->dtype, n->w[l], dn_pattern_weights(n->patterns[l]));
    return finite;
}

static int is_zero(const chain_numbers *n, const double *product, int64_t count)
{
    int zero = 1;
    for (int64_t i = 0; i < count * (dn_is_complex(n->dtype) ? 2 : 1) && zero; i++)
        zero = product[i] == 0;
    return zero;
}

/* The processor notes numbers of f64 that fell below the normal ones. */
danaus_status dn_chain_product_held(
    const chain_numbers *n, int from, int to, int refused, const char *name,
    double **product)
{
    double *made;
    fexcept_t before;
    fegetexceptflag(&before, FE_UNDERFLOW);
    feclearexcept(FE_UNDERFLOW);
    danaus_status status = dn_chain_product(n, from, to, &made);
    int below = fetestexcept(FE_UNDERFLOW) != 0;
    fesetexceptflag(&before, FE_UNDERFLOW);
    TRY(status);
    danaus_pattern p = dn_patterns_product(n->patterns + from, to - from);
    int64_t count = dn_pattern_weights(p);
    if ((refused & DN_STORED_INFINITE) && !are_finite(n, from, to))
        refused -= DN_STORED_INFINITE;
    if (below && is_zero(n, made, count))
        status = dn_fail_too_small(name, n->dtype);
    else
        status = dn_check_stored(n->dtype, made, count, refused, name);
    if (status == DANAUS_OK)
        *product = made;
    else
        dn_free(made);
    return status;
}
