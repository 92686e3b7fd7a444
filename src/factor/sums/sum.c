/* Alternating fits of a sum of chains, each to what all others leave.

   If A is the sum of the others, the rest is a problem of the same form: the matrix W - A and,
   calibrated, targets y - A x, with
       cross - A gram,   energy - 2 Re <cross, A> + <A gram, A>,   target_sum - A input_sum.
   Everything is in f64 or c128; chains are rounded at the end. */
// SPDX-License-Identifier: Apache-2.0
#include "factor/sums/sum.h"

#include "factor/calibrated/calibration.h"
#include "product/chain.h"
#include "factor/factorize.h"
#include "factor/hierarchy.h"
#include "factor/calibrated/wide.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/holds.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/lapack_library.h"
#include "math/pattern.h"

#include <math.h>
#include <string.h>

/* Energies of the rest are differences; this share of the whole is added to them. */
#define ROUNDING 1e-11

/* A round that gains less than this share of the error is the last. */
#define LEAST_GAIN 1e-3

typedef struct sum {
    const ks_dense *w;
    const ks_terms *terms;
    const danaus_factorize_desc *fit;
    const danaus_calibration *given; /* NULL: ||W - K|| */
    int complex;
    danaus_dtype dtype;        /* f64 or c128 */
    int64_t rows, cols, parts; /* parts: doubles in a matrix */
    double scale;              /* W is seen times this, a power of two; */
    double x_scale;            /* calibrated, inputs are, and targets times both */
    double safe;               /* so many times what is seen has squares in range */
    double *matrix, *rest;     /* W, and what all terms leave of it */
    double *left, *part;       /* what all but one leave; a term, or a sum of them */
    double *gram, *cross;      /* calibrated: all of gram, cross, */
    double *inputs, *targets;  /* sums of x and y */
    double *left_cross, *left_targets, *product;
    double energy; /* of Y, or of W */
    thread_pool *pool;
    danaus_chain *chain[DANAUS_MAX_TERMS];
    double error;   /* of all, relative to the root of that */
    int done, fits; /* that were made, and that may be */
} sum;

static double *numbers(const sum *s, int64_t count)
{
    return dn_calloc((size_t)count, (s->complex ? 2 : 1) * sizeof(double));
}

static danaus_status make(sum *s)
{
    int64_t size = s->rows * s->cols;
    int failed = !(s->matrix = numbers(s, size)) || !(s->rest = numbers(s, size)) ||
                 !(s->left = numbers(s, size)) || !(s->part = numbers(s, size));
    if (!failed && s->given)
        failed =
            !(s->gram = numbers(s, s->cols * s->cols)) ||
            !(s->cross = numbers(s, size)) || !(s->left_cross = numbers(s, size)) ||
            !(s->product = numbers(s, size)) || !(s->inputs = numbers(s, s->cols)) ||
            !(s->targets = numbers(s, s->rows)) ||
            !(s->left_targets = numbers(s, s->rows));
    if (failed)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for a sum of chains");
    int threads = s->fit->threads ? s->fit->threads : dn_thread_count();
    TRY(dn_lapack_begin(threads));
    dn_lapack_end(threads); /* what it loaded and mapped stays */
    return dn_pool_create(threads, &s->pool);
}

static void sum_free(sum *s)
{
    double *all[] = { s->matrix,       s->rest,    s->left,    s->part,
                      s->gram,         s->cross,   s->targets, s->left_cross,
                      s->left_targets, s->product, s->inputs };
    for (size_t x = 0; x < sizeof all / sizeof *all; x++)
        dn_free(all[x]);
    dn_pool_destroy(s->pool);
    for (int n = 0; n < s->terms->count; n++)
        danaus_chain_destroy(s->chain[n]);
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

/* The energy of a matrix of W's size, in the scale that is safe. */
static double energy_of(const sum *s, const double *a)
{
    double total = 0;
    for (int64_t x = 0; x < s->parts; x++) {
        double value = s->safe * a[x];
        total += value * value;
    }
    return total;
}

/* Numbers times a power of two; none without them. */
static void read_scaled(const void *from, int64_t count, double scale, double *to)
{
    const double *numbers = from;
    for (int64_t x = 0; numbers && x < count; x++)
        to[x] = numbers[x] * scale;
}

/* The upper triangle of a Gram matrix from the lower one. */
static void fill_gram(sum *s)
{
    int64_t n = s->cols, width = s->complex ? 2 : 1;
    read_scaled(s->given->gram, n * n * width, s->x_scale * s->x_scale, s->gram);
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < r; k++)
            for (int64_t x = 0; x < width; x++) {
                double value = s->gram[(r * n + k) * width + x];
                s->gram[(k * n + r) * width + x] = x ? -value : value;
            }
}

static void read_sums(sum *s)
{
    const danaus_calibration *c = s->given;
    int64_t width = s->complex ? 2 : 1;
    double y_scale = s->scale * s->x_scale;
    fill_gram(s);
    read_scaled(c->input_sum, s->cols * width, s->x_scale, s->inputs);
    if (c->cross) {
        s->energy = c->energy * y_scale * y_scale;
        read_scaled(c->cross, s->parts, y_scale * s->x_scale, s->cross);
        read_scaled(c->target_sum, s->rows * width, y_scale, s->targets);
        return;
    }
    times(s, s->matrix, s->gram, s->cols, s->cross);
    if (c->input_sum)
        times(s, s->matrix, s->inputs, 1, s->targets);
    s->energy = dot(s, s->cross, s->matrix);
}

/* A power of two that brings the root of an energy near 1. */
static double scale_for(double energy)
{
    return energy > 0 && isfinite(energy) ? ldexp(1, -ilogb(sqrt(energy))) : 1;
}

/* Inputs and targets become about 1. */
static void choose_scales(sum *s)
{
    const double *gram = s->given->gram;
    double inputs = 0;
    for (int64_t k = 0; k < s->cols; k++)
        inputs = fmax(inputs, gram[k * (s->cols + 1) * (s->complex ? 2 : 1)]);
    s->x_scale = scale_for(inputs);
    if (s->given->cross)
        s->scale = scale_for(s->given->energy) / s->x_scale;
}

static danaus_status read_problem(sum *s)
{
    double scale;
    TRY(dn_survey(s->pool, s->w, "W", &scale, &s->energy));
    s->scale = scale;
    if (s->given)
        choose_scales(s);
    TRY(dn_calibration_check_scales(scale, s->scale));
    s->safe = scale / s->scale;
    danaus_pattern all = { 1, s->rows, s->cols, 1 };
    ks_view view = dn_view_dense(s->w->data, s->w->dtype, s->cols, all, 0, s->scale);
    dn_view_read(&view, s->matrix);
    memcpy(s->rest, s->matrix, (size_t)s->parts * sizeof(double));
    if (s->given)
        read_sums(s);
    return DANAUS_OK;
}

static double share(double part, double whole)
{
    return whole > 0 ? sqrt(part / whole) : 0;
}

/* ---- the rest ---- */

/* left = W less all terms but n; -1: less all. */
static danaus_status leave(sum *s, int n)
{
    memcpy(s->left, s->rest, (size_t)s->parts * sizeof(double));
    if (n < 0 || !s->chain[n])
        return DANAUS_OK;
    TRY(danaus_chain_to_dense(s->chain[n], s->part));
    for (int64_t x = 0; x < s->parts; x++)
        s->left[x] += s->part[x];
    return DANAUS_OK;
}

/* The sums over samples for the rest. */
static danaus_calibration leave_sums(sum *s)
{
    danaus_calibration c = *s->given;
    for (int64_t x = 0; x < s->parts; x++)
        s->part[x] = s->matrix[x] - s->left[x];
    times(s, s->part, s->gram, s->cols, s->product);
    double energy =
        s->energy - 2 * dot(s, s->cross, s->part) + dot(s, s->product, s->part);
    for (int64_t x = 0; x < s->parts; x++)
        s->left_cross[x] = s->cross[x] - s->product[x];
    if (c.input_sum)
        times(s, s->part, s->inputs, 1, s->left_targets);
    for (int64_t x = 0; x < s->rows * (s->complex ? 2 : 1); x++)
        s->left_targets[x] = s->targets[x] - s->left_targets[x];
    c.energy = fmax(0, energy) + ROUNDING * s->energy;
    c.gram = s->gram;
    c.cross = s->left_cross;
    c.input_sum = c.input_sum ? s->inputs : NULL;
    c.target_sum = c.input_sum ? s->left_targets : NULL;
    return c;
}

/* ---- fits ---- */

static int forward_progress(void *user, double done)
{
    const sum *s = user;
    return s->fit->progress(s->fit->user, (s->done + done) / s->fits);
}

/* Fits chain n to the rest of W; `part` is its matrix. *scale is the norm of the rest relative
   to the whole. The nearest two factors need no start. */
static danaus_status fit_term(
    sum *s, int n, danaus_chain **chain, danaus_factorize_result *result, double *scale)
{
    danaus_factorize_desc fit = *s->fit;
    fit.chain_dtype = s->dtype;
    danaus_calibration sums;
    const danaus_chain *from =
        s->given || s->terms->count_of[n] > 2 ? s->chain[n] : NULL;
    double left = energy_of(s, s->left);
    if (s->given) {
        sums = leave_sums(s);
        fit.calibration = &sums;
        left = sums.energy;
    }
    if (s->chain[n])
        fit.refine = s->given || from;
    if (fit.progress) {
        fit.progress = forward_progress;
        fit.user = s;
    }
    TRY(dn_factorize_from(
        from, s->left, s->dtype, s->terms->patterns[n], s->terms->count_of[n], &fit,
        chain, result));
    danaus_status status = danaus_chain_to_dense(*chain, s->part);
    if (status != DANAUS_OK) {
        danaus_chain_destroy(*chain);
        return status;
    }
    s->done++;
    *scale = share(left, s->energy);
    return DANAUS_OK;
}

/* A term that brings nothing. */
static void clear(sum *s, danaus_chain *chain)
{
    for (int l = 0; l < chain->count; l++)
        memset(
            chain->weights[l], 0,
            (size_t)dn_pattern_weights(chain->patterns[l]) *
                danaus_dtype_size(s->dtype));
    memset(s->part, 0, (size_t)s->parts * sizeof(double));
}

/* Fits chain n to what all others leave; it is kept if the error falls. A new one that is
   not becomes zero. */
static danaus_status improve(
    sum *s, int n, danaus_factorize_result *result, double *scale)
{
    danaus_chain *chain;
    TRY(leave(s, n));
    TRY(fit_term(s, n, &chain, result, scale));
    double error = result->error * *scale;
    if (error < s->error) {
        s->error = error;
    } else if (s->chain[n]) {
        danaus_chain_destroy(chain);
        return DANAUS_OK;
    } else {
        clear(s, chain);
    }
    danaus_chain_destroy(s->chain[n]);
    s->chain[n] = chain;
    for (int64_t x = 0; x < s->parts; x++)
        s->rest[x] = s->left[x] - s->part[x];
    return DANAUS_OK;
}

/* Turns a result for the rest of W into one for W: norms are multiplied by `scale`, and those of
   matrices by `of_matrix`. */
static void relate(
    const sum *s, double scale, double of_matrix, danaus_factorize_result *r)
{
    r->error = s->error;
    r->upper_bound = fmax(r->upper_bound * scale, r->error);
    r->lower_bound = r->lower_bound < 0 ? -1 : fmin(r->lower_bound * scale, r->error);
    r->off_support *= of_matrix;
    r->dense_error *= of_matrix;
}

static danaus_status greedy(sum *s, danaus_factorize_result *steps)
{
    double whole = energy_of(s, s->matrix);
    for (int n = 0; n < s->terms->count; n++) {
        double scale, of_matrix = share(energy_of(s, s->rest), whole);
        TRY(improve(s, n, &steps[n], &scale));
        relate(s, scale, of_matrix, &steps[n]);
    }
    return DANAUS_OK;
}

static danaus_status alternate(sum *s, int rounds)
{
    danaus_factorize_result unused;
    double before = INFINITY, scale;
    for (int r = 0; r < rounds && s->error < (1 - LEAST_GAIN) * before; r++) {
        before = s->error;
        for (int n = 0; n < s->terms->count; n++)
            TRY(improve(s, n, &unused, &scale));
    }
    if (s->fit->progress && s->fit->progress(s->fit->user, 1))
        return dn_fail(DANAUS_ERR_CANCELLED, "the factorization was given up");
    return DANAUS_OK;
}

/* ---- the chains ---- */

static danaus_dtype stored_type(const sum *s)
{
    return s->fit->chain_dtype ? s->fit->chain_dtype : s->w->dtype;
}

/* A copy of the type asked for, in W's scale; `from` gets the same rounding, in its own. */
static danaus_status rounded(const sum *s, danaus_chain *from, danaus_chain **to)
{
    danaus_dtype dtype = stored_type(s);
    int exponent = -ilogb(s->scale), count = from->count;
    TRY(danaus_chain_create(from->patterns, count, dtype, to));
    for (int l = 0; l < count; l++) {
        danaus_pattern p = from->patterns[l];
        int64_t size = p.a * p.b * p.c * p.d;
        int64_t parts = size * (s->complex ? 2 : 1);
        double *w = from->weights[l];
        int share_of =
            exponent / count + (l < exponent % count) - (l < -exponent % count);
        dn_factor_write(
            (danaus_pattern){ 1, 1, size, 1 }, 0, s->complex, w, share_of, dtype,
            (*to)->weights[l]);
        dn_convert(dtype, (*to)->weights[l], s->dtype, w, size);
        for (int64_t x = 0; x < parts; x++) {
            if (!isfinite(w[x]))
                return dn_fail(
                    DANAUS_ERR_ARGUMENT,
                    "factor %d of a term would hold what is no number of %s: scale the "
                    "matrix",
                    l, danaus_dtype_name(dtype));
            w[x] = ldexp(w[x], -share_of);
        }
    }
    return DANAUS_OK;
}

/* rest = W less the chains as they are */
static danaus_status find_rest(sum *s)
{
    memcpy(s->rest, s->matrix, (size_t)s->parts * sizeof(double));
    for (int n = 0; n < s->terms->count; n++) {
        TRY(danaus_chain_to_dense(s->chain[n], s->part));
        for (int64_t x = 0; x < s->parts; x++)
            s->rest[x] -= s->part[x];
    }
    return DANAUS_OK;
}

/* The error of the rest. With a bias, `chain` gets mean(y) - K mean(x). */
static danaus_status measure_sums(sum *s, danaus_chain *chain)
{
    TRY(leave(s, -1));
    danaus_calibration c = leave_sums(s);
    double samples = (double)c.samples, means = 0;
    int64_t size = s->rows * (s->complex ? 2 : 1);
    for (int64_t x = 0; s->fit->bias && x < size; x++) {
        means += s->left_targets[x] * s->left_targets[x] / samples;
        s->left_targets[x] /= samples;
    }
    s->error = share(fmax(ROUNDING * s->energy, c.energy - means), s->energy);
    if (!s->fit->bias)
        return DANAUS_OK;
    for (int64_t x = 0; x < size; x++)
        s->left_targets[x] /= s->scale * s->x_scale;
    TRY(dn_check_stored(
        stored_type(s), s->left_targets, s->rows, DN_STORED_INFINITE,
        "the fitted bias"));
    dn_convert(s->dtype, s->left_targets, stored_type(s), s->part, s->rows);
    return danaus_chain_set_bias(chain, s->part);
}

static danaus_status measure(
    sum *s, danaus_chain *chain, danaus_factorize_result *result)
{
    TRY(find_rest(s));
    double distance = share(energy_of(s, s->rest), energy_of(s, s->matrix));
    s->error = distance;
    if (s->given)
        TRY(measure_sums(s, chain));
    *result = (danaus_factorize_result){ .error = s->error,
                                         .lower_bound = -1,
                                         .upper_bound = s->error,
                                         .dense_error = distance };
    return DANAUS_OK;
}

static danaus_status deliver(
    sum *s, danaus_chain **chains, danaus_factorize_result *result)
{
    danaus_chain *made[DANAUS_MAX_TERMS] = { NULL };
    danaus_status status = DANAUS_OK;
    int count = s->terms->count;
    for (int n = 0; n < count && status == DANAUS_OK; n++)
        status = rounded(s, s->chain[n], &made[n]);
    if (status == DANAUS_OK)
        status = measure(s, made[0], result);
    for (int n = 0; n < count; n++) {
        if (status == DANAUS_OK) {
            result->parameters += danaus_chain_parameters(made[n]);
            chains[n] = made[n];
        } else {
            danaus_chain_destroy(made[n]);
        }
    }
    return status;
}

danaus_status dn_sum_fit(
    const ks_dense *w, const ks_terms *terms, int rounds,
    const danaus_factorize_desc *fit, danaus_chain **chains,
    danaus_factorize_result *result, danaus_factorize_result *steps)
{
    int complex = dn_is_complex(w->dtype);
    sum s = { .w = w,
              .terms = terms,
              .fit = fit,
              .given = fit->calibration,
              .complex = complex,
              .dtype = complex ? DANAUS_C128 : DANAUS_F64,
              .rows = w->rows,
              .cols = w->cols,
              .parts = w->rows * w->cols * (complex ? 2 : 1),
              .fits = terms->count * (1 + rounds),
              .error = INFINITY };
    double start = dn_seconds();
    danaus_status status = make(&s);
    if (status == DANAUS_OK)
        status = read_problem(&s);
    if (status == DANAUS_OK)
        status = greedy(&s, steps);
    if (status == DANAUS_OK)
        status = alternate(&s, rounds);
    if (status == DANAUS_OK)
        status = deliver(&s, chains, result);
    if (status == DANAUS_OK)
        result->seconds = dn_seconds() - start;
    sum_free(&s);
    return status;
}
