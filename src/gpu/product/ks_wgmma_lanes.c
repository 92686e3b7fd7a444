/* Rows on the tensor cores of compute capability 9.0, batch-first with d > 1: tiles,
   weights and costs of ks_wgmma_lanes.cu. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/rows.h"

#include "base/dtype.h"
#include "math/pattern.h"

#include <string.h>

#define UNIT_BYTES 16
#define STEP_BYTES 32 /* of columns k of an instruction */
#define GROUPS     2  /* of threads that multiply */
#define MOST_ROWS                                                                      \
    96 /* of a tile, of lanes whose sums fit in the registers of a group */
#define MOST_ROWS_8 40 /* of eight lanes; 48 where x is not in registers */
#define FEWER_ROWS  32
#define MOST_SPLIT  64 /* of f32, whose sums of a step are beside all others */
#define OUTS        2  /* parts of y on their way */
#define MOST_STAGES 8
#define FLAGS_BYTES 1280 /* flags, and to begin at a multiple of 1,024 */
#define MANY_BYTES  (16 << 20)
#define NEAR_BYTES  (48 << 10)

/* size: rows of a tile at most, columns of the batch, lanes, blocks of a cluster, whether x
   is what another factor made, parts that numbers are cut into. */
enum { ROWS, COLUMNS, LANES, CLUSTER, MIDDLE, PARTS };

typedef struct wgmma_lanes_shape {
    int64_t element, together, halves, per_load, tile_s, tile_r, row_tiles, steps;
    int64_t units, lane_bytes, w_bytes, stages, shared;
} wgmma_lanes_shape;

/* The number of contiguous lanes of a tile, at most `most`: at least 16 bytes, which the copy
   engine needs, or all lanes if they are 8 bytes. 0: there is no such number. */
static int64_t lanes_together(int64_t d, int64_t element, int64_t most)
{
    for (int64_t lanes = most; lanes * element >= UNIT_BYTES; lanes /= 2)
        if (d % lanes == 0)
            return lanes;
    return d * element == 8 ? d : 0;
}

/* True if 16 bytes are one column k or row r. */
static int is_wide(const wgmma_lanes_shape *s)
{
    return s->together * s->element >= UNIT_BYTES;
}

static void cut_rows(wgmma_lanes_shape *s, int64_t rows, int64_t most, int64_t cluster)
{
    s->row_tiles = ROUND_UP(CEIL_DIV(rows, most), cluster);
    s->tile_r = ROUND_UP(CEIL_DIV(rows, s->row_tiles), 16);
    s->tile_r = MIN(s->tile_r, most);
}

/* Tiles of 16 bits whose x comes from another factor have fewer rows where more than a tenth
   of the rows would be padding. */
static wgmma_lanes_shape shape_of(const kernel *k, const problem *p)
{
    const int *n = dn_gpu_size(k);
    danaus_pattern q = p->pattern;
    wgmma_lanes_shape s = { .element = dn_size_of(p->dtype) };
    s.together = lanes_together(q.d, s.element, n[LANES]);
    if (!s.together)
        return s;
    s.halves = s.together * s.element / UNIT_BYTES > 1 ? 2 : 1;
    s.per_load = s.together / s.halves;
    s.tile_s = 64 * GROUPS / s.halves;
    int64_t more = n[MIDDLE] ? 8 : 0;
    int64_t most = s.per_load == 8                    ? MOST_ROWS_8 + more
                   : s.per_load == 4 && n[PARTS] == 2 ? MOST_SPLIT
                                                      : MOST_ROWS;
    cut_rows(&s, q.b, most, n[CLUSTER]);
    if (n[MIDDLE] && s.element == 2 &&
        10 * s.row_tiles * s.tile_r > 11 * ROUND_UP(q.b, FEWER_ROWS))
        cut_rows(&s, q.b, FEWER_ROWS, n[CLUSTER]);
    s.units = n[PARTS] == 2 && s.halves == 1 ? 2 : 1;
    s.steps = CEIL_DIV(q.c * s.element, s.units * STEP_BYTES);
    s.lane_bytes = s.units * n[PARTS] * s.tile_r * STEP_BYTES;
    s.w_bytes = s.together * s.lane_bytes;
    int64_t stage = s.tile_s * s.together * s.units * STEP_BYTES + s.w_bytes;
    int64_t fixed = FLAGS_BYTES + OUTS * s.tile_s * 8 * s.together * s.element;
    s.stages = MIN((dn_gpu_room(90, 1) - fixed) / stage, MOST_STAGES);
    s.shared = fixed + s.stages * stage;
    return s;
}

static int64_t clusters_of(const kernel *k, const problem *p, int64_t batch)
{
    wgmma_lanes_shape s = shape_of(k, p);
    const int *n = dn_gpu_size(k);
    return p->pattern.a * (p->pattern.d / s.together) * (s.row_tiles / n[CLUSTER]) *
           CEIL_DIV(batch, s.tile_s);
}

/* Clusters of more than two leave some processors of each group idle. */
static int clusters_at_once(const gpu_facts *f, const kernel *k)
{
    int cluster = dn_gpu_size(k)[CLUSTER];
    return (cluster > 2 ? f->units * 10 / 11 : f->units) / cluster;
}

static int fits(const kernel *k, const problem *p)
{
    return dn_gpu_is_for_blocks(k, p, dn_gpu_size(k)[PARTS]) &&
           p->layout == DANAUS_BATCH_FIRST && p->pattern.d > 1 &&
           shape_of(k, p).stages >= 2;
}

static size_t packed_bytes(const kernel *k, const problem *p)
{
    wgmma_lanes_shape s = shape_of(k, p);
    danaus_pattern q = p->pattern;
    return (size_t)(q.a * (q.d / s.together) * s.row_tiles * s.steps * s.w_bytes);
}

/* Seconds for f32, fitted to 30 times to 5 %: three tensor-core products and the other
   instructions for each lane of a step, of both groups, and then y; or memory. */
static double split_cost(
    const gpu_facts *f, const kernel *k, const problem *p, const wgmma_lanes_shape *s,
    double bytes)
{
    int64_t d = p->pattern.d;
    double clock = 0.87 * f->clock;
    double lane = (double)(3 * s->units * s->tile_r) + (s->halves == 2 ? 175 : 136);
    double y = (double)(s->tile_s * s->tile_r * s->together * s->element);
    double y_rate = d == s->together ? 22 : d == 2 * s->together ? 18 : 12;
    double tile = (double)(s->steps * s->per_load) * lane + y / y_rate;
    double waves = ceil((double)clusters_of(k, p, p->batch) / clusters_at_once(f, k));
    return 8e-6 + dn_gpu_beside(4, waves * tile / clock, 1.2 * bytes / f->bandwidth);
}

/* Constants that were fitted to times of 16-bit numbers, to 16 %, and of tf32, to 7 %: how
   often pieces of x go in and out of shared memory, how often they are fetched, a factor for
   pieces of 32 bytes, bytes of y a clock, the power of the distance of columns s by which
   stores of y are slower, and bytes a clock from the second cache for clusters of 1, 2, 4. */
typedef struct wgmma_lanes_fit {
    double shared, fetched, pieces, y, far, rates[3];
} wgmma_lanes_fit;

static const wgmma_lanes_fit times_16 = { 5.2, 1.4, 1.7, 20, 0.26, { 43, 36, 52 } };
static const wgmma_lanes_fit times_32 = { 2.8, 4, 1, 14, 0, { 69, 69, 69 } };

/* A step is bound by what goes in and out of shared memory, x and w twice and w once more
   for a second group with the same lanes, or by the second cache; y follows. */
static double product_cost(const gpu_facts *f, const kernel *k, const problem *p)
{
    const int *n = dn_gpu_size(k);
    danaus_pattern q = p->pattern;
    wgmma_lanes_shape s = shape_of(k, p);
    int all = q.d == s.together, in_lines = all || n[MIDDLE];
    double bytes = dn_gpu_moved_bytes(p);
    if (n[PARTS] == 2)
        return split_cost(f, k, p, &s, bytes);
    const wgmma_lanes_fit *t = s.element == 2 ? &times_16 : &times_32;
    double clock = 0.87 * f->clock;
    double x = (double)(s.tile_s * s.together) * STEP_BYTES, w = (double)s.w_bytes;
    double shared =
        (x * (in_lines ? 2 : t->shared) + w * (s.halves == 1 ? 3 : 2)) / 128;
    double fetched = x / n[CLUSTER] * (in_lines ? 1 : t->fetched) + w;
    double cache = fetched / t->rates[n[CLUSTER] / 2];
    double step = dn_gpu_beside(4, s.element == 4 ? 1.2 * shared : shared, cache);
    double y = (double)(s.tile_s * s.tile_r * s.together * s.element);
    double tile = (double)s.steps * step + y / (all ? 30 : t->y);
    double waves = ceil((double)clusters_of(k, p, p->batch) / clusters_at_once(f, k));
    double apart = (double)(dn_pattern_rows(q) * s.element) / NEAR_BYTES;
    double memory = 1.2 * pow(fmax(1, apart), t->far) * bytes / f->bandwidth;
    double pieces = in_lines ? 1 : s.element == 4 && n[CLUSTER] > 1 ? 1.15 : t->pieces;
    return 4e-6 + pieces * dn_gpu_beside(4, waves * tile / clock, memory);
}

static double cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    double slower = dn_gpu_in_pieces(p, shape_of(k, p).together, 3.2);
    return dn_gpu_seconds(dev, k, p, slower * product_cost(dn_gpu_facts(dev), k, p));
}

/* Places 0 to 7 are rows r or columns k of two pieces in turn. */
static int64_t in_turn(int64_t place)
{
    return place / 8 * 8 + place % 2 * 4 + place % 8 / 2;
}

/* Columns k of numbers of 32 bits where two lie in 16 bytes or that another factor
   made: the even ones first. */
static int64_t even_first(int64_t place) { return place % 4 * 2 + place / 4; }

static int64_t column_at(const wgmma_lanes_shape *s, int middle, int64_t place)
{
    if (s->element == 4)
        return middle || !is_wide(s) ? even_first(place) : place;
    return is_wide(s) && !middle ? in_turn(place) : place;
}

/* The right operand of a lane in a unit of columns k, from r0 and k0 on: [r / 8][k / half]
   [r mod 8] times 16 bytes; what it leaves of f32 behind it. `block` is its element
   (0, 0). */
static void pack_operand(
    const gpu_packing *g, int64_t block, int64_t r0, int64_t k0, char *to)
{
    const wgmma_lanes_shape *s = g->shape;
    const int *n = dn_gpu_size(g->kernel);
    int64_t per = UNIT_BYTES / s->element, rest = s->tile_r * STEP_BYTES;
    for (int64_t row = 0; row < s->tile_r; row++)
        for (int64_t column = 0; column < 2 * per; column++) {
            int64_t r = r0 + (is_wide(s) ? in_turn(row) : row);
            int64_t k = k0 + column_at(s, n[MIDDLE], column);
            if (r >= g->p->pattern.b || k >= g->p->pattern.c)
                continue;
            char *at = to + (row / 8 * 16 + column / per * 8 + row % 8) * UNIT_BYTES +
                       column % per * s->element;
            int64_t from = block + r * g->w.s[1] + k * g->w.s[2];
            char *behind = n[PARTS] == 2 ? at + rest : NULL;
            dn_gpu_put(g, (gpu_run){ &g->w, from, 0, 1, at, behind });
        }
}

/* The operands of all lanes of a step, number `number` of [block][tile of rows][step]. */
static void pack_step(const gpu_packing *g, int64_t number, char *to)
{
    const wgmma_lanes_shape *s = g->shape;
    const weights_view *w = &g->w;
    int64_t d = g->p->pattern.d, step = number % s->steps,
            tile = number / s->steps % s->row_tiles;
    int64_t block = number / (s->steps * s->row_tiles) * s->together;
    int64_t from = block / d * w->s[0] + block % d * w->s[3];
    for (int64_t n = 0; n < s->together * s->units; n++, to += s->lane_bytes / s->units)
        pack_operand(
            g, from + n / s->units * w->s[3], tile * s->tile_r,
            (step * s->units + n % s->units) * (STEP_BYTES / s->element), to);
}

static void pack(const kernel *k, const problem *p, weights_view w, void *packed)
{
    wgmma_lanes_shape s = shape_of(k, p);
    gpu_packing g = { k, p, w, &s, s.w_bytes, pack_step, DN_DROP_TF32, 0 };
    int64_t blocks = p->pattern.a * (p->pattern.d / s.together);
    dn_gpu_pack(&g, blocks * s.row_tiles * s.steps, packed);
}

/* 0: 16 bytes of x and y lie together, aligned, wherever a row of a block begins; 1: any. What
   another factor made always does. */
static int variant_of(const kernel *k, const problem *p, const gpu_call *call)
{
    danaus_pattern q = p->pattern;
    int64_t x_row = dn_gpu_size(k)[MIDDLE] ? 0 : q.c * q.d;
    uint64_t rows = (uint64_t)(x_row | q.b * q.d) * danaus_dtype_size(p->dtype);
    uint64_t places = dn_gpu_places(call);
    return (rows | places) % UNIT_BYTES != 0;
}

static void defines(const kernel *k, const problem *p, int variant, text *to)
{
    const int *n = dn_gpu_size(k);
    danaus_pattern q = p->pattern;
    wgmma_lanes_shape s = shape_of(k, p);
    int64_t w_block = q.b * q.c * q.d * s.element;
    const gpu_define lines[] = {
        { "WGMMA", 1 },
        { "ALIGNED", !variant },
        { "TOGETHER", s.together },
        { "SPLIT", n[PARTS] == 2 },
        { "UNITS", s.units },
        { "X_MIDDLE", n[MIDDLE] },
        { "FLAT", q.d == s.together },
        { "TILE_R", s.tile_r },
        { "ROW_TILES", s.row_tiles },
        { "OUTS", OUTS },
        { "STAGES", s.stages },
        { "CLUSTER", n[CLUSTER] },
        { "COLUMNS_FIRST", q.a * w_block > MANY_BYTES },
    };
    dn_gpu_define_product(p, lines, sizeof lines / sizeof *lines, to);
}

static void launch_of(
    const kernel *k, const problem *p, const gpu_facts *f, const gpu_call *call,
    gpu_launch *launch)
{
    int cluster = dn_gpu_size(k)[CLUSTER];
    *launch = dn_gpu_stay(
        clusters_of(k, p, call->batch) * cluster, clusters_at_once(f, k) * cluster,
        128 * (GROUPS + 1), shape_of(k, p).shared);
    launch->cluster = cluster > 1 ? cluster : 0;
}

/* The map of x or y with `rows` columns k or rows r in a block. */
static gpu_map map_of(
    const kernel *k, const wgmma_lanes_shape *s, danaus_pattern q, int64_t batch,
    int64_t rows, int box_columns)
{
    int wide =
        s->halves == 2 || (s->element == 4 && is_wide(s) && !dn_gpu_size(k)[MIDDLE]);
    if (q.d == s->together)
        return (gpu_map){
            .rank = 3,
            .size = { rows * q.d, q.a, batch },
            .stride = { 1, rows * q.d, q.a * rows * q.d },
            .box = { (wide ? 8 : 4) * UNIT_BYTES / (int)s->element, 1, box_columns },
            .swizzle = wide ? 8 * UNIT_BYTES : 0,
        };
    return (gpu_map){
        .rank = 4,
        .size = { q.d, rows, q.a, batch },
        .stride = { 1, q.d, rows * q.d, q.a * rows * q.d },
        .box = { (int)s->together, 4, 1, box_columns },
        .swizzle = s->halves == 2 ? 2 * UNIT_BYTES : 0,
    };
}

/* The map of an x that another factor wrote: each block of a cluster fetches a share of the
   lanes. */
static gpu_map middle_map_of(
    const kernel *k, const wgmma_lanes_shape *s, danaus_pattern q, int64_t batch)
{
    int64_t line = DN_MIDDLE_BYTES / s->element;
    return (gpu_map){
        .rank = 4,
        .size = { line, q.c, q.d, q.a * CEIL_DIV(batch, line) },
        .stride = { 1, q.d * line, line, q.c * q.d * line },
        .box = { (int)line, STEP_BYTES / (int)s->element,
                 (int)s->together / dn_gpu_size(k)[CLUSTER], 1 },
        .swizzle = DN_MIDDLE_BYTES,
    };
}

static void maps_of(
    const kernel *k, const problem *p, const gpu_call *call, gpu_map map[GPU_MAPS])
{
    int aligned = !variant_of(k, p, call);
    wgmma_lanes_shape s = shape_of(k, p);
    danaus_pattern q = p->pattern;
    if (dn_gpu_size(k)[MIDDLE])
        map[GPU_MAP_X] = middle_map_of(k, &s, q, call->batch);
    else if (aligned)
        map[GPU_MAP_X] = map_of(k, &s, q, call->batch, q.c, (int)s.tile_s);
    if (aligned)
        map[GPU_MAP_Y] = map_of(k, &s, q, call->batch, q.b, 64);
}

const gpu_family dn_gpu_wgmma_lanes = {
    .kernel = { .fits = fits,
                .cost = cost,
                .packed_bytes = packed_bytes,
                .pack = pack },
    .text = "ks_wgmma_lanes.cu",
    .defines = defines,
    .launch = launch_of,
    .variants = 2,
    .variant = variant_of,
    .maps = maps_of,
};
