/* How a row is cut into windows, by a cost model.

   A window of 2 n numbers gives 2 n - before - after numbers of y; one window that has
   room for the whole row and its zeros needs only max(before, after) more than the row
   (docs/conv.md (6)). Costs follow FlashFFTConv's equation (2): for every pass
   arithmetic over a rate and bytes over a bandwidth, here as cycles of one vector. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv_loop.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "cpu/grid.h"

#include <inttypes.h>
#include <math.h>

#define CYCLE 0.35e-9
/* Cycles of a vector of complex numbers for load, last steps, product and store. */
#define TAIL_CYCLES 48.0
/* ... for meeting memory once more when a transform leaves the second cache, and
   the last one. */
#define FAR_CYCLES  30.0
#define FAR2_CYCLES 170.0
/* Ways to cut a row that are measured, on rows of so many numbers together and for so
   many seconds each. */
#define MOST_CANDIDATES  8
#define MEASURED_NUMBERS 65536
#define MEASURED_SECONDS 0.01
/* For a window beyond its transform. */
#define WINDOW_CYCLES 400.0

/* Cycles of one vector in a pass forward and back. */
static double pass_cycles(int radix)
{
    switch (radix) {
    case 3: return 11;
    case 4: return 9;
    case 5: return 17;
    case 7: return 25;
    default: return 13;
    }
}

static double transform_cycles(const cpu_device *d, const conv_code *code, int64_t n)
{
    int radices[DN_DFT_MOST_RADICES];
    int count = dn_dft_radices(n / code->vector, code->radix, radices);
    double cycles = TAIL_CYCLES, bytes = 2.0 * (double)n * (double)code->size;
    for (int i = 0; i < count; i++)
        cycles += pass_cycles(radices[i]);
    if (bytes > 0.5 * (double)d->l2)
        cycles += FAR_CYCLES;
    /* With its constants, its filter and the row; the cache is shared and loses its
       use little by little. */
    double share = 3.5 * bytes / (double)d->l3;
    cycles += FAR2_CYCLES * CLAMP((share - 0.125) / 0.375, 0, 1);
    return WINDOW_CYCLES + cycles * (double)n / code->vector;
}

/* The windows that a row needs with n; 0: none, since n is too short. */
static int64_t windows_of(const conv_engine *e, int64_t n)
{
    int64_t length = e->p.length;
    int64_t more =
        e->p.kind == DANAUS_CIRCULAR ? e->before + e->after : MAX(e->before, e->after);
    if (2 * n >= length + more)
        return 1;
    int64_t most = 2 * n - e->before - e->after;
    return most > 0 ? CEIL_DIV(length, most) : 0;
}

/* One way to cut a row, and what it costs by the model. */
typedef struct candidate {
    int64_t n, windows;
    double cost;
} candidate;

/* Keeps the best of all candidates, in order of cost. */
static void keep(candidate *best, int *count, candidate c)
{
    if (*count == MOST_CANDIDATES && best[MOST_CANDIDATES - 1].cost <= c.cost)
        return;
    int at = *count < MOST_CANDIDATES ? (*count)++ : MOST_CANDIDATES - 1;
    for (; at > 0 && best[at - 1].cost > c.cost; at--)
        best[at] = best[at - 1];
    best[at] = c;
}

static int find_candidates(const cpu_device *dev, const conv_engine *e, candidate *best)
{
    const conv_code *code = e->sums;
    int64_t unit = 4 * code->vector, length = e->p.length;
    int64_t end =
        ROUND_UP((length + e->before + e->after) / 2 + 1, unit) * 5 / 4 + unit;
    int count = 0;
    for (int64_t n = unit; n <= end; n += unit) {
        /* Sizes far from the others are not looked at one by one. */
        if (n > 64 * unit && n % (unit * 8))
            n = ROUND_UP(n, unit * 8);
        if (n > 4096 * unit && n % (unit * 512))
            n = ROUND_UP(n, unit * 512);
        int64_t windows = windows_of(e, n);
        if (!windows || !dn_conv_length_fits(n, code))
            continue;
        double cost = (double)windows * transform_cycles(dev, code, n) * CYCLE;
        keep(best, &count, (candidate){ n, windows, cost });
    }
    return count;
}

/* Sparse spectra say themselves how long the transform is. */
static candidate sparse(const cpu_device *dev, const conv_engine *e)
{
    candidate c = { .n = 4096, .windows = 1 };
    while (windows_of(e, c.n) != 1)
        c.n *= 2;
    double share = e->p.keep[0] * e->p.keep[1] / 64.0;
    c.cost = transform_cycles(dev, e->sums, c.n) * CYCLE * (0.4 + 0.6 * share);
    return c;
}

static danaus_status use(cpu_device *dev, conv_engine *e, candidate c)
{
    dn_conv_tables_destroy(e->tables);
    e->cost = c.cost;
    e->windows = c.windows;
    e->step = CEIL_DIV(e->p.length, c.windows);
    e->tables =
        dn_conv_tables_create(c.n, e->sums, dev->l2, e->p.keep[0] ? e->p.keep : NULL);
    if (!e->tables)
        return dn_fail_memory((size_t)c.n * e->sums->size, "the tables of a transform");
    return DANAUS_OK;
}

/* Seconds of a row with what the engine uses, from zeros: the least of some calls. */
static danaus_status time_engine(cpu_device *dev, const conv_engine *e, double *seconds)
{
    conv_engine one = *e;
    one.p.channels = one.p.filters = 1;
    int64_t batch = MAX(1, MEASURED_NUMBERS / e->p.length);
    size_t row = (size_t)(batch * e->p.length) * danaus_dtype_size(e->p.dtype);
    char *memory = dn_calloc(1, 2 * row + (size_t)dn_conv_bytes(e));
    if (!memory)
        return dn_fail_memory(2 * row, "rows to measure");
    conv_operands o = {
        .batch = batch, .u = memory, .y = memory + row, .spectrum = memory + 2 * row
    };
    danaus_status status = DANAUS_OK;
    double begin = dn_seconds();
    *seconds = INFINITY;
    for (int i = 0; !status && (i < 3 || dn_seconds() - begin < MEASURED_SECONDS);
         i++) {
        double start = dn_seconds();
        status = dn_cpu_conv.run(&dev->base, &one, &o);
        *seconds = fmin(*seconds, (dn_seconds() - start) / (double)batch);
    }
    dn_free(memory);
    return status;
}

static danaus_status measure(
    cpu_device *dev, conv_engine *e, candidate *best, int count)
{
    int fastest = 0;
    for (int i = 0; i < count; i++) {
        TRY(use(dev, e, best[i]));
        TRY(time_engine(dev, e, &best[i].cost));
        fastest = best[i].cost < best[fastest].cost ? i : fastest;
    }
    return use(dev, e, best[fastest]);
}

danaus_status dn_conv_choose(cpu_device *dev, conv_engine *e)
{
    candidate best[MOST_CANDIDATES] = { { 0 } };
    if (e->p.keep[0])
        return use(dev, e, sparse(dev, e));
    int count = find_candidates(dev, e, best);
    return e->p.effort == DANAUS_MEASURE ? measure(dev, e, best, count)
                                         : use(dev, e, best[0]);
}
