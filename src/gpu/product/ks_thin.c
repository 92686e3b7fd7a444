/* Portable rows for few columns k: bound by memory. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "base/dtype.h"
#include "math/pattern.h"

#define THREADS      256
#define WARP         32
#define WARPS        (THREADS / WARP)
#define FEWEST       8 /* threads beside each other */
#define MOST_VARIANT 3
#define MOST         128 /* bytes of a thread's weights, which stay in registers */
#define BLOCKS       8   /* for a multiprocessor, twice as many as stay */

/* size: outputs of a thread, columns that it makes at once. */
enum { EACH, SPAN };

static int is_last(const problem *p) { return p->layout == DANAUS_BATCH_LAST; }

/* Batch-first, neighbouring threads of a column: as many as leave few without an output, as their
   numbers lie together; fewer than a warp has if these are more than enough. */
static int64_t outs_first(const kernel *k, const problem *p)
{
    int64_t outputs = dn_pattern_rows(p->pattern), each = dn_gpu_size(k)[EACH];
    int64_t outs = THREADS;
    while (outs > WARP && ROUND_UP(outputs, outs * each) * 16 > outputs * 17)
        outs /= 2;
    while (outs > FEWEST && outs / 2 * each >= outputs)
        outs /= 2;
    return outs;
}

/* 2 to the power of it is how many units a block has batch-last, each of some warps: as many as
   leave few threads without a column. */
static int variant_of(const kernel *k, const problem *p, const gpu_call *call)
{
    int64_t warps = CEIL_DIV(call->batch, WARP * dn_gpu_size(k)[SPAN]);
    int variant = 0;
    while (is_last(p) && variant < MOST_VARIANT && warps << (variant + 1) <= WARPS)
        variant++;
    return variant;
}

static int64_t outs_of(const kernel *k, const problem *p, int variant)
{
    return is_last(p) ? 1 << variant : outs_first(k, p);
}

/* Units of a batch-last factor: some rows of a lane. */
static int64_t units_of(const kernel *k, danaus_pattern q)
{
    return q.a * CEIL_DIV(q.b, dn_gpu_size(k)[EACH]) * q.d;
}

static int64_t tiles_of(const kernel *k, const problem *p, int variant)
{
    int64_t units = is_last(p)
                        ? units_of(k, p->pattern)
                        : CEIL_DIV(dn_pattern_rows(p->pattern), dn_gpu_size(k)[EACH]);
    return CEIL_DIV(units, outs_of(k, p, variant));
}

/* Outputs including those that only fill up tiles, for any variant. */
static int64_t made_of(const kernel *k, const problem *p)
{
    int64_t outs = outs_of(k, p, MOST_VARIANT);
    return tiles_of(k, p, MOST_VARIANT) * outs * dn_gpu_size(k)[EACH];
}

/* Places within a column, and tiles, are kept in 32 bits. */
static int fits(const kernel *k, const problem *p)
{
    danaus_pattern q = p->pattern;
    int64_t each = dn_gpu_size(k)[EACH];
    return !p->inner.a && q.c * each * dn_size_of(dn_sum_type(p->dtype)) <= MOST &&
           dn_pattern_rows(q) < INT32_MAX / each && dn_pattern_cols(q) < INT32_MAX;
}

static size_t packed_bytes(const kernel *k, const problem *p)
{
    return (size_t)(made_of(k, p) * p->pattern.c) *
           danaus_dtype_size(dn_sum_type(p->dtype));
}

/* A fit to 1,600 times on 9.0, to 20 % (bench/rows): memory, and the numbers that warps read and
   write. Batch-last numbers of x serve several outputs, and columns fill a block's threads up.
   The more columns are read at once, the less is memory waited for. */
static double cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    const gpu_facts *f = dn_gpu_facts(dev);
    danaus_pattern q = p->pattern;
    double wide = fmax(1, (double)dn_size_of(p->dtype) / 4);
    double work = dn_sum_type(p->dtype) == DANAUS_F32 ? 1 : 4;
    gpu_call call = { .batch = p->batch };
    int variant = variant_of(k, p, &call);
    int64_t slab = THREADS / outs_of(k, p, variant) * dn_gpu_size(k)[SPAN];
    double columns = (double)(is_last(p) ? ROUND_UP(p->batch, slab) : p->batch);
    double warps = (double)made_of(k, p) / WARP * columns;
    double share = is_last(p) ? dn_gpu_size(k)[EACH] : 1;
    double clocks = (2 * wide / share + work) * (double)q.c + 5.5 * wide;
    double make = warps * clocks / (f->units * f->clock);
    double memory = 1.2 * dn_gpu_moved_bytes(p) / f->bandwidth;
    double weights = 4.4 * (double)packed_bytes(k, p) / f->bandwidth;
    double waits = is_last(p) ? 0 : 0.12e-6 * (double)(q.c - 1); /* for x, k by k */
    double all = 4e-6 + weights + waits + dn_gpu_beside(3, memory, make);
    return (dn_gpu_size(k)[SPAN] < 8 ? 1 : 0.92) * all + dn_gpu_activating(f, p);
}

/* A unit: the weights of one column k of all outputs; batch-first as these follow each other, */
static void pack_column(const gpu_packing *g, int64_t n, char *to)
{
    const int64_t *s = g->w.s;
    danaus_pattern q = g->p->pattern;
    size_t line = (size_t)q.d * danaus_dtype_size(dn_gpu_packed_type(g));
    for (int64_t r = 0; r < q.a * q.b; r++, to += line) {
        int64_t from = r / q.b * s[0] + r % q.b * s[1] + n * s[2];
        dn_gpu_put(g, (gpu_run){ &g->w, from, s[3], q.d, to, NULL });
    }
}

/* batch-last by units: some rows of a lane. */
static void pack_units(const gpu_packing *g, int64_t n, char *to)
{
    const int64_t *s = g->w.s;
    danaus_pattern q = g->p->pattern;
    int64_t each = dn_gpu_size(g->kernel)[EACH], row_tiles = CEIL_DIV(q.b, each);
    size_t line = (size_t)each * danaus_dtype_size(dn_gpu_packed_type(g));
    for (int64_t unit = 0; unit < units_of(g->kernel, q); unit++, to += line) {
        int64_t rows = unit / q.d, row = rows % row_tiles * each;
        int64_t from =
            rows / row_tiles * s[0] + row * s[1] + n * s[2] + unit % q.d * s[3];
        dn_gpu_put(g, (gpu_run){ &g->w, from, s[1], MIN(each, q.b - row), to, NULL });
    }
}

static void pack(const kernel *k, const problem *p, weights_view w, void *packed)
{
    int64_t units = p->pattern.c, bytes = (int64_t)packed_bytes(k, p) / units;
    gpu_packing g = {
        k, p, w, NULL, bytes, is_last(p) ? pack_units : pack_column, 0, 1
    };
    dn_gpu_pack(&g, units, packed);
}

static void defines(const kernel *k, const problem *p, int variant, text *to)
{
    danaus_pattern q = p->pattern;
    const gpu_define lines[] = {
        { "A", q.a },
        { "ROWS", q.b },
        { "COLS", q.c },
        { "LANES", q.d },
        { "OUTS", outs_of(k, p, variant) },
        { "EACH", dn_gpu_size(k)[EACH] },
        { "SPAN", dn_gpu_size(k)[SPAN] },
        { "ACTIVATION", p->activation },
        { "RESIDUAL", p->residual },
    };
    dn_gpu_define_layout(k, p, variant, to);
    dn_gpu_define(DANAUS_F32, lines, sizeof lines / sizeof *lines, to);
}

/* As many blocks as stay, in whole rounds of all tiles. */
static void launch_of(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch)
{
    int variant = variant_of(k, p, call);
    int64_t tiles = tiles_of(k, p, variant);
    int64_t columns = THREADS / outs_of(k, p, variant) * dn_gpu_size(k)[SPAN];
    int64_t slabs = CLAMP(BLOCKS * f->units / tiles, 1, CEIL_DIV(call->batch, columns));
    *launch = dn_gpu_line(tiles * slabs, THREADS);
}

const gpu_family dn_gpu_thin = {
    .kernel = { .fits = fits,
                .cost = cost,
                .packed_bytes = packed_bytes,
                .pack = pack },
    .text = "ks_thin.cu",
    .defines = defines,
    .launch = launch_of,
    .variants = MOST_VARIANT + 1,
    .variant = variant_of,
};
