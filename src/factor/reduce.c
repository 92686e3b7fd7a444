/* Writes a chain with as few numbers as it has degrees of freedom.

   In every block u v of a split (blocks.h) any invertible matrix may move from v to u. The r
   columns of v that a QR factorization with pivoting takes first give v = b (I c) P^T and
   u v = (u b) (I c) P^T: r^2 numbers of v are those of the identity. Splits are taken from the
   last to the first, so a factor's rows change before its columns are final. */
// SPDX-License-Identifier: Apache-2.0
#include "danaus/factorize.h"

#include "product/chain.h"
#include "factor/hierarchy.h"
#include "product/patterns.h"
#include "base/dtype.h"
#include "base/holds.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/lapack.h"
#include "math/lapack_library.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

static int reducible(danaus_pattern p1, danaus_pattern p2)
{
    return dn_pair_rank(p1, p2) <= p2.c;
}

/* r^2 for each block of the split. */
static int64_t saved_by(danaus_pattern p1, danaus_pattern p2)
{
    ks_pair pair = dn_pair(p1, p2);
    if (!reducible(p1, p2))
        return 0;
    return pair.p.a * pair.p.d * pair.groups_of_columns * pair.groups_of_rows *
           pair.rank * pair.rank;
}

static int64_t freedom(const danaus_pattern *p, int count)
{
    int64_t sum = 0;
    for (int l = 0; l < count; l++)
        sum += dn_pattern_weights(p[l]) - (l ? saved_by(p[l - 1], p[l]) : 0);
    return sum;
}

int64_t dn_patterns_freedom(const danaus_pattern *patterns, int count)
{
    danaus_pattern back[DANAUS_MAX_FACTORS];
    int transposed;
    if (dn_patterns_direction(patterns, count, &transposed) != DANAUS_OK)
        return 0;
    if (!transposed)
        return freedom(patterns, count);
    dn_patterns_transpose(patterns, count, back);
    return freedom(back, count);
}

danaus_status danaus_patterns_freedom(
    const danaus_pattern *patterns, int count, int64_t *numbers)
{
    int transposed;
    if (!numbers)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a place for the number is needed");
    TRY(dn_patterns_direction(patterns, count, &transposed));
    *numbers = dn_patterns_freedom(patterns, count);
    return DANAUS_OK;
}

/* ---- one split ---- */

typedef struct room {
    double *v, *u, *b, *product, *scratch;
    int64_t *pivots;
} room;

static danaus_status room_make(const ks_pair *pair, int complex, room *m)
{
    int64_t r = pair->rank, c = pair->p2.c, w = complex ? 2 : 1, b = pair->p1.b;
    size_t size = (size_t)w * sizeof(double);
    *m = (room){ dn_alloc((size_t)(r * c) * size),
                 dn_alloc((size_t)(b * r) * size),
                 dn_alloc((size_t)(r * r) * size),
                 dn_alloc((size_t)(b * r) * size),
                 dn_alloc(
                     (size_t)dn_interpolate_scratch(complex, r, c) * sizeof(double)),
                 dn_alloc((size_t)r * sizeof(int64_t)) };
    if (!m->v || !m->u || !m->b || !m->product || !m->scratch || !m->pivots)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory to reduce a chain");
    return DANAUS_OK;
}

static void room_free(room *m)
{
    dn_free(m->v);
    dn_free(m->u);
    dn_free(m->b);
    dn_free(m->product);
    dn_free(m->scratch);
    dn_free(m->pivots);
}

/* Columns of y[r][c] (rows ld apart) to columns[c][r], or back. */
static void turn(
    int complex, int64_t r, int64_t c, dn_matrix y, double *columns, int back)
{
    int64_t w = complex ? 2 : 1;
    for (int64_t t = 0; t < r; t++)
        for (int64_t m = 0; m < c; m++)
            for (int64_t x = 0; x < w; x++) {
                double *wide = y.at + (t * y.ld + m) * w + x;
                double *tall = columns + (m * r + t) * w + x;
                *(back ? wide : tall) = *(back ? tall : wide);
            }
}

/* x[b][r] and y[r][c] of one block. */
static void reduce_block(
    const ks_pair *pair, int complex, dn_matrix x, dn_matrix y, room *m)
{
    int64_t r = pair->rank, c = pair->p2.c, b = pair->p1.b, w = complex ? 2 : 1;
    turn(complex, r, c, y, m->v, 0);
    dn_interpolate(complex, r, c, m->v, m->pivots, m->scratch);
    for (int64_t t = 0; t < r; t++)
        for (int64_t k = 0; k < r; k++)
            for (int64_t z = 0; z < w; z++)
                m->b[(t * r + k) * w + z] = y.at[(t * y.ld + m->pivots[k]) * w + z];
    dn_copy(complex, b, r, x, (dn_matrix){ m->u, r });
    dn_times(
        complex, b, r, r, (dn_matrix){ m->u, r }, (dn_matrix){ m->b, r },
        (dn_matrix){ m->product, r });
    dn_copy(complex, b, r, (dn_matrix){ m->product, r }, x);
    turn(complex, r, c, y, m->v, 1);
}

static danaus_status reduce_pair(ks_factors *f, int l)
{
    ks_pair s = dn_pair(f->p[l], f->p[l + 1]);
    int64_t w = f->complex ? 2 : 1;
    room m;
    danaus_status status = room_make(&s, f->complex, &m);
    for (int64_t block = 0; status == DANAUS_OK && block < s.p.a * s.p.d; block++)
        for (int64_t g = 0; g < s.groups_of_columns; g++)
            for (int64_t e = 0; e < s.groups_of_rows; e++) {
                int64_t i = block / s.p.d, j = block % s.p.d;
                int64_t left = i * s.p1.d + e * s.p.d + j;
                int64_t right = (i * s.groups_of_columns + g) * s.p2.d + j;
                dn_matrix x = { f->w[l] + (left * s.p1.b * s.p1.c + g * s.rank) * w,
                                s.p1.c };
                dn_matrix y = { f->w[l + 1] + (right * s.p2.b + e) * s.p2.c * w,
                                s.groups_of_rows * s.p2.c };
                reduce_block(&s, f->complex, x, y, &m);
            }
    room_free(&m);
    return status;
}

/* ---- the chain ---- */

/* The entries w[a][b][c][d] in work order. */
static ks_view view_of(const danaus_chain *chain, int l)
{
    danaus_pattern p = chain->patterns[l];
    return (ks_view){ .data = chain->weights[l],
                      .dtype = chain->dtype,
                      .p = p,
                      .stride = { p.b * p.c * p.d, 1, p.c * p.d, p.d },
                      .scale = 1 };
}

static danaus_status read_factors(const danaus_chain *chain, ks_factors *f)
{
    f->complex = dn_is_complex(chain->dtype);
    f->count = chain->count;
    for (int l = 0; l < f->count; l++) {
        f->p[l] = chain->patterns[l];
        f->w[l] = dn_work_alloc(f->complex, f->p[l]);
        if (!f->w[l])
            return dn_fail(DANAUS_ERR_MEMORY, "no memory to reduce a chain");
        ks_view view = view_of(chain, l);
        dn_view_read(&view, f->w[l]);
    }
    return DANAUS_OK;
}

static void write_factors(const ks_factors *f, danaus_chain *chain)
{
    for (int l = 0; l < f->count; l++)
        dn_factor_write(
            f->p[l], 0, f->complex, f->w[l], 0, chain->dtype, chain->weights[l]);
}

/* A reduced chain has its size in one factor, which its type may not hold. */
static danaus_status check_range(const ks_factors *f, const danaus_chain *chain)
{
    danaus_dtype wide = f->complex ? DANAUS_C128 : DANAUS_F64;
    for (int l = 0; l < f->count; l++) {
        char name[40];
        int64_t count = dn_pattern_weights(f->p[l]);
        snprintf(name, sizeof name, "factor %d, reduced,", l);
        TRY(dn_check_holds(wide, f->w[l], chain->dtype, count, name));
        if (dn_all_finite(chain->dtype, chain->weights[l], count))
            TRY(dn_check_stored(
                chain->dtype, f->w[l], count, DN_STORED_INFINITE, name));
    }
    return DANAUS_OK;
}

static danaus_status reduce(ks_factors *f, int transposed)
{
    if (transposed)
        TRY(dn_factors_transpose(f));
    for (int l = f->count - 2; l >= 0; l--)
        if (reducible(f->p[l], f->p[l + 1]))
            TRY(reduce_pair(f, l));
    return transposed ? dn_factors_transpose(f) : DANAUS_OK;
}

danaus_status danaus_chain_reduce(danaus_chain *chain)
{
    int transposed;
    if (!chain)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a chain is needed");
    if (dn_has_16_bits(chain->dtype))
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "a chain of 16-bit numbers cannot be reduced");
    TRY(dn_patterns_direction(chain->patterns, chain->count, &transposed));
    for (int l = 0; l < chain->count; l++)
        if (chain->patterns[l].b > INT_MAX || chain->patterns[l].c > INT_MAX / 100)
            return dn_fail(
                DANAUS_ERR_UNSUPPORTED, "factor %d is too large for LAPACK", l);
    ks_factors f = { 0 };
    TRY(dn_lapack_begin(1));
    dn_lapack_alone();
    danaus_status status = read_factors(chain, &f);
    if (status == DANAUS_OK)
        status = reduce(&f, transposed);
    dn_lapack_as_before();
    dn_lapack_end(1);
    if (status == DANAUS_OK)
        status = check_range(&f, chain);
    if (status == DANAUS_OK)
        write_factors(&f, chain);
    dn_factors_free(&f);
    return status;
}
