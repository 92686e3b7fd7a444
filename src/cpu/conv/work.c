/* The work of windows on a CPU (docs/conv.md (8)), after FlashFFTConv's equation (2): 16 n R
   operations in a pass of radix R, divided by the rate of that radix, and 4 n numbers divided
   by the bandwidth of the cache or memory that holds them. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/loop.h"

#include "base/dtype.h"

#include <math.h>
#include <string.h>

/* A window's memory over that of its n complex numbers: they, the spectrum, the
   constants, the row. */
#define WORKING_SET 3.5
/* Bytes of a line of the caches, and how many of them the first one of a row of a strip
   costs beyond itself. */
#define LINE       64
#define LATE_LINES 4.0
/* Threads that plans of few rows assume at most. */
#define MOST_ASSUMED (DN_CPU_FEW_ROWS / 2)

enum { WINDOWS, BLOCKS, TAIL, RADIX_3, CACHE_2 = RADIX_3 + 5, CACHE_3, MEMORY };

/* Names, constants in tuning tables (of the tail: by lanes), and units of what follows. */
static const conv_term terms[CPU_CONV_TERMS] = {
    { "windows", TUNING_WINDOW, 0, 1 },     { "blocks", TUNING_BLOCK, 0, 1 },
    { "in vectors", TUNING_TAIL, 0, 0 },    { "radix 3", TUNING_GAMMA, 3, 0 },
    { "radix 4", TUNING_GAMMA, 4, 0 },      { "radix 5", TUNING_GAMMA, 5, 0 },
    { "radix 7", TUNING_GAMMA, 7, 0 },      { "radix 8", TUNING_GAMMA, 8, 0 },
    { "second cache", TUNING_OMEGA, 2, 0 }, { "last cache", TUNING_OMEGA, 3, 0 },
    { "memory", TUNING_OMEGA, 4, 0 },
};

int dn_cpu_conv_terms(
    const danaus_device *dev, const conv_kernel *k, conv_term to[CONV_MOST_TERMS])
{
    const cpu_device *d = (const cpu_device *)dev;
    const double *nanoseconds = dn_cpu_conv_times(d->isa, dn_conv_point_type(k->dtype));
    int lanes = dn_conv_code(d, k->dtype)->vector;
    for (int i = 0; i < CPU_CONV_TERMS; i++) {
        to[i] = terms[i];
        if (i == TAIL)
            to[i].of = lanes;
        double of = i == TAIL || (i >= RADIX_3 && i < CACHE_2)
                        ? 16.0 * (double)(lanes * to[i].of)
                    : i >= CACHE_2 ? LINE
                                   : 1;
        to[i].second = 1e-9 * nanoseconds[i] / of;
    }
    return CPU_CONV_TERMS;
}

/* ---- amounts ---- */

static int term_of(int radix)
{
    int term = RADIX_3;
    while (terms[term].of != radix)
        term++;
    return term;
}

/* The share of a window that the first pass reads and the last one writes. */
static double filled(const conv_frame *f)
{
    int zeros =
        f->parts == 1 && f->windows == 1 && !f->periodic && f->length <= f->cut.n;
    return zeros || f->fold ? 0.5 : 1;
}

/* How much of what a thread works on lies further away than a cache of `cache` bytes,
   when it works on `bytes` again and again: from nothing to all as they grow from a
   quarter of the cache to all of it. */
static double beyond(double bytes, double cache)
{
    return CLAMP((bytes / cache - 0.25) / 0.75, 0, 1);
}

/* Threads share the last cache, so a window counts twice there, for any number of threads:
   built-in constants then choose the same cut for all of them. Numbers are moved once for all
   passes by strips, once more for the blocks that these leave, and once a pass in blocks too
   large for the first cache. */
static void count_bytes(
    const cpu_device *d, const conv_code *code, const conv_tables *t, double fill,
    double *amount)
{
    double bytes = 4.0 * (double)t->n * 2.0 * (double)code->size;
    double set = WORKING_SET / 4 * bytes, far = beyond(2 * set, (double)d->l3);
    double near = MAX(beyond(set / 2, (double)d->l2), far);
    double lines = (double)t->strip * code->vector * (double)code->size / LINE;
    double window = (1 + fill * (1 + LATE_LINES / lines)) * bytes, inside = 0;
    if (t->n / code->vector <= t->cached)
        return;
    for (int l = t->outer; l < t->passes; l++)
        if (t->pass[l].vectors * t->pass[l].radix > t->cached)
            inside += bytes;
    amount[CACHE_2] = inside + (1 - near) * window;
    amount[CACHE_3] = (near - far) * window;
    amount[MEMORY] = far * window;
}

/* The share of a transform whose time is that of a whole spectrum's: roughly, as blocks drop
   out pass after pass. */
static double counts(const conv_frame *f)
{
    double share = 1;
    for (int i = 0; i < CONV_AXES && f->sparse; i++)
        share *= (double)f->box.keep[i] / (double)(f->box.mask[i] + 1);
    return f->sparse ? 0.4 + 0.6 * share : 1;
}

static void count(
    const cpu_device *d, const conv_frame *f, const conv_code *code,
    const conv_tables *t, double *amount)
{
    double n = (double)t->n, fill = filled(f);
    memset(amount, 0, CPU_CONV_TERMS * sizeof *amount);
    amount[WINDOWS] = 1;
    amount[TAIL] = 16 * n * code->vector;
    for (int l = 0; l < t->passes; l++) {
        const conv_pass *p = &t->pass[l];
        int64_t calls = l == 0 ? t->inner_blocks / p->radix : p->blocks;
        if (l < t->outer)
            calls *= dn_conv_strips(t);
        amount[BLOCKS] += (double)calls;
        amount[term_of(p->radix)] += 16 * n * p->radix * (l == 0 ? fill : 1);
    }
    count_bytes(d, code, t, fill, amount);
    for (int i = 0; i < CPU_CONV_TERMS; i++)
        amount[i] *= (double)f->windows * counts(f);
}

/* A plan must not know how many threads there are: the twelfth root of the product for 2,
   4 and 8 (docs/conv.md). */
static double idle(const conv_tables *t, int64_t windows, int64_t rows)
{
    int64_t items = windows * rows;
    double product = 1;
    for (int threads = 2; threads <= MOST_ASSUMED && rows; threads *= 2) {
        int64_t slots = rows < 2 * threads ? dn_conv_slots(threads, t, items) : 0;
        if (slots)
            product *= (double)(CEIL_DIV(items, slots) * threads) / (double)items;
    }
    return pow(product, 1.0 / 12);
}

int dn_cpu_conv_work(
    const danaus_device *dev, const conv_frame *f, int64_t rows, conv_work *work)
{
    const cpu_device *d = (const cpu_device *)dev;
    const conv_code *code = dn_conv_code(d, dn_conv_point_type(f->cut.kernel->dtype));
    conv_tables t;
    if (!dn_conv_shape(&t, f->cut, code, d->l2, f->sparse))
        return 0;
    count(d, f, code, &t, work->amount);
    work->idle = idle(&t, f->windows, rows);
    return 1;
}
