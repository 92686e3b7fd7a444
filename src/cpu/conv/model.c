/* The model of what a convolution costs (docs/conv.md (9)), after FlashFFTConv's
   equation (2): 16 n R operations in a pass of radix R over the rate of that radix, and
   4 n numbers over the bandwidth of where they lie. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/conv/model.h"

#include "base/dtype.h"
#include "cpu/conv/loop.h"
#include "cpu/grid.h"

#include <math.h>
#include <string.h>

/* A window's memory over that of its n complex numbers: they, the spectrum, the
   constants, the row. */
#define WORKING_SET 3.5
/* Bytes of a line of the caches, and how many of them the first one of a row of a strip
   costs beyond itself. */
#define LINE       64
#define LATE_LINES 4.0
/* Threads that plans of few rows assume at most; 1, 2, 4 and so many count alike. */
#define MOST_ASSUMED 8

static const int radix_of[CONV_TERMS] = {
    [CONV_RADIX_3] = 3, [CONV_RADIX_4] = 4, [CONV_RADIX_5] = 5,
    [CONV_RADIX_7] = 7, [CONV_RADIX_8] = 8,
};

conv_constant dn_conv_constant(conv_term term, int lanes)
{
    switch (term) {
    case CONV_WINDOWS: return (conv_constant){ TUNING_WINDOW, 0 };
    case CONV_BLOCKS: return (conv_constant){ TUNING_BLOCK, 0 };
    case CONV_TAIL: return (conv_constant){ TUNING_TAIL, lanes };
    case CONV_CACHE_2: return (conv_constant){ TUNING_OMEGA, 2 };
    case CONV_CACHE_3: return (conv_constant){ TUNING_OMEGA, 3 };
    case CONV_MEMORY: return (conv_constant){ TUNING_OMEGA, 4 };
    default: return (conv_constant){ TUNING_GAMMA, radix_of[term] };
    }
}

/* ---- constants ---- */

/* Nanoseconds of one thread: of a window, of a block, of a vector in the last steps and
   in passes of radix 3, 4, 5, 7 and 8, and of 64 bytes of each level. Found by danaus
   calibrate on an Intel Xeon of 2.8 GHz (Ice Lake); neon is avx2 until it is measured. */
typedef struct builtin {
    const char *instructions;
    danaus_dtype sums;
    double nanoseconds[CONV_TERMS];
} builtin;

static const builtin builtins[] = {
    { "avx512", DANAUS_F32, { 250, 12, 21, 5.4, 5.4, 7.3, 11, 7.5, 0.38, 0.92, 4.4 } },
    { "avx512", DANAUS_F64, { 250, 11, 19, 5.2, 4.7, 6.6, 11, 6.9, 0.34, 0.90, 4.2 } },
    { "avx2", DANAUS_F32, { 150, 8.5, 14, 3.3, 3.3, 4.6, 7.0, 5.2, 0.25, 0.60, 2.8 } },
    { "avx2", DANAUS_F64, { 190, 8.5, 14, 3.3, 3.5, 4.6, 7.0, 5.4, 0.25, 0.66, 2.8 } },
    { "neon", DANAUS_F32, { 150, 8.5, 14, 3.3, 3.3, 4.6, 7.0, 5.2, 0.25, 0.60, 2.8 } },
    { "neon", DANAUS_F64, { 190, 8.5, 14, 3.3, 3.5, 4.6, 7.0, 5.4, 0.25, 0.66, 2.8 } },
    { "scalar", DANAUS_F32, { 170, 11, 20, 4.5, 4.4, 6.0, 9.0, 7.0, 0.25, 0.72, 3.0 } },
    { "scalar", DANAUS_F64, { 150, 9.5, 16, 3.6, 3.9, 5.0, 7.5, 6.3, 0.2, 0.65, 2.8 } },
};

/* The row of the instruction set or, last of all, of scalar. */
static const builtin *find_builtin(const char *instructions, danaus_dtype sums)
{
    const builtin *b = builtins;
    while (b->sums != sums ||
           (strcmp(b->instructions, instructions) && strcmp(b->instructions, "scalar")))
        b++;
    return b;
}

static conv_model built_in(const cpu_device *dev, const conv_code *code)
{
    const builtin *b = find_builtin(dev->isa, dn_sum_type(code->dtype));
    conv_model m = { 0 };
    for (int i = 0; i < CONV_TERMS; i++) {
        conv_constant c = dn_conv_constant((conv_term)i, code->vector);
        double of = c.name == TUNING_GAMMA || c.name == TUNING_TAIL
                        ? 16.0 * (double)(code->vector * c.of)
                    : c.name == TUNING_OMEGA ? 64
                                             : 1;
        m.second[i] = 1e-9 * b->nanoseconds[i] / of;
    }
    return m;
}

conv_model dn_conv_model(const cpu_device *dev, const conv_code *code)
{
    conv_model m = { .measured = 1 };
    for (int i = 0; i < CONV_TERMS; i++) {
        conv_constant c = dn_conv_constant((conv_term)i, code->vector);
        double value = dn_tuning_constant(
            dev->base.tuning, dn_sum_type(code->dtype), c.name, c.of);
        if (!(value > 0))
            return built_in(dev, code);
        m.second[i] =
            c.name == TUNING_WINDOW || c.name == TUNING_BLOCK ? value : 1 / value;
    }
    return m;
}

/* ---- amounts ---- */

static conv_term term_of(int radix)
{
    int term = CONV_RADIX_3;
    while (radix_of[term] != radix)
        term++;
    return (conv_term)term;
}

/* The share of a window that the first pass reads and the last one writes. */
static double filled(const conv_engine *e, int64_t n, int64_t windows)
{
    int64_t length = e->p.length;
    int half =
        windows == 1 && (e->p.kind == DANAUS_CIRCULAR ? length == n : length <= n);
    return half ? 0.5 : 1;
}

/* How much of what a thread works on lies further away than a cache of `cache` bytes,
   when it works on `bytes` again and again: from nothing to all as they grow from a
   quarter of the cache to all of it. */
static double beyond(double bytes, double cache)
{
    return CLAMP((bytes / cache - 0.25) / 0.75, 0, 1);
}

/* The last cache is shared, so a window counts twice there, whatever the number of
   threads: what is built in chooses the same cut for all of them.

   Numbers meet memory in the passes by strips, together, and again in the blocks
   that these leave; in blocks too large for the first cache, once a pass. */
static void count_bytes(
    const conv_engine *e, const conv_tables *t, double fill, double amounts[CONV_TERMS])
{
    const conv_code *code = e->sums;
    const conv_machine *m = &e->machine;
    double bytes = 4.0 * (double)t->n * 2.0 * (double)code->size;
    double set = WORKING_SET / 4 * bytes, far = beyond(2 * set, (double)m->l3);
    double near = MAX(beyond(set / 2, (double)m->l2), far);
    double lines = (double)t->strip * code->vector * (double)code->size / LINE;
    double window = (1 + fill * (1 + LATE_LINES / lines)) * bytes, inside = 0;
    if (t->n / code->vector <= t->cached)
        return;
    for (int l = t->outer; l < t->passes; l++)
        if (t->pass[l].vectors * t->pass[l].radix > t->cached)
            inside += bytes;
    amounts[CONV_CACHE_2] = inside + (1 - near) * window;
    amounts[CONV_CACHE_3] = (near - far) * window;
    amounts[CONV_MEMORY] = far * window;
}

void dn_conv_amounts(
    const conv_engine *e, const conv_tables *t, int64_t windows,
    double amounts[CONV_TERMS])
{
    const conv_code *code = e->sums;
    double n = (double)t->n, fill = filled(e, t->n, windows);
    memset(amounts, 0, CONV_TERMS * sizeof *amounts);
    amounts[CONV_WINDOWS] = 1;
    amounts[CONV_TAIL] = 16 * n * code->vector;
    for (int l = 0; l < t->passes; l++) {
        const conv_pass *p = &t->pass[l];
        int64_t calls = l == 0 ? t->inner_blocks / p->radix : p->blocks;
        if (l < t->outer)
            calls *= dn_conv_strips(t);
        amounts[CONV_BLOCKS] += (double)calls;
        amounts[term_of(p->radix)] += 16 * n * p->radix * (l == 0 ? fill : 1);
    }
    count_bytes(e, t, fill, amounts);
    for (int i = 0; i < CONV_TERMS; i++)
        amounts[i] *= (double)windows;
}

/* ---- costs ---- */

int64_t dn_conv_few_rows(const conv_engine *e)
{
    const conv_problem *p = &e->p;
    int64_t many = 2 * MOST_ASSUMED;
    if (!p->batch || p->batch >= many || p->channels >= many)
        return 0;
    return p->batch * p->channels < many ? p->batch * p->channels : 0;
}

/* Time with few rows over that with all threads at work: the geometric mean for 1, 2, 4
   and 8 threads, since a plan must not know how many there are. */
static double idle(const conv_engine *e, const conv_tables *t, int64_t windows)
{
    int64_t rows = dn_conv_few_rows(e), items = windows * rows;
    double product = 1;
    for (int threads = 2; threads <= MOST_ASSUMED && rows; threads *= 2) {
        int64_t slots = rows < 2 * threads ? dn_conv_slots(threads, t, items) : 0;
        if (slots)
            product *= (double)(CEIL_DIV(items, slots) * threads) / (double)items;
    }
    return sqrt(sqrt(product));
}

double dn_conv_cost(const conv_engine *e, const conv_tables *t, int64_t windows)
{
    double amounts[CONV_TERMS], seconds = 0;
    dn_conv_amounts(e, t, windows, amounts);
    for (int i = 0; i < CONV_TERMS; i++)
        seconds += amounts[i] * e->model.second[i];
    return seconds * idle(e, t, windows);
}
