/* One chain to another: element types, transposes, diagonals. */
// SPDX-License-Identifier: Apache-2.0
#include "danaus/algebra.h"

#include "product/chain.h"
#include "base/dtype.h"
#include "base/holds.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/pattern.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static danaus_status check(const danaus_chain *chain, danaus_chain **made)
{
    if (!chain || !made)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "a chain and a place for another are needed");
    return DANAUS_OK;
}

/* ---- element types ---- */

static danaus_status convert_weights(const danaus_chain *from, danaus_chain *to)
{
    for (int l = 0; l < from->count; l++) {
        char name[32];
        snprintf(name, sizeof name, "factor %d", l);
        int64_t count = dn_pattern_weights(from->patterns[l]);
        TRY(dn_check_holds(from->dtype, from->weights[l], to->dtype, count, name));
        dn_convert(from->dtype, from->weights[l], to->dtype, to->weights[l], count);
    }
    return DANAUS_OK;
}

/* The bias of the wrong type, in its place, is converted there. */
static danaus_status convert_bias(const danaus_chain *from, danaus_chain *to)
{
    int64_t rows = danaus_chain_rows(from);
    if (!from->bias)
        return DANAUS_OK;
    TRY(dn_check_holds(from->dtype, from->bias, to->dtype, rows, "the bias"));
    size_t bytes = (size_t)rows * danaus_dtype_size(to->dtype);
    to->bias = dn_alloc(bytes);
    if (!to->bias)
        return dn_fail_memory(bytes, "a bias");
    dn_convert(from->dtype, from->bias, to->dtype, to->bias, rows);
    return DANAUS_OK;
}

danaus_status danaus_chain_convert(
    const danaus_chain *chain, danaus_dtype dtype, danaus_chain **converted)
{
    TRY(check(chain, converted));
    danaus_chain *made;
    if (dn_is_complex(chain->dtype) && dn_dtype(dtype) && !dn_is_complex(dtype))
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "the chain is complex (%s): in %s it would lose its imaginary part",
            danaus_dtype_name(chain->dtype), danaus_dtype_name(dtype));
    TRY(danaus_chain_create(chain->patterns, chain->count, dtype, &made));
    danaus_status status = convert_weights(chain, made);
    status = status ? status : convert_bias(chain, made);
    if (status != DANAUS_OK)
        danaus_chain_destroy(made);
    else
        *converted = made;
    return status;
}

/* ---- transposes ---- */

/* Imaginary parts, every other number, change sign. */
static void conjugate_all(danaus_dtype dtype, void *w, int64_t count)
{
    float *single = w;
    double *wide = w;
    for (int64_t n = 1; n < 2 * count; n += 2)
        if (dtype == DANAUS_C64)
            single[n] = -single[n];
        else
            wide[n] = -wide[n];
}

/* to[a][c][b][d] = from[a][b][c][d], of runs of d elements. */
static void transpose_weights(
    danaus_pattern p, size_t element, const void *from, void *to)
{
    size_t run = (size_t)p.d * element;
    const char *next = from;
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t k = 0; k < p.c; k++, next += run) {
                int64_t at = (i * p.c + k) * p.b + r;
                memcpy((char *)to + (size_t)at * run, next, run);
            }
}

danaus_status danaus_chain_transpose(
    const danaus_chain *chain, int conjugate, danaus_chain **transposed)
{
    TRY(check(chain, transposed));
    danaus_pattern patterns[DANAUS_MAX_FACTORS];
    int count = chain->count;
    for (int l = 0; l < count; l++)
        patterns[l] = dn_pattern_adjoint(chain->patterns[count - 1 - l]);
    danaus_chain *made;
    TRY(danaus_chain_create(patterns, count, chain->dtype, &made));
    for (int l = 0; l < count; l++) {
        danaus_pattern p = chain->patterns[l];
        void *to = made->weights[count - 1 - l];
        transpose_weights(p, danaus_dtype_size(chain->dtype), chain->weights[l], to);
        if (conjugate && dn_is_complex(chain->dtype))
            conjugate_all(chain->dtype, to, dn_pattern_weights(p));
    }
    *transposed = made;
    return DANAUS_OK;
}

/* ---- diagonals ---- */

/* A factor whose row (i, r, j) is multiplied by the number of that row, and column (i, k, j)
   likewise; one that is NULL counts as ones. */
typedef struct scaling {
    danaus_pattern p;
    danaus_dtype dtype;
    void *w;
    const void *rows, *cols;
    int64_t lost;   /* numbers that finite ones made infinite or NaN */
    int some, kept; /* products of numbers that are not 0; of these, any that are not */
} scaling;

/* x becomes x times a number of an array. */
static void multiply(danaus_dtype dtype, double x[2], const void *by, int64_t from)
{
    double y[2], re = x[0];
    dn_load(dtype, by, from, y);
    x[0] = x[0] * y[0];
    if (!dn_is_complex(dtype))
        return;
    x[0] -= x[1] * y[1];
    x[1] = re * y[1] + x[1] * y[0];
}

/* True if a number is finite; *nonzero stays only if it is not 0. */
static int is_finite(danaus_dtype dtype, const void *numbers, int64_t at, int *nonzero)
{
    double x[2];
    dn_load(dtype, numbers, at, x);
    *nonzero &= x[0] != 0 || x[1] != 0;
    return isfinite(x[0]) && isfinite(x[1]);
}

static void scale_number(scaling *s, int64_t at, int64_t row, int64_t col)
{
    double x[2], y[2];
    int nonzero = 1, finite = is_finite(s->dtype, s->w, at, &nonzero);
    dn_load(s->dtype, s->w, at, x);
    if (s->rows) {
        finite &= is_finite(s->dtype, s->rows, row, &nonzero);
        multiply(s->dtype, x, s->rows, row);
    }
    if (s->cols) {
        finite &= is_finite(s->dtype, s->cols, col, &nonzero);
        multiply(s->dtype, x, s->cols, col);
    }
    dn_store(s->dtype, s->w, at, x);
    dn_load(s->dtype, s->w, at, y);
    s->lost += finite && !(isfinite(y[0]) && isfinite(y[1]));
    s->some |= nonzero;
    s->kept |= y[0] != 0 || y[1] != 0;
}

static danaus_status scale_factor(
    danaus_chain *chain, int factor, const void *rows, const void *cols)
{
    danaus_pattern p = chain->patterns[factor];
    scaling s = { .p = p, .dtype = chain->dtype, .w = chain->weights[factor] };
    s.rows = rows;
    s.cols = cols;
    int64_t at = 0;
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t k = 0; k < p.c; k++)
                for (int64_t j = 0; j < p.d; j++, at++)
                    scale_number(
                        &s, at, (i * p.b + r) * p.d + j, (i * p.c + k) * p.d + j);
    char name[40];
    snprintf(name, sizeof name, "factor %d, scaled,", factor);
    if (s.lost)
        return dn_fail_too_large(s.lost, name, chain->dtype);
    return s.some && !s.kept ? dn_fail_too_small(name, chain->dtype) : DANAUS_OK;
}

/* Both diagonals are multiplied into a factor that is the only one at once. */
static danaus_status scale_ends(danaus_chain *chain, const void *rows, const void *cols)
{
    int last = chain->count - 1;
    if (rows || (cols && last == 0))
        TRY(scale_factor(chain, 0, rows, last ? NULL : cols));
    return cols && last ? scale_factor(chain, last, NULL, cols) : DANAUS_OK;
}

danaus_status danaus_chain_scale(
    const danaus_chain *chain, const void *rows, const void *cols,
    danaus_chain **scaled)
{
    TRY(check(chain, scaled));
    danaus_chain *made;
    TRY(danaus_chain_create(chain->patterns, chain->count, chain->dtype, &made));
    for (int l = 0; l < chain->count; l++)
        memcpy(
            made->weights[l], chain->weights[l],
            (size_t)dn_pattern_weights(chain->patterns[l]) *
                danaus_dtype_size(chain->dtype));
    danaus_status status = scale_ends(made, rows, cols);
    if (status != DANAUS_OK)
        danaus_chain_destroy(made);
    else
        *scaled = made;
    return status;
}
