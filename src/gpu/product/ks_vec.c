/* The portable rows for few batch columns: weights are read once, split over warps. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "base/dtype.h"
#include "math/pattern.h"

#include <string.h>

#define WARP  32
#define ROUND 1.6e-6 /* seconds from tile to tile */

enum { OUTS, NS, WARPS = 3, BYTES };

/* Columns k whose weights a thread loads at once. */
static int64_t group_of(const kernel *k)
{
    return dn_gpu_size(k)[BYTES] / dn_size_of(k->dtype);
}

static int64_t tiles_of(const kernel *k, danaus_pattern p)
{
    return p.a * CEIL_DIV(p.b * p.d, dn_gpu_size(k)[OUTS]);
}

/* Columns k of a step of a warp. */
static int64_t step_of(const kernel *k)
{
    return group_of(k) * (WARP / dn_gpu_size(k)[OUTS]);
}

static int64_t passes_of(const kernel *k, int64_t batch)
{
    return CEIL_DIV(batch, dn_gpu_size(k)[NS]);
}

static int fits(const kernel *k, const problem *p)
{
    (void)k;
    return !p->inner.a;
}

/* How much slower loads of x are where lanes lie apart: batch-last, in tiles of several
   columns. */
static double apart(const kernel *k, const problem *p)
{
    int is_apart =
        dn_gpu_size(k)[NS] > 1 && p->layout == DANAUS_BATCH_LAST && p->pattern.d > 1;
    return !is_apart ? 1 : danaus_dtype_size(p->dtype) > 2 ? 2.4 : 1.6;
}

/* Seconds of a tile alone: of eight columns at once, one load waits for the other. */
static double alone(const kernel *k, const problem *p)
{
    double wait = danaus_dtype_size(p->dtype) > 2 ? 30e-9 : 17e-9;
    return dn_gpu_size(k)[NS] < 8 ? 0 : wait * (double)p->pattern.c;
}

static size_t packed_bytes(const kernel *k, const problem *p)
{
    return (size_t)(tiles_of(k, p->pattern) * CEIL_DIV(p->pattern.c, step_of(k))) *
           WARP * (size_t)dn_gpu_size(k)[BYTES];
}

/* A multiprocessor streams 45 GB/s of weights at best, all of them 0.84 of memory's rate,
   and makes so many multiply-adds with their loads and conversions; sums meet at the end
   of a tile; x and y are moved in short pieces. Fitted to times. */
static double cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    const gpu_facts *f = dn_gpu_facts(dev);
    double weights = (double)packed_bytes(k, p),
           passes = (double)passes_of(k, p->batch);
    double tiles = (double)tiles_of(k, p->pattern), clock = f->clock;
    double rounds = ceil(tiles * passes / f->units), each = weights / tiles;
    double work = dn_is_complex(p->dtype) ? 24 : 8;
    double terms = each / (double)danaus_dtype_size(p->dtype) * dn_gpu_size(k)[NS];
    double tile = fmax(each / 45e9, terms * work * apart(k, p) / 100 / clock) + ROUND;
    double meet = 0.17e-6 * (WARP / dn_gpu_size(k)[OUTS] - 1);
    double all = fmax(rounds * tile - ROUND, alone(k, p));
    all += 2.2 * dn_gpu_moved_bytes(p) / f->bandwidth;
    return 4.9e-6 + meet + fmax(weights / (0.84 * f->bandwidth), all) +
           dn_gpu_activating(f, p);
}

/* A unit: [step][group][output][column] of a tile of outputs, zeros past the last ones. */
static void pack_tile(const gpu_packing *g, int64_t n, char *to)
{
    const kernel *k = g->kernel;
    const int64_t *s = g->w.s;
    danaus_pattern q = g->p->pattern;
    int64_t group = group_of(k), outs = dn_gpu_size(k)[OUTS], outputs = q.b * q.d;
    int64_t groups = CEIL_DIV(q.c, step_of(k)) * (WARP / outs);
    int64_t tiles = CEIL_DIV(outputs, outs), first = n % tiles * outs;
    for (int64_t c = 0; c < groups * group; c += group)
        for (int64_t o = first; o < first + outs; o++, to += dn_gpu_size(k)[BYTES])
            if (o < outputs && c < q.c) {
                int64_t from =
                    n / tiles * s[0] + o / q.d * s[1] + c * s[2] + o % q.d * s[3];
                dn_gpu_put(
                    g, (gpu_run){ &g->w, from, s[2], MIN(q.c - c, group), to, NULL });
            }
}

/* [i][tile], one unit each. */
static void pack(const kernel *k, const problem *p, weights_view w, void *packed)
{
    danaus_pattern q = p->pattern;
    int64_t units = q.a * CEIL_DIV(q.b * q.d, dn_gpu_size(k)[OUTS]);
    gpu_packing g = { k,         p, w, NULL, (int64_t)packed_bytes(k, p) / units,
                      pack_tile, 0, 0 };
    dn_gpu_pack(&g, units, packed);
}

static void defines(const kernel *k, const problem *p, int variant, text *to)
{
    dn_gpu_define_layout(k, p, variant, to);
    dn_gpu_define_orders(p, to);
    dn_text(
        to, "#define OUTS %d\n#define NS %d\n#define KV %d\n#define WARPS %d\n",
        dn_gpu_size(k)[OUTS], dn_gpu_size(k)[NS], (int)group_of(k),
        dn_gpu_size(k)[WARPS]);
}

static void launch_of(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch)
{
    (void)f;
    *launch = dn_gpu_line(
        tiles_of(k, p->pattern) * passes_of(k, call->batch),
        WARP * dn_gpu_size(k)[WARPS]);
}

const gpu_family dn_gpu_vec = {
    .kernel = { .orders = DN_READS | DN_WRITES,
                .fits = fits,
                .cost = cost,
                .packed_bytes = packed_bytes,
                .pack = pack },
    .text = "ks_vec.cu",
    .defines = defines,
    .launch = launch_of,
};
