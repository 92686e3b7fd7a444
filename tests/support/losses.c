/* What layers of compressed models lose. */
// SPDX-License-Identifier: Apache-2.0
#include "support/losses.h"
#include "support/matrix.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of a row of a layer. */
#define MOST 256

/* ---- what is read ---- */

static danaus_status read_rows(
    watcher *w, const linear *layer, int64_t rows, const void *x)
{
    reader *r = (reader *)w;
    size_t row = (size_t)layer->cols * sizeof *r->x;
    r->x = realloc(r->x, (size_t)(r->rows + rows) * row);
    assert_non_null(r->x);
    memcpy(r->x + r->rows * layer->cols, x, (size_t)rows * row);
    r->rows += rows;
    return DANAUS_OK;
}

void readers_start(danaus_model *model, reader *of)
{
    for (int i = 0; i < model->linears; i++) {
        of[i] = (reader){ .watcher = { read_rows } };
        model->linear[i].watcher = &of[i].watcher;
    }
}

void readers_stop(danaus_model *model)
{
    for (int i = 0; i < model->linears; i++)
        model->linear[i].watcher = NULL;
}

/* ---- losses ---- */

static double number_at(
    const danaus_model *model, const char *layer, const char *part, int64_t at)
{
    char name[200];
    danaus_tensor t;
    double wide = 0;
    snprintf(name, sizeof name, "%s%s.%s", model->prefix, layer, part);
    if (danaus_file_find(model->file, name, &t))
        return 0;
    const char *from = (const char *)t.data + at * dn_size_of(t.dtype);
    assert_ok(danaus_convert(t.dtype, from, DANAUS_F64, &wide, 1));
    return wide;
}

/* Row i of the dense layer. */
static void weight_row(
    const danaus_model *model, const linear *layer, int64_t i, double *w)
{
    for (int64_t j = 0; j < layer->cols; j++)
        w[j] = number_at(model, layer->name, "weight", i * layer->cols + j);
}

/* v := v K for a factor w[a][b][c][d]. */
static void through_factor(danaus_pattern p, const double *w, double *v)
{
    double to[MOST] = { 0 };
    for (int64_t a = 0; a < p.a; a++)
        for (int64_t b = 0; b < p.b; b++)
            for (int64_t c = 0; c < p.c; c++)
                for (int64_t d = 0; d < p.d; d++)
                    to[(a * p.c + c) * p.d + d] +=
                        v[(a * p.b + b) * p.d + d] *
                        w[((a * p.b + b) * p.c + c) * p.d + d];
    memcpy(v, to, sizeof to);
}

static void add_chain_row(const danaus_chain *chain, int64_t i, int64_t cols, double *k)
{
    double v[MOST] = { 0 };
    v[i] = 1;
    for (int l = 0; l < danaus_chain_count(chain); l++)
        through_factor(
            danaus_chain_pattern(chain, l), danaus_chain_weights_const(chain, l), v);
    for (int64_t j = 0; j < cols; j++)
        k[j] += v[j];
}

void fit_row(const fit *f, int64_t i, double *k)
{
    memset(k, 0, (size_t)f->cols * sizeof *k);
    for (int n = 0; n < 2 && f->chain[n]; n++)
        add_chain_row(f->chain[n], i, f->cols, k);
    for (int64_t j = 0; j < f->cols && !f->chain[0]; j++) {
        k[j] = f->dense ? f->basis[i * f->cols + j] : 0;
        for (int64_t t = 0; t < f->rank && !f->dense; t++)
            k[j] += f->left[i * f->rank + t] * f->basis[t * f->cols + j];
    }
}

/* Losses are computed from sums over all rows, in f32. Such a sum of n products errs by some
   sqrt(n) u times the sum of their sizes, and not by six times as much (Higham, Mary, SIAM J.
   Sci. Comput. 41, 2019). */
static double rounding_of_sums(int64_t rows)
{
    return 6 * sqrt((double)rows) * 0x1p-24;
}

static void add_row(
    loss *of, const danaus_model *model, const linear *layer, int64_t i,
    const reader *dense, const reader *here)
{
    const fit *f = &layer->fitted;
    double k[MOST], w[MOST], moved[MOST] = { 0 }, sum = 0, square = 0;
    double bias = number_at(model, layer->name, "bias", i);
    fit_row(f, i, k);
    weight_row(model, layer, i, w);
    for (int64_t t = 0; t < here->rows; t++) {
        const float *there = dense->x + t * f->cols, *x = here->x + t * f->cols;
        double y = bias, z = f->bias[i], wx = bias;
        double sizes = fabs(bias) + fabs(f->bias[i]);
        for (int64_t j = 0; j < f->cols; j++) {
            y += w[j] * there[j];
            wx += w[j] * x[j];
            z += k[j] * x[j];
            sizes += fabs(w[j] * there[j]) + fabs(k[j] * x[j]);
        }
        of->fitted += (y - z) * (y - z);
        of->dense += (y - wx) * (y - wx);
        of->slack += rounding_of_sums(here->rows) * sizes * sizes;
        for (int64_t j = 0; j < f->cols; j++)
            moved[j] += rounding_of_sums(here->rows) * sizes * fabs(x[j]);
        sum += y;
        square += y * y;
    }
    of->size += square - sum * sum / (double)here->rows;
    for (int64_t j = 0; j < f->cols; j++)
        of->bends += moved[j] * moved[j];
}

/* The mean over columns of the sum of (x - mean)^2. */
static double spread_of(const reader *r, int64_t cols)
{
    double all = 0;
    for (int64_t j = 0; j < cols; j++) {
        double sum = 0, square = 0;
        for (int64_t t = 0; t < r->rows; t++) {
            sum += r->x[t * cols + j];
            square += (double)r->x[t * cols + j] * r->x[t * cols + j];
        }
        all += square - sum * sum / (double)r->rows;
    }
    return all / (double)cols;
}

/* The squares of singular values behind the first `rank`: what is left of a matrix without the
   best one of that rank (Eckart, Young). The matrix goes. */
static double tail_of(matrix *y, int64_t rank)
{
    int64_t count = y->rows < y->cols ? y->rows : y->cols;
    double *values = calloc((size_t)count, sizeof *values), rest = 0;
    if (rank < count)
        matrix_singular_values(*y, values);
    for (int64_t i = rank; i < count; i++)
        rest += values[i] * values[i];
    free(values);
    matrix_free(y);
    return rest;
}

/* K X has no higher rank than K. */
double least_loss(const danaus_model *model, const linear *layer, const reader *dense)
{
    int64_t rows = layer->rows, cols = layer->cols, n = dense->rows;
    matrix y = matrix_make(rows, n);
    double w[MOST];
    for (int64_t i = 0; i < rows; i++) {
        double mean = 0;
        weight_row(model, layer, i, w);
        for (int64_t t = 0; t < n; t++) {
            for (int64_t j = 0; j < cols; j++)
                y.at[i * n + t] += w[j] * dense->x[t * cols + j];
            mean += creal(y.at[i * n + t]) / (double)n;
        }
        for (int64_t t = 0; t < n; t++)
            y.at[i * n + t] -= mean;
    }
    return tail_of(&y, layer->fitted.rank);
}

loss layer_loss(
    const danaus_model *model, const linear *layer, const reader *dense,
    const reader *here)
{
    loss found = { .spread = spread_of(here, layer->cols),
                   .least = least_loss(model, layer, dense) };
    assert_int_equal(dense->rows, here->rows);
    for (int64_t i = 0; i < layer->rows; i++)
        add_row(&found, model, layer, i, dense, here);
    return found;
}

/* ---- what is expected ---- */

/* The fit is the K of its rank that is nearest to C A^-1 by ||(K - C A^-1) A^(1/2)||, with
   A = X X^T + ridge spread 1 and C = Y X^T + ridge spread W, and W is one of those K.
   Rounding moves C - W A by R, and so W, measured like this, by ||R|| / sqrt(ridge spread) at
   most, once for the fit and once for W. */
void expect_as_good_as_dense(const linear *layer, const loss *found, double ridge)
{
    double most = sqrt(found->dense) + 2 * sqrt(found->bends / (ridge * found->spread));
    if (!(sqrt(found->fitted) <= most))
        fail_msg(
            "%s: %g of %g is lost, %g may be", layer->name, found->fitted, found->size,
            most * most);
}

/* What is told is the square root of a quotient of two sums. */
static void expect_told(
    const linear *layer, const char *what, double told, double lost, const loss *found)
{
    double square = told * told, slack = (1 + square) * found->slack;
    if (!(fabs(lost - square * found->size) <= slack))
        fail_msg(
            "%s: %s %g, not %g", layer->name, what, told, sqrt(lost / found->size));
}

void expect_told_loss(const linear *layer, const loss *found)
{
    const fit *f = &layer->fitted;
    expect_told(layer, "error", f->error, found->fitted, found);
    expect_told(layer, "lower bound", f->lower_bound, found->least, found);
    assert_true(f->lower_bound <= f->error && layer->speedup > 0);
}

void expect_best_of_rank(const danaus_model *model, const linear *layer)
{
    int64_t rows = layer->rows, cols = layer->cols;
    matrix w = matrix_make(rows, cols);
    double k[MOST], row[MOST], lost = 0, size = 0;
    for (int64_t i = 0; i < rows; i++) {
        weight_row(model, layer, i, row);
        fit_row(&layer->fitted, i, k);
        for (int64_t j = 0; j < cols; j++) {
            w.at[i * cols + j] = row[j];
            size += row[j] * row[j];
            lost += (k[j] - row[j]) * (k[j] - row[j]);
        }
    }
    double rest = tail_of(&w, layer->fitted.dense ? rows : layer->fitted.rank);
    double slack = (double)(rows * cols) * 0x1p-50 * size;
    if (!(fabs(lost - rest) <= slack))
        fail_msg(
            "%s of rank %d loses %.12g, not %.12g", layer->name,
            (int)layer->fitted.rank, lost, rest);
    double bound = layer->fitted.lower_bound;
    assert_true(bound <= layer->fitted.error && layer->speedup > 0);
    assert_true(fabs(bound * bound * size - rest) <= slack);
}

/* Numbers of factors and biases go into files as f32: each of a product of two is rounded once,
   and biases of rows that follow from the basis are sums of such products. */
void expect_rounded(const linear *found, const linear *layer)
{
    const fit *f = &layer->fitted;
    double k[MOST], wanted[MOST];
    assert_int_equal(found->parameters, layer->parameters);
    assert_int_equal(found->factors, layer->factors);
    assert_memory_equal(
        found->patterns, layer->patterns,
        (size_t)found->factors * sizeof *found->patterns);
    if (!f->basis || f->dense || f->chain[0])
        return;
    assert_int_equal(found->fitted.rank, f->rank);
    for (int64_t i = 0; i < f->rows; i++) {
        double bias = fabs(f->bias[i]);
        fit_row(&found->fitted, i, k);
        fit_row(f, i, wanted);
        for (int64_t t = 0; t < f->rank; t++)
            bias += fabs(f->left[i * f->rank + t] * f->bias[f->kept[t]]);
        assert_true(fabs(found->fitted.bias[i] - f->bias[i]) <= 3 * 0x1p-24 * bias);
        for (int64_t j = 0; j < f->cols; j++) {
            double sizes = 0;
            for (int64_t t = 0; t < f->rank; t++)
                sizes += fabs(f->left[i * f->rank + t] * f->basis[t * f->cols + j]);
            assert_true(fabs(k[j] - wanted[j]) <= 2.1 * 0x1p-24 * sizes);
        }
    }
}
