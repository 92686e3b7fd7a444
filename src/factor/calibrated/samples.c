/* Samples in chunks of a fixed size, whose products are summed in order: bits do not
   depend on threads. */
// SPDX-License-Identifier: Apache-2.0
#include "factor/calibrated/calibration.h"

#include "factor/calibrated/wide.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/status.h"
#include "math/lapack_library.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

enum { CHUNK = 512 };

/* Squares of numbers from 2^-this to 2^this, and sums of squares, are in the range of f64. */
enum { MOST_EXPONENT = 440 };

static int64_t width(const ks_calibration *c) { return c->complex ? 2 : 1; }

typedef struct sample_chunk {
    ks_columns x, y; /* N and M rows */
} sample_chunk;

static danaus_status chunk_make(const ks_calibration *c, sample_chunk *s)
{
    *s = (sample_chunk){
        { c->complex, c->w->cols, 0, dn_calibration_numbers(c, c->w->cols, CHUNK) },
        { c->complex, c->w->rows, 0, dn_calibration_numbers(c, c->w->rows, CHUNK) }
    };
    if (!s->x.at || !s->y.at)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for a chunk of samples");
    return DANAUS_OK;
}

static void chunk_free(sample_chunk *s)
{
    dn_free(s->x.at);
    dn_free(s->y.at);
}

/* Columns = samples `from` and following of data[samples][rows], less the mean. */
static void read_columns(
    const ks_calibration *c, const void *data, double scale, const double *mean,
    int64_t from, ks_columns *to)
{
    danaus_dtype dtype = c->w->dtype;
    danaus_pattern all = { 1, to->rows, to->count, 1 };
    const char *first = (const char *)data + from * to->rows * dn_size_of(dtype);
    ks_view view = dn_view_dense(first, dtype, to->rows, all, 1, scale);
    dn_view_read(&view, to->at);
    double *at = to->at;
    for (int64_t row = 0; row < to->rows; row++)
        for (int64_t x = 0; x < to->count * width(c); x++)
            *at++ -= mean[row * width(c) + x % width(c)];
}

/* Inputs and, if there are some, targets of the samples from `from` on. */
static void read_chunk(const ks_calibration *c, int64_t from, sample_chunk *s)
{
    const danaus_factorize_desc *desc = c->desc;
    s->x.count = s->y.count = MIN(CHUNK, desc->samples - from);
    read_columns(c, desc->inputs, c->x_scale, c->mean_x, from, &s->x);
    if (c->fitted)
        read_columns(c, desc->targets, c->x_scale * c->scale, c->mean_y, from, &s->y);
}

static void add_means(const ks_calibration *c, const ks_columns *x, double *mean)
{
    const double *at = x->at;
    double share = 1 / (double)c->desc->samples;
    for (int64_t row = 0; row < x->rows; row++)
        for (int64_t s = 0; s < x->count * width(c); s++)
            mean[row * width(c) + s % width(c)] += share * *at++;
}

/* The means stay zero until all have been summed. */
static danaus_status find_means(ks_calibration *c, sample_chunk *s)
{
    double *x = dn_calibration_numbers(c, 1, c->w->cols),
           *y = dn_calibration_numbers(c, 1, c->w->rows);
    if (x && y) {
        dn_zero(c->complex, 1, c->w->cols, (dn_matrix){ x, 0 });
        dn_zero(c->complex, 1, c->w->rows, (dn_matrix){ y, 0 });
        for (int64_t from = 0; from < c->desc->samples; from += CHUNK) {
            read_chunk(c, from, s);
            add_means(c, &s->x, x);
            if (c->fitted)
                add_means(c, &s->y, y);
        }
        dn_copy(
            c->complex, 1, c->w->cols, (dn_matrix){ x, 0 },
            (dn_matrix){ c->mean_x, 0 });
        dn_copy(
            c->complex, 1, c->w->rows, (dn_matrix){ y, 0 },
            (dn_matrix){ c->mean_y, 0 });
    }
    danaus_status status =
        x && y ? DANAUS_OK : dn_fail(DANAUS_ERR_MEMORY, "no memory for the means");
    dn_free(x);
    dn_free(y);
    return status;
}

/* to += y x^H */
static void add_product(
    thread_pool *pool, const ks_columns *y, const ks_columns *x, double *to)
{
    dn_gemm g = { .complex = x->complex,
                  .adjoint_b = 1,
                  .m = y->rows,
                  .n = x->rows,
                  .k = x->count,
                  .beta = 1 };
    dn_wide_times(
        pool, &g, (dn_matrix){ y->at, y->count }, (dn_matrix){ x->at, x->count },
        (dn_matrix){ to, x->rows });
}

danaus_status dn_samples_read(thread_pool *pool, ks_calibration *c)
{
    const danaus_factorize_desc *desc = c->desc;
    ks_dense x = { desc->inputs, c->w->dtype, desc->samples, c->w->cols };
    ks_dense y = { desc->targets, c->w->dtype, desc->samples, c->w->rows };
    double y_scale, energy;
    TRY(dn_survey(pool, &x, "X", &c->x_scale, &energy));
    if (c->fitted) {
        TRY(dn_survey(pool, &y, "Y", &y_scale, &c->energy));
        c->scale = y_scale / c->x_scale;
    }
    sample_chunk s;
    danaus_status status = chunk_make(c, &s);
    if (status == DANAUS_OK && desc->bias)
        status = find_means(c, &s);
    for (int64_t at = 0; at < desc->samples && status == DANAUS_OK; at += CHUNK) {
        read_chunk(c, at, &s);
        add_product(pool, &s.x, &s.x, c->lower);
        if (c->fitted)
            add_product(pool, &s.y, &s.x, c->target);
    }
    chunk_free(&s);
    return status;
}

danaus_status dn_samples_measure(
    thread_pool *pool, const ks_calibration *c, const ks_factors *f, double *error)
{
    sample_chunk s;
    ks_room r = { 0 };
    danaus_status status = chunk_make(c, &s);
    if (status == DANAUS_OK)
        status = dn_room_make(c, f, CHUNK, &r);
    double sum = 0;
    for (int64_t at = 0; at < c->desc->samples && status == DANAUS_OK; at += CHUNK) {
        read_chunk(c, at, &s);
        if (!c->fitted)
            dn_calibration_times(
                pool, c, (dn_matrix){ s.x.at, s.x.count }, s.x.count, s.y.at);
        sum += dn_calibration_residual(pool, f, &s.x, &s.y, &r);
    }
    dn_room_free(&r);
    chunk_free(&s);
    *error = sum;
    return status;
}

/* ---- sums for the caller ---- */

static danaus_status check_add(
    const danaus_calibration *sums, danaus_dtype dtype, int64_t rows, int64_t cols,
    int64_t samples, const void *inputs, const void *targets)
{
    if (!sums || !sums->gram || !inputs)
        return dn_fail(DANAUS_ERR_ARGUMENT, "a Gram matrix and inputs are needed");
    if (dtype != DANAUS_F32 && dtype != DANAUS_F64 && dtype != DANAUS_C64 &&
        dtype != DANAUS_C128)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, "samples of type %s cannot be summed",
            danaus_dtype_name(dtype));
    if (rows < 1 || cols < 1 || rows > INT_MAX || cols > INT_MAX || samples < 0)
        return dn_fail(
            DANAUS_ERR_ARGUMENT,
            "%" PRId64 " samples of %" PRId64 " inputs and %" PRId64
            " outputs cannot be summed",
            samples, cols, rows);
    if (sums->cross && !targets)
        return dn_fail(DANAUS_ERR_ARGUMENT, "cross needs targets");
    return dn_check_reserved(sums->reserved, sizeof sums->reserved);
}

static void add_rows(const ks_columns *x, double *sum)
{
    int64_t w = x->complex ? 2 : 1;
    const double *at = x->at;
    for (int64_t row = 0; sum && row < x->rows; row++)
        for (int64_t s = 0; s < x->count * w; s++)
            sum[row * w + s % w] += *at++;
}

static danaus_status add_samples(
    thread_pool *pool, const ks_calibration *c, danaus_calibration *sums)
{
    sample_chunk s;
    danaus_status status = chunk_make(c, &s);
    for (int64_t at = 0; at < c->desc->samples && status == DANAUS_OK; at += CHUNK) {
        read_chunk(c, at, &s);
        add_product(pool, &s.x, &s.x, sums->gram);
        add_rows(&s.x, sums->input_sum);
        if (!c->fitted)
            continue;
        add_product(pool, &s.y, &s.x, sums->cross);
        add_rows(&s.y, sums->target_sum);
        sums->energy += dn_columns_energy(&s.y);
    }
    chunk_free(&s);
    if (status == DANAUS_OK)
        sums->samples += c->desc->samples;
    return status;
}

/* Refuses samples whose squares are no numbers of f64. */
static danaus_status survey_squares(
    thread_pool *pool, const ks_dense *samples, const char *name)
{
    double scale, energy;
    TRY(dn_survey(pool, samples, name, &scale, &energy));
    if (abs(ilogb(scale)) <= MOST_EXPONENT)
        return DANAUS_OK;
    return dn_fail(
        DANAUS_ERR_ARGUMENT,
        "the largest number of %s is near 2^%d, and sums of products of such numbers "
        "leave the range of f64: scale them",
        name, -ilogb(scale));
}

static danaus_status survey_samples(thread_pool *pool, const ks_calibration *c)
{
    ks_dense x = { c->desc->inputs, c->w->dtype, c->desc->samples, c->w->cols };
    ks_dense y = { c->desc->targets, c->w->dtype, c->desc->samples, c->w->rows };
    TRY(survey_squares(pool, &x, "X"));
    return c->fitted ? survey_squares(pool, &y, "Y") : DANAUS_OK;
}

danaus_status dn_calibration_sum(
    thread_pool *pool, danaus_calibration *sums, danaus_dtype dtype, int64_t rows,
    int64_t cols, int64_t samples, const void *inputs, const void *targets)
{
    ks_dense w = { NULL, dtype, rows, cols };
    danaus_factorize_desc desc = { .inputs = inputs,
                                   .targets = targets,
                                   .samples = samples };
    ks_calibration c = { .desc = &desc,
                         .w = &w,
                         .complex = dn_is_complex(dtype),
                         .fitted = sums->cross != NULL,
                         .scale = 1,
                         .x_scale = 1 };
    c.mean_x = dn_calibration_numbers(&c, 1, cols);
    c.mean_y = dn_calibration_numbers(&c, 1, rows);
    int threads = dn_pool_threads(pool);
    danaus_status status = dn_lapack_begin(threads);
    if (status != DANAUS_OK) {
        dn_calibration_free(&c);
        return status;
    }
    if (c.mean_x && c.mean_y) {
        dn_zero(c.complex, 1, cols, (dn_matrix){ c.mean_x, 0 });
        dn_zero(c.complex, 1, rows, (dn_matrix){ c.mean_y, 0 });
        status = survey_samples(pool, &c);
    } else {
        status = dn_fail(DANAUS_ERR_MEMORY, "no memory to add samples");
    }
    if (status == DANAUS_OK)
        status = add_samples(pool, &c, sums);
    dn_lapack_end(threads);
    dn_calibration_free(&c);
    return status;
}

danaus_status danaus_calibration_add(
    danaus_calibration *sums, danaus_dtype dtype, int64_t rows, int64_t cols,
    int64_t samples, const void *inputs, const void *targets)
{
    TRY(check_add(sums, dtype, rows, cols, samples, inputs, targets));
    thread_pool *pool;
    TRY(dn_pool_create(dn_thread_count(), &pool));
    danaus_status status =
        dn_calibration_sum(pool, sums, dtype, rows, cols, samples, inputs, targets);
    dn_pool_destroy(pool);
    return status;
}

/* ---- sums for several fits ---- */

void dn_sample_sums_free(ks_sample_sums *s)
{
    for (int n = 0; n < 4; n++)
        dn_free(s->owned[n]);
}

danaus_status dn_sample_sums(
    const ks_dense *w, danaus_factorize_desc *fit, ks_sample_sums *s)
{
    if (!fit->inputs)
        return DANAUS_OK;
    size_t size = dn_is_complex(w->dtype) ? 16 : 8;
    int64_t m = fit->targets ? w->rows : 0, n = w->cols, bias = fit->bias ? 1 : 0;
    int64_t counts[4] = { n * n, m * n, bias * n, bias * m };
    for (int x = 0; x < 4; x++)
        if (counts[x] && !(s->owned[x] = dn_calloc((size_t)counts[x], size)))
            return dn_fail(DANAUS_ERR_MEMORY, "no memory for sums over samples");
    s->sums = (danaus_calibration){ .gram = s->owned[0],
                                    .cross = s->owned[1],
                                    .input_sum = s->owned[2],
                                    .target_sum = s->owned[3] };
    thread_pool *pool;
    TRY(dn_pool_create(fit->threads ? fit->threads : dn_thread_count(), &pool));
    danaus_status status = dn_calibration_sum(
        pool, &s->sums, w->dtype, w->rows, n, fit->samples, fit->inputs, fit->targets);
    dn_pool_destroy(pool);
    TRY(status);
    fit->inputs = fit->targets = NULL;
    fit->samples = 0;
    fit->calibration = &s->sums;
    return DANAUS_OK;
}
