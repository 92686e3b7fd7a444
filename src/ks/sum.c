/* Alternating fits of two chains.

   What A leaves to B is a problem of the same form: targets y - A x, with
       cross - A gram,   energy - 2 Re <cross, A> + <A gram, A>,   target_sum - A input_sum
   and the matrix W - A. Everything is in f64 or c128; chains are rounded at the end. */
// SPDX-License-Identifier: Apache-2.0
#include "ks/sum.h"

#include "ks/chain.h"
#include "ks/wide.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

/* Energies of what is left are differences; so much of the whole is added to them. */
#define ROUNDING 1e-11

typedef struct sum {
    const ks_dense *w;
    const danaus_factorize_desc *fit;
    const danaus_calibration *given;
    int complex;
    danaus_dtype dtype;                      /* f64 or c128 */
    int64_t rows, cols, parts;               /* parts: doubles in a matrix */
    double *matrix, *gram, *cross, *targets; /* W, all of gram, cross, sums of y */
    double *left, *left_cross, *left_targets, *part, *product;
    double energy;
    thread_pool *pool;
    danaus_chain *chain[2];
    double error; /* of both, relative to ||Y|| */
} sum;

static double *numbers(const sum *s, int64_t count)
{
    return dn_calloc((size_t)count, (s->complex ? 2 : 1) * sizeof(double));
}

static danaus_status make(sum *s)
{
    int64_t size = s->rows * s->cols;
    s->matrix = numbers(s, size);
    s->gram = numbers(s, s->cols * s->cols);
    s->cross = numbers(s, size);
    s->left = numbers(s, size);
    s->left_cross = numbers(s, size);
    s->part = numbers(s, size);
    s->product = numbers(s, size);
    s->targets = numbers(s, s->rows);
    s->left_targets = numbers(s, s->rows);
    if (!s->matrix || !s->gram || !s->cross || !s->left || !s->left_cross || !s->part ||
        !s->product || !s->targets || !s->left_targets)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for a sum of two chains");
    return dn_pool_create(
        s->fit->threads ? s->fit->threads : dn_thread_count(), &s->pool);
}

static void sum_free(sum *s)
{
    double *all[] = { s->matrix, s->gram,    s->cross,   s->left,        s->left_cross,
                      s->part,   s->product, s->targets, s->left_targets };
    for (size_t x = 0; x < sizeof all / sizeof *all; x++)
        dn_free(all[x]);
    dn_pool_destroy(s->pool);
    danaus_chain_destroy(s->chain[0]);
    danaus_chain_destroy(s->chain[1]);
}

/* to[M][count] = a[M][N] x[N][count] */
static void times(const sum *s, double *a, double *x, int64_t count, double *to)
{
    dn_gemm g = { .complex = s->complex, .m = s->rows, .n = count, .k = s->cols };
    dn_wide_times(
        s->pool, &g, (dn_matrix){ a, s->cols }, (dn_matrix){ x, count },
        (dn_matrix){ to, count });
}

/* The real part of the sum of a conj(b). */
static double dot(const sum *s, const double *a, const double *b)
{
    double total = 0;
    for (int64_t x = 0; x < s->parts; x++)
        total += a[x] * b[x];
    return total;
}

/* The upper triangle of a Gram matrix from the lower one. */
static void fill_gram(sum *s)
{
    int64_t n = s->cols, width = s->complex ? 2 : 1;
    memcpy(s->gram, s->given->gram, (size_t)(n * n * width) * sizeof(double));
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < r; k++)
            for (int64_t x = 0; x < width; x++) {
                double value = s->gram[(r * n + k) * width + x];
                s->gram[(k * n + r) * width + x] = x ? -value : value;
            }
}

static void read_problem(sum *s)
{
    const danaus_calibration *c = s->given;
    size_t width = s->complex ? 2 : 1, bytes = (size_t)s->parts * sizeof(double);
    dn_convert(s->w->dtype, s->w->data, s->dtype, s->matrix, s->rows * s->cols);
    s->energy = c->energy;
    fill_gram(s);
    if (c->cross) {
        memcpy(s->cross, c->cross, bytes);
        if (c->target_sum)
            memcpy(s->targets, c->target_sum, (size_t)s->rows * width * sizeof(double));
        return;
    }
    times(s, s->matrix, s->gram, s->cols, s->cross);
    if (c->input_sum)
        times(s, s->matrix, c->input_sum, 1, s->targets);
    s->energy = dot(s, s->cross, s->matrix);
}

/* The problem that is left when `other` (or NULL) is given. */
static danaus_status leave(sum *s, const danaus_chain *other, double *energy)
{
    const danaus_calibration *c = s->given;
    memset(s->part, 0, (size_t)s->parts * sizeof(double));
    if (other)
        TRY(danaus_chain_to_dense(other, s->part));
    times(s, s->part, s->gram, s->cols, s->product);
    *energy = s->energy - 2 * dot(s, s->cross, s->part) + dot(s, s->product, s->part);
    *energy = fmax(0, *energy) + ROUNDING * s->energy;
    for (int64_t x = 0; x < s->parts; x++) {
        s->left[x] = s->matrix[x] - s->part[x];
        s->left_cross[x] = s->cross[x] - s->product[x];
    }
    if (c->input_sum)
        times(s, s->part, c->input_sum, 1, s->left_targets);
    for (int64_t x = 0; x < s->rows * (s->complex ? 2 : 1); x++)
        s->left_targets[x] = s->targets[x] - s->left_targets[x];
    return DANAUS_OK;
}

/* Chain n for what the other one leaves; it is kept if the error falls. */
static danaus_status improve(
    sum *s, int n, const danaus_pattern *patterns, int count,
    danaus_factorize_result *result, int *better)
{
    danaus_calibration c = *s->given;
    danaus_factorize_desc fit = *s->fit;
    danaus_chain *chain;
    TRY(leave(s, s->chain[1 - n], &c.energy));
    c.cross = s->left_cross;
    c.target_sum = c.input_sum ? s->left_targets : NULL;
    fit.calibration = &c;
    TRY(danaus_factorize(s->left, s->dtype, patterns, count, &fit, &chain, result));
    double error = s->energy > 0 ? result->error * sqrt(c.energy / s->energy) : 0;
    *better = !s->chain[n] || error < s->error;
    if (*better) {
        danaus_chain_destroy(s->chain[n]);
        s->chain[n] = chain;
        s->error = error;
    } else {
        danaus_chain_destroy(chain);
    }
    return DANAUS_OK;
}

/* A copy of W's type, with the bias if there is one. */
static danaus_status rounded(const sum *s, const danaus_chain *from, danaus_chain **to)
{
    danaus_dtype dtype = s->w->dtype;
    danaus_chain *made;
    TRY(danaus_chain_create(from->patterns, from->count, dtype, &made));
    for (int l = 0; l < from->count; l++) {
        danaus_pattern p = from->patterns[l];
        dn_convert(
            s->dtype, from->weights[l], dtype, made->weights[l], p.a * p.b * p.c * p.d);
    }
    *to = made;
    return DANAUS_OK;
}

/* mean(y) - (A + B) mean(x), on the first chain. */
static danaus_status add_bias(sum *s, danaus_chain *chain)
{
    double share = 1 / (double)s->given->samples;
    TRY(danaus_chain_to_dense(s->chain[0], s->product));
    TRY(danaus_chain_to_dense(s->chain[1], s->part));
    for (int64_t x = 0; x < s->parts; x++)
        s->part[x] += s->product[x];
    times(s, s->part, s->given->input_sum, 1, s->left_targets);
    for (int64_t x = 0; x < s->rows * (s->complex ? 2 : 1); x++)
        s->left_targets[x] = share * (s->targets[x] - s->left_targets[x]);
    dn_convert(s->dtype, s->left_targets, s->w->dtype, s->part, s->rows);
    return danaus_chain_set_bias(chain, s->part);
}

/* ||W - A - B|| / ||W|| */
static double distance(sum *s)
{
    double energy = dot(s, s->matrix, s->matrix);
    if (danaus_chain_to_dense(s->chain[0], s->part) != DANAUS_OK ||
        danaus_chain_to_dense(s->chain[1], s->product) != DANAUS_OK)
        return -1;
    for (int64_t x = 0; x < s->parts; x++)
        s->part[x] = s->matrix[x] - s->part[x] - s->product[x];
    return energy > 0 ? sqrt(dot(s, s->part, s->part) / energy) : 0;
}

static danaus_status deliver(
    sum *s, danaus_chain *chains[2], danaus_factorize_result *result)
{
    danaus_chain *made[2] = { NULL, NULL };
    danaus_status status = rounded(s, s->chain[0], &made[0]);
    if (status == DANAUS_OK)
        status = rounded(s, s->chain[1], &made[1]);
    if (status == DANAUS_OK && s->fit->bias)
        status = add_bias(s, made[0]);
    if (status != DANAUS_OK) {
        danaus_chain_destroy(made[0]);
        danaus_chain_destroy(made[1]);
        return status;
    }
    result->error = result->upper_bound = s->error;
    result->off_support = 0;
    result->dense_error = distance(s);
    result->parameters =
        danaus_chain_parameters(made[0]) + danaus_chain_parameters(made[1]);
    chains[0] = made[0];
    chains[1] = made[1];
    return DANAUS_OK;
}

danaus_status dn_sum_fit(
    const ks_dense *w, const danaus_pattern *patterns, int first, int count, int rounds,
    const danaus_factorize_desc *fit, danaus_chain *chains[2],
    danaus_factorize_result *result)
{
    int complex = dn_is_complex(w->dtype);
    sum s = { .w = w,
              .fit = fit,
              .given = fit->calibration,
              .complex = complex,
              .dtype = complex ? DANAUS_C128 : DANAUS_F64,
              .rows = w->rows,
              .cols = w->cols,
              .parts = w->rows * w->cols * (complex ? 2 : 1),
              .error = INFINITY };
    double seconds = 0;
    danaus_status status = make(&s);
    if (status == DANAUS_OK)
        read_problem(&s);
    int better = 1;
    for (int n = 0; n < 2 * rounds && better && status == DANAUS_OK; n++) {
        int second = n % 2;
        status = improve(
            &s, second, patterns + (second ? first : 0), second ? count - first : first,
            result, &better);
        seconds += status == DANAUS_OK ? result->seconds : 0;
    }
    if (status == DANAUS_OK)
        status = deliver(&s, chains, result);
    if (status == DANAUS_OK)
        result->seconds = seconds;
    sum_free(&s);
    return status;
}
