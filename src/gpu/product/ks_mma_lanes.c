/* Rows on the tensor cores of compute capability 8.0 and later, batch-first with d > 1:
   tiles, weights and costs of ks_mma_lanes.cu. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "base/dtype.h"
#include "math/pattern.h"

#define LANES_BYTES 32 /* that are loaded and stored together, if there are so many */
#define MOST_STAGES 4
#define MARGIN      128
#define UNIT_BYTES  32 /* columns k of one instruction, a step */
#define FAR_BYTES   (256 << 10)
#define NEAR_BYTES  (32 << 10)

/* size: tiles of 16 rows of a warp at most, of 8 columns, warps for 4 lanes of the rows,
   warps, resident blocks, parts that numbers are cut into. */
enum { TILES_R, TILES_S, WARPS_R, WARPS, RESIDENT, PARTS };

typedef struct lanes_shape {
    int64_t element, together, tiles_r, warps_s, tile_r, tile_s, row_tiles, steps;
    int64_t w_bytes, stage_bytes, stages, shared;
} lanes_shape;

/* 4, 8 or 16 lanes; 0: their number is not a multiple of 4. */
static int64_t lanes_together(int64_t d, int64_t element)
{
    int64_t lanes = LANES_BYTES / element;
    while (d % lanes)
        lanes /= 2;
    return lanes < 4 ? 0 : lanes;
}

static lanes_shape shape_of(const kernel *k, const problem *p)
{
    const int *n = dn_gpu_size(k);
    danaus_pattern q = p->pattern;
    lanes_shape s = { .element = dn_size_of(p->dtype) };
    s.together = lanes_together(q.d, s.element);
    s.warps_s = s.together ? n[WARPS] / (s.together / 4) / n[WARPS_R] : 0;
    if (!s.warps_s)
        return s;
    int64_t rows = 16 * n[WARPS_R];
    s.tiles_r = CEIL_DIV(CEIL_DIV(q.b, CEIL_DIV(q.b, rows * n[TILES_R])), rows);
    s.tile_r = rows * s.tiles_r;
    s.tile_s = 8 * n[TILES_S] * s.warps_s;
    s.row_tiles = CEIL_DIV(q.b, s.tile_r);
    s.steps = CEIL_DIV(q.c * s.element, UNIT_BYTES);
    s.w_bytes = s.together * s.tile_r / 16 * DN_OPERAND;
    s.stage_bytes = s.tile_s * s.together * UNIT_BYTES + s.w_bytes;
    int64_t fixed = MARGIN + s.tile_s * rows * s.together * s.element;
    int64_t room = dn_gpu_room(dn_gpu_code(k)->arch, n[RESIDENT]) - fixed;
    s.stages = MIN(room / s.stage_bytes, MOST_STAGES);
    s.shared = fixed + s.stages * s.stage_bytes;
    return s;
}

static int64_t tiles_of(const kernel *k, const problem *p, int64_t batch)
{
    lanes_shape s = shape_of(k, p);
    return p->pattern.a * (p->pattern.d / s.together) * s.row_tiles *
           CEIL_DIV(batch, s.tile_s);
}

static int fits(const kernel *k, const problem *p)
{
    return dn_gpu_is_for_blocks(k, p, dn_gpu_size(k)[PARTS]) &&
           p->layout == DANAUS_BATCH_FIRST && p->pattern.d > 1 &&
           shape_of(k, p).stages >= 2;
}

static gpu_operands operands_of(const kernel *k, const problem *p)
{
    lanes_shape s = shape_of(k, p);
    return (gpu_operands){
        .lanes = s.together,
        .lane_tiles = p->pattern.d / s.together,
        .rows = s.tile_r,
        .row_tiles = s.row_tiles,
        .units = s.steps,
        .split = dn_gpu_size(k)[PARTS] > 1,
    };
}

/* Returns the bytes of w; *x and *y get those of x and y. */
static double operand_bytes(const kernel *k, const problem *p, double *x, double *y)
{
    double line = (double)p->batch * (double)danaus_dtype_size(p->dtype);
    *x = (double)dn_pattern_cols(p->pattern) * line;
    *y = (double)dn_pattern_rows(p->pattern) * line;
    return (double)dn_gpu_operand_bytes(k, p);
}

static double clock_of(const gpu_facts *f) { return 0.8 * f->clock; }

/* Seconds for f32, fitted to 52 times (to 9 % in the mean): memory, the second cache, and
   the multiprocessors, whose three tensor-core instructions take 6.6 clocks beside all other
   instructions. Columns s that are far apart take longer; why is unknown. */
static double split_cost(const gpu_facts *f, const kernel *k, const problem *p)
{
    const int *n = dn_gpu_size(k);
    danaus_pattern q = p->pattern;
    lanes_shape s = shape_of(k, p);
    double x, y, w = operand_bytes(k, p, &x, &y);
    double memory = 1.1 * (dn_gpu_moved_bytes(p) + w) / f->bandwidth;
    double far = dn_pattern_cols(q) * s.element > FAR_BYTES ? 1.7 : 1;
    double short_pieces = s.together < q.d ? 1.7 : 1;
    double tiles_s = (double)CEIL_DIV(p->batch, s.tile_s);
    double cache = far * (short_pieces * x * (double)s.row_tiles + w * tiles_s + y) /
                   (1.43 * f->bandwidth);
    double tile = (double)(s.together * s.tile_r * s.tile_s);
    double each = tile * (0.053 * (double)s.steps + 0.155);
    double rounds = ceil((double)tiles_of(k, p, p->batch) / (f->units * n[RESIDENT]));
    double processor = rounds * n[RESIDENT] * each / clock_of(f);
    return 4e-6 + cbrt(pow(memory, 3) + pow(cache, 3) + pow(processor, 3));
}

/* Constants that were fitted to times of 16-bit numbers, to 13 %, and of tf32, to 9 % in the
   mean: factors for memory and for short pieces; how much slower these are for y, and the power
   of the distance of its columns s; the second cache's rate over memory's; clocks for a byte of
   y. */
typedef struct lanes_fit {
    double memory, pieces, y_pieces, far, cache, y;
} lanes_fit;

static const lanes_fit times_16 = { 1.25, 1.6, 2, 0.75, 3.2, 0.03 };
static const lanes_fit times_32 = { 1.2, 2.1, 1, 0, 2.7, 0.04 };

/* Memory, the second cache, which gives and takes short pieces slowly, and what a
   multiprocessor does: steps, bound by tensor cores or by shared memory, and then y.
   Elsewhere tensor cores may be slower. */
static double product_cost(const gpu_facts *f, const kernel *k, const problem *p)
{
    const int *n = dn_gpu_size(k);
    danaus_pattern q = p->pattern;
    lanes_shape s = shape_of(k, p);
    const lanes_fit *t = s.element == 2 ? &times_16 : &times_32;
    double x, y, w = operand_bytes(k, p, &x, &y);
    double memory = t->memory * (dn_gpu_moved_bytes(p) + w) / f->bandwidth;
    double short_pieces =
        s.together < q.d && s.together * s.element < 128 ? t->pieces : 1;
    double apart = (double)(dn_pattern_rows(q) * s.element) / NEAR_BYTES;
    double far = s.together < q.d ? t->y_pieces * pow(fmax(1, apart), t->far) : 1;
    double tiles_s = (double)CEIL_DIV(p->batch, s.tile_s);
    double cache = short_pieces * (x * (double)s.row_tiles + w * tiles_s + far * y) /
                   (t->cache * f->bandwidth);
    double tile = (double)(s.together * s.tile_r * s.tile_s); /* elements of y */
    double tensor = tile * fmax(1 / 40.0, dn_gpu_mma_clocks(f, 1 / 128.0));
    int64_t operands = n[WARPS] * (s.tiles_r * 16 + n[TILES_S] * 8);
    double shared = 1.06 * (double)(s.stage_bytes / 128 + operands);
    double each = (double)s.steps * fmax(tensor, shared) + 274.0 / n[RESIDENT] +
                  t->y * tile * (double)s.element;
    double rounds = ceil((double)tiles_of(k, p, p->batch) / (f->units * n[RESIDENT]));
    double processor = rounds * n[RESIDENT] * each / clock_of(f);
    return 3e-6 + dn_gpu_beside(4, dn_gpu_beside(4, memory, cache), processor);
}

static double cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    int split = dn_gpu_size(k)[PARTS] > 1;
    double slower = dn_gpu_in_pieces(p, shape_of(k, p).together, 1.8);
    return dn_gpu_seconds(
        dev, k, p,
        slower * (split ? split_cost : product_cost)(dn_gpu_facts(dev), k, p));
}

static void defines(const kernel *k, const problem *p, int variant, text *to)
{
    (void)variant;
    const int *n = dn_gpu_size(k);
    lanes_shape s = shape_of(k, p);
    int64_t block = p->pattern.d / s.together * s.row_tiles * s.steps * s.w_bytes;
    const gpu_define lines[] = {
        { "SPLIT", n[PARTS] > 1 },
        { "UNITS", 1 },
        { "SHARED_BLOCKS", dn_gpu_shared_blocks(p->pattern.a, block) },
        { "TOGETHER", s.together },
        { "TILES_R", s.tiles_r },
        { "TILES_S", n[TILES_S] },
        { "WARPS_R", n[WARPS_R] },
        { "WARPS_S", s.warps_s },
        { "STAGES", s.stages },
        { "RESIDENT", n[RESIDENT] },
    };
    dn_gpu_define_product(p, lines, sizeof lines / sizeof *lines, to);
}

static void launch_of(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch)
{
    lanes_shape s = shape_of(k, p);
    const int *n = dn_gpu_size(k);
    *launch = dn_gpu_stay(
        tiles_of(k, p, call->batch), (int64_t)f->units * n[RESIDENT],
        (int)(s.together / 4 * n[WARPS_R] * s.warps_s * 32), s.shared);
}

const gpu_family dn_gpu_mma_lanes = {
    .kernel = { .fits = fits,
                .cost = cost,
                .packed_bytes = dn_gpu_operand_bytes,
                .pack = dn_gpu_pack_operands },
    .text = "ks_mma_lanes.cu",
    .defines = defines,
    .launch = launch_of,
    .operands = operands_of,
};
