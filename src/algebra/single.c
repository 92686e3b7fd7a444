/* One chain to another: element types, transposes, diagonals. */
// SPDX-License-Identifier: Apache-2.0
#include "danaus/algebra.h"

#include "ks/chain.h"
#include "base/dtype.h"
#include "base/holds.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/pattern.h"

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

static void multiply_into(
    danaus_dtype dtype, void *w, int64_t at, const void *by, int64_t from)
{
    double x[2], y[2];
    dn_load(dtype, w, at, x);
    dn_load(dtype, by, from, y);
    double product[2] = { x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0] };
    if (!dn_is_complex(dtype))
        product[0] = x[0] * y[0];
    dn_store(dtype, w, at, product);
}

/* Row (i, r, j) of a factor times the number of that row, column (i, k, j) likewise. */
static void scale_factor(
    danaus_pattern p, danaus_dtype dtype, void *w, const void *rows, const void *cols)
{
    int64_t at = 0;
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t r = 0; r < p.b; r++)
            for (int64_t k = 0; k < p.c; k++)
                for (int64_t j = 0; j < p.d; j++, at++) {
                    if (rows)
                        multiply_into(dtype, w, at, rows, (i * p.b + r) * p.d + j);
                    if (cols)
                        multiply_into(dtype, w, at, cols, (i * p.c + k) * p.d + j);
                }
}

danaus_status danaus_chain_scale(
    const danaus_chain *chain, const void *rows, const void *cols,
    danaus_chain **scaled)
{
    TRY(check(chain, scaled));
    int last = chain->count - 1;
    danaus_chain *made;
    TRY(danaus_chain_create(chain->patterns, chain->count, chain->dtype, &made));
    for (int l = 0; l <= last; l++)
        memcpy(
            made->weights[l], chain->weights[l],
            (size_t)dn_pattern_weights(chain->patterns[l]) *
                danaus_dtype_size(chain->dtype));
    if (rows)
        scale_factor(made->patterns[0], made->dtype, made->weights[0], rows, NULL);
    if (cols)
        scale_factor(
            made->patterns[last], made->dtype, made->weights[last], NULL, cols);
    *scaled = made;
    return DANAUS_OK;
}
