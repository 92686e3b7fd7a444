/* Rows on the tensor cores of compute capability 8.0 and later for few columns: tiles,
   weights and costs of ks_split.cu. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "base/dtype.h"
#include "math/pattern.h"

#define MOST_STAGES  8
#define LEAST_STAGES 3
#define MOST_SUMS    16 /* tiles of 16 x 8 of a warp, if they are of several lanes */

/* size: tiles of 16 rows of a warp, of 8 columns, warps beside each other in rows, warps
   that share columns k, resident blocks, parts that numbers are cut into. */
enum { TILES_R, TILES_S, WARPS_R, WARPS_K, RESIDENT, PARTS };

typedef struct split_shape {
    int64_t element, together, units, tiles_r, tile_r, tile_k, steps, operands;
    int64_t stages, shared;
} split_shape;

/* Sums take the place of stages. */
static void set_memory(split_shape *s, const kernel *k, danaus_layout layout)
{
    const int *n = dn_gpu_size(k);
    int64_t columns = 8 * n[TILES_S];
    int64_t tiles = n[WARPS_R] * s->tiles_r * s->together;
    int64_t sums = n[WARPS_K] * tiles * n[TILES_S] * DN_OPERAND;
    int64_t x_rows = layout == DANAUS_BATCH_LAST ? s->tile_k + 4 : s->tile_k;
    int64_t x = x_rows * s->together * columns * s->element;
    int64_t stage = n[WARPS_K] * (s->units * tiles * DN_OPERAND + x);
    int64_t room = dn_gpu_room(dn_gpu_code(k)->arch, n[RESIDENT]);
    s->stages = MIN(room / stage, MOST_STAGES);
    s->shared = MAX(s->stages * stage, sums);
}

static void set_lanes(split_shape *s, const kernel *k, const problem *p, int64_t lanes)
{
    const int *n = dn_gpu_size(k);
    s->together = lanes;
    s->units = lanes == 1 ? 2 : 1;
    s->tiles_r = MAX(n[TILES_R] / lanes, 1);
    s->tile_r = 16 * s->tiles_r * n[WARPS_R];
    s->tile_k = s->units * 32 / s->element;
    s->steps = CEIL_DIV(p->pattern.c, s->tile_k);
    set_memory(s, k, p->layout);
}

/* Batch-first a tile has as many neighbouring lanes, of 16 bytes, as there is room for. */
static split_shape shape_of(const kernel *k, const problem *p)
{
    danaus_pattern q = p->pattern;
    split_shape s = { .element = dn_size_of(p->dtype) };
    int64_t lanes = p->layout == DANAUS_BATCH_LAST ? 1 : 16 / s.element;
    while (q.d % lanes)
        lanes /= 2;
    s.operands = CEIL_DIV(q.b, 16);
    do {
        set_lanes(&s, k, p, lanes);
        lanes /= 2;
    } while (lanes && (s.stages < LEAST_STAGES ||
                       s.together * s.tiles_r * dn_gpu_size(k)[TILES_S] > MOST_SUMS));
    return s;
}

static int64_t tiles_of(
    const split_shape *s, const kernel *k, danaus_pattern q, int64_t batch)
{
    return q.a * (q.d / s->together) * CEIL_DIV(q.b, s->tile_r) *
           CEIL_DIV(batch, 8 * dn_gpu_size(k)[TILES_S]);
}

/* One column of one lane is the same in both layouts, and weights are too. */
static int is_one_column(const problem *p, int64_t batch)
{
    return p->layout == DANAUS_BATCH_LAST && p->pattern.d == 1 && batch == 1 &&
           !p->orders;
}

/* At least 4 bytes of x lie together. */
static int fits(const kernel *k, const problem *p)
{
    if (!dn_gpu_is_for_blocks(k, p, dn_gpu_size(k)[PARTS]) || !dn_gpu_moves_rows(p))
        return 0;
    split_shape s = shape_of(k, p);
    int last = p->layout == DANAUS_BATCH_LAST;
    int64_t beside = last                         ? dn_gpu_size(k)[TILES_S]
                     : s.together == p->pattern.d ? 2
                                                  : s.together;
    return s.stages >= 2 && beside * s.element >= 4;
}

/* Useless bytes of a sector of the second cache if other lanes lie between a tile's. */
static double waste_of(const split_shape *s, const problem *p)
{
    double lanes = (double)s->together, all = (double)p->pattern.d;
    if (p->layout == DANAUS_BATCH_LAST)
        return 1;
    return fmax(1, fmin(all / lanes, 33 / (lanes * (double)s->element)));
}

/* Clocks of a warp's step: products and operands of w, and copies of x, which are many if
   rows of columns s are not aligned. */
static double step_clocks(
    const gpu_facts *f, const split_shape *s, const kernel *k, const problem *p)
{
    const int *n = dn_gpu_size(k);
    int last = p->layout == DANAUS_BATCH_LAST && !is_one_column(p, p->batch);
    double product = n[PARTS] > 1 ? 10.3 : 2.3,
           units = (double)(s->units * s->together);
    double piece = fmin(16, 8 * units);
    if (last)
        piece = p->batch * s->element % 16 ? 0.53 : 16;
    else if (s->together < p->pattern.d)
        piece = (double)(s->together * s->element);
    double copies = n[TILES_S] * 8 * units / piece / n[WARPS_R];
    if (p->orders & DN_READS)
        copies += n[TILES_S] * 8 * units / 16 / n[WARPS_R]; /* one place for 16 bytes */
    double tensor = n[TILES_S] * dn_gpu_mma_clocks(f, n[PARTS] > 1 ? 12 : 4);
    double unit = fmax(n[TILES_S] * product + 68, tensor);
    return units * (double)s->tiles_r * unit + 3.7 * copies;
}

static gpu_operands operands_of(const kernel *k, const problem *p)
{
    split_shape s = shape_of(k, p);
    return (gpu_operands){
        .lanes = s.together,
        .lane_tiles = p->pattern.d / s.together,
        .rows = 16,
        .row_tiles = s.operands,
        .units = s.steps * s.units,
        .own = s.units,
        .split = dn_gpu_size(k)[PARTS] > 1,
    };
}

/* How often a block waits for places, one after the other: for the steps of x that are in flight
   from the beginning, and for y in each thread. */
static double place_waits(
    const split_shape *s, const kernel *k, const problem *p, double each)
{
    const int *n = dn_gpu_size(k);
    double sums = (double)(s->tiles_r * s->together * n[TILES_S]) * 4;
    return (p->orders & DN_READS ? fmin(each, (double)s->stages - 1) : 0) +
           (p->orders & DN_WRITES ? ceil(sums / n[WARPS_K]) : 0);
}

/* The bytes of these places in all tiles. */
static double place_bytes(double passes, double row_tiles, const problem *p)
{
    double x = p->orders & DN_READS ? (double)dn_pattern_cols(p->pattern) : 0;
    double y = p->orders & DN_WRITES ? (double)dn_pattern_rows(p->pattern) : 0;
    return passes * (x * row_tiles + y) * dn_gpu_place_bytes(p);
}

/* Seconds, fitted to 11,000 times (to 8 % in the mean) without orders: memory, the second
   cache, and the multiprocessors. Steps that are not in flight from the beginning wait. */
static double cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    const gpu_facts *f = dn_gpu_facts(dev);
    const int *n = dn_gpu_size(k);
    danaus_pattern q = p->pattern;
    split_shape s = shape_of(k, p);
    double line = (double)p->batch * (double)s.element,
           w = (double)dn_gpu_operand_bytes(k, p);
    double x = (double)dn_pattern_cols(q) * line, y = (double)dn_pattern_rows(q) * line;
    double row_tiles = (double)CEIL_DIV(q.b, s.tile_r), waste = waste_of(&s, p);
    double passes = (double)CEIL_DIV(p->batch, 8 * n[TILES_S]);
    double memory = (w + dn_gpu_moved_bytes(p)) / (0.93 * f->bandwidth);
    double places = place_bytes(passes, row_tiles, p);
    double cache = (w * passes + waste * (x * row_tiles + 13.7 * y) + places) /
                   (1.4 * f->bandwidth);
    double each = (double)CEIL_DIV(s.steps, n[WARPS_K]);
    double sums = (double)(s.tiles_r * s.together * n[TILES_S]);
    double block = (each * step_clocks(f, &s, k, p) + 116 * sums) *
                       (n[WARPS_R] * n[WARPS_K] / 4.0) +
                   600 + DN_PLACE_CLOCKS * place_waits(&s, k, p, each);
    double rounds = ceil((double)tiles_of(&s, k, q, p->batch) / f->units);
    double processor = rounds * block / f->clock;
    double waits = fmax(0, ceil(each / (double)(s.stages - 1)) - 1);
    double all = cbrt(pow(memory, 3) + pow(cache, 3) + pow(processor, 3));
    int is_matrix = q.d == 1 && s.element == 2 && p->layout == DANAUS_BATCH_FIRST;
    double start = n[WARPS_R] > 1 && is_matrix ? 5e-6 : 4e-6;
    return dn_gpu_seconds(dev, k, p, start + all + 0.7e-6 * waits);
}

/* 1: by the text for batch-first. */
static int variant_of(const kernel *k, const problem *p, const gpu_call *call)
{
    (void)k;
    return is_one_column(p, call->batch);
}

/* Sizes are arguments, so that a text serves all patterns whose lanes are as far apart. */
static void defines(const kernel *k, const problem *p, int variant, text *to)
{
    const int *n = dn_gpu_size(k);
    split_shape s = shape_of(k, p);
    int last = p->layout == DANAUS_BATCH_LAST && !(variant && is_one_column(p, 1));
    const gpu_define lines[] = {
        { "ELEMENT", s.element },
        { "ACTIVATION", p->activation },
        { "RESIDUAL", p->residual },
        { "SPLIT", n[PARTS] > 1 },
        { "LAST", last },
        { "TOGETHER", s.together },
        { "ALL_LANES", !last && s.together == p->pattern.d },
        { "UNITS", s.units },
        { "TILES_R", s.tiles_r },
        { "TILES_S", n[TILES_S] },
        { "WARPS_R", n[WARPS_R] },
        { "WARPS_K", n[WARPS_K] },
        { "STAGES", s.stages },
        { "RESIDENT", n[RESIDENT] },
    };
    dn_gpu_define(p->dtype, lines, sizeof lines / sizeof *lines, to);
    dn_gpu_define_orders(p, to);
}

static void launch_of(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch)
{
    (void)f;
    const int *n = dn_gpu_size(k);
    split_shape s = shape_of(k, p);
    int64_t tiles = tiles_of(&s, k, p->pattern, call->batch);
    *launch = dn_gpu_stay(tiles, tiles, n[WARPS_R] * n[WARPS_K] * 32, s.shared);
}

const gpu_family dn_gpu_split = {
    .kernel = { .orders = DN_READS | DN_WRITES,
                .fits = fits,
                .cost = cost,
                .packed_bytes = dn_gpu_operand_bytes,
                .pack = dn_gpu_pack_operands },
    .text = "ks_split.cu",
    .defines = defines,
    .launch = launch_of,
    .operands = operands_of,
    .variants = 2,
    .variant = variant_of,
};
