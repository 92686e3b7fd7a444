/* Rows on the tensor cores of compute capability 9.0: tiles, weights and costs of
   ks_wgmma.cu. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "base/dtype.h"
#include "math/pattern.h"

#include <string.h>

#define LINE_BYTES  128 /* of rows in shared memory */
#define CHUNK_BYTES 16  /* what a swizzle moves */
#define UNIT_BYTES  32  /* columns k of one instruction */
#define PIECE_BYTES (64 * LINE_BYTES)
#define OUTS        2
#define MOST_STAGES 8
#define FLAGS_BYTES 1280 /* flags, and to begin at a multiple of 1,024 */
#define MANY_BYTES  (16 << 20)
#define MOST_GATED  192 /* rows of a tile, whose gates are held beside its sums */
#define OVERLAP     8   /* of moving and making: the power of their mean */

/* size: rows of a tile at most, columns of the batch, lanes, groups of 64 columns, blocks
   of a cluster, resident blocks, parts that numbers are cut into, whether y is what
   another factor takes. */
enum { ROWS, COLUMNS, LANES, GROUPS, CLUSTER, RESIDENT, PARTS, MIDDLE };

typedef struct wgmma_shape {
    int element, line, parts;
    int64_t tile_rows, row_tiles, steps, depth; /* of rows r and columns k */
    int64_t w_bytes, stage_bytes, stages, shared;
} wgmma_shape;

static int x_last(const problem *p) { return p->layout == DANAUS_BATCH_LAST; }

/* The number of blocks of K x that a tile of y needs, and the number of blocks of y. */
static int blocks_each(const problem *p) { return p->gated ? 2 : 1; }
static int64_t y_blocks(const problem *p) { return p->pattern.a / blocks_each(p); }

/* True if warps that fetch give registers to warps that multiply. */
static int trades(const kernel *k)
{
    return dn_gpu_size(k)[GROUPS] == 2 && dn_gpu_size(k)[RESIDENT] == 1;
}

static wgmma_shape shape_of(const kernel *k, const problem *p)
{
    const int *n = dn_gpu_size(k);
    danaus_pattern q = p->pattern;
    wgmma_shape s = { .element = (int)danaus_dtype_size(p->dtype), .parts = n[PARTS] };
    s.line = LINE_BYTES / s.element;
    s.row_tiles = CEIL_DIV(q.b, p->gated ? MIN(n[ROWS], MOST_GATED) : n[ROWS]);
    s.tile_rows = ROUND_UP(CEIL_DIV(q.b, s.row_tiles), s.row_tiles > 1 ? s.line : 16);
    s.row_tiles = CEIL_DIV(q.b, s.tile_rows);
    s.steps = CEIL_DIV(q.c, s.line);
    s.depth = s.steps > 1 ? s.line : ROUND_UP(q.c, UNIT_BYTES / s.element);
    int64_t x_bytes = n[COLUMNS] * (x_last(p) ? s.depth * s.element : LINE_BYTES);
    s.w_bytes = s.parts * s.tile_rows * LINE_BYTES;
    s.stage_bytes = x_bytes + s.w_bytes;
    int64_t fixed = FLAGS_BYTES + n[GROUPS] * OUTS * PIECE_BYTES;
    int64_t room = dn_gpu_room(90, n[RESIDENT]) - fixed;
    s.stages = MIN(room / s.stage_bytes, MOST_STAGES);
    s.shared = fixed + s.stages * s.stage_bytes;
    return s;
}

static int64_t tiles_of(const kernel *k, const problem *p, int64_t batch)
{
    const int *n = dn_gpu_size(k);
    return y_blocks(p) * p->pattern.d * shape_of(k, p).row_tiles *
           CEIL_DIV(batch, (int64_t)n[COLUMNS] * n[CLUSTER]);
}

/* True if the row can do gates. activation(u) waits in registers, two numbers in one, while v is
   computed. */
static int gates(const kernel *k, const problem *p)
{
    const int *n = dn_gpu_size(k);
    return p->dtype != DANAUS_F32 && !x_last(p) && !n[MIDDLE] &&
           p->pattern.a % 2 == 0 && (trades(k) || n[ROWS] <= 64);
}

/* The batch is counted in 32 bits: with so many rows and columns, larger batches are larger
   than memory. */
static int fits(const kernel *k, const problem *p)
{
    danaus_pattern q = p->pattern;
    return dn_gpu_is_for_tiles(k, p, dn_gpu_size(k)[PARTS]) &&
           (q.d == 1 || (x_last(p) && !dn_gpu_size(k)[MIDDLE])) &&
           q.a * q.d * (q.b + q.c) >= 80 && shape_of(k, p).stages >= 2 &&
           (!p->gated || gates(k, p));
}

/* Batch-last, the even columns k of 32-bit numbers come first: threads that read x then meet
   different banks. */
static gpu_tile tile_of(const kernel *k, const problem *p)
{
    wgmma_shape s = shape_of(k, p);
    return (gpu_tile){
        .element = s.element,
        .parts = s.parts,
        .rows = s.tile_rows,
        .row_tiles = s.row_tiles,
        .steps = s.steps,
        .even_first = s.element == 4 && x_last(p),
    };
}

/* How much longer lines take that share what memory moves at once (dn_gpu_sharing). */
#define SHARING 1.6

/* How much longer tiles take if lines, of columns batch-first or of the batch, are ragged:
   threads with few registers then fetch them. Measured on 9.0 (bench/rows). */
static double ragged(const kernel *k, const problem *p)
{
    const int *n = dn_gpu_size(k);
    int64_t line = p->batch * dn_size_of(p->dtype);
    int is_single = n[PARTS] == 1, groups = n[GROUPS];
    if (x_last(p) ? line % CHUNK_BYTES == 0 : !dn_gpu_is_ragged(p))
        return 1;
    if (p->dtype == DANAUS_F32 && x_last(p))
        return is_single ? 2.5 : 1.4;
    if (p->dtype == DANAUS_F32)
        return !is_single ? 1.3 : groups == 3 ? 5 : 1.9;
    if (x_last(p) && line % (CHUNK_BYTES / 2) == 0)
        return groups == 1 || n[RESIDENT] == 1 ? 3.2 : 5.5;
    double most = groups == 3 ? 12 : groups == 1 ? 2.2 : 3.5 * n[RESIDENT];
    return x_last(p) ? 1.6 * most : most;
}

/* Clocks that threads take at least for a column k of a tile whose lines are ragged, batch-first:
   so many for each number of x, and then for each of y that they store, measured on 9.0
   (docs/notes/gpu-lanes.md). */
static double fetch_clocks(const kernel *k, const problem *p)
{
    int64_t line = p->pattern.a * p->pattern.c * dn_size_of(p->dtype);
    double number = line % 4 ? 0.3 : 0.22;
    if (p->dtype == DANAUS_F32)
        number = dn_gpu_size(k)[PARTS] > 1 ? 0.76 : 0.58;
    return number * dn_gpu_size(k)[COLUMNS];
}

#define STORE_CLOCKS 0.21

/* A fit to 2,000 times, to 7 %. A tile is bound by tensor cores or by the second
   cache, behind which latency is not hidden; all of them together by memory. Where
   each multiprocessor has one tile its weights come from memory, a stage after the other.
   Clusters start later. */
static double cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    const gpu_facts *f = dn_gpu_facts(dev);
    const int *n = dn_gpu_size(k);
    wgmma_shape s = shape_of(k, p);
    double clock = 0.87 * f->clock;
    double tiles = (double)tiles_of(k, p, p->batch);
    double steps = (double)(s.steps * blocks_each(p));
    double places = floor(f->units / (double)n[CLUSTER]);
    double resident = fmin(n[RESIDENT], ceil(tiles / places));
    double waves = ceil(tiles / (places * resident));
    double each = (double)n[COLUMNS] * (double)s.tile_rows;
    double products = n[PARTS] > 1 ? 3 : 1, rate = n[PARTS] > 1 ? 1.5 : 2.5;
    double multiply = each * steps * (double)s.depth * products * s.element / 4096;
    double y_bytes = each * s.element;
    double w_share = (double)s.w_bytes / n[CLUSTER];
    double fetched = steps * ((double)(s.stage_bytes - s.w_bytes) + w_share) + y_bytes;
    double cache = fetched / (rate * f->bandwidth / f->units) * clock;
    double latency = (34 + 108 * steps + y_bytes / 30) / resident;
    double tile = fmax(multiply, cache) + latency;
    tile *= (1 + 0.02 * (n[CLUSTER] - 1)) * ragged(k, p);
    if (!x_last(p) && dn_gpu_is_ragged(p))
        tile = fmax(tile, steps * (double)s.depth * fetch_clocks(k, p)) +
               STORE_CLOCKS * each;
    tile *= resident;
    double bytes = dn_gpu_moved_bytes(p) + (double)dn_gpu_tile_bytes(k, p);
    double move = 1.17 * bytes / f->bandwidth, make = waves * tile / clock + 0.3e-6;
    if (tiles <= places)
        make = fmax(make, 1.15e-6 * (steps + 1) / (double)s.stages + 0.3e-6);
    double start = 4.1e-6 + 1.35e-6 * (n[CLUSTER] - 1);
    if (!x_last(p) && dn_gpu_is_ragged(p)) /* threads fetch the first steps */
        start += 0.8e-6;
    double all = (1 + SHARING * dn_gpu_sharing(p)) * dn_gpu_beside(OVERLAP, move, make);
    return dn_gpu_seconds(dev, k, p, start + all);
}

/* Chunk number `chunk` of a line of numbers in their order; with `even` of 32 bits, which
   are even or odd ones. */
static void copy_chunk(const float *line, int64_t chunk, int even, char *to)
{
    if (!even)
        memcpy(to, line + chunk * 4, CHUNK_BYTES);
    else
        for (int64_t e = 0; e < 4; e++)
            memcpy(to + e * 4, line + chunk / 2 * 8 + chunk % 2 + e * 2, 4);
}

/* Packs one row r of a step, LINE_BYTES from element `from` on, with its chunks exchanged; the
   matrix has `left` columns k of it. A line is read as a whole, which is faster than by chunks;
   only places are noted chunk by chunk. */
static void pack_line(
    const gpu_packing *g, int64_t from, int64_t left, int64_t row, char *to)
{
    const gpu_tile *t = g->shape;
    float line[2][LINE_BYTES / 4] = { { 0 } };
    int64_t per = CHUNK_BYTES / t->element, apart = g->w.s[2];
    int64_t behind = t->parts > 1 ? t->rows * LINE_BYTES : 0;
    if (!g->w.places)
        dn_gpu_put(
            g, (gpu_run){ &g->w, from, apart, MIN(left, LINE_BYTES / t->element),
                          line[0], behind ? line[1] : NULL });
    for (int64_t chunk = 0; chunk < LINE_BYTES / CHUNK_BYTES; chunk++) {
        char *at = to + (chunk ^ (row & 7)) * CHUNK_BYTES;
        int64_t first = t->even_first ? chunk / 2 * 8 + chunk % 2 : chunk * per;
        int64_t step = t->even_first ? 2 : 1, count = CEIL_DIV(left - first, step);
        if (g->w.places && first < left)
            dn_gpu_put(
                g, (gpu_run){ &g->w, from + first * apart, step * apart,
                              MIN(count, per), at, behind ? at + behind : NULL });
        for (int part = 0; part < t->parts && !g->w.places; part++)
            copy_chunk(line[part], chunk, t->even_first, at + part * behind);
    }
}

static int64_t step_bytes(const gpu_tile *t) { return t->parts * t->rows * LINE_BYTES; }

static int64_t tile_count(const gpu_tile *t, const problem *p)
{
    return p->pattern.a * p->pattern.d * t->row_tiles;
}

size_t dn_gpu_tile_bytes(const kernel *k, const problem *p)
{
    gpu_tile t = dn_gpu_family(k)->tile(k, p);
    return (size_t)(tile_count(&t, p) * t.steps * step_bytes(&t));
}

/* A unit: all steps of a tile of rows. */
static void pack_tile(const gpu_packing *g, int64_t n, char *to)
{
    const gpu_tile *t = g->shape;
    const int64_t *s = g->w.s;
    danaus_pattern q = g->p->pattern;
    int64_t block = n / t->row_tiles, r0 = n % t->row_tiles * t->rows;
    int64_t from = block / q.d * s[0] + block % q.d * s[3];
    int64_t line = LINE_BYTES / t->element;
    for (int64_t step = 0; step < t->steps; step++, to += step_bytes(t))
        for (int64_t row = 0; row < MIN(t->rows, q.b - r0); row++)
            pack_line(
                g, from + (r0 + row) * s[1] + step * line * s[2], q.c - step * line,
                row, to + row * LINE_BYTES);
}

void dn_gpu_pack_tiles(const kernel *k, const problem *p, weights_view w, void *packed)
{
    gpu_tile t = dn_gpu_family(k)->tile(k, p);
    gpu_packing g = {
        k, p, w, &t, t.steps * step_bytes(&t), pack_tile, DN_DROP_TF32, 0
    };
    dn_gpu_pack(&g, tile_count(&t, p), packed);
}

/* 0: 16 bytes of x and y lie together, aligned, wherever a row begins; 1: any. What another
   factor takes always does. */
static int variant_of(const kernel *k, const problem *p, const gpu_call *call)
{
    danaus_pattern q = p->pattern;
    uint64_t x_row = (uint64_t)(x_last(p) ? call->batch : q.c);
    uint64_t y_row = (uint64_t)(x_last(p) ? call->batch : dn_gpu_size(k)[MIDDLE] ? 0 : q.b);
    uint64_t places = dn_gpu_places(call);
    return ((x_row | y_row) * danaus_dtype_size(p->dtype) | places) % CHUNK_BYTES != 0;
}

static void defines(const kernel *k, const problem *p, int variant, text *to)
{
    const int *n = dn_gpu_size(k);
    danaus_pattern q = p->pattern;
    wgmma_shape s = shape_of(k, p);
    int64_t w_bytes = q.a * q.b * q.c * q.d * s.element;
    const gpu_define lines[] = {
        { "WGMMA", 1 },
        { "SPLIT", s.parts > 1 },
        { "ALIGNED", !variant },
        { "X_LAST", x_last(p) },
        { "Y_LAST", x_last(p) || n[MIDDLE] },
        { "Y_MIDDLE", n[MIDDLE] },
        { "GATED", p->gated },
        { "TILE_N", s.tile_rows },
        { "GROUPS", n[GROUPS] },
        { "STAGES", s.stages },
        { "OUTS", OUTS },
        { "CLUSTER", n[CLUSTER] },
        { "RESIDENT", n[RESIDENT] },
        { "MANY_BLOCKS", !x_last(p) && w_bytes <= MANY_BYTES },
    };
    dn_gpu_define_product(p, lines, sizeof lines / sizeof *lines, to);
}

static void launch_of(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch)
{
    const int *n = dn_gpu_size(k);
    int64_t clusters = (int64_t)f->units * n[RESIDENT] / n[CLUSTER];
    int many = trades(k) || (n[GROUPS] == 1 && variant_of(k, p, call));
    *launch = dn_gpu_stay(
        tiles_of(k, p, call->batch) * n[CLUSTER], clusters * n[CLUSTER],
        n[GROUPS] * 128 + (many ? 128 : 32), shape_of(k, p).shared);
    launch->cluster = n[CLUSTER] > 1 ? n[CLUSTER] : 0;
}

/* The map of a y that another factor reads, in lines of columns s. */
static gpu_map middle_map_of(danaus_pattern q, int64_t batch, int line)
{
    return (gpu_map){
        .rank = 4,
        .size = { line, q.b, q.a, CEIL_DIV(batch, line) },
        .stride = { 1, line, q.b * line, q.a * q.b * line },
        .box = { line, line, 1, 1 },
        .swizzle = DN_MIDDLE_BYTES,
    };
}

static gpu_map map_of(
    const problem *p, int64_t blocks, int64_t batch, int64_t rows, int box_rows,
    int box_columns)
{
    int line = LINE_BYTES / (int)danaus_dtype_size(p->dtype);
    danaus_pattern q = p->pattern;
    if (x_last(p))
        return (gpu_map){
            .rank = 4,
            .size = { batch, q.d, rows, blocks },
            .stride = { 1, batch, q.d * batch, rows * q.d * batch },
            .box = { line, 1, box_rows, 1 },
            .swizzle = LINE_BYTES,
        };
    return (gpu_map){
        .rank = 3,
        .size = { rows, blocks, batch },
        .stride = { 1, rows, blocks * rows },
        .box = { line, 1, box_columns },
        .swizzle = LINE_BYTES,
    };
}

static void maps_of(
    const kernel *k, const problem *p, const gpu_call *call, gpu_map map[GPU_MAPS])
{
    int aligned = !variant_of(k, p, call);
    wgmma_shape s = shape_of(k, p);
    danaus_pattern q = p->pattern;
    if (aligned)
        map[GPU_MAP_X] =
            map_of(p, q.a, call->batch, q.c, (int)s.depth, dn_gpu_size(k)[COLUMNS]);
    if (dn_gpu_size(k)[MIDDLE])
        map[GPU_MAP_Y] = middle_map_of(q, call->batch, s.line);
    else if (aligned)
        map[GPU_MAP_Y] = map_of(p, y_blocks(p), call->batch, q.b, s.line, 64);
}

const gpu_family dn_gpu_wgmma = {
    .kernel = { .gates = 1,
                .fits = fits,
                .cost = cost,
                .packed_bytes = dn_gpu_tile_bytes,
                .pack = dn_gpu_pack_tiles },
    .text = "ks_wgmma.cu",
    .defines = defines,
    .launch = launch_of,
    .tile = tile_of,
    .variants = 2,
    .variant = variant_of,
    .maps = maps_of,
};
