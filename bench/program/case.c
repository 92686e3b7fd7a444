/* One problem of a benchmark. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/program/case.h"

#include "common/args.h"
#include "common/timing.h"
#include "common/noise.h"
#include "common/open.h"
#include "common/report.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY  6e9 /* bytes that inputs and outputs may rotate through */
#define COLUMNS 5   /* batch columns that are checked against f64 */

static int64_t factor_rows(danaus_pattern p) { return p.a * p.b * p.d; }

static int64_t factor_cols(danaus_pattern p) { return p.a * p.c * p.d; }

static int64_t factor_weights(danaus_pattern p) { return p.a * p.b * p.c * p.d; }

static int make_chain(bench_case *c)
{
    if (danaus_chain_create(c->patterns, c->count, c->dtype, &c->chain))
        return library_failure();
    for (int f = 0; f < c->count; f++)
        noise_fill(
            danaus_chain_weights(c->chain, f), factor_weights(c->patterns[f]), c->dtype,
            sqrt(3.0 / (double)c->patterns[f].c), (uint64_t)f);
    c->rows = danaus_chain_rows(c->chain);
    c->cols = danaus_chain_cols(c->chain);
    return STATUS_OK;
}

/* ---- the case ---- */

/* The device's memory, and what of it the host must read: the same on a CPU. */
static int make_memory(bench_case *c)
{
    rotation *in = &c->inputs;
    danaus_device_info info;
    void *x, *y;
    if (danaus_device_describe(c->device, &info) ||
        danaus_alloc(c->device, in->x_bytes * (size_t)in->copies, &x))
        return library_failure();
    in->x = x;
    if (danaus_alloc(c->device, in->y_bytes * (size_t)in->copies, &y))
        return library_failure();
    in->y = y;
    if (danaus_alloc(c->device, in->y_bytes, &c->y))
        return library_failure();
    c->own_host = info.threads == 0;
    c->host_x = c->own_host ? malloc(in->x_bytes + 1) : in->x;
    c->host_y = c->own_host ? malloc(in->y_bytes + 1) : c->y;
    return c->host_x && c->host_y ? STATUS_OK : failure("no memory for x and y");
}

static int make_inputs(bench_case *c)
{
    double size = (double)danaus_dtype_size(c->dtype), batch = (double)c->batch;
    double bytes = size * batch * (double)(c->rows + c->cols);
    rotation *in = &c->inputs;
    in->x_bytes = (size_t)(c->batch * c->cols) * danaus_dtype_size(c->dtype);
    in->y_bytes = (size_t)(c->batch * c->rows) * danaus_dtype_size(c->dtype);
    in->copies = (int64_t)(2 * (double)c->cache / bytes) + 1;
    if ((double)in->copies * bytes > MEMORY)
        in->copies = 1;
    int status = make_memory(c);
    if (status)
        return status;
    noise_fill(c->host_x, c->batch * c->cols, c->dtype, sqrt(3.0), 99);
    memset(c->host_y, 0, in->y_bytes);
    danaus_status failed = danaus_upload(c->device, c->y, c->host_y, in->y_bytes);
    for (int64_t i = c->own_host ? 0 : 1; i < in->copies && !failed; i++)
        failed = danaus_upload(
            c->device, in->x + (size_t)i * in->x_bytes, c->host_x, in->x_bytes);
    for (int64_t i = 0; i < in->copies && !failed; i++)
        failed = danaus_upload(
            c->device, in->y + (size_t)i * in->y_bytes, c->y, in->y_bytes);
    return failed ? library_failure() : STATUS_OK;
}

static danaus_ks_desc describe(const bench_case *c)
{
    return (danaus_ks_desc){ .layout = c->layout,
                             .dtype = c->dtype,
                             .math = c->math,
                             .effort = c->effort,
                             .batch = c->batch };
}

int bench_case_create(bench_case *c)
{
    danaus_ks_desc desc = describe(c);
    int status = make_chain(c);
    status = status ? status : make_inputs(c);
    if (status)
        return status;
    if (danaus_ks_plan_create(c->device, c->patterns, c->count, &desc, &c->plan) ||
        danaus_ks_weights_create(c->plan, c->device, c->chain, &c->weights))
        return library_failure();
    return STATUS_OK;
}

void bench_case_destroy(bench_case *c)
{
    danaus_free(c->device, c->inputs.x);
    danaus_free(c->device, c->inputs.y);
    danaus_free(c->device, c->y);
    if (c->own_host) {
        free(c->host_x);
        free(c->host_y);
    }
    danaus_ks_weights_destroy(c->weights);
    danaus_ks_plan_destroy(c->plan);
    danaus_chain_destroy(c->chain);
}

void bench_case_run(void *self, const void *x, void *y)
{
    bench_case *c = self;
    danaus_status status =
        danaus_ks_execute(c->plan, c->device, c->weights, c->batch, x, y);
    c->failed = status ? status : c->failed;
}

void bench_case_finish(void *self)
{
    bench_case *c = self;
    danaus_status status = danaus_device_sync(c->device);
    c->failed = status ? status : c->failed;
}

/* ---- the check against f64 ---- */

/* Column s of an array of `size` rows, as (re, im) pairs in f64. */
static void read_column(
    const bench_case *c, const void *from, int64_t size, int64_t s, double *column)
{
    size_t element = danaus_dtype_size(c->dtype);
    int last = c->layout == DANAUS_BATCH_LAST;
    for (int64_t i = 0; i < size; i++) {
        int64_t at = last ? i * c->batch + s : s * size + i;
        danaus_convert(
            c->dtype, (const char *)from + (size_t)at * element, DANAUS_C128,
            column + 2 * i, 1);
    }
}

static void multiply_column(
    danaus_pattern p, const double *w, const double *x, double *y)
{
    for (int64_t q = 0; q < p.a * p.b; q++)
        for (int64_t j = 0; j < p.d; j++) {
            double re = 0, im = 0;
            for (int64_t k = 0; k < p.c; k++) {
                const double *wk = w + 2 * ((q * p.c + k) * p.d + j);
                const double *xk = x + 2 * ((q / p.b * p.c + k) * p.d + j);
                re += wk[0] * xk[0] - wk[1] * xk[1];
                im += wk[0] * xk[1] + wk[1] * xk[0];
            }
            y[2 * (q * p.d + j)] = re;
            y[2 * (q * p.d + j) + 1] = im;
        }
}

/* Adds the squares of the error and of the exact column to sums. */
static void compare_columns(
    const double *exact, const double *found, int64_t rows, double sums[2])
{
    for (int64_t i = 0; i < 2 * rows; i++) {
        double difference = found[i] - exact[i];
        sums[0] += difference * difference;
        sums[1] += exact[i] * exact[i];
    }
}

/* work: three columns of the largest size; weights: the largest factor. */
static double check_columns(const bench_case *c, double *work, int64_t size, double *w)
{
    double sums[2] = { 0, 0 };
    int64_t step = c->batch < COLUMNS ? 1 : (c->batch - 1) / (COLUMNS - 1);
    for (int64_t s = 0; s < c->batch; s += step ? step : 1) {
        double *x = work, *y = work + 2 * size, *found = work + 4 * size;
        read_column(c, c->host_x, c->cols, s, x);
        read_column(c, c->host_y, c->rows, s, found);
        for (int f = c->count - 1; f >= 0; f--) {
            danaus_convert(
                c->dtype, danaus_chain_weights(c->chain, f), DANAUS_C128, w,
                factor_weights(c->patterns[f]));
            multiply_column(c->patterns[f], w, x, y);
            double *other = x;
            x = y;
            y = other;
        }
        compare_columns(x, found, c->rows, sums);
    }
    return sqrt(sums[0] / sums[1]);
}

double bench_case_error(bench_case *c, double *seconds)
{
    int64_t size = c->rows, weights = 0;
    for (int f = 0; f < c->count; f++) {
        int64_t cols = factor_cols(c->patterns[f]),
                own = factor_weights(c->patterns[f]);
        size = cols > size ? cols : size;
        weights = own > weights ? own : weights;
    }
    bench_case_run(c, c->inputs.x, c->y); /* once more: scratch is there now */
    bench_case_finish(c);
    double start = seconds_now();
    bench_case_run(c, c->inputs.x, c->y);
    bench_case_finish(c);
    *seconds = seconds_now() - start;
    if (c->own_host && danaus_download(c->device, c->host_y, c->y, c->inputs.y_bytes))
        c->failed = DANAUS_ERR_DEVICE;
    double *work = malloc((size_t)size * 6 * sizeof *work);
    double *w = malloc((size_t)weights * 2 * sizeof *w);
    double error = NAN;
    if (work && w && !c->failed)
        error = check_columns(c, work, size, w);
    free(work);
    free(w);
    return error;
}

double bench_case_bound(const bench_case *c)
{
    double terms = sqrt((double)c->cols), unit = FLT_EPSILON;
    for (int f = 0; f < c->count; f++)
        terms += sqrt((double)c->patterns[f].c) + 1;
    if (c->dtype == DANAUS_F64 || c->dtype == DANAUS_C128)
        unit = DBL_EPSILON;
    else if (c->dtype == DANAUS_F16 || c->math == DANAUS_MATH_TF32)
        unit = 0x1p-10;
    else if (c->dtype == DANAUS_BF16)
        unit = 0x1p-7;
    return 4 * unit * terms;
}

double bench_case_flops(const bench_case *c)
{
    double flops = 0;
    for (int f = 0; f < c->count; f++)
        flops += 2.0 * (double)factor_weights(c->patterns[f]) * (double)c->batch;
    return is_complex(c->dtype) ? 4 * flops : flops;
}

double bench_case_bytes(const bench_case *c)
{
    double elements = (double)(c->rows + c->cols) * (double)c->batch;
    for (int f = 0; f < c->count; f++)
        elements += (double)factor_weights(c->patterns[f]);
    return elements * (double)danaus_dtype_size(c->dtype);
}

/* ---- factors one by one ---- */

static int make_factor(const bench_case *c, one_by_one *o, int f)
{
    danaus_ks_desc desc = describe(c);
    danaus_chain *one;
    if (danaus_chain_create(&c->patterns[f], 1, c->dtype, &one))
        return library_failure();
    memcpy(
        danaus_chain_weights(one, 0), danaus_chain_weights(c->chain, f),
        (size_t)factor_weights(c->patterns[f]) * danaus_dtype_size(c->dtype));
    int failed =
        danaus_ks_plan_create(c->device, &c->patterns[f], 1, &desc, &o->plan[f]) ||
        danaus_ks_weights_create(o->plan[f], c->device, one, &o->weights[f]);
    danaus_chain_destroy(one);
    return failed ? library_failure() : STATUS_OK;
}

int one_by_one_create(const bench_case *c, one_by_one *o)
{
    int64_t size = 0;
    int status = STATUS_OK;
    *o = (one_by_one){ .of = c };
    for (int f = 0; f < c->count && !status; f++) {
        int64_t rows = factor_rows(c->patterns[f]);
        size = rows > size ? rows : size;
        status = make_factor(c, o, f);
    }
    size_t bytes = (size_t)(size * c->batch) * danaus_dtype_size(c->dtype);
    if (!status && (danaus_alloc(c->device, bytes, &o->middle[0]) ||
                    danaus_alloc(c->device, bytes, &o->middle[1])))
        status = library_failure();
    return status;
}

void one_by_one_destroy(one_by_one *o)
{
    for (int f = 0; f < o->of->count; f++) {
        danaus_ks_weights_destroy(o->weights[f]);
        danaus_ks_plan_destroy(o->plan[f]);
    }
    danaus_free(o->of->device, o->middle[0]);
    danaus_free(o->of->device, o->middle[1]);
}

void one_by_one_run(void *self, const void *x, void *y)
{
    one_by_one *o = self;
    const bench_case *c = o->of;
    for (int f = c->count - 1; f >= 0; f--) {
        void *to = f ? o->middle[f % 2] : y;
        danaus_status status =
            danaus_ks_execute(o->plan[f], c->device, o->weights[f], c->batch, x, to);
        o->failed = status ? status : o->failed;
        x = to;
    }
}

void one_by_one_finish(void *self)
{
    one_by_one *o = self;
    danaus_status status = danaus_device_sync(o->of->device);
    o->failed = status ? status : o->failed;
}
