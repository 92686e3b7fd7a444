/* One convolution that is measured: its plan, filters and signals. */
// SPDX-License-Identifier: Apache-2.0
#include "bench/program/conv_case.h"

#include "common/args.h"
#include "common/noise.h"

#include <math.h>
#include <stdlib.h>

static float *noise_array(size_t count, uint64_t seed)
{
    float *x = malloc(count * sizeof *x);
    if (x)
        noise_fill(x, (int64_t)count, DANAUS_F32, 1, seed);
    return x;
}

static int64_t numbers_of(const conv_problem *p)
{
    return p->batch * p->channels * p->length;
}

/* `count` numbers in the case's type, in memory of the device; NULL: there is none. */
static void *device_noise(conv_case *c, size_t count, uint64_t seed)
{
    void *memory = NULL;
    noise_on_device(c->device, (int64_t)count, c->dtype, seed, &memory);
    return memory;
}

void conv_case_run(void *self, const void *u, void *y)
{
    conv_case *c = self;
    c->failed |= danaus_conv_execute(
                     c->plan, c->device, c->spectrum, c->p->batch, u, c->gates[0],
                     c->gates[1], y) != DANAUS_OK;
}

void conv_case_finish(void *self)
{
    conv_case *c = self;
    c->failed |= danaus_device_sync(c->device) != DANAUS_OK;
}

double conv_case_bytes(const conv_case *c, int arrays)
{
    return (double)numbers_of(c->p) * arrays * (double)danaus_dtype_size(c->dtype);
}

static int make_filters(conv_case *c)
{
    const conv_problem *p = c->p;
    size_t taps = (size_t)(p->channels * p->taps);
    c->k = noise_array(taps, 1);
    if (p->kind == DANAUS_BIDIRECTIONAL)
        c->k_reverse = noise_array(taps, 2);
    if (p->gated)
        c->skip = noise_array((size_t)p->channels, 3);
    return c->k != NULL;
}

int conv_case_create(conv_case *c)
{
    danaus_conv_desc desc = conv_problem_desc(c->p, c->dtype, c->effort);
    desc.accuracy = c->accuracy;
    if (!make_filters(c))
        return failure("no memory for filters");
    if (danaus_conv_plan_create(c->device, &desc, &c->plan) ||
        danaus_spectrum_create(
            c->plan, c->device, c->k, c->k_reverse, c->skip, &c->spectrum))
        return library_failure();
    return STATUS_OK;
}

int conv_case_signals(conv_case *c, size_t cache)
{
    size_t count = (size_t)numbers_of(c->p),
           bytes = count * danaus_dtype_size(c->dtype);
    c->copies.x_bytes = c->copies.y_bytes = (bytes + 63) / 64 * 64;
    c->copies.copies = 1 + (int64_t)(cache / c->copies.x_bytes);
    size_t all = (size_t)c->copies.copies * c->copies.x_bytes;
    c->copies.x = device_noise(c, all / danaus_dtype_size(c->dtype), 4);
    c->copies.y = device_noise(c, all / danaus_dtype_size(c->dtype), 7);
    if (!c->copies.x || !c->copies.y)
        return failure("no memory for signals");
    for (int g = 0; g < 2 && c->p->gated; g++)
        if (!(c->gates[g] = device_noise(c, count, 5 + (uint64_t)g)))
            return failure("no memory for gates");
    return STATUS_OK;
}

void conv_case_destroy(conv_case *c)
{
    danaus_spectrum_destroy(c->spectrum);
    danaus_conv_plan_destroy(c->plan);
    danaus_free(c->device, c->copies.x);
    danaus_free(c->device, c->copies.y);
    for (int g = 0; g < 2; g++)
        danaus_free(c->device, c->gates[g]);
    free(c->k);
    free(c->k_reverse);
    free(c->skip);
}

int conv_case_row(const conv_case *c, const void *from, double *row)
{
    size_t bytes = (size_t)c->p->length * danaus_dtype_size(c->dtype);
    void *there = malloc(bytes);
    if (!there)
        return failure("no memory for a row");
    danaus_status status = danaus_download(c->device, there, from, bytes);
    if (!status)
        status = danaus_convert(c->dtype, there, DANAUS_F64, row, c->p->length);
    free(there);
    return status ? library_failure() : STATUS_OK;
}

/* The operands of the first row in f64: u, the gates, k, k_reverse. */
typedef struct exact_row {
    double *u, *gates[2], *k, *k_reverse, skip;
} exact_row;

static int read_row(const conv_case *c, double *work, exact_row *e)
{
    int64_t n = c->p->length, taps = c->p->taps;
    *e = (exact_row){ .u = work, .k = work + n, .skip = c->skip ? c->skip[0] : 0 };
    int status = conv_case_row(c, c->copies.x, e->u);
    work = e->k + taps;
    danaus_convert(DANAUS_F32, c->k, DANAUS_F64, e->k, taps);
    if (c->k_reverse) {
        e->k_reverse = work;
        danaus_convert(DANAUS_F32, c->k_reverse, DANAUS_F64, work, taps);
        work += taps;
    }
    for (int g = 0; g < 2 && c->p->gated && !status; g++, work += n) {
        e->gates[g] = work;
        status = conv_case_row(c, c->gates[g], work);
    }
    return status;
}

/* y of the first row on a processor, whose memory is the host's. */
static int compute_row(const conv_case *c, const exact_row *e, double *y)
{
    danaus_conv_desc desc = conv_problem_desc(c->p, DANAUS_F64, DANAUS_ESTIMATE);
    danaus_device *cpu = NULL;
    danaus_conv_plan *plan = NULL;
    danaus_spectrum *spectrum = NULL;
    desc.channels = 1;
    int failed =
        danaus_device_open("cpu", &cpu) || danaus_conv_plan_create(cpu, &desc, &plan) ||
        danaus_spectrum_create(plan, cpu, e->k, e->k_reverse, &e->skip, &spectrum) ||
        danaus_conv_execute(plan, cpu, spectrum, 1, e->u, e->gates[0], e->gates[1], y);
    danaus_spectrum_destroy(spectrum);
    danaus_conv_plan_destroy(plan);
    danaus_device_close(cpu);
    return failed ? library_failure() : STATUS_OK;
}

double conv_relative_error(int64_t n, const double *is, const double *should)
{
    double error = 0, norm = 0;
    for (int64_t t = 0; t < n; t++) {
        error += (is[t] - should[t]) * (is[t] - should[t]);
        norm += should[t] * should[t];
    }
    return sqrt(error / norm);
}

int conv_case_check(conv_case *c)
{
    int64_t n = c->p->length;
    double *work = malloc((size_t)(2 * c->p->taps + 5 * n) * sizeof *work);
    double unit = c->dtype == DANAUS_F64 ? 0x1p-53 : 0x1p-24;
    unit += c->dtype == DANAUS_F16 ? 0x1p-10 : c->dtype == DANAUS_BF16 ? 0x1p-7 : 0;
    unit += c->accuracy == DANAUS_CONV_FAST ? 0x1p-14 : 0;
    if (!work)
        return failure("no memory to check a row");
    double *y = work + 2 * c->p->taps + 3 * n, *is = y + n;
    exact_row e;
    conv_case_run(c, c->copies.x, c->copies.y);
    int status = c->failed ? library_failure() : read_row(c, work, &e);
    status = status ? status : compute_row(c, &e, y);
    status = status ? status : conv_case_row(c, c->copies.y, is);
    c->error = status ? NAN : conv_relative_error(n, is, y);
    free(work);
    if (status)
        return status;
    if (!(c->error <= 20 * unit * sqrt(log2((double)n + 2))))
        return failure("the convolution is wrong: relative error %.3g", c->error);
    return STATUS_OK;
}
