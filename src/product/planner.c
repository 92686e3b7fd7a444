/* Choosing a kernel: table, estimate, measurement. */
// SPDX-License-Identifier: Apache-2.0
#include "product/planner.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "device/tuning.h"
#include "math/pattern.h"

#include <inttypes.h>
#include <math.h>

/* The longest time of a measurement, unless few runs take longer. */
#define ENOUGH_SECONDS 0.05
/* Rows are not measured whose estimate is so many times the least one. */
#define HOPELESS 4
/* A row must be so much faster than the one of the least estimate. */
#define WORTH_IT 1.02
/* The kernel of a neighbouring problem may have so many times the least estimate. */
#define DOUBTFUL 1.2
/* Rows that are measured at most. */
#define MOST_STEPS 64
/* Random numbers that are made, before they repeat. */
#define BLOCK 2048

/* Memory for one measured product. */
typedef struct trial {
    danaus_device *dev;
    void *x, *y, *w;
    const ks_step *steps;
    int count;
    void *packed[DANAUS_MAX_FACTORS];
} trial;

static void close_trial(trial *t)
{
    t->dev->backend->free(t->dev, t->x);
    t->dev->backend->free(t->dev, t->y);
    for (int i = 0; i < t->count; i++)
        t->dev->backend->free(t->dev, t->packed[i]);
    dn_free(t->w);
}

/* Numbers in [-1, 1). Zeros would use less power than real data, and so measure faster. */
static void make_numbers(double numbers[2 * BLOCK])
{
    uint64_t seed = 1;
    for (int i = 0; i < 2 * BLOCK; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        numbers[i] = (double)(seed >> 11) * 0x1p-52 - 1;
    }
}

/* Numbers that are the same again after some thousands, in the device's memory. */
static danaus_status fill(
    danaus_device *dev, void *to, danaus_dtype dtype, int64_t count)
{
    double numbers[2 * BLOCK];
    size_t size = danaus_dtype_size(dtype);
    make_numbers(numbers);
    int64_t filled = count < BLOCK ? count : BLOCK;
    TRY(dn_put_numbers(dev, DANAUS_C128, numbers, dtype, to, filled));
    for (; filled < count; filled *= 2) {
        int64_t more = filled < count - filled ? filled : count - filled;
        TRY(dev->backend->copy(
            dev, (char *)to + (size_t)filled * size, to, (size_t)more * size));
    }
    return DANAUS_OK;
}

/* The same in the host's memory. */
static void fill_weights(void *w, danaus_dtype dtype, int64_t count)
{
    double numbers[2 * BLOCK];
    size_t size = danaus_dtype_size(dtype);
    make_numbers(numbers);
    for (int64_t i = 0; i < count; i += BLOCK) {
        int64_t some = count - i < BLOCK ? count - i : BLOCK;
        dn_convert(DANAUS_C128, numbers, dtype, (char *)w + (size_t)i * size, some);
    }
}

/* Packs made-up weights for a step; of a weight gradient they are its results. */
static danaus_status pack_trial(const trial *t, const ks_step *step, void **packed)
{
    const problem *p = &step->p;
    if (p->operation == DN_WEIGHT_GRADIENT)
        return t->dev->backend->alloc(
            t->dev,
            (size_t)dn_pattern_weights(p->pattern) *
                danaus_dtype_size(dn_sum_type(p->dtype)),
            packed);
    weights_view w = dn_weights_view(t->w, p->dtype, p->pattern);
    weights_view inner = dn_weights_view(t->w, p->dtype, p->inner);
    w.inner = p->inner.a ? &inner : NULL;
    TRY(t->dev->backend->alloc(t->dev, dn_packed_bytes(step->kernel, p), packed));
    return dn_pack(t->dev, step, w, *packed);
}

/* Memory for so many numbers of each kind. */
static danaus_status fill_trial(
    trial *t, const ks_step *steps, int64_t weights, int64_t cols, int64_t rows)
{
    const backend *b = t->dev->backend;
    size_t size = danaus_dtype_size(steps->p.dtype);
    t->w = dn_calloc((size_t)weights, size);
    if (!t->w)
        return dn_fail_memory(size, "weights to measure with");
    fill_weights(t->w, steps->p.dtype, weights);
    TRY(b->alloc(t->dev, (size_t)cols * size, &t->x));
    TRY(b->alloc(t->dev, (size_t)rows * size, &t->y));
    for (int i = 0; i < t->count; i++)
        TRY(pack_trial(t, &steps[i], &t->packed[i]));
    if (steps->p.operation == DN_WEIGHT_GRADIENT) /* y is dy */
        TRY(fill(t->dev, t->y, steps->p.dtype, rows));
    else
        TRY(b->clear(t->dev, t->y, (size_t)rows * size));
    return fill(t->dev, t->x, steps->p.dtype, cols);
}

/* The number of weights of the largest factor. */
static int64_t most_weights(const ks_step *steps, int count)
{
    int64_t most = 0;
    for (int i = 0; i < count; i++) {
        const problem *p = &steps[i].p;
        int64_t own = dn_pattern_weights(p->pattern);
        int64_t inner = p->inner.a ? dn_pattern_weights(p->inner) : 0;
        own = own > inner ? own : inner;
        most = most > own ? most : own;
    }
    return most;
}

static danaus_status open_trial(
    danaus_device *dev, const ks_step *steps, int count, trial *t)
{
    const problem *first = &steps[0].p;
    int64_t cols = dn_pattern_cols(first->inner.a ? first->inner : first->pattern);
    int64_t rows = dn_pattern_rows(steps[count - 1].p.pattern), n;
    if (dn_mul_overflows(rows > cols ? rows : cols, first->batch, &n) ||
        dn_mul_overflows(n, (int64_t)danaus_dtype_size(first->dtype), &n))
        return dn_fail(
            DANAUS_ERR_SHAPE, "a batch of %" PRId64 " overflows", first->batch);
    *t = (trial){ .dev = dev, .steps = steps, .count = count };
    danaus_status status = fill_trial(
        t, steps, most_weights(steps, count), cols * first->batch, rows * first->batch);
    if (status != DANAUS_OK)
        close_trial(t);
    return status;
}

/* ---- timing ---- */

/* Work to be timed by the clock of the host. */
typedef struct timed_run {
    danaus_device *dev;
    device_run *run;
    void *arg;
} timed_run;

static danaus_status time_call(void *arg, double *seconds)
{
    const timed_run *t = arg;
    double start = dn_seconds();
    TRY(t->run(t->dev, t->arg));
    *seconds = dn_seconds() - start;
    return DANAUS_OK;
}

static danaus_status take_time(
    danaus_device *dev, device_run *run, void *arg, double *seconds)
{
    timed_run t = { dev, run, arg };
    if (dev->backend->time)
        return dev->backend->time(dev, run, arg, seconds);
    return dn_median_seconds(time_call, &t, CLOCK_MOST_RUNS, ENOUGH_SECONDS, seconds);
}

static danaus_status run_trial(danaus_device *dev, void *arg)
{
    const trial *t = arg;
    ks_operands o = { .batch = t->steps->p.batch,
                      .x = t->x,
                      .y = t->y,
                      .packed = (const void *const *)t->packed };
    return dev->backend->ks_run(dev, t->steps, t->count, &o);
}

static danaus_status run_gradient_trial(danaus_device *dev, void *arg)
{
    const trial *t = arg;
    const problem *p = &t->steps->p;
    weights_view dw = dn_weights_view(t->packed[0], dn_sum_type(p->dtype), p->pattern);
    ks_gradient_operands o = {
        .batch = p->batch, .x = t->x, .dy = t->y, .dw = &dw, .dw_steps = t->steps
    };
    return dev->backend->ks_gradient(dev, t->steps, t->steps, 1, &o);
}

/* What packing the weights adds to every run. */
static double packing(const danaus_device *dev, const kernel *k, const problem *p)
{
    return p->fresh ? dev->backend->packing(dev, k, p) : 0;
}

danaus_status dn_measure(
    danaus_device *dev, const ks_step *steps, int count, double *seconds)
{
    trial t;
    TRY(open_trial(dev, steps, count, &t));
    danaus_status status = take_time(
        dev, steps->p.operation == DN_WEIGHT_GRADIENT ? run_gradient_trial : run_trial,
        &t, seconds);
    for (int i = 0; status == DANAUS_OK && i < count; i++)
        *seconds += packing(dev, steps[i].kernel, &steps[i].p);
    close_trial(&t);
    return status;
}

/* ---- choosing ---- */

static double estimate_one(const danaus_device *dev, const kernel *k, const problem *p)
{
    return dn_cost(dev, k, p) + packing(dev, k, p);
}

/* The kernel of least estimate, or NULL. */
static const kernel *estimate(
    const danaus_device *dev, const problem *p, double *seconds)
{
    const kernel *best = NULL;
    double least = INFINITY;
    for (const kernel *k = dev->kernels; k->name; k++) {
        double t = dn_is_usable(dev, k, p) ? estimate_one(dev, k, p) : INFINITY;
        if (t < least) {
            least = t;
            best = k;
        }
    }
    *seconds = least;
    return best;
}

/* Returns the kernel that was measured for a similar problem, unless its estimate here is too
   much above the least; otherwise the kernel of least estimate. */
static const kernel *estimate_or_neighbour(
    const danaus_device *dev, const problem *p, double *seconds)
{
    double least;
    const kernel *best = estimate(dev, p, &least), *near = NULL;
    if (best && !p->batch_invariant)
        near = dn_tuning_near(dev->tuning, p);
    *seconds =
        near && dn_is_usable(dev, near, p) ? estimate_one(dev, near, p) : INFINITY;
    if (*seconds <= DOUBTFUL * least)
        return near;
    *seconds = least;
    return best;
}

/* A problem as it is measured, without bias, activation and residual. */
static problem bare(const problem *p)
{
    problem q = *p;
    q.activation = q.bias = q.residual = 0;
    return q;
}

/* Rows worth a measurement, and all that never have an estimate; compiled together. */
static int candidates(
    danaus_device *dev, const problem *p, double least, ks_step *steps)
{
    int count = 0;
    problem plain = bare(p);
    for (const kernel *k = dev->kernels; k->name && count < MOST_STEPS; k++) {
        double t = dn_is_usable(dev, k, p) ? estimate_one(dev, k, p) : NAN;
        if (t <= HOPELESS * least || t == INFINITY)
            steps[count++] = dn_step(k, &plain);
    }
    return count;
}

danaus_status dn_prepare_steps(danaus_device *dev, ks_step *steps, int *count)
{
    danaus_status status = DANAUS_OK;
    int refused = 1;
    while (dev->backend->prepare && refused) {
        refused = 0;
        status = dev->backend->prepare(dev, steps, *count, &refused);
        int all = *count;
        *count = 0;
        for (int i = 0; i < all; i++)
            if (!refused || !dev->backend->refuses(dev, steps[i].kernel))
                steps[(*count)++] = steps[i];
    }
    return status;
}

/* Seconds of a kernel for bias, activation and residual, which measurements leave out. */
static double ending(const danaus_device *dev, const kernel *k, const problem *p)
{
    problem plain = bare(p);
    return p->activation || p->bias || p->residual
               ? dn_cost(dev, k, p) - dn_cost(dev, k, &plain)
               : 0;
}

/* The fastest measured kernel, or the guess if it is about as fast. */
typedef struct winner {
    const kernel *guess, *kernel;
    double guessed, seconds;
} winner;

static void enter(winner *w, const kernel *k, double seconds)
{
    if (k == w->guess)
        w->guessed = seconds;
    if (seconds < w->seconds) {
        w->seconds = seconds;
        w->kernel = k;
    }
}

static void settle(winner *w)
{
    if (w->guessed < INFINITY && w->guessed <= WORTH_IT * w->seconds) {
        w->seconds = w->guessed;
        w->kernel = w->guess;
    }
}

/* Takes the row of least estimate where it is about as fast as the fastest. Such a row needs
   no tuning table: tables hold times of products alone, without bias, activation and
   residual. */
static danaus_status measure(
    danaus_device *dev, const problem *p, const kernel **chosen, double *seconds)
{
    ks_step steps[MOST_STEPS];
    problem plain = bare(p);
    double least, t;
    winner best = { estimate(dev, p, &least), NULL, INFINITY, INFINITY };
    winner product = { estimate(dev, &plain, &t), NULL, INFINITY, INFINITY };
    int count = candidates(dev, p, least, steps);
    TRY(dn_prepare_steps(dev, steps, &count));
    for (int i = 0; i < count; i++) {
        TRY(dn_measure(dev, &steps[i], 1, &t));
        enter(&product, steps[i].kernel, t);
        enter(&best, steps[i].kernel, t + ending(dev, steps[i].kernel, p));
    }
    settle(&best);
    settle(&product);
    *chosen = best.kernel;
    *seconds = best.seconds;
    if (product.kernel && !p->fresh)
        dn_tuning_add(dev->tuning, p, product.kernel, product.seconds);
    return DANAUS_OK;
}

/* True if a row of the table is too slow with its bias and activation, which measured times
   leave out: other rows are then estimated to be faster. A residual alone does not count,
   because all rows read it. */
static int pays_too_much(
    const danaus_device *dev, const kernel *k, const problem *p, double seconds)
{
    problem unread = *p;
    unread.residual = 0;
    double least;
    if (ending(dev, k, &unread) <= 0)
        return 0;
    estimate(dev, p, &least);
    return seconds + ending(dev, k, p) > least;
}

/* True if weights change before each run and the row's estimate with packing is more than
   DOUBTFUL times the least. Measured times leave packing out. */
static int pays_for_packing(const danaus_device *dev, const kernel *k, const problem *p)
{
    double least;
    if (!p->fresh)
        return 0;
    estimate(dev, p, &least);
    return estimate_one(dev, k, p) > DOUBTFUL * least;
}

danaus_status dn_choose(
    danaus_device *dev, const problem *p, danaus_effort effort, const kernel **chosen,
    double *seconds)
{
    const kernel *best = NULL;
    /* What tables are about, and may change. */
    int measured = !p->orders && !p->gated && !p->batch_invariant && !p->int8;
    if (!measured && effort == DANAUS_MEASURE)
        effort = DANAUS_ESTIMATE;
    if (measured)
        best = dn_tuning_find(dev->tuning, p, effort != DANAUS_MEASURE, seconds);
    if (best && !dn_is_usable(dev, best, p))
        best = NULL;
    if (best && effort == DANAUS_ESTIMATE && pays_too_much(dev, best, p, *seconds))
        best = NULL;
    if (best && effort != DANAUS_TABLE_ONLY && pays_for_packing(dev, best, p))
        best = NULL;
    if (best)
        *seconds += packing(dev, best, p) + ending(dev, best, p);
    if (!best && effort == DANAUS_MEASURE)
        TRY(measure(dev, p, &best, seconds));
    else if (!best && effort == DANAUS_ESTIMATE)
        best = estimate_or_neighbour(dev, p, seconds);
    if (!best && !p->inner.a && !p->orders)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            p->int8
                ? "8-bit numbers are multiplied on CPUs, in blocks of at most 131072 "
                  "columns k"
            : effort == DANAUS_TABLE_ONLY
                ? "the tuning table has no row for this problem"
                : "no kernel fits this problem");
    *chosen = best;
    return DANAUS_OK;
}

/* Seconds of all steps by kernel k, or each by its own. */
static double estimate_steps(
    const danaus_device *dev, const ks_step *steps, int count, const kernel *k)
{
    double seconds = 0;
    for (int i = 0; i < count; i++) {
        problem p = steps[i].p;
        const kernel *row = k ? k : steps[i].kernel;
        p.alike = k != NULL;
        seconds += dn_is_usable(dev, row, &p) ? estimate_one(dev, row, &p) : INFINITY;
    }
    return seconds;
}

/* True if the table tells which kernel is for p. */
static int is_known(const danaus_device *dev, const problem *p)
{
    double seconds;
    return !p->batch_invariant && !p->int8 &&
           (dn_tuning_find(dev->tuning, p, 1, &seconds) ||
            dn_tuning_near(dev->tuning, p));
}

const kernel *dn_choose_alike(
    const danaus_device *dev, const ks_step *steps, int count, double *gain)
{
    double seconds, own = estimate_steps(dev, steps, count, NULL), least = own;
    const kernel *best = NULL;
    *gain = 0;
    for (int i = 0; i < count; i++)
        if (is_known(dev, &steps[i].p))
            return NULL;
    for (const kernel *k = dev->kernels; k->name; k++)
        if ((seconds = estimate_steps(dev, steps, count, k)) < least) {
            least = seconds;
            best = k;
        }
    *gain = best ? own - least : 0;
    return best;
}
