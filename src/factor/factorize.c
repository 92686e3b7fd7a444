/* danaus_factorize(): from a dense matrix to a chain with its error certified.

   Checks, orientation (W or its transpose), merging of redundant neighbours, the
   hierarchical run, refinement, the true error, expansion, balancing, and the chain
   in the type of W. The mathematics is in docs/ks.md, sections 3 to 6. */
// SPDX-License-Identifier: Apache-2.0
#include "factor/factorize.h"

#include "factor/hierarchy.h"
#include "product/patterns.h"
#include "factor/refine.h"
#include "factor/survey.h"
#include "factor/calibrated/weighted.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/holds.h"
#include "base/mem.h"
#include "base/quota.h"
#include "base/status.h"
#include "math/lapack_library.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>

enum { BALANCING_PASSES = 4 };

/* By so much of ||W|| may rounding bring a bound past the error that it bounds. */
#define ROUNDING 1e-10

typedef struct factorization {
    const danaus_factorize_desc *desc;
    ks_dense dense;
    danaus_dtype stored;      /* of the chain */
    const danaus_chain *from; /* factors to start from, or NULL */
    int transposed, count;
    danaus_pattern patterns[DANAUS_MAX_FACTORS]; /* of W, or of its transpose */
    int group[DANAUS_MAX_FACTORS + 1], merged_count;
    danaus_pattern merged[DANAUS_MAX_FACTORS];
    int splits[DANAUS_MAX_FACTORS];
    danaus_order order; /* a sweep or balanced */
    double delta[DANAUS_MAX_FACTORS];
    ks_run run;
    ks_view view;
    ks_factors factors;
    double scale;       /* the run sees scale W */
    double energy, off; /* of scale W, and of its part off the support */
    ks_calibration calibration;
    int rounded;   /* storing changes numbers of the factors */
    double before; /* squared error that calibration began with */
    double *bias;  /* in f64 or c128, if one is fitted */
    danaus_factorize_result result;
} factorization;

/* ---- checks ---- */

static danaus_status check_desc(const danaus_factorize_desc *desc)
{
    TRY(dn_check_reserved(desc->reserved, sizeof desc->reserved));
    if (desc->order < DANAUS_ORDER_AUTO || desc->order > DANAUS_ORDER_BALANCED)
        return dn_fail(DANAUS_ERR_ARGUMENT, "%d is no order", (int)desc->order);
    if (desc->refine < 0 || desc->threads < 0)
        return dn_fail(
            DANAUS_ERR_ARGUMENT, "numbers of sweeps and threads are not negative");
    return DANAUS_OK;
}

/* The type that the chain is to have. */
static danaus_status check_stored(const ks_dense *w, const danaus_factorize_desc *desc)
{
    danaus_dtype to = desc->chain_dtype;
    int complex = dn_is_complex(w->dtype);
    if (!to || to == (complex ? DANAUS_C64 : DANAUS_F32) ||
        to == (complex ? DANAUS_C128 : DANAUS_F64))
        return to ? dn_check_holds(w->dtype, w->data, to, w->rows * w->cols, "W")
                  : DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_ARGUMENT, "a chain for a matrix of %s is %s, not %s",
        danaus_dtype_name(w->dtype), complex ? "c64 or c128" : "f32 or f64",
        danaus_dtype_name(to));
}

static int calibrated(const factorization *f)
{
    return f->desc->inputs || f->desc->calibration;
}

static danaus_status check_matrix(const void *dense, danaus_dtype dtype)
{
    if (!dense)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a dense matrix is needed");
    if (dtype != DANAUS_F32 && dtype != DANAUS_F64 && dtype != DANAUS_C64 &&
        dtype != DANAUS_C128)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "matrices of type %s cannot be factorised; f32, "
            "f64, c64 and c128 can",
            danaus_dtype_name(dtype));
    return DANAUS_OK;
}

static danaus_status check_size(const ks_dense *w, const danaus_factorize_desc *desc)
{
    if (w->rows > INT_MAX || w->cols > INT_MAX)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "a matrix of %" PRId64 " x %" PRId64 " is too large for LAPACK", w->rows,
            w->cols);
    TRY(dn_check_room(
        (double)w->rows * (double)w->cols * (dn_is_complex(w->dtype) ? 16 : 8),
        "a copy of the matrix in f64"));
    TRY(check_stored(w, desc));
    return dn_calibration_check(desc, w->rows, w->cols);
}

danaus_status dn_factorize_check(const ks_dense *w, const danaus_factorize_desc *desc)
{
    TRY(check_matrix(w->data, w->dtype));
    TRY(check_desc(desc));
    return check_size(w, desc);
}

/* Orientation, merging, order. */
static danaus_status prepare(
    factorization *f, const danaus_pattern *patterns, int count)
{
    TRY(dn_patterns_direction(patterns, count, &f->transposed));
    f->dense.rows = dn_pattern_rows(patterns[0]);
    f->dense.cols = dn_pattern_cols(patterns[count - 1]);
    TRY(check_size(&f->dense, f->desc));
    f->count = count;
    if (f->transposed)
        dn_patterns_transpose(patterns, count, f->patterns);
    else
        for (int l = 0; l < count; l++)
            f->patterns[l] = patterns[l];
    dn_merge_redundant(f->patterns, count, f->group, f->merged, &f->merged_count);
    if (f->merged_count < count)
        f->from = NULL;
    f->order = f->desc->order;
    dn_order_splits(f->order, f->merged, f->merged_count, f->splits);
    double work = dn_order_work(f->merged, f->merged_count, f->splits);
    f->run.total = work * (1 + f->desc->refine / 2.0 + (calibrated(f) ? 4 : 0));
    return DANAUS_OK;
}

/* ---- the run ---- */

/* Factors of a matrix [M][N] of the run's own type, as those of W. */
static danaus_status start(factorization *f, const double *matrix, ks_factors *factors)
{
    danaus_dtype dtype = f->calibration.complex ? DANAUS_C128 : DANAUS_F64;
    ks_how how = { f->desc->fast, f->desc->square_roots };
    ks_view view =
        dn_view_dense(matrix, dtype, f->dense.cols, f->view.p, f->transposed, 1);
    TRY(dn_hierarchy(
        &f->run, &view, f->merged, f->merged_count, f->splits, how, factors, f->delta));
    return f->transposed ? dn_factors_transpose(factors) : DANAUS_OK;
}

/* Factors of the matrix that is run on, from the chain that was given. */
static danaus_status start_from(factorization *f)
{
    ks_factors *to = &f->factors;
    *to = (ks_factors){ .complex = dn_is_complex(danaus_chain_dtype(f->from)),
                        .count = f->count };
    for (int l = 0; l < f->count; l++) {
        int at = f->transposed ? f->count - 1 - l : l;
        to->p[l] = f->patterns[l];
        to->w[l] = dn_work_alloc(to->complex, to->p[l]);
        if (!to->w[l])
            return dn_fail(DANAUS_ERR_MEMORY, "no memory for factors to start from");
        dn_factor_read(
            to->p[l], f->transposed, danaus_chain_dtype(f->from),
            danaus_chain_weights_const(f->from, at), l ? 1 : f->scale, to->w[l]);
    }
    return DANAUS_OK;
}

/* The better of two starts: with inputs made orthonormal in the blocks of the last
   factor, and, unless that is the optimum, as they are. */
static danaus_status start_calibrated(
    factorization *f, const ks_whitened *w, int optimal)
{
    thread_pool *pool = f->run.pool;
    ks_calibration *c = &f->calibration;
    TRY(start(f, w->matrix, &f->factors));
    dn_unwhiten(pool, w, &f->factors);
    TRY(dn_weighted_error(pool, c, &f->factors, &f->before));
    if (optimal)
        return DANAUS_OK;
    ks_factors plain = { 0 };
    double error = 0;
    danaus_status status = start(f, c->matrix, &plain);
    if (status == DANAUS_OK)
        status = dn_weighted_error(pool, c, &plain, &error);
    if (status == DANAUS_OK && error < f->before) {
        ks_factors swap = f->factors;
        f->factors = plain;
        plain = swap;
        f->before = error;
    }
    dn_factors_free(&plain);
    return status;
}

/* As start_calibrated(), from the chain that was given. */
static danaus_status start_calibrated_from(factorization *f)
{
    TRY(start_from(f));
    if (f->transposed)
        TRY(dn_factors_transpose(&f->factors));
    return dn_weighted_error(f->run.pool, &f->calibration, &f->factors, &f->before);
}

static danaus_status run_calibrated(factorization *f)
{
    ks_calibration *c = &f->calibration;
    int end = f->merged_count - 1;
    danaus_pattern last =
        f->transposed ? dn_pattern_adjoint(f->merged[0]) : f->merged[end];
    int optimal = f->merged_count <= 2 && last.a == 1 && last.d == 1;
    if (f->from && !optimal) {
        TRY(start_calibrated_from(f));
    } else {
        ks_whitened w = { 0 };
        danaus_status status = dn_whiten(f->run.pool, c, last, &w);
        if (status == DANAUS_OK)
            status = start_calibrated(f, &w, optimal);
        dn_whitened_free(&w);
        TRY(status);
    }
    if (!optimal)
        TRY(dn_weighted_refine(
            &f->run, c, !f->transposed, f->desc->refine, f->run.total - f->run.done,
            &f->factors));
    return f->transposed ? dn_factors_transpose(&f->factors) : DANAUS_OK;
}

static danaus_status run_plain(factorization *f)
{
    ks_how how = { f->desc->fast, f->desc->square_roots };
    if (f->from)
        TRY(start_from(f));
    else
        TRY(dn_hierarchy(
            &f->run, &f->view, f->merged, f->merged_count, f->splits, how, &f->factors,
            f->delta));
    return dn_refine(
        &f->run, &f->view, f->desc->refine, KS_STEP_PAIR, f->run.total - f->run.done,
        &f->factors, NULL);
}

static danaus_status run_hierarchy(factorization *f)
{
    danaus_pattern p = dn_patterns_product(f->merged, f->merged_count);
    TRY(dn_survey(f->run.pool, &f->dense, "W", &f->scale, &f->energy));
    if (calibrated(f)) {
        ks_calibration *c = &f->calibration;
        TRY(dn_calibration_read(f->run.pool, f->desc, &f->dense, f->scale, c));
        TRY(dn_calibration_check_scales(f->scale, c->scale));
        f->energy *= c->scale / f->scale * (c->scale / f->scale);
        f->scale = c->scale;
    }
    f->off =
        dn_off_support(&f->dense, f->transposed ? dn_pattern_adjoint(p) : p, f->scale);
    f->view = dn_view_dense(
        f->dense.data, f->dense.dtype, f->dense.cols, p, f->transposed, f->scale);
    return calibrated(f) ? run_calibrated(f) : run_plain(f);
}

/* Each factor carries an equal share of the power of two that brings W back to its own
   scale: that of factor l of the chain. */
static int exponent_of(const factorization *f, int l)
{
    int total = -ilogb(f->scale), count = f->count;
    return total / count + (l < total % count) - (l < -total % count);
}

/* Rounds work arrays to the numbers that the chain will hold, in the scale of the run: to its
   precision and range. */
static danaus_status round_factors(factorization *f)
{
    int single = f->stored == DANAUS_F32 || f->stored == DANAUS_C64;
    for (int l = 0; l < f->count; l++) {
        double *w = f->factors.w[f->transposed ? f->count - 1 - l : l];
        danaus_pattern p = f->factors.p[f->transposed ? f->count - 1 - l : l];
        int64_t parts = dn_pattern_weights(p) * (f->factors.complex ? 2 : 1);
        int exponent = exponent_of(f, l);
        double up = ldexp(1, exponent / 2),
               up_again = ldexp(1, exponent - exponent / 2);
        for (int64_t x = 0; x < parts; x++) {
            double value = w[x] * up * up_again;
            value = single ? (double)(float)value : value;
            if (!isfinite(value))
                return dn_fail(
                    DANAUS_ERR_ARGUMENT,
                    "factor %d would hold %g times 2^%d, which is no number of %s: "
                    "scale the matrix",
                    l, w[x], exponent, danaus_dtype_name(f->stored));
            value = value / up / up_again;
            f->rounded |= value != w[x];
            w[x] = value;
        }
    }
    return DANAUS_OK;
}

static danaus_status measure_calibrated(factorization *f, double distance)
{
    const ks_calibration *c = &f->calibration;
    danaus_factorize_result *r = &f->result;
    double error, share = c->energy > 0 ? 1 / c->energy : 0;
    if (f->transposed)
        TRY(dn_factors_transpose(&f->factors));
    TRY(dn_calibration_measure(f->run.pool, c, &f->factors, distance, &error));
    if (f->desc->bias)
        TRY(dn_calibration_bias(f->run.pool, c, &f->factors, f->bias));
    if (f->transposed)
        TRY(dn_factors_transpose(&f->factors));
    r->error = sqrt(error * share);
    r->upper_bound = fmax(sqrt(f->before * share), r->error);
    r->lower_bound = -1;
    return DANAUS_OK;
}

static danaus_status measure(factorization *f)
{
    danaus_factorize_result *r = &f->result;
    double largest = 0, norm = f->energy > 0 ? sqrt(f->energy) : 1;
    for (int s = 0; s + 1 < f->merged_count; s++)
        largest = fmax(largest, f->delta[s]);
    double bound = dn_order_bound(f->order, f->merged_count, f->delta);
    int sweep = f->order != DANAUS_ORDER_BALANCED && !f->desc->square_roots;
    int wide = f->stored == DANAUS_F64 || f->stored == DANAUS_C128;
    double reached = bound * bound;
    if (!sweep || !wide || f->rounded || f->desc->refine || calibrated(f))
        TRY(dn_factors_residual(&f->run, &f->view, &f->factors, &reached));
    r->off_support = sqrt(f->off) / norm;
    r->dense_error = r->error = sqrt(reached + f->off) / norm;
    int exact = !f->desc->fast && !f->desc->square_roots && !f->from;
    double lower = exact ? hypot(largest, sqrt(f->off)) / norm : -1;
    double upper = f->desc->square_roots ? 0 : hypot(bound, sqrt(f->off)) / norm;
    /* A larger difference stays visible. Chains of f32 are rounded more. */
    double slack = exact && wide && !f->rounded ? ROUNDING : INFINITY;
    r->lower_bound = lower <= r->error + ROUNDING ? fmin(lower, r->error) : lower;
    r->upper_bound = r->error <= upper + slack ? fmax(upper, r->error) : upper;
    return calibrated(f) ? measure_calibrated(f, reached + f->off) : DANAUS_OK;
}

/* ---- the chain ---- */

/* Writes factor l of the chain from its work array, or from the transposed factor's if W was
   transposed. */
static void write_factor(const factorization *f, danaus_chain *chain, int l)
{
    int from = f->transposed ? f->count - 1 - l : l;
    dn_factor_write(
        f->factors.p[from], f->transposed, f->factors.complex, f->factors.w[from],
        exponent_of(f, l), f->stored, danaus_chain_weights(chain, l));
}

/* The bias in the chain's type, in its own place. */
static danaus_status write_bias(factorization *f, danaus_chain *chain)
{
    TRY(dn_check_stored(
        f->stored, f->bias, f->dense.rows, DN_STORED_INFINITE, "the fitted bias"));
    dn_convert(
        f->calibration.complex ? DANAUS_C128 : DANAUS_F64, f->bias, f->stored, f->bias,
        f->dense.rows);
    return danaus_chain_set_bias(chain, f->bias);
}

static danaus_status write_chain(
    factorization *f, const danaus_pattern *patterns, danaus_chain **chain)
{
    danaus_chain *made;
    TRY(danaus_chain_create(patterns, f->count, f->stored, &made));
    for (int l = 0; l < f->count; l++)
        write_factor(f, made, l);
    danaus_status status = f->desc->bias ? write_bias(f, made) : DANAUS_OK;
    if (status == DANAUS_OK)
        *chain = made;
    else
        danaus_chain_destroy(made);
    return status;
}

static danaus_status factorise(
    factorization *f, const danaus_pattern *patterns, danaus_chain **chain)
{
    TRY(run_hierarchy(f));
    if (f->desc->bias) {
        f->bias = dn_calibration_numbers(&f->calibration, 1, f->dense.rows);
        if (!f->bias)
            return dn_fail(DANAUS_ERR_MEMORY, "no memory for the bias");
    }
    TRY(dn_expand(&f->run, f->patterns, f->count, f->group, &f->factors));
    TRY(dn_factors_balance(&f->factors, BALANCING_PASSES));
    TRY(round_factors(f));
    TRY(measure(f));
    TRY(dn_run_progress(&f->run, f->run.total + 1));
    return write_chain(f, patterns, chain);
}

danaus_status dn_factorize_from(
    const danaus_chain *from, const void *dense, danaus_dtype dtype,
    const danaus_pattern *patterns, int count, const danaus_factorize_desc *desc,
    danaus_chain **chain, danaus_factorize_result *result)
{
    double start = dn_seconds();
    danaus_factorize_desc plain = { 0 };
    factorization f = { .desc = desc ? desc : &plain,
                        .dense = { dense, dtype, 0, 0 },
                        .from = from };
    f.stored = f.desc->chain_dtype ? f.desc->chain_dtype : dtype;
    if (!chain)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a place for the chain is needed");
    TRY(check_matrix(dense, dtype));
    TRY(check_desc(f.desc));
    TRY(prepare(&f, patterns, count));
    f.run.progress = f.desc->progress;
    f.run.user = f.desc->user;
    int threads = f.desc->threads ? f.desc->threads : dn_thread_count();
    TRY(dn_lapack_begin(threads));
    danaus_status status = dn_pool_create(threads, &f.run.pool);
    if (status == DANAUS_OK)
        status = factorise(&f, patterns, chain);
    dn_factors_free(&f.factors);
    dn_calibration_free(&f.calibration);
    dn_free(f.bias);
    dn_pool_destroy(f.run.pool);
    dn_lapack_end(threads);
    if (status != DANAUS_OK)
        return status;
    f.result.parameters = danaus_chain_parameters(*chain);
    f.result.seconds = dn_seconds() - start;
    if (result)
        *result = f.result;
    return DANAUS_OK;
}

danaus_status danaus_factorize(
    const void *dense, danaus_dtype dtype, const danaus_pattern *patterns, int count,
    const danaus_factorize_desc *desc, danaus_chain **chain,
    danaus_factorize_result *result)
{
    return dn_factorize_from(NULL, dense, dtype, patterns, count, desc, chain, result);
}
