/* Rows on the tensor cores of compute capability 8.0 and later: tiles, weights and costs
   of ks_mma.cu. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "math/pattern.h"

#define LINE        64 /* columns k of a row in shared memory, 128 bytes */
#define MOST_STAGES 4
#define MARGIN      1024 /* to begin at a multiple of it */
#define MANY_BYTES  (16 << 20)
#define OVERLAP     8 /* of moving and making: the power of their mean */

/* size: rows of a tile at most, columns of the batch, 1, resident blocks. */
enum { ROWS, COLUMNS, LANES, RESIDENT };

typedef struct mma_shape {
    int64_t tile_rows, row_tiles, steps, depth; /* of rows r and columns k */
    int64_t out_rows;                           /* of y that leave at a time */
    int64_t stages, shared;
} mma_shape;

/* As many as divide the tile, are a multiple of 16, and at most 64. */
static int64_t out_rows_of(int64_t tile_rows)
{
    int64_t rows = 64;
    while (tile_rows % rows)
        rows -= 16;
    return rows;
}

static mma_shape shape_of(const kernel *k, const problem *p)
{
    const int *n = dn_gpu_size(k);
    danaus_pattern q = p->pattern;
    mma_shape s = { .row_tiles = CEIL_DIV(q.b, n[ROWS]) };
    s.tile_rows = ROUND_UP(CEIL_DIV(q.b, s.row_tiles), 16);
    s.row_tiles = CEIL_DIV(q.b, s.tile_rows);
    s.steps = CEIL_DIV(q.c, LINE);
    s.depth = s.steps > 1 ? LINE : ROUND_UP(q.c, 16);
    s.out_rows = out_rows_of(s.tile_rows);
    int last = p->layout == DANAUS_BATCH_LAST;
    int64_t groups = n[COLUMNS] / 64;
    int64_t x_bytes = groups * (last ? s.depth : 64) * 128;
    int64_t out = last ? s.out_rows * (64 * 2 + 16) : 64 * (s.out_rows * 2 + 16);
    int64_t stage = x_bytes + s.tile_rows * 128, fixed = MARGIN + groups * out;
    int64_t room = dn_gpu_room(80, n[RESIDENT]) - fixed;
    s.stages = MIN(room / stage, MOST_STAGES);
    s.shared = fixed + s.stages * stage;
    return s;
}

/* The number of blocks of K x that a tile of y needs. */
static int blocks_each(const problem *p) { return p->gated ? 2 : 1; }

static int64_t tiles_of(const kernel *k, const problem *p, int64_t batch)
{
    return p->pattern.a / blocks_each(p) * p->pattern.d * shape_of(k, p).row_tiles *
           CEIL_DIV(batch, dn_gpu_size(k)[COLUMNS]);
}

static int fits(const kernel *k, const problem *p)
{
    danaus_pattern q = p->pattern;
    return dn_gpu_is_for_tiles(k, p, 1) && dn_gpu_moves_rows(p) &&
           (q.d == 1 || p->layout == DANAUS_BATCH_LAST) &&
           (!p->gated || (p->layout == DANAUS_BATCH_FIRST && q.a % 2 == 0)) &&
           q.a * q.d * (q.b + q.c) >= 80 && shape_of(k, p).stages >= 2;
}

static gpu_tile tile_of(const kernel *k, const problem *p)
{
    mma_shape s = shape_of(k, p);
    return (gpu_tile){
        .element = 2,
        .parts = 1,
        .rows = s.tile_rows,
        .row_tiles = s.row_tiles,
        .steps = s.steps,
    };
}

/* How often a tile waits for places, once for each step of x and once for each 16 rows of y;
   and how many rows they name. */
static double place_waits(const mma_shape *s, const problem *p)
{
    return (p->orders & DN_READS ? (double)s->steps : 0) +
           (p->orders & DN_WRITES ? (double)s->tile_rows / 16 : 0);
}

static double place_bytes(const mma_shape *s, const problem *p)
{
    double rows = (p->orders & DN_READS ? (double)(s->steps * s->depth) : 0) +
                  (p->orders & DN_WRITES ? (double)s->tile_rows : 0);
    return rows * dn_gpu_place_bytes(p);
}

/* The model of ks_wgmma.cu with the tensor cores of these generations; these rows have not been
   timed on their own devices. Tensor cores or the second cache bound a tile, and latency adds to
   that; memory bounds all tiles together. Unaligned operands are fetched element by element. */
static double cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    const gpu_facts *f = dn_gpu_facts(dev);
    const int *n = dn_gpu_size(k);
    mma_shape s = shape_of(k, p);
    double tiles = (double)tiles_of(k, p, p->batch);
    double steps = (double)(s.steps * blocks_each(p));
    double resident = fmin(n[RESIDENT], ceil(tiles / f->units));
    double waves = ceil(tiles / (f->units * resident));
    double each = (double)n[COLUMNS] * (double)s.tile_rows, y_bytes = 2 * each;
    double products = each / 128 * steps * (double)s.depth / 16;
    double fetched = steps * (double)(n[COLUMNS] * 128 + s.tile_rows * 128) + y_bytes +
                     place_bytes(&s, p);
    double cache = fetched / (2.5 * f->bandwidth / f->units) * f->clock;
    double latency =
        (200 + 108 * steps + y_bytes / 30 + DN_PLACE_CLOCKS * place_waits(&s, p)) /
        resident;
    double tile = resident * (fmax(dn_gpu_mma_clocks(f, products), cache) + latency);
    if (p->layout == DANAUS_BATCH_LAST && p->batch % 4)
        tile *= 1.6;
    double bytes = dn_gpu_moved_bytes(p) + (double)dn_gpu_tile_bytes(k, p);
    double move = 1.17 * bytes / f->bandwidth;
    double make = waves * tile / (0.87 * f->clock);
    return dn_gpu_seconds(dev, k, p, 4.4e-6 + dn_gpu_beside(OVERLAP, move, make));
}

static void defines(const kernel *k, const problem *p, int variant, text *to)
{
    (void)variant;
    const int *n = dn_gpu_size(k);
    danaus_pattern q = p->pattern;
    mma_shape s = shape_of(k, p);
    int last = p->layout == DANAUS_BATCH_LAST;
    const gpu_define lines[] = {
        { "LAST", last },
        { "GATED", p->gated },
        { "TILE_N", s.tile_rows },
        { "TILE_K", s.depth },
        { "OUT_N", s.out_rows },
        { "GROUPS", n[COLUMNS] / 64 },
        { "STAGES", s.stages },
        { "RESIDENT", n[RESIDENT] },
        { "MANY_BLOCKS", !last && q.a * q.b * q.c * q.d * 2 <= MANY_BYTES },
    };
    dn_gpu_define_product(p, lines, sizeof lines / sizeof *lines, to);
    dn_gpu_define_orders(p, to);
}

static void launch_of(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch)
{
    const int *n = dn_gpu_size(k);
    *launch = dn_gpu_stay(
        tiles_of(k, p, call->batch), (int64_t)f->units * n[RESIDENT], n[COLUMNS] * 2,
        shape_of(k, p).shared);
}

const gpu_family dn_gpu_mma = {
    .kernel = { .orders = DN_READS | DN_WRITES,
                .gates = 1,
                .fits = fits,
                .cost = cost,
                .packed_bytes = dn_gpu_tile_bytes,
                .pack = dn_gpu_pack_tiles },
    .text = "ks_mma.cu",
    .defines = defines,
    .launch = launch_of,
    .tile = tile_of,
};
