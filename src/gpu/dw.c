/* Weight gradients on tensor cores: tiles of ks_dw_mma.cu, ks_dw_wgmma.cu,
   ks_dw_matrix.cu and ks_dw_fours.cu, chosen by an estimate. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/dw.h"

#include "base/dtype.h"
#include "gpu/rows.h"
#include "math/pattern.h"

#include <math.h>

#define MOST_GROUPS    4
#define SHARED         (99 << 10)
#define SHARED_90      (227 << 10)
#define MARGIN         128
#define BOX_MARGIN     2048
#define BOX_GROUPS     4    /* of 16 bytes */
#define RESERVED       1024 /* bytes of shared memory that a block takes beside */
#define REGISTERS      512  /* of a fourth of a multiprocessor, for a warp */
#define MOST_STAGES    6
#define PLACES         2 /* where one is made while the other is read */
#define MOST_WARPS     16
#define MOST_RESIDENT  6
#define MOST_REGISTERS 248
#define FLAT_REGISTERS 256 /* a few of them in memory */
/* Columns s after which f32 sums leave the tensor cores. */
#define MOST_RECENT 64

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* What follows from the problem alone. */
static gpu_dw lanes_of(const problem *p)
{
    danaus_pattern q = p->pattern;
    gpu_dw t = { .element = (int64_t)danaus_dtype_size(p->dtype) };
    t.split = p->dtype == DANAUS_F32 && p->math != DANAUS_MATH_TF32;
    t.last = p->layout == DANAUS_BATCH_LAST;
    t.vector = t.element == 2 && q.d % 8 == 0 && !t.last ? 8 : 4;
    t.lanes = t.vector_rows = 1;
    if (t.last)
        return t;
    while (t.lanes < t.vector && q.d % (2 * t.lanes) == 0)
        t.lanes *= 2;
    t.together = t.lanes;
    t.vector_rows = t.vector / t.lanes;
    return t;
}

/* Vectors of lanes that a tile may have side by side. */
static int64_t most_groups(const gpu_dw *t, const problem *p)
{
    int64_t groups = 1;
    if (t->last || t->lanes < t->vector || t->vector * t->element < 16)
        return 1;
    while (groups < MOST_GROUPS && p->pattern.d % (2 * groups * t->lanes) == 0)
        groups *= 2;
    return groups;
}

/* Columns of the batch and stages, by the room that a block has. */
static int set_stages(gpu_dw *t, const gpu_facts *f)
{
    int64_t room = (f->arch == 90 ? SHARED_90 : SHARED) + RESERVED;
    int64_t margin = t->boxes ? BOX_MARGIN : MARGIN;
    int64_t pad = t->boxes && !t->flat ? 2 * t->together * t->element : 0;
    room = room / t->resident - RESERVED - margin;
    for (t->depth = 64; t->depth >= (t->last ? 32 : 16); t->depth /= 2) {
        int64_t lines = t->tile_r + t->tile_k;
        int64_t line_r = t->tile_r * t->together * t->element;
        int64_t line_k = t->tile_k * t->together * t->element;
        int64_t bytes = t->last
                            ? lines * t->depth * t->element
                            : t->depth * (dn_gpu_parts(line_r, 128) * 128 +
                                          dn_gpu_parts(line_k, 128) * 128 + 2 * pad);
        t->stages = least(room / bytes, MOST_STAGES);
        t->shared = margin + t->stages * bytes;
        int64_t pieces = t->last ? t->depth * t->element / 16
                                 : (line_r > line_k ? line_r : line_k) / 16;
        if (pieces <= t->threads && t->stages >= (t->depth > 16 ? 4 : 3))
            return 1;
    }
    return 0;
}

/* Registers of a thread, roughly. */
static int64_t registers_of(const gpu_dw *t)
{
    int64_t rows = t->vector_rows, places = t->last ? 2 : t->vector;
    int64_t sums = (t->last ? 1 : t->vector) * t->tiles_r * t->tiles_k * rows * 4;
    int64_t left = t->tiles_r * places * 4, right = t->tiles_k * places * 2;
    if (t->flat && !t->split)
        return sums + (t->tiles_r + 1) * places * t->step * t->element / 8 + 40;
    if (!t->split)
        return sums + left + places * 2 + (t->vector > 4 ? 64 : 56);
    return 2 * sums + left + right + rows * (t->tiles_r * 8 + t->tiles_k * 4) + 48;
}

/* Blocks that a multiprocessor holds with so many registers a thread. */
static int64_t most_resident(int64_t warps, int64_t registers)
{
    int64_t blocks = least(MOST_WARPS / warps, MOST_RESIDENT);
    while (blocks && REGISTERS / dn_gpu_parts(warps * blocks, 4) / 8 * 8 < registers)
        blocks--;
    return blocks;
}

/* Whether all lanes of a tile's rows are lines of whole segments of 128 bytes. */
static int is_flat(const gpu_dw *t, const problem *p)
{
    danaus_pattern q = p->pattern;
    int64_t segment = 128 / t->element;
    return !t->last && t->together == q.d && q.b * q.d % segment == 0 &&
           q.c * q.d % segment == 0 && t->tile_r * q.d % segment == 0 &&
           t->tile_k * q.d % segment == 0;
}

/* Derives the rest from tiles of a warp and warps; 0: it does not fit. */
static int complete(gpu_dw *t, const problem *p, const gpu_facts *f)
{
    danaus_pattern q = p->pattern;
    int64_t warps = t->groups * t->warps_r * t->warps_k;
    t->together = t->lanes * t->groups;
    t->threads = (int)(32 * warps);
    t->tile_r = 16 * t->tiles_r * t->warps_r * t->vector_rows;
    t->tile_k = 8 * t->tiles_k * t->warps_k * t->vector_rows;
    t->row_tiles = dn_gpu_parts(q.b, t->tile_r);
    t->column_tiles = dn_gpu_parts(q.c, t->tile_k);
    t->flat = f->arch == 90 && is_flat(t, p);
    t->boxes = t->flat || (f->arch == 90 && t->split && t->groups == BOX_GROUPS);
    int64_t registers = registers_of(t);
    if (warps < 2 || warps > MOST_WARPS ||
        registers > (t->flat ? FLAT_REGISTERS : MOST_REGISTERS))
        return 0;
    t->resident = most_resident(warps, registers);
    if (!t->resident)
        return 0;
    return set_stages(t, f);
}

double dn_gpu_dw_together(const double *seconds, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += seconds[i] * seconds[i] * seconds[i];
    return cbrt(sum);
}

/* Of a column s of a lane on an H200: memory, the second cache, which gives short pieces
   slowly, products at `rate` a second, and shared memory, from which `read` numbers are
   read for each tile. */
static double seconds_of(const gpu_dw *t, const problem *p, double rate, double read)
{
    danaus_pattern q = p->pattern;
    double e = (double)t->element, tiles = (double)(t->row_tiles * t->column_tiles);
    double r = (double)t->tile_r, k = (double)t->tile_k;
    int64_t bytes = t->last || t->together == q.d ? 128 : t->together * t->element;
    double apart = bytes < 32 ? 48 / (double)bytes : bytes == 32 ? 1.5 : 1;
    double memory = (double)(q.b + q.c) * e / 4.2e12;
    double cache_rate = t->flat    ? (t->split ? 9.5e12 : 8.5e12)
                        : t->boxes ? 7e12
                                   : 5.6e12;
    double cache = apart * tiles * (r + k) * e / cache_rate;
    double tensor = tiles * r * k * 2 / rate, shared = tiles * read * e / 2.9e13;
    double times[] = { memory, cache, tensor, shared };
    int few = t->threads * t->resident < 256 && !t->flat;
    return dn_gpu_dw_together(times, 4) * (few ? 1.15 : 1) *
           (t->threads < 96 ? 1.25 : 1);
}

static void keep_better(
    gpu_dw *best, double *least_seconds, const gpu_dw *t, double seconds)
{
    if (seconds < *least_seconds) {
        *least_seconds = seconds;
        *best = *t;
    }
}

/* Products a second on an H200, of the instructions that a tile of ks_dw_mma.cu takes. */
static double mma_rate(const gpu_dw *t)
{
    if (t->split && t->boxes)
        return t->flat ? (t->groups > 1 ? 0.75e14 : 0.5e14) : 0.62e14;
    if (t->split)
        return t->lanes == 1 ? 0.85e14 : t->lanes == 2 ? 0.55e14 : 0.46e14;
    return t->element > 2 ? 2.2e14 : t->step == 16 ? 4.4e14 : 3.3e14;
}

static void keep_mma(
    gpu_dw *best, double *least_seconds, gpu_dw t, const problem *p, const gpu_facts *f)
{
    if (!complete(&t, p, f))
        return;
    double read = (double)(t.tile_r * (t.warps_k + 1) + t.tile_k * (t.warps_r + 1));
    double seconds = seconds_of(&t, p, mma_rate(&t), read);
    if (t.vector == 8 && t.tiles_r * t.tiles_k > 4)
        seconds *= 1.1; /* there are hardly registers left */
    keep_better(best, least_seconds, &t, seconds);
}

/* Tiles of ks_dw_mma.cu. */
static void search_mma(
    gpu_dw *best, double *least_seconds, gpu_dw t, const problem *p, const gpu_facts *f)
{
    int64_t most_step = t.last || t.element == 2 ? 16 : 8;
    int64_t least_step = t.last ? 16 : 8;
    t.text = "ks_dw_mma.cu";
    for (t.groups = 1; t.groups <= most_groups(&t, p); t.groups *= 2)
        for (t.warps_r = 1; t.warps_r <= 8; t.warps_r++)
            for (t.warps_k = 1; t.warps_k <= 8; t.warps_k++)
                for (t.tiles_r = 1; t.tiles_r <= 4; t.tiles_r++)
                    for (t.tiles_k = 1; t.tiles_k <= 8; t.tiles_k++)
                        for (t.step = most_step; t.step >= least_step; t.step /= 2)
                            keep_mma(best, least_seconds, t, p, f);
}

/* Stages and places of ks_dw_wgmma.cu, of `depth` columns s; 0: they do not fit. */
static int set_places(gpu_dw *t, int64_t depth)
{
    int64_t a = 64 * t->groups_a, b = t->columns * t->groups_b;
    int64_t line_a = dn_gpu_parts(a * t->lanes * 4, 128) * 128 + 32;
    int64_t line_b = dn_gpu_parts(b * t->lanes * 4, 128) * 128;
    int64_t stage = t->last ? (a + b) * 128 : depth * (line_a + line_b);
    int64_t places = BOX_MARGIN + PLACES * depth * 2 * t->lanes * b * 4;
    int64_t room = (SHARED_90 + RESERVED) / t->resident - RESERVED - places;
    t->depth = depth;
    t->stages = least(room / stage, MOST_STAGES);
    t->shared = places + t->stages * stage;
    return t->stages > PLACES;
}

/* Sizes of a tile of ks_dw_wgmma.cu; 0: it does not fit. */
static int complete_wgmma(gpu_dw *t, const problem *p)
{
    danaus_pattern q = p->pattern;
    int64_t a = 64 * t->groups_a, b = t->columns * t->groups_b;
    int64_t groups = t->groups_a * t->groups_b, sums = t->lanes * t->columns / 2;
    if ((!t->last && t->columns * t->lanes % 32) || groups > 3 ||
        sums > (groups == 3 ? 32 : 64) || (groups == 3 && t->lanes > 2))
        return 0;
    t->tile_r = t->swapped ? b : a;
    t->tile_k = t->swapped ? a : b;
    t->row_tiles = dn_gpu_parts(q.b, t->tile_r);
    t->column_tiles = dn_gpu_parts(q.c, t->tile_k);
    t->threads = (int)(128 * groups + 128);
    t->resident = groups == 1 ? 2 : 1;
    t->together = t->lanes;
    t->flat = t->boxes = is_flat(t, p);
    return set_places(t, 32) || (!t->last && set_places(t, 16));
}

/* Three lanes are loaded one by one, and stored in lines only if A is x. */
static double by_threes(const gpu_dw *t)
{
    return t->lanes != 3 ? 1 : t->swapped ? 1.2 : 1.4;
}

static void keep_wgmma(gpu_dw *best, double *least_seconds, gpu_dw t, const problem *p)
{
    if (!complete_wgmma(&t, p))
        return;
    int64_t b = t.columns * t.groups_b;
    double read =
        (double)(64 * t.groups_a * (t.groups_b + 1) + (4 + 3 * t.groups_a) * b);
    double seconds = seconds_of(&t, p, 1.5e14, read);
    keep_better(best, least_seconds, &t, seconds * by_threes(&t));
}

/* Tiles of ks_dw_wgmma.cu. */
static void search_wgmma(
    gpu_dw *best, double *least_seconds, gpu_dw t, const problem *p)
{
    static const int64_t widths[] = { 16, 32, 48, 64, 96, 128 };
    t.text = "ks_dw_wgmma.cu";
    t.lanes = !t.last && p->pattern.d == 3 ? 3 : t.lanes;
    for (t.swapped = 0; t.swapped < 2; t.swapped++)
        for (t.groups_a = 1; t.groups_a <= 3; t.groups_a++)
            for (t.groups_b = 1; t.groups_b <= 3; t.groups_b++)
                for (int i = 0; i < 6; i++) {
                    t.columns = widths[i];
                    keep_wgmma(best, least_seconds, t, p);
                }
}

/* Whether the copy engine can fetch matrices that tensor cores read as they lie. Many of
   less than a line of both it fetches slowly: 128 of 48 x 48 take 304 us, by ks_dw_mma.cu
   173. */
static int has_matrices(const problem *p)
{
    danaus_pattern q = p->pattern;
    return danaus_dtype_size(p->dtype) == 2 && p->layout == DANAUS_BATCH_FIRST &&
           q.d == 1 && q.b % 8 == 0 && q.c % 8 == 0 &&
           (q.b >= 64 || q.c >= 64 || q.a <= 24);
}

/* Sizes of a tile of ks_dw_matrix.cu; 0: it does not fit. */
static int complete_matrix(gpu_dw *t, const problem *p)
{
    danaus_pattern q = p->pattern;
    int64_t registers = dn_gpu_parts(t->columns / 2 + 48, 8) * 8, a = 64 * t->groups_a;
    int64_t stage = (t->groups_a + dn_gpu_parts(t->columns, 64)) * t->depth * 128;
    int64_t room = (SHARED_90 + RESERVED) / t->resident - RESERVED - BOX_MARGIN;
    t->threads = (int)(128 * t->groups_a);
    t->tile_r = t->swapped ? t->columns : a;
    t->tile_k = t->swapped ? a : t->columns;
    t->row_tiles = dn_gpu_parts(q.b, t->tile_r);
    t->column_tiles = dn_gpu_parts(q.c, t->tile_k);
    t->stages = least(room / stage, MOST_STAGES);
    t->shared = BOX_MARGIN + t->stages * stage;
    return t->stages >= 4 && t->threads * t->resident * registers <= 65536;
}

static void keep_matrix(gpu_dw *best, double *least_seconds, gpu_dw t, const problem *p)
{
    if (!complete_matrix(&t, p))
        return;
    int64_t a = 64 * t.groups_a;
    double read = (double)(2 * a + (t.groups_a + 1) * t.columns);
    double seconds = seconds_of(&t, p, 6.5e14, 0.6 * read);
    keep_better(best, least_seconds, &t, seconds);
}

/* Tiles of ks_dw_matrix.cu. */
static void search_matrix(
    gpu_dw *best, double *least_seconds, gpu_dw t, const problem *p)
{
    static const int64_t widths[] = { 16, 32, 48, 64, 96, 128, 192, 256 };
    t.text = "ks_dw_matrix.cu";
    t.needs_boxes = t.boxes = t.together = 1;
    t.depth = 64;
    for (t.swapped = 0; t.swapped < 2; t.swapped++)
        for (t.groups_a = 1; t.groups_a <= 4; t.groups_a++)
            for (t.resident = 1; t.resident <= 2; t.resident++)
                for (int i = 0; i < 8; i++) {
                    t.columns = widths[i];
                    keep_matrix(best, least_seconds, t, p);
                }
}

/* Sizes of a tile of ks_dw_fours.cu; 0: it does not fit. */
static int complete_fours(gpu_dw *t, const problem *p)
{
    danaus_pattern q = p->pattern;
    int64_t a = 64 * t->groups_a, b = t->columns;
    int64_t most = t->groups_a == 3 ? 48 : 64; /* sums that there are registers for */
    int64_t place = 4 * dn_gpu_parts(b, 64) * t->depth * 128;
    int64_t room = (SHARED_90 + RESERVED) / t->resident - RESERVED - BOX_MARGIN;
    int64_t stage = (a + b) * t->depth * 8;
    t->threads = (int)(128 * t->groups_a + 128);
    t->tile_r = t->swapped ? b : a;
    t->tile_k = t->swapped ? a : b;
    t->row_tiles = dn_gpu_parts(q.b, t->tile_r);
    t->column_tiles = dn_gpu_parts(q.c, t->tile_k);
    t->flat = is_flat(t, p);
    t->stages = least((room - PLACES * place) / stage, MOST_STAGES);
    t->shared = BOX_MARGIN + PLACES * place + t->stages * stage;
    return t->flat && b <= most && t->stages > PLACES;
}

static void keep_fours(gpu_dw *best, double *least_seconds, gpu_dw t, const problem *p)
{
    if (!complete_fours(&t, p))
        return;
    int64_t a = 64 * t.groups_a;
    double read = (double)(2 * a + (3 + t.groups_a) * t.columns);
    double seconds = seconds_of(&t, p, 6e14, read);
    seconds *= t.groups_a == 3 ? 0.88 : t.groups_a == 2 ? 1 : 1.1;
    seconds *= t.swapped ? 1 : 1.06; /* sums are stored in whole lines */
    keep_better(best, least_seconds, &t, seconds * (t.depth < 32 ? 1.15 : 1));
}

/* Tiles of ks_dw_fours.cu. */
static void search_fours(
    gpu_dw *best, double *least_seconds, gpu_dw t, const problem *p)
{
    t.text = "ks_dw_fours.cu";
    t.needs_boxes = t.boxes = 1;
    t.together = t.lanes;
    for (t.swapped = 0; t.swapped < 2; t.swapped++)
        for (t.groups_a = 1; t.groups_a <= 3; t.groups_a++)
            for (t.columns = 16; t.columns <= 64; t.columns += 16)
                for (t.depth = 32; t.depth >= 16; t.depth /= 2) {
                    t.resident = t.groups_a == 1 ? 2 : 1;
                    keep_fours(best, least_seconds, t, p);
                }
}

gpu_dw dn_gpu_dw_for(const gpu_facts *f, const problem *p)
{
    gpu_dw best = { 0 }, t = lanes_of(p);
    double least_seconds = INFINITY;
    search_mma(&best, &least_seconds, t, p, f);
    if (f->arch == 90 && t.split)
        search_wgmma(&best, &least_seconds, t, p);
    if (f->arch == 90 && has_matrices(p))
        search_matrix(&best, &least_seconds, t, p);
    if (f->arch == 90 && t.element == 2 && t.lanes == 4 && p->pattern.d == 4)
        search_fours(&best, &least_seconds, t, p);
    best.seconds = least_seconds * (double)(p->pattern.a * p->pattern.d);
    return best;
}

int64_t dn_gpu_dw_tiles(const gpu_dw *t, const problem *p)
{
    danaus_pattern q = p->pattern;
    return q.a * (q.d / t->together) * t->row_tiles * t->column_tiles;
}

/* Of x or dy, whose blocks have `size` rows, of which a tile has `rows`. */
static gpu_map map_of(
    const gpu_dw *t, const problem *p, int64_t batch, int64_t size, int64_t rows)
{
    danaus_pattern q = p->pattern;
    int64_t segment = 128 / t->element, line = q.a * size * q.d;
    if (t->needs_boxes && !t->flat)
        return (gpu_map){
            .rank = 3,
            .size = { size, q.a, batch },
            .stride = { 1, size, line },
            .box = { (int)segment, 1, (int)t->depth },
            .swizzle = 128,
        };
    if (t->flat)
        return (gpu_map){
            .rank = 3,
            .size = { segment, batch, line / segment },
            .stride = { 1, line, segment },
            .box = { (int)segment, (int)t->depth, (int)(rows * q.d / segment) },
            .swizzle = 128,
        };
    return (gpu_map){
        .rank = 3,
        .size = { q.d, q.a * size, batch },
        .stride = { 1, q.d, q.a * size * q.d },
        .box = { (int)t->together, (int)rows + 2, (int)t->depth },
        .swizzle = (int)(t->together * t->element),
    };
}

void dn_gpu_dw_maps(const gpu_dw *t, const problem *p, int64_t batch, gpu_map map[2])
{
    map[0] = map_of(t, p, batch, p->pattern.c, t->tile_k);
    map[1] = map_of(t, p, batch, p->pattern.b, t->tile_r);
}

gpu_launch dn_gpu_dw_launch(const gpu_dw *t, const problem *p, int64_t slabs)
{
    return (gpu_launch){ .blocks = { dn_gpu_dw_tiles(t, p) * slabs, 1, 1 },
                         .threads = t->threads,
                         .shared = (int)t->shared };
}

void dn_gpu_dw_defines(const gpu_dw *t, const problem *p, text *to)
{
    danaus_pattern q = p->pattern;
    const gpu_define lines[] = {
        { "ELEMENT", t->element },
        { "LAST", t->last },
        { "BLOCKS", q.a },
        { "ROWS", q.b },
        { "COLS", q.c },
        { "LANES", q.d },
        { "TOGETHER", t->together },
        { "DEPTH", t->depth },
        { "STAGES", t->stages },
        { "RESIDENT", t->resident },
        { "FLUSH", MOST_RECENT / t->depth },
        { "BOXES", t->boxes },
        { "FLAT", t->boxes && t->flat },
    };
    const gpu_define mma[] = {
        { "SPLIT", t->split },     { "VECTOR", t->vector },   { "LANES_OF", t->lanes },
        { "TILES_R", t->tiles_r }, { "TILES_K", t->tiles_k }, { "WARPS_R", t->warps_r },
        { "WARPS_K", t->warps_k }, { "STEP", t->step },
    };
    const gpu_define wgmma[] = {
        { "WGMMA", 1 },
        { "GROUPS_A", t->groups_a },
        { "GROUPS_B", t->groups_b },
        { "COLUMNS", t->columns },
        { "PLACES", PLACES },
        { "SWAPPED", t->swapped },
    };
    dn_gpu_define(p->dtype, lines, sizeof lines / sizeof *lines, to);
    if (t->columns)
        dn_gpu_define(DANAUS_F32, wgmma, sizeof wgmma / sizeof *wgmma, to);
    else
        dn_gpu_define(DANAUS_F32, mma, sizeof mma / sizeof *mma, to);
    if (t->boxes)
        dn_text(to, "#define WGMMA 1\n");
}
