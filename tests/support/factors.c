/* The factorization on matrices, and its judges; see factors.h. */
// SPDX-License-Identifier: Apache-2.0
#include "support/factors.h"

#include "product/patterns.h"
#include "support/element.h"
#include "support/test.h"

#include "base/mem.h"

#include <complex.h>
#undef complex
#include <math.h>
#include <stdlib.h>
#include <string.h>

readable readable_make(matrix w, int complex, danaus_pattern product)
{
    danaus_dtype dtype = complex ? DANAUS_C128 : DANAUS_F64;
    readable r = { .packed = matrix_pack(w, dtype) };
    r.view = dn_view_dense(r.packed, dtype, w.cols, product, 0, 1);
    return r;
}

void readable_free(readable *r) { free(r->packed); }

ks_factors factorised(
    matrix w, int complex, const danaus_pattern *p, int count, const int *order,
    ks_how how, double *delta)
{
    readable r = readable_make(w, complex, dn_patterns_product(p, count));
    ks_run run = { 0 };
    ks_factors f;
    double unused[DANAUS_MAX_FACTORS];
    assert_ok(
        dn_hierarchy(&run, &r.view, p, count, order, how, &f, delta ? delta : unused));
    readable_free(&r);
    return f;
}

ks_factors swept(
    matrix w, int complex, const danaus_pattern *p, int count, double *delta)
{
    int order[DANAUS_MAX_FACTORS];
    for (int s = 1; s < count; s++)
        order[s - 1] = s;
    return factorised(w, complex, p, count, order, (ks_how){ 0 }, delta);
}

/* Entry (i, r, k, j) of factor l. */
static double *entry(
    const ks_factors *f, int l, int64_t i, int64_t r, int64_t k, int64_t j)
{
    danaus_pattern p = f->p[l];
    int64_t at = ((i * p.d + j) * p.b + r) * p.c + k;
    return f->w[l] + (f->complex ? 2 : 1) * at;
}

matrix factors_matrix(const ks_factors *f)
{
    number *w[DANAUS_MAX_FACTORS] = { 0 };
    for (int l = 0; l < f->count; l++) {
        danaus_pattern p = f->p[l];
        number *to = w[l] = calloc((size_t)(p.a * p.b * p.c * p.d), sizeof *to);
        for (int64_t i = 0; i < p.a; i++)
            for (int64_t r = 0; r < p.b; r++)
                for (int64_t k = 0; k < p.c; k++)
                    for (int64_t j = 0; j < p.d; j++) {
                        const double *e = entry(f, l, i, r, k, j);
                        *to++ = CMPLX(e[0], f->complex ? e[1] : 0);
                    }
    }
    matrix product = chain_product(f->p, w, f->count);
    for (int l = 0; l < f->count; l++)
        free(w[l]);
    return product;
}

ks_factors factors_from(
    const danaus_pattern *p, number *const *w, int count, int complex)
{
    ks_factors f = { .complex = complex, .count = count };
    for (int l = 0; l < count; l++) {
        f.p[l] = p[l];
        f.w[l] = dn_work_alloc(complex, p[l]);
        const number *from = w[l];
        for (int64_t i = 0; i < p[l].a; i++)
            for (int64_t r = 0; r < p[l].b; r++)
                for (int64_t k = 0; k < p[l].c; k++)
                    for (int64_t j = 0; j < p[l].d; j++, from++) {
                        double *e = entry(&f, l, i, r, k, j);
                        e[0] = creal(*from);
                        if (complex)
                            e[1] = cimag(*from);
                    }
    }
    return f;
}

double distance_on_support(matrix w, const ks_factors *f)
{
    danaus_pattern p = dn_patterns_product(f->p, f->count);
    matrix made = factors_matrix(f);
    double sum = 0;
    for (int64_t row = 0; row < w.rows; row++)
        for (int64_t col = 0; col < w.cols; col++) {
            number z = made.at[row * w.cols + col] - w.at[row * w.cols + col];
            if (in_support(p, row, col))
                sum += creal(z) * creal(z) + cimag(z) * cimag(z);
        }
    matrix_free(&made);
    return sqrt(sum);
}

/* Rows of column t of x, or columns of row t of y; returns how many. */
static int64_t members(danaus_pattern p, int64_t t, int of_column, int64_t *list)
{
    int64_t count = 0, size = p.a * p.d * (of_column ? p.b : p.c);
    for (int64_t x = 0; x < size; x++)
        if (of_column ? in_support(p, x, t) : in_support(p, t, x))
            list[count++] = x;
    return count;
}

double split_error(matrix w, const danaus_pattern *p, int count, int s)
{
    danaus_pattern x = dn_patterns_product(p, s);
    danaus_pattern y = dn_patterns_product(p + s, count - s);
    int64_t rows[512], cols[512], inner = x.a * x.c * x.d, rank = dn_pair_rank(x, y);
    char *seen = calloc((size_t)(w.rows * w.cols), 1);
    double sum = 0;
    for (int64_t t = 0; t < inner; t++) {
        int64_t m = members(x, t, 1, rows), n = members(y, t, 0, cols);
        if (seen[rows[0] * w.cols + cols[0]]++)
            continue;
        matrix block = matrix_make(m, n);
        for (int64_t r = 0; r < m; r++)
            for (int64_t k = 0; k < n; k++)
                block.at[r * n + k] = w.at[rows[r] * w.cols + cols[k]];
        double values[512];
        matrix_singular_values(block, values);
        for (int64_t k = rank; k < (m < n ? m : n); k++)
            sum += values[k] * values[k];
        matrix_free(&block);
    }
    free(seen);
    return sqrt(sum);
}

double largest_split_error(matrix w, const danaus_pattern *p, int count)
{
    double largest = 0;
    for (int s = 1; s < count; s++)
        largest = fmax(largest, split_error(w, p, count, s));
    return largest;
}

int tree_orders(int lo, int hi, int right_first, int (*orders)[8])
{
    if (hi - lo < 2)
        return 1;
    int made = 0;
    for (int s = lo + 1; s < hi; s++) {
        int left[42][8], right[42][8];
        int lefts = tree_orders(lo, s, right_first, left);
        int rights = tree_orders(s, hi, right_first, right);
        size_t of_left = sizeof(int) * (size_t)(s - lo - 1);
        size_t of_right = sizeof(int) * (size_t)(hi - s - 1);
        for (int x = 0; x < lefts; x++)
            for (int y = 0; y < rights; y++, made++) {
                int *to = orders[made];
                *to++ = s;
                memcpy(
                    to, right_first ? right[y] : left[x],
                    right_first ? of_right : of_left);
                to += right_first ? hi - s - 1 : s - lo - 1;
                memcpy(
                    to, right_first ? left[x] : right[y],
                    right_first ? of_left : of_right);
            }
    }
    return made;
}

static double bound_of_subtree(
    const int **order, int right_first, int lo, int hi, const double *delta)
{
    if (hi - lo < 2)
        return 0;
    int s = *(*order)++;
    double first = right_first ? bound_of_subtree(order, 1, s, hi, delta)
                               : bound_of_subtree(order, 0, lo, s, delta);
    double second = right_first ? bound_of_subtree(order, 1, lo, s, delta)
                                : bound_of_subtree(order, 0, s, hi, delta);
    return hypot(delta[s - 1], first) + second;
}

double tree_bound(const int *order, int right_first, int count, const double *delta)
{
    return bound_of_subtree(&order, right_first, 0, count, delta);
}
