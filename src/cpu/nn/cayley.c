/* Cayley transforms of blocks, and their gradients, in f64: blocks for threads. */
// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"
#include "cpu/cpu.h"
#include "cpu/nn/nn.h"

#define MATRICES 3 /* of scratch for a worker */

typedef struct cayley_run {
    const nn_cayley *o;
    double *scratch;
    int workers; /* worker i takes blocks i, i + workers, ... */
} cayley_run;

static double number_at(const nn_cayley *o, const void *x, int64_t i)
{
    return o->dtype == DANAUS_F64 ? ((const double *)x)[i] : ((const float *)x)[i];
}

static void put_number(const nn_cayley *o, int64_t i, double v)
{
    if (o->dtype == DANAUS_F64)
        ((double *)o->y)[i] = v;
    else
        ((float *)o->y)[i] = (float)v;
}

/* a = a^-1 by elimination in place, without pivots. */
static void invert(double *a, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        double *pivot = a + k * n, part = 1 / pivot[k];
        pivot[k] = 1;
        for (int64_t c = 0; c < n; c++)
            pivot[c] *= part;
        for (int64_t r = 0; r < n; r++) {
            double *row = a + r * n, factor = row[k];
            if (r == k)
                continue;
            row[k] = 0;
            for (int64_t c = 0; c < n; c++)
                row[c] -= factor * pivot[c];
        }
    }
}

static void transform(const nn_cayley *o, int64_t at, double *a)
{
    int64_t n = o->size;
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < n; c++) {
            double skew =
                number_at(o, o->x, at + r * n + c) - number_at(o, o->x, at + c * n + r);
            a[r * n + c] = (r == c) + o->sign * skew / 2;
        }
    invert(a, n);
    for (int64_t i = 0; i < n * n; i++)
        put_number(o, at + i, 2 * a[i] - (i / n == i % n));
}

/* c[n][n] = a b for matrices of n rows. */
static void multiply(int64_t n, const double *a, const double *b, double *c)
{
    for (int64_t r = 0; r < n; r++) {
        double *row = c + r * n;
        for (int64_t i = 0; i < n; i++)
            row[i] = 0;
        for (int64_t k = 0; k < n; k++)
            for (int64_t i = 0; i < n; i++)
                row[i] += a[r * n + k] * b[k * n + i];
    }
}

static void go_back(const nn_cayley *o, int64_t at, double *p)
{
    int64_t n = o->size;
    double *g = p + n * n, *m = g + n * n; /* p = (q + I)^T */
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < n; c++) {
            p[r * n + c] = number_at(o, o->x, at + c * n + r) + (r == c);
            g[r * n + c] = number_at(o, o->dq, at + r * n + c);
        }
    multiply(n, p, g, m);
    multiply(n, m, p, g);
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < n; c++)
            put_number(o, at + r * n + c, o->sign * (g[c * n + r] - g[r * n + c]) / 4);
}

static void cayley_task(void *arg, int worker)
{
    const cayley_run *run = arg;
    const nn_cayley *o = run->o;
    int64_t numbers = o->size * o->size;
    double *scratch = run->scratch + worker * MATRICES * numbers;
    for (int64_t i = worker; i < o->count; i += run->workers)
        (o->dq ? go_back : transform)(o, i * numbers, scratch);
}

danaus_status dn_cpu_cayley(danaus_device *dev, const nn_cayley *o)
{
    cpu_device *d = (cpu_device *)dev;
    cayley_run run = { .o = o, .workers = d->threads };
    size_t each = MATRICES * (size_t)(o->size * o->size) * sizeof(double);
    void *scratch;
    TRY(dn_cpu_scratch(d, (size_t)run.workers * each, &scratch));
    run.scratch = scratch;
    dn_cpu_parallel_short(d, run.workers, cayley_task, &run);
    dn_cpu_give_scratch(d);
    return DANAUS_OK;
}
