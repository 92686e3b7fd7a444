/* Factors in work order: merging, expansion, balancing, and their true error. */
// SPDX-License-Identifier: Apache-2.0
#include "factor/hierarchy.h"

#include "product/patterns.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/pattern.h"

#include <math.h>
#include <string.h>

void dn_factors_free(ks_factors *f)
{
    for (int l = 0; l < f->count; l++)
        dn_free(f->w[l]);
    *f = (ks_factors){ 0 };
}

/* ---- redundant neighbours ---- */

void dn_merge_redundant(
    const danaus_pattern *patterns, int count, int *group, danaus_pattern *merged,
    int *merged_count)
{
    int n = count, l = 0;
    memcpy(merged, patterns, (size_t)count * sizeof *merged);
    for (int i = 0; i <= count; i++)
        group[i] = i;
    while (l + 1 < n) {
        if (!dn_pair_redundant(merged[l], merged[l + 1])) {
            l++;
            continue;
        }
        merged[l] = dn_pattern_product(merged[l], merged[l + 1]);
        n--;
        for (int i = l + 1; i <= n; i++) {
            if (i < n)
                merged[i] = merged[i + 1];
            group[i] = group[i + 1];
        }
        l = l > 0 ? l - 1 : 0;
    }
    *merged_count = n;
}

/* Splits factor `at` into patterns p1 and p2. */
static danaus_status split_factor(
    ks_run *run, danaus_pattern p1, danaus_pattern p2, ks_factors *f, int at)
{
    ks_pair pair = dn_pair(p1, p2);
    ks_view t = dn_view_work(f->complex, pair.p, f->w[at]);
    double *x = dn_work_alloc(f->complex, p1), *y = dn_work_alloc(f->complex, p2), none;
    danaus_status status = DANAUS_OK;
    if (!x || !y)
        status = dn_fail(DANAUS_ERR_MEMORY, "no memory for the factors");
    else
        status = dn_split(run, &pair, &t, (ks_split_how){ 0 }, x, y, &none);
    if (status != DANAUS_OK) {
        dn_free(x);
        dn_free(y);
        return status;
    }
    dn_free(f->w[at]);
    for (int l = f->count; l > at + 1; l--) {
        f->w[l] = f->w[l - 1];
        f->p[l] = f->p[l - 1];
    }
    f->w[at] = x;
    f->w[at + 1] = y;
    f->p[at] = p1;
    f->p[at + 1] = p2;
    f->count++;
    return DANAUS_OK;
}

danaus_status dn_expand(
    ks_run *run, const danaus_pattern *patterns, int count, const int *group,
    ks_factors *factors)
{
    for (int l = 0, end = 1; l < count; l++) {
        if (l == group[end])
            end++;
        int rest = group[end] - l - 1;
        if (rest > 0)
            TRY(split_factor(
                run, patterns[l], dn_patterns_product(patterns + l + 1, rest), factors,
                l));
    }
    return DANAUS_OK;
}

/* ---- the true error ---- */

/* The error of a single factor, which may differ from w because it was fitted to something
   else. */
static danaus_status single_residual(
    const ks_view *w, const ks_factors *factors, double *energy)
{
    double *values = dn_work_alloc(factors->complex, w->p);
    if (!values)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory to measure the error");
    int64_t parts = dn_pattern_weights(w->p) * (factors->complex ? 2 : 1);
    dn_view_read(w, values);
    for (int64_t x = 0; x < parts; x++)
        values[x] -= factors->w[0][x];
    *energy = dn_energy(0, 1, parts, (dn_matrix){ values, 0 });
    dn_free(values);
    return DANAUS_OK;
}

danaus_status dn_factors_residual(
    ks_run *run, const ks_view *w, const ks_factors *factors, double *energy)
{
    int last = factors->count - 1;
    danaus_pattern p = factors->p[last];
    double *product = factors->w[last]; /* of factors l .. last */
    danaus_status status = DANAUS_OK;
    for (int l = last - 1; l >= 0 && status == DANAUS_OK; l--) {
        ks_pair pair = dn_pair(factors->p[l], p);
        if (l == 0) {
            status = dn_pair_residual(run, &pair, w, factors->w[0], product, energy);
            break;
        }
        double *next = dn_work_alloc(factors->complex, pair.p);
        if (next)
            status =
                dn_fuse(run, &pair, factors->complex, factors->w[l], product, next);
        else
            status = dn_fail(DANAUS_ERR_MEMORY, "no memory for the product of factors");
        if (product != factors->w[last])
            dn_free(product);
        product = next;
        p = pair.p;
    }
    if (product != factors->w[last])
        dn_free(product);
    return last == 0 ? single_residual(w, factors, energy) : status;
}

/* ---- balancing ---- */

/* Sums of squares over column t of the blocks of x, or over row t of those of y: at
   inner index (i c + t) d + j, respectively (i b + t) d + j. */
static void inner_energies(
    const ks_factors *f, int l, int of_columns, double *energy, int64_t count)
{
    danaus_pattern p = f->p[l];
    int64_t width = f->complex ? 2 : 1;
    const double *w = f->w[l];
    memset(energy, 0, (size_t)count * sizeof *energy);
    for (int64_t block = 0; block < p.a * p.d; block++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t k = 0; k < p.c; k++) {
                int64_t t = of_columns ? k : r, size = of_columns ? p.c : p.b;
                double *to = &energy[(block / p.d * size + t) * p.d + block % p.d];
                for (int64_t x = 0; x < width; x++, w++)
                    *to += *w * *w;
            }
}

/* Multiplies column (or row) t by 2^exponent, with the sign given. */
static void scale_inner(
    const ks_factors *f, int l, int of_columns, const int *exponent, int sign)
{
    danaus_pattern p = f->p[l];
    int64_t width = f->complex ? 2 : 1;
    double *w = f->w[l];
    for (int64_t block = 0; block < p.a * p.d; block++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t k = 0; k < p.c; k++) {
                int64_t t = of_columns ? k : r, size = of_columns ? p.c : p.b;
                int e = exponent[(block / p.d * size + t) * p.d + block % p.d];
                for (int64_t x = 0; x < width; x++, w++)
                    if (e)
                        *w = ldexp(*w, sign * e);
            }
}

danaus_status dn_factors_balance(ks_factors *f, int passes)
{
    int64_t largest = 1;
    for (int l = 0; l + 1 < f->count; l++)
        largest =
            dn_pattern_cols(f->p[l]) > largest ? dn_pattern_cols(f->p[l]) : largest;
    double *left = dn_alloc((size_t)largest * sizeof *left);
    double *right = dn_alloc((size_t)largest * sizeof *right);
    int *exponent = dn_alloc((size_t)largest * sizeof *exponent);
    for (int n = 0; left && right && exponent && n < passes * (f->count - 1); n++) {
        int l = n % (f->count - 1);
        int64_t inner = dn_pattern_cols(f->p[l]);
        inner_energies(f, l, 1, left, inner);
        inner_energies(f, l + 1, 0, right, inner);
        for (int64_t t = 0; t < inner; t++) {
            int both = left[t] > 0 && right[t] > 0;
            exponent[t] = both ? (int)lrint((log2(right[t]) - log2(left[t])) / 4) : 0;
        }
        scale_inner(f, l, 1, exponent, 1);
        scale_inner(f, l + 1, 0, exponent, -1);
    }
    danaus_status status = DANAUS_OK;
    if (!left || !right || !exponent)
        status = dn_fail(DANAUS_ERR_MEMORY, "no memory to balance the factors");
    dn_free(left);
    dn_free(right);
    dn_free(exponent);
    return status;
}

/* ---- transposition ---- */

danaus_status dn_factors_transpose(ks_factors *f)
{
    for (int l = 0; l < f->count; l++) {
        danaus_pattern p = f->p[l];
        double *w = dn_work_alloc(f->complex, p);
        if (!w)
            return dn_fail(DANAUS_ERR_MEMORY, "no memory for a factor");
        int64_t width = f->complex ? 2 : 1, size = p.b * p.c * width;
        for (int64_t block = 0; block < p.a * p.d; block++)
            for (int64_t r = 0; r < p.b; r++)
                for (int64_t k = 0; k < p.c; k++)
                    memcpy(
                        w + block * size + (k * p.b + r) * width,
                        f->w[l] + block * size + (r * p.c + k) * width,
                        (size_t)width * sizeof *w);
        dn_free(f->w[l]);
        f->w[l] = w;
        f->p[l] = dn_pattern_adjoint(p);
    }
    for (int l = 0, m = f->count - 1; l < m; l++, m--) {
        double *w = f->w[l];
        danaus_pattern p = f->p[l];
        f->w[l] = f->w[m];
        f->p[l] = f->p[m];
        f->w[m] = w;
        f->p[m] = p;
    }
    return DANAUS_OK;
}

/* ---- the public order ---- */

/* Where (i, r, k, j) of a factor, or of its transpose, is in w[a][b][c][d]. */
static int64_t place(
    danaus_pattern p, int transposed, int64_t i, int64_t r, int64_t k, int64_t j)
{
    return transposed ? ((i * p.c + k) * p.b + r) * p.d + j
                      : ((i * p.b + r) * p.c + k) * p.d + j;
}

void dn_factor_write(
    danaus_pattern p, int transposed, int complex, const double *w, int exponent,
    danaus_dtype dtype, void *to)
{
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t j = 0; j < p.d; j++)
            for (int64_t r = 0; r < p.b; r++)
                for (int64_t k = 0; k < p.c; k++) {
                    int64_t at = place(p, transposed, i, r, k, j);
                    double value[2] = { ldexp(*w++, exponent), 0 };
                    if (complex)
                        value[1] = ldexp(*w++, exponent);
                    dn_store(dtype, to, at, value);
                }
}

void dn_factor_read(
    danaus_pattern p, int transposed, danaus_dtype dtype, const void *from,
    double scale, double *w)
{
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t j = 0; j < p.d; j++)
            for (int64_t r = 0; r < p.b; r++)
                for (int64_t k = 0; k < p.c; k++) {
                    double value[2];
                    dn_load(dtype, from, place(p, transposed, i, r, k, j), value);
                    for (int x = 0; x < (dn_is_complex(dtype) ? 2 : 1); x++)
                        *w++ = scale * value[x];
                }
}
