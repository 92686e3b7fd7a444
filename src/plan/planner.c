/* Choosing a kernel: table, estimate, measurement. */
// SPDX-License-Identifier: Apache-2.0
#include "plan/planner.h"

#include "backend/tuning.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* A measurement ends after this many runs, or sooner when they are long. */
#define MOST_RUNS      15
#define ENOUGH_SECONDS 0.05
/* Where calls return before their work is done, so much of it is timed at once. */
#define QUEUE_SECONDS 1e-3
/* Random numbers that are made, before they repeat. */
#define BLOCK 2048

/* Memory for one measured product. */
typedef struct trial {
    danaus_device *dev;
    void *x, *y, *packed, *w;
} trial;

static void close_trial(trial *t)
{
    t->dev->backend->free(t->dev, t->x);
    t->dev->backend->free(t->dev, t->y);
    t->dev->backend->free(t->dev, t->packed);
    dn_free(t->w);
}

/* Numbers in [-1, 1), the same again after some thousands. */
static danaus_status fill(
    danaus_device *dev, void *to, danaus_dtype dtype, int64_t count)
{
    double numbers[2 * BLOCK];
    uint64_t seed = 1;
    size_t size = danaus_dtype_size(dtype);
    for (int i = 0; i < 2 * BLOCK; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        numbers[i] = (double)(seed >> 11) * 0x1p-52 - 1;
    }
    int64_t filled = count < BLOCK ? count : BLOCK;
    TRY(dn_put_numbers(dev, DANAUS_C128, numbers, dtype, to, filled));
    for (; filled < count; filled *= 2) {
        int64_t more = filled < count - filled ? filled : count - filled;
        TRY(dev->backend->copy(
            dev, (char *)to + (size_t)filled * size, to, (size_t)more * size));
    }
    return DANAUS_OK;
}

static danaus_status open_trial(
    danaus_device *dev, const kernel *k, const problem *p, trial *t)
{
    danaus_pattern first = p->inner.a ? p->inner : p->pattern;
    int64_t rows = dn_pattern_rows(p->pattern), cols = dn_pattern_cols(first), n;
    int64_t weights = dn_pattern_weights(p->pattern);
    if (p->inner.a && weights < dn_pattern_weights(p->inner))
        weights = dn_pattern_weights(p->inner);
    size_t size = danaus_dtype_size(p->dtype);
    if (dn_mul_overflows(rows > cols ? rows : cols, p->batch, &n) ||
        dn_mul_overflows(n, (int64_t)size, &n))
        return dn_fail(DANAUS_ERR_SHAPE, "a batch of %" PRId64 " overflows", p->batch);
    *t = (trial){ .dev = dev };
    t->w = dn_calloc((size_t)weights, size);
    danaus_status status =
        t->w ? DANAUS_OK : dn_fail_memory(size, "weights to measure with");
    if (status == DANAUS_OK)
        status = dev->backend->alloc(dev, (size_t)(cols * p->batch) * size, &t->x);
    if (status == DANAUS_OK)
        status = dev->backend->alloc(dev, (size_t)(rows * p->batch) * size, &t->y);
    if (status == DANAUS_OK)
        status = dev->backend->alloc(dev, k->packed_bytes(k, p), &t->packed);
    if (status != DANAUS_OK) {
        close_trial(t);
        return status;
    }
    ks_step step = { *p, k };
    weights_view w = dn_weights_view(t->w, p->dtype, p->pattern);
    weights_view inner = dn_weights_view(t->w, p->dtype, p->inner);
    w.inner = p->inner.a ? &inner : NULL;
    status = dev->backend->clear(dev, t->y, (size_t)(rows * p->batch) * size);
    if (status == DANAUS_OK)
        status = fill(dev, t->x, p->dtype, cols * p->batch);
    if (status == DANAUS_OK)
        status = dn_pack(dev, &step, w, t->packed);
    if (status != DANAUS_OK)
        close_trial(t);
    return status;
}

static int compare_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of a call, over so many of them. */
static danaus_status time_calls(
    danaus_device *dev, const ks_step *step, const ks_operands *o, int calls,
    double *seconds)
{
    double start = dn_seconds();
    for (int i = 0; i < calls; i++)
        TRY(dev->backend->ks_run(dev, step, 1, o));
    TRY(dev->backend->sync(dev));
    *seconds = (dn_seconds() - start) / calls;
    return DANAUS_OK;
}

danaus_status dn_measure(
    danaus_device *dev, const kernel *k, const problem *p, double *seconds)
{
    trial t;
    TRY(open_trial(dev, k, p, &t));
    ks_step step = { *p, k };
    const void *packed = t.packed;
    ks_operands o = { .batch = p->batch, .x = t.x, .y = t.y, .packed = &packed };
    double times[MOST_RUNS], total = 0, once;
    int runs = 0, calls = 1;
    danaus_status status = time_calls(dev, &step, &o, 1, &once); /* warms up */
    if (status == DANAUS_OK && !dev->backend->on_host) {
        status = time_calls(dev, &step, &o, 1, &once);
        calls = once < QUEUE_SECONDS ? (int)(QUEUE_SECONDS / (once + 1e-6)) + 1 : 1;
    }
    while (status == DANAUS_OK && runs < MOST_RUNS &&
           (runs < 3 || total < ENOUGH_SECONDS)) {
        status = time_calls(dev, &step, &o, calls, &times[runs]);
        total += times[runs++] * calls;
    }
    close_trial(&t);
    if (status == DANAUS_OK) {
        qsort(times, (size_t)runs, sizeof *times, compare_seconds);
        *seconds = times[runs / 2];
    }
    return status;
}

danaus_status dn_choose(
    danaus_device *dev, const problem *p, danaus_effort effort, const kernel **chosen,
    double *seconds)
{
    const kernel *best = p->inner.a ? NULL : dn_tuning_find(dev->tuning, p, seconds);
    if (best) {
        *chosen = best;
        return DANAUS_OK;
    }
    double least = INFINITY;
    for (const kernel *k = dev->kernels; k->name && effort != DANAUS_TABLE_ONLY; k++) {
        double t = INFINITY;
        if (!k->fits(k, p))
            continue;
        if (effort == DANAUS_MEASURE)
            TRY(dn_measure(dev, k, p, &t));
        else
            t = k->cost(dev, k, p);
        if (t < least) {
            least = t;
            best = k;
        }
    }
    if (!best && !p->inner.a)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED, effort == DANAUS_TABLE_ONLY
                                        ? "the tuning table has no row for this problem"
                                        : "no kernel fits this problem");
    if (effort == DANAUS_MEASURE && !p->inner.a)
        dn_tuning_add(dev->tuning, p, best, least);
    *chosen = best;
    *seconds = least;
    return DANAUS_OK;
}
