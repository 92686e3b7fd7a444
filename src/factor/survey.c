/* Energy, range and finiteness of a dense matrix, in one pass that is usually enough:
   if the sum of squares is finite and far from both ends of the range, then so are
   all entries. Otherwise a slower pass looks for the reason. */
// SPDX-License-Identifier: Apache-2.0
#include "factor/survey.h"

#include "base/dtype.h"
#include "base/status.h"

#include <inttypes.h>
#include <math.h>

enum { CHUNKS = 64, LANES = 8 };

/* Sums of squares that are not scaled: their own fourth powers are in range, too. */
#define LEAST 1e-60
#define MOST  1e60

typedef struct survey {
    const ks_dense *dense;
    int64_t parts; /* real numbers: elements, or twice as many */
    double scale;
    double sums[CHUNKS];
} survey;

static int is_single(danaus_dtype dtype)
{
    return dtype == DANAUS_F32 || dtype == DANAUS_C64;
}

static double part_at(const ks_dense *dense, int64_t index)
{
    const float *f = dense->data;
    const double *g = dense->data;
    return is_single(dense->dtype) ? (double)f[index] : g[index];
}

/* LANES separate sums, of squares of scaled numbers. */
static void sum_chunk(void *arg, int chunk)
{
    survey *s = arg;
    const float *f = s->dense->data;
    const double *g = s->dense->data;
    int single = is_single(s->dense->dtype);
    int64_t at = s->parts * chunk / CHUNKS, end = s->parts * (chunk + 1) / CHUNKS;
    double sum[LANES] = { 0 }, scale = s->scale;
    for (; single && at + LANES <= end; at += LANES)
        for (int v = 0; v < LANES; v++)
            sum[v] += scale * (double)f[at + v] * (scale * (double)f[at + v]);
    for (; !single && at + LANES <= end; at += LANES)
        for (int v = 0; v < LANES; v++)
            sum[v] += scale * g[at + v] * (scale * g[at + v]);
    for (; at < end; at++) {
        double x = scale * part_at(s->dense, at);
        sum[0] += x * x;
    }
    for (int v = 1; v < LANES; v++)
        sum[0] += sum[v];
    s->sums[chunk] = sum[0];
}

static double sum_squares(thread_pool *pool, survey *s)
{
    dn_pool_run(pool, CHUNKS, sum_chunk, s);
    double sum = 0;
    for (int chunk = 0; chunk < CHUNKS; chunk++)
        sum += s->sums[chunk];
    return sum;
}

danaus_status dn_survey(
    thread_pool *pool, const ks_dense *dense, const char *name, double *scale,
    double *energy)
{
    int width = dn_is_complex(dense->dtype) ? 2 : 1;
    survey s = { .dense = dense,
                 .parts = dense->rows * dense->cols * width,
                 .scale = 1 };
    double sum = sum_squares(pool, &s), largest = 0;
    if (!(sum > LEAST && sum < MOST)) {
        for (int64_t at = 0; at < s.parts; at++) {
            double x = part_at(dense, at);
            if (!isfinite(x))
                return dn_fail(
                    DANAUS_ERR_ARGUMENT,
                    "%s[%" PRId64 "][%" PRId64 "] is %s; only finite numbers can be "
                    "factorised",
                    name, at / width / dense->cols, at / width % dense->cols,
                    isnan(x) ? "NaN" : "infinite");
            largest = fmax(largest, fabs(x));
        }
        if (largest > 0)
            s.scale = ldexp(1, (int)fmin(1000, -ilogb(largest)));
        sum = sum_squares(pool, &s);
    }
    *scale = s.scale;
    *energy = sum;
    return DANAUS_OK;
}

double dn_off_support(const ks_dense *dense, danaus_pattern p, double scale)
{
    if (p.a == 1 && p.d == 1)
        return 0;
    int width = dn_is_complex(dense->dtype) ? 2 : 1;
    double sum = 0;
    for (int64_t row = 0; row < dense->rows; row++)
        for (int64_t col = 0; col < dense->cols; col++) {
            if (row / (p.b * p.d) == col / (p.c * p.d) && row % p.d == col % p.d)
                continue;
            for (int x = 0; x < width; x++) {
                double part =
                    scale * part_at(dense, (row * dense->cols + col) * width + x);
                sum += part * part;
            }
        }
    return sum;
}
