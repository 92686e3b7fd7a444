/* How a row is cut into windows, by a cost model.

   A window of 2 n numbers gives 2 n - before - after numbers of y; one window that has
   room for the whole row and its zeros needs only max(before, after) more than the row
   (docs/conv.md (6)). Costs follow FlashFFTConv's equation (2): for every pass
   arithmetic over a rate and bytes over a bandwidth, here as cycles of one vector. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv.h"

#include "base/mem.h"
#include "base/status.h"
#include "cpu/grid.h"

#include <inttypes.h>
#include <math.h>

#define CYCLE 0.35e-9
/* Cycles of a vector of complex numbers for load, last steps, product and store. */
#define TAIL_CYCLES 32.0
/* ... for meeting memory once more when a transform leaves the second cache, and
   the last one. */
#define FAR_CYCLES  20.0
#define FAR2_CYCLES 40.0
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
    if (bytes > 0.4 * (double)d->l3)
        cycles += FAR2_CYCLES;
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

danaus_status dn_conv_choose(cpu_device *dev, conv_engine *e)
{
    const conv_code *code = e->sums;
    int64_t unit = 4 * code->vector, best = 0, length = e->p.length;
    int64_t end =
        ROUND_UP((length + e->before + e->after) / 2 + 1, unit) * 5 / 4 + unit;
    e->cost = INFINITY;
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
        if (cost < e->cost) {
            e->cost = cost;
            e->windows = windows;
            best = n;
        }
    }
    e->step = CEIL_DIV(length, e->windows);
    e->tables = dn_conv_tables_create(best, code, dev->l2);
    if (!e->tables)
        return dn_fail_memory((size_t)best * code->size, "the tables of a transform");
    return DANAUS_OK;
}
