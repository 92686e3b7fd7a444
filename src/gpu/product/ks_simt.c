/* The portable rows: products on vector units, for any pattern, type and layout. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "base/dtype.h"
#include "math/pattern.h"

#include <string.h>

/* Bytes that memory moves at once. */
#define SECTOR 32.0

enum { BR, BS, BJ, TR, TS, BK };

/* Batch-last, neighbouring threads take neighbouring columns: lanes apart gain nothing. 64
   sums of a thread and several lanes leave no registers for an order. */
static int fits(const kernel *k, const problem *p)
{
    const int *n = dn_gpu_size(k);
    int lanes = n[BJ];
    if (p->orders & DN_READS && lanes >= 4 && n[TR] * n[TS] == 64)
        return 0;
    return !p->inner.a && (lanes == 1 || p->layout == DANAUS_BATCH_FIRST);
}

static int64_t tiles_of(const kernel *k, danaus_pattern p, int64_t batch)
{
    const int *n = dn_gpu_size(k);
    return p.a * CEIL_DIV(p.b, n[BR]) * CEIL_DIV(p.d, n[BJ]) * CEIL_DIV(batch, n[BS]);
}

/* Operations of a multiply-add by type, over f32's. */
static double work_of(danaus_dtype dtype)
{
    double work = dn_is_complex(dtype) ? 4 : 1;
    return dn_sum_type(dtype) == DANAUS_F64 || dtype == DANAUS_C128 ? 2 * work : work;
}

/* Useless bytes that are moved with vectors in runs of `run` elements, relative to useful
   bytes. */
static double waste_of(danaus_dtype dtype, int64_t run)
{
    double bytes = (double)run * (double)danaus_dtype_size(dtype);
    return bytes < SECTOR ? SECTOR / bytes - 1 : 0;
}

/* Elements of a batch-first vector that a tile finds next to each other. */
static int64_t run_of(const kernel *k, int64_t size, int64_t d)
{
    int64_t lanes = dn_gpu_size(k)[BJ];
    return d <= lanes ? size * d : lanes;
}

static double steps_of(const kernel *k, const problem *p)
{
    return (double)(CEIL_DIV(p->pattern.c, dn_gpu_size(k)[BK]) + 2);
}

static size_t packed_bytes(const kernel *k, const problem *p)
{
    const int *n = dn_gpu_size(k);
    danaus_pattern q = p->pattern;
    int64_t cells =
        q.a * CEIL_DIV(q.b, n[BR]) * CEIL_DIV(q.d, n[BJ]) * q.c * n[BR] * n[BJ];
    return (size_t)cells * danaus_dtype_size(dn_sum_type(p->dtype));
}

/* Batch-first, seconds to move the operands, at the rate that these kernels reach, a third of
   memory's. Useless bytes come from the second cache. With an order there are no runs. */
static double move_seconds(const gpu_facts *f, const kernel *k, const problem *p)
{
    danaus_pattern q = p->pattern;
    double line = (double)p->batch * (double)danaus_dtype_size(p->dtype);
    double x = (double)dn_pattern_cols(q) * line, y = (double)dn_pattern_rows(q) * line;
    int64_t x_run = p->orders & DN_READS ? 1 : run_of(k, q.c, q.d);
    int64_t y_run = p->orders & DN_WRITES ? 1 : run_of(k, q.b, q.d);
    double waste =
        x * waste_of(p->dtype, x_run) * (double)CEIL_DIV(q.b, dn_gpu_size(k)[BR]) +
        y * waste_of(p->dtype, y_run);
    double bytes = dn_gpu_moved_bytes(p) + (double)packed_bytes(k, p);
    return (2.6 * bytes + 0.16 * waste) / f->bandwidth;
}

/* Clocks of a tile: multiplying, `slow` times as long as it could take, and moving elements
   between the memories of a multiprocessor, `rate` of them in a clock, and so many for each
   thread, in a step and in all. */
static double tile_clocks(
    const gpu_facts *f, const kernel *k, const problem *p, double slow, double rate,
    double in_step, double in_all)
{
    const int *n = dn_gpu_size(k);
    double c = (double)p->pattern.c, lanes = n[BJ];
    double sums = (double)n[BR] * n[BS] * lanes, threads = sums / (n[TR] * n[TS]);
    double multiply = slow * sums * c * work_of(p->dtype) / f->cores;
    double elements = (n[BS] + n[BR]) * lanes * c + sums;
    return multiply + elements / rate + threads * (in_step * steps_of(k, p) + in_all);
}

/* Batch-first, several lanes or lanes apart. */
static double cost_apart(const gpu_facts *f, const kernel *k, const problem *p)
{
    double rounds = ceil((double)tiles_of(k, p->pattern, p->batch) / f->units);
    double convert = danaus_dtype_size(p->dtype) == 2 ? 1.4 : 1;
    double slow = dn_gpu_size(k)[BJ] > 1 ? 2 : 1;
    double clocks = convert * tile_clocks(f, k, p, slow, 85, 3.2, 0);
    return 6e-6 + 0.45e-6 * steps_of(k, p) + rounds * clocks / f->clock +
           move_seconds(f, k, p);
}

/* Where vectors lie together. A thread with 64 sums has few registers left. */
static double cost_together(const gpu_facts *f, const kernel *k, const problem *p)
{
    const int *n = dn_gpu_size(k);
    double rounds = ceil((double)tiles_of(k, p->pattern, p->batch) / f->units);
    double line = (double)p->batch * (double)danaus_dtype_size(p->dtype);
    double y = (double)dn_pattern_rows(p->pattern) * line;
    double x = (double)dn_pattern_cols(p->pattern) * line;
    double convert = danaus_dtype_size(p->dtype) == 2 ? 1.3 : 1;
    double slow = n[TR] * n[TS] == 64 ? 1.3 : 1;
    double make =
        rounds * convert * tile_clocks(f, k, p, slow, 9.2, 0.45, 10) / f->clock;
    double move = (x + (double)packed_bytes(k, p) + 4.5 * y) / f->bandwidth;
    return 7e-6 + 0.27e-6 * convert * steps_of(k, p) + dn_gpu_beside(2.7, move, make);
}

/* A fit to times on 9.0 (bench/rows): a latency for each step, tiles, and moving x, y and w,
   beside tiles where vectors lie together. Numbers of 16 bits are converted on the way. */
static double cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    const gpu_facts *f = dn_gpu_facts(dev);
    int is_together = p->layout == DANAUS_BATCH_LAST ||
                      (p->pattern.d == 1 && dn_gpu_size(k)[BJ] == 1 && !p->orders);
    double seconds = is_together ? cost_together(f, k, p) : cost_apart(f, k, p);
    return seconds + dn_gpu_activating(f, p);
}

/* A unit: [k][lane][row] of a tile of lanes and one of rows, zeros past the last ones. */
static void pack_unit(const gpu_packing *g, int64_t unit, char *to)
{
    const int *n = dn_gpu_size(g->kernel);
    const int64_t *s = g->w.s;
    danaus_pattern q = g->p->pattern;
    int64_t row_tiles = CEIL_DIV(q.b, n[BR]), lane_tiles = CEIL_DIV(q.d, n[BJ]);
    int64_t i = unit / row_tiles / lane_tiles, r = unit % row_tiles * n[BR];
    int64_t j0 = unit / row_tiles % lane_tiles * n[BJ];
    int64_t rows = MIN(q.b - r, n[BR]);
    size_t line = (size_t)n[BR] * danaus_dtype_size(dn_gpu_packed_type(g));
    for (int64_t c = 0; c < q.c; c++)
        for (int64_t j = j0; j < j0 + n[BJ]; j++, to += line)
            if (j < q.d) {
                int64_t from = i * s[0] + r * s[1] + c * s[2] + j * s[3];
                dn_gpu_put(g, (gpu_run){ &g->w, from, s[1], rows, to, NULL });
            }
}

/* [i][lane tile][row tile], one unit each. */
static void pack(const kernel *k, const problem *p, weights_view w, void *packed)
{
    const int *n = dn_gpu_size(k);
    danaus_pattern q = p->pattern;
    int64_t units = q.a * CEIL_DIV(q.b, n[BR]) * CEIL_DIV(q.d, n[BJ]);
    gpu_packing g = { k,         p, w, NULL, (int64_t)packed_bytes(k, p) / units,
                      pack_unit, 0, 1 };
    dn_gpu_pack(&g, units, packed);
}

static void defines(const kernel *k, const problem *p, int variant, text *to)
{
    static const char *const names[] = { "BR", "BS", "BJ", "TR", "TS", "BK" };
    dn_text(to, "#define INDEX %s\n", variant ? "int64" : "int");
    dn_gpu_define_layout(k, p, variant, to);
    dn_gpu_define_orders(p, to);
    dn_text(to, "#define ONE_LANE %d\n", p->pattern.d == 1);
    for (int i = 0; i <= BK; i++)
        dn_text(to, "#define %s %d\n", names[i], dn_gpu_size(k)[i]);
}

static void launch_of(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch)
{
    (void)f;
    const int *n = dn_gpu_size(k);
    *launch = dn_gpu_line(
        tiles_of(k, p->pattern, call->batch), n[BR] / n[TR] * (n[BS] / n[TS]) * n[BJ]);
}

/* 1: offsets within a step of k need 64 bits. */
static int variant_of(const kernel *k, const problem *p, const gpu_call *call)
{
    const int *n = dn_gpu_size(k);
    danaus_pattern q = p->pattern;
    double batch = (double)call->batch, d = (double)q.d;
    double largest = p->layout == DANAUS_BATCH_LAST
                         ? (double)n[BK] * d * batch
                         : (double)n[BS] * (double)dn_pattern_cols(q) + n[BK] * d;
    return largest > INT32_MAX / 2;
}

const gpu_family dn_gpu_simt = {
    .kernel = { .orders = DN_READS | DN_WRITES,
                .fits = fits,
                .cost = cost,
                .packed_bytes = packed_bytes,
                .pack = pack },
    .text = "ks_simt.cu",
    .defines = defines,
    .launch = launch_of,
    .variants = 2,
    .variant = variant_of,
};
