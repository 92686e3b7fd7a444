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
#define SHORT_BYTES 64 /* of a line */

/* size: tiles of 16 rows of a warp at most, of 8 columns, 1, warps at most, resident blocks,
   parts that numbers are cut into. */
enum { TILES_R, TILES_S, LANES, WARPS, RESIDENT, PARTS };

typedef struct runs_shape {
    int64_t element, each, together, lane_tiles, warps_r, warps_s, tiles_r, row_tiles;
    int64_t tile_r, tile_s, units, steps;
    int64_t x_bytes, w_bytes, y_bytes, out, stages, shared;
} runs_shape;

/* Bytes of shared memory for a column's runs: see CHUNKS() there. */
static int64_t pitch(int64_t element, int64_t runs, int64_t numbers)
{
    int64_t per = 16 / element;
    return (runs * ((numbers + 2 * per - 2) / per) | 1) * 16;
}

static void set_memory(runs_shape *s, const kernel *k, const problem *p)
{
    int64_t d = p->pattern.d, columns = s->units * UNIT_BYTES / s->element;
    int all = s->together >= d;
    s->x_bytes = s->tile_s * (all ? pitch(s->element, 1, columns * d)
                                  : pitch(s->element, columns, s->together));
    s->w_bytes = s->units * s->together * s->tile_r * UNIT_BYTES;
    int64_t column = all ? pitch(s->element, 1, s->tile_r * d)
                         : pitch(s->element, s->tile_r, s->together);
    int64_t all_room =
        dn_gpu_room(dn_gpu_code(k)->arch, dn_gpu_size(k)[RESIDENT]) - MARGIN;
    s->out = dn_gpu_size(k)[TILES_S];
    do {
        s->y_bytes = 8 * s->warps_s * s->out * column;
        s->stages =
            MIN((all_room - s->y_bytes) / (s->x_bytes + s->w_bytes), MOST_STAGES);
    } while (s->stages < 3 && s->out > 1 && (s->out /= 2));
    s->shared = MARGIN + s->y_bytes + s->stages * (s->x_bytes + s->w_bytes);
}

/* How many of the warps that are left lie beside each other in rows. A tile with as many rows
   as columns reads x and w the fewest times. */
static int64_t row_warps(int64_t left, int64_t most, int64_t rows, int64_t columns)
{
    int64_t best = 1;
    for (int64_t n = 2; n <= MIN(left, most); n++)
        if (n * rows + left / n * columns < best * rows + left / best * columns)
            best = n;
    return best;
}

/* Warps take all lanes, several each if there are registers, then rows and columns. */
static runs_shape shape_of(const kernel *k, const problem *p)
{
    const int *n = dn_gpu_size(k);
    danaus_pattern q = p->pattern;
    runs_shape s = { .element = dn_size_of(p->dtype) };
    int64_t most = n[WARPS] * n[TILES_R];
    s.lane_tiles = CEIL_DIV(q.d, most);
    s.each = CEIL_DIV(CEIL_DIV(q.d, s.lane_tiles), n[WARPS]);
    int64_t warps_j = CEIL_DIV(CEIL_DIV(q.d, s.lane_tiles), s.each);
    s.together = warps_j * s.each;
    s.lane_tiles = CEIL_DIV(q.d, s.together);
    int64_t left = n[WARPS] / warps_j, tiles_r = n[TILES_R] / s.each;
    s.warps_r =
        row_warps(left, CEIL_DIV(q.b, 16 * tiles_r), 16 * tiles_r, 8 * n[TILES_S]);
    s.warps_s = left / s.warps_r;
    s.row_tiles = CEIL_DIV(q.b, 16 * tiles_r * s.warps_r);
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

static int64_t tiles_of(const runs_shape *s, const problem *p, int64_t batch)
{
    return p->pattern.a * s->lane_tiles * s->row_tiles * CEIL_DIV(batch, s->tile_s);
}

/* Weights of 22 bits are as exact as sums of f32 are from some terms on. */
static int fits(const kernel *k, const problem *p)
{
    int parts = dn_gpu_size(k)[PARTS];
    return dn_gpu_is_for(k, p, parts) && p->layout == DANAUS_BATCH_FIRST &&
           (parts == 1 || p->pattern.c >= 8) && shape_of(k, p).stages >= 2;
}

static gpu_operands operands_of(const kernel *k, const problem *p)
{
    runs_shape s = shape_of(k, p);
    return (gpu_operands){
        .lanes = s.together,
        .lane_tiles = s.lane_tiles,
        .rows = s.tile_r,
        .row_tiles = s.row_tiles,
        .units = s.steps * s.units,
        .split = dn_gpu_size(k)[PARTS] > 1,
    };
}

/* Clocks of a multiprocessor for a tile beside others: tensor-core instructions; numbers of x
   that are read, and of y that are written to shared memory, one by one and with bank
   conflicts; chunks in flight; and waiting times of a block while others run. */
static double tile_clocks(const gpu_facts *f, const kernel *k, const runs_shape *s)
{
    const int *n = dn_gpu_size(k);
    double warps = (double)(s->together * s->warps_r * s->warps_s);
    double units = (double)(s->steps * s->units),
           tiles = (double)(s->tiles_r * n[TILES_S]);
    double mma = warps * tiles * units * (n[PARTS] > 1 ? 3 : 1);
    double loads = warps * units * n[TILES_S] * 8 / (double)s->element;
    double x = (double)(s->steps * s->x_bytes) / 16;
    double y = (double)(s->y_bytes / s->out * n[TILES_S]) / 16;
    double work = 0.75 * dn_gpu_mma_clocks(f, mma) + 1.3 * loads + 27 * warps * tiles +
                  0.46 * x + 0.53 * y;
    return work + (1030 * (double)s->steps + 1000) / n[RESIDENT];
}

/* How much longer tiles of one lane take whose lines are ragged and short: measured on 9.0
   (docs/notes/gpu-records.md). */
static double short_lines(const problem *p)
{
    danaus_pattern q = p->pattern;
    int is_short = MIN(q.b, q.c) * dn_size_of(p->dtype) < SHORT_BYTES;
    return q.d == 1 && is_short && dn_gpu_is_ragged(p) ? 2 : 1;
}

/* A fit to 1,500 times on 9.0, to 20 % (bench/rows): memory, the second cache, and
   multiprocessors. */
static double cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    const gpu_facts *f = dn_gpu_facts(dev);
    const int *n = dn_gpu_size(k);
    runs_shape s = shape_of(k, p);
    double tiles = (double)tiles_of(&s, p, p->batch), y = (double)(s.y_bytes / s.out);
    double bytes = dn_gpu_moved_bytes(p) + (double)dn_gpu_operand_bytes(k, p);
    double fetched = (double)(s.steps * (s.x_bytes + s.w_bytes)) + y * n[TILES_S];
    double memory = 1.25 * bytes / f->bandwidth;
    double cache = 0.8 * tiles * fetched / f->bandwidth;
    double rounds = ceil(tiles / (f->units * n[RESIDENT]));
    double processor = rounds * n[RESIDENT] * tile_clocks(f, k, &s) / f->clock;
    return dn_gpu_seconds(
        dev, k, p,
        2.9e-6 + short_lines(p) *
                     dn_gpu_beside(4, dn_gpu_beside(4, memory, cache), processor));
}

static void defines(const kernel *k, const problem *p, int variant, text *to)
{
    (void)variant;
    const int *n = dn_gpu_size(k);
    runs_shape s = shape_of(k, p);
    int64_t block = s.lane_tiles * s.row_tiles * s.steps * s.w_bytes;
    const gpu_define lines[] = {
        { "SPLIT", n[PARTS] > 1 },
        { "SHARED_BLOCKS", dn_gpu_shared_blocks(p->pattern.a, block) },
        { "TOGETHER", s.together },
        { "EACH", s.each },
        { "OUT", s.out },
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
    runs_shape s = shape_of(k, p);
    *launch = dn_gpu_stay(
        tiles_of(&s, p, call->batch), (int64_t)f->units * dn_gpu_size(k)[RESIDENT],
        (int)(s.together / s.each * s.warps_r * s.warps_s * 32), s.shared);
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
