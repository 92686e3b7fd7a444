/* Rows on the tensor cores of compute capability 8.0 and later, batch-first, for any number
   of lanes and any alignment: tiles, weights and costs of ks_mma_runs.cu. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "base/dtype.h"
#include "math/pattern.h"

#define UNIT_BYTES  32  /* columns k of one instruction */
#define RUN_BYTES   256 /* of x that are fetched at once, if a tile has all lanes */
#define MOST_UNITS  4
#define MOST_STAGES 4
#define MARGIN      128

/* size: tiles of 16 rows of a warp at most, of 8 columns, 1, warps at most, resident blocks,
   parts that numbers are cut into. */
enum { TILES_R, TILES_S, LANES, WARPS, RESIDENT, PARTS };

typedef struct shape {
    int64_t element, together, lane_tiles, warps_r, warps_s, tiles_r, row_tiles;
    int64_t tile_r, tile_s, units, steps;
    int64_t x_bytes, w_bytes, y_bytes, stages, shared;
} shape;

/* Bytes of shared memory for a column's runs: see CHUNKS() there. */
static int64_t pitch(int64_t element, int64_t runs, int64_t numbers)
{
    int64_t per = 16 / element;
    return (runs * ((numbers + 2 * per - 2) / per) | 1) * 16;
}

static void set_memory(shape *s, const kernel *k, const problem *p)
{
    int64_t d = p->pattern.d, columns = s->units * UNIT_BYTES / s->element;
    int all = s->together == d;
    s->x_bytes = s->tile_s * (all ? pitch(s->element, 1, columns * d)
                                  : pitch(s->element, columns, s->together));
    s->w_bytes = s->units * s->together * s->tile_r * UNIT_BYTES;
    s->y_bytes = 8 * s->warps_s *
                 (all ? pitch(s->element, 1, s->tile_r * d)
                      : pitch(s->element, s->tile_r, s->together));
    int64_t room = dn_gpu_room(dn_gpu_code(k)->arch, dn_gpu_size(k)[RESIDENT]) -
                   MARGIN - s->y_bytes;
    s->stages = MIN(room / (s->x_bytes + s->w_bytes), MOST_STAGES);
    s->shared = MARGIN + s->y_bytes + s->stages * (s->x_bytes + s->w_bytes);
}

/* Warps take all lanes if there are enough of them, then all rows, then columns. */
static shape shape_of(const kernel *k, const problem *p)
{
    const int *n = dn_gpu_size(k);
    danaus_pattern q = p->pattern;
    shape s = { .element = dn_size_of(p->dtype) };
    s.lane_tiles = CEIL_DIV(q.d, n[WARPS]);
    s.together = CEIL_DIV(q.d, s.lane_tiles);
    int64_t left = n[WARPS] / s.together;
    s.warps_r = MIN(left, CEIL_DIV(q.b, 16 * n[TILES_R]));
    s.warps_s = left / s.warps_r;
    s.row_tiles = CEIL_DIV(q.b, 16 * n[TILES_R] * s.warps_r);
    s.tiles_r = CEIL_DIV(q.b, 16 * s.warps_r * s.row_tiles);
    s.tile_r = 16 * s.tiles_r * s.warps_r;
    s.tile_s = 8 * n[TILES_S] * s.warps_s;
    int64_t unit = s.together * UNIT_BYTES,
            units = CEIL_DIV(q.c * s.element, UNIT_BYTES);
    s.units = MIN(CLAMP(RUN_BYTES / unit, 1, MOST_UNITS), units);
    do
        set_memory(&s, k, p);
    while (s.stages < 3 && s.units > 1 && s.units--);
    s.steps = CEIL_DIV(units, s.units);
    return s;
}

static int64_t tiles_of(const shape *s, const problem *p, int64_t batch)
{
    return p->pattern.a * s->lane_tiles * s->row_tiles * CEIL_DIV(batch, s->tile_s);
}

static int fits(const kernel *k, const problem *p)
{
    return dn_gpu_is_for_blocks(k, p, dn_gpu_size(k)[PARTS]) &&
           p->layout == DANAUS_BATCH_FIRST && shape_of(k, p).stages >= 2;
}

static gpu_operands operands_of(const kernel *k, const problem *p)
{
    shape s = shape_of(k, p);
    return (gpu_operands){
        .lanes = s.together,
        .lane_tiles = s.lane_tiles,
        .rows = s.tile_r,
        .row_tiles = s.row_tiles,
        .units = s.steps * s.units,
        .split = dn_gpu_size(k)[PARTS] > 1,
    };
}

/* By count: memory; the second cache, which gives and takes runs in whole sectors; and what a
   multiprocessor does, instructions of tensor cores or of shared memory, numbers of x one by
   one. Not fitted to times. */
static double cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    const gpu_facts *f = dn_gpu_facts(dev);
    const int *n = dn_gpu_size(k);
    shape s = shape_of(k, p);
    double element = (double)s.element;
    double w = (double)dn_gpu_operand_bytes(k, p),
           tiles = (double)tiles_of(&s, p, p->batch);
    double memory = 1.2 * (dn_gpu_moved_bytes(p) + w) / f->bandwidth;
    double steps = (double)s.steps, units = steps * (double)s.units;
    double fetched =
        steps * (double)(s.x_bytes + s.w_bytes) + (double)(s.y_bytes * n[TILES_S]);
    double cache = tiles * fetched / (2.5 * f->bandwidth);
    double warps = (double)(s.together * s.warps_r * s.warps_s);
    double mma =
        warps * (double)(s.tiles_r * n[TILES_S]) * units * (n[PARTS] > 1 ? 3 : 1);
    double wavefronts =
        warps * units * ((double)s.tiles_r * 4 + n[TILES_S] * 16 / element * 2.0);
    double out = 3.0 * warps * (double)(s.tiles_r * n[TILES_S]) * 4;
    double each = fmax(dn_gpu_mma_clocks(f, mma), 1.2 * wavefronts) + out + 300;
    double rounds = ceil(tiles / (f->units * n[RESIDENT]));
    double processor = rounds * n[RESIDENT] * each / (0.8 * f->clock);
    return dn_gpu_seconds(
        dev, k, p, 4e-6 + dn_gpu_beside(4, dn_gpu_beside(4, memory, cache), processor));
}

static void defines(const kernel *k, const problem *p, int variant, text *to)
{
    (void)variant;
    const int *n = dn_gpu_size(k);
    shape s = shape_of(k, p);
    int64_t block = s.lane_tiles * s.row_tiles * s.steps * s.w_bytes;
    const gpu_define lines[] = {
        { "SPLIT", n[PARTS] > 1 },
        { "SHARED_BLOCKS", dn_gpu_shared_blocks(p->pattern.a, block) },
        { "TOGETHER", s.together },
        { "TILES_R", s.tiles_r },
        { "TILES_S", n[TILES_S] },
        { "WARPS_R", s.warps_r },
        { "WARPS_S", s.warps_s },
        { "UNITS", s.units },
        { "STAGES", s.stages },
        { "RESIDENT", n[RESIDENT] },
    };
    dn_gpu_define_product(p, lines, sizeof lines / sizeof *lines, to);
}

static void launch_of(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch)
{
    shape s = shape_of(k, p);
    *launch = dn_gpu_stay(
        tiles_of(&s, p, call->batch), (int64_t)f->units * dn_gpu_size(k)[RESIDENT],
        (int)(s.together * s.warps_r * s.warps_s * 32), s.shared);
}

const gpu_family dn_gpu_mma_runs = {
    .kernel = { .fits = fits,
                .cost = cost,
                .packed_bytes = dn_gpu_operand_bytes,
                .pack = dn_gpu_pack_operands },
    .text = "ks_mma_runs.cu",
    .defines = defines,
    .launch = launch_of,
    .operands = operands_of,
};
