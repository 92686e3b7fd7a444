/* Rows of DN_WEIGHT_GRADIENT: which problems they fit, their costs, and tiles for tensor cores,
   chosen by an estimate. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/gradient/dw.h"

#include "base/dtype.h"
#include "gpu/rows.h"
#include "math/pattern.h"

#include <math.h>

/* Columns s after which f32 sums leave the tensor cores. */
#define MOST_RECENT 64
#define MOST_TILES  ((int64_t)1 << 20) /* of a slab */
/* Weights of a block from which on a library is worth its call, and lanes are turned. */
#define LEAST_BLOCK 256
/* Rows and columns of a block from which on tensor cores are worth their tiles. */
#define LEAST_SIDE 8
/* In 16 bits so many weights fill a GPU by cuBLAS' tiles; of one block, whose slabs are
   one call. */
#define MANY_WEIGHTS ((int64_t)1 << 19)
#define MANY_OF_ONE  ((int64_t)1 << 15)
/* Tiles of many lanes take up to a fifth less than is estimated. */
#define CAUTION 1.1
/* Where one of cuBLAS and our tiles is known to be faster, or vectors are, estimates of
   others are so many times as long. */
#define KNOWN_SLOWER 3
#define TILES_FROM   80 /* compute capability, ten times */
/* Seconds of its launches. */
#define START 5e-6

static const gpu_dw_family *family_of(const kernel *k)
{
    return (const gpu_dw_family *)k->family;
}

static int form_of(const kernel *k) { return dn_gpu_code(k)->size[DW_FORM]; }

static int64_t size_of(const problem *p) { return dn_size_of(p->dtype); }

/* ---- problems ---- */

/* True if lanes lie between the columns k of a block, which is then no matrix. */
static int is_apart(const problem *p)
{
    return p->layout == DANAUS_BATCH_FIRST && p->pattern.d > 1;
}

/* True if products have the precision of f32. */
static int is_exact(const problem *p)
{
    return p->dtype == DANAUS_F32 && p->math != DANAUS_MATH_TF32;
}

problem dn_gpu_dw_made(const kernel *k, const problem *p)
{
    problem made = *p;
    danaus_pattern q = p->pattern;
    if (form_of(k) == DW_TURNED)
        made.pattern = (danaus_pattern){ q.a * q.d, q.b, q.c, 1 };
    if (form_of(k) == DW_DENSE)
        made.pattern = (danaus_pattern){ q.a, q.b * q.d, q.c * q.d, 1 };
    return made;
}

static int form_fits(const kernel *k, const problem *p, const problem *made)
{
    danaus_pattern q = p->pattern;
    if (form_of(k) == DW_AS_IT_LIES)
        return 1;
    return is_apart(p) && q.b * q.c >= LEAST_BLOCK &&
           (form_of(k) == DW_TURNED ||
            dn_pattern_weights(made->pattern) <= DW_MOST_PARTS);
}

/* True if matrices lie as cuBLAS takes them and it is as fast as tiles, by measurement: numbers
   are rounded to 16 bits or tf32, and batch-first in 16 bits there are many blocks, which fill
   its tiles. */
static int is_for_library(const problem *p)
{
    danaus_pattern q = p->pattern;
    int64_t small = MIN(q.b, q.c), large = MAX(q.b, q.c);
    int narrow = small < 64 || (small == 64 && large > 64);
    int many = dn_pattern_weights(q) >= (q.a > 1 ? MANY_WEIGHTS : MANY_OF_ONE);
    many |= q.b % 8 || q.c % 8;
    if (size_of(p) > 4 || small < LEAST_SIDE)
        return 1;
    if (is_exact(p) || is_apart(p))
        return 0;
    return p->layout == DANAUS_BATCH_LAST || size_of(p) > 2 || (many && !narrow);
}

/* ---- tiles ---- */

int dn_dw_is_flat(const gpu_dw *t, const problem *p)
{
    danaus_pattern q = p->pattern;
    int64_t segment = 128 / t->element;
    return !t->last && t->together == q.d && q.b * q.d % segment == 0 &&
           q.c * q.d % segment == 0 && t->tile_r * q.d % segment == 0 &&
           t->tile_k * q.d % segment == 0;
}

void dn_dw_set_tile(gpu_dw *t, const problem *p, int64_t rows, int64_t columns)
{
    t->tile_r = rows;
    t->tile_k = columns;
    t->row_tiles = CEIL_DIV(p->pattern.b, rows);
    t->column_tiles = CEIL_DIV(p->pattern.c, columns);
}

/* Seconds of work that these limits bound. A limit that is nearly as slow as the slowest one
   adds to it. */
static double together(const double *seconds, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += seconds[i] * seconds[i] * seconds[i];
    return cbrt(sum);
}

/* Memory, the second cache, which gives short pieces slowly, products and shared memory,
   from which numbers are read for each tile. */
void dn_dw_estimate(gpu_dw *t, const problem *p, double rate, double read, double times)
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
    double bounds[] = { memory, cache, tensor, shared };
    int few = t->threads * t->resident < 256 && !t->flat;
    t->seconds = together(bounds, 4) * (few ? 1.15 : 1) * (t->threads < 96 ? 1.25 : 1) *
                 times * (double)(q.a * q.d);
}

void dn_dw_try(
    gpu_dw *best, gpu_dw t, const problem *p,
    int (*complete)(gpu_dw *t, const problem *p))
{
    if (complete(&t, p) && (!best->resident || t.seconds < best->seconds))
        *best = t;
}

/* What follows from row and problem. */
static gpu_dw begin_tile(const kernel *k, const problem *made)
{
    danaus_pattern q = made->pattern;
    gpu_dw t = { .element = size_of(made),
                 .vector = 4,
                 .lanes = 1,
                 .vector_rows = 1,
                 .groups_b = 1 };
    t.fetches = dn_gpu_code(k)->size[DW_FETCHES];
    t.split = is_exact(made);
    t.last = made->layout == DANAUS_BATCH_LAST;
    t.together = 1;
    if (t.last)
        return t;
    t.vector = t.element == 2 && q.d % 8 == 0 ? 8 : 4;
    while (t.lanes < t.vector && q.d % (2 * t.lanes) == 0)
        t.lanes *= 2;
    t.together = t.lanes;
    t.vector_rows = t.vector / t.lanes;
    return t;
}

/* ---- what planning settles: a tile's first members, of five bits each ---- */

enum { MEMBERS = 12, BITS = 5 };

static const int units[MEMBERS] = { 1, 1, 1, 1, 1, 8, 1, 1, 1, 16, 8, 1 };

static void list_members(gpu_dw *t, int64_t *member[MEMBERS])
{
    int64_t *all[MEMBERS] = { &t->groups,   &t->warps_r, &t->warps_k, &t->tiles_r,
                              &t->tiles_k,  &t->step,    &t->swapped, &t->groups_a,
                              &t->groups_b, &t->columns, &t->depth,   &t->resident };
    for (int i = 0; i < MEMBERS; i++)
        member[i] = all[i];
}

static int64_t settled(gpu_dw t)
{
    int64_t *member[MEMBERS], code = 0;
    list_members(&t, member);
    for (int i = 0; i < MEMBERS; i++)
        code |= *member[i] / units[i] << (BITS * i);
    return code;
}

gpu_dw dn_gpu_dw_tile(const ks_step *step)
{
    const kernel *k = step->kernel;
    const gpu_dw_family *family = family_of(k);
    problem made = dn_gpu_dw_made(k, &step->p);
    gpu_dw t = begin_tile(k, &made), best = { 0 };
    if (!family->search)
        return best;
    if (!step->settled) {
        family->search(t, &made, &best);
        return best;
    }
    int64_t *member[MEMBERS];
    list_members(&t, member);
    for (int i = 0; i < MEMBERS; i++)
        *member[i] = (step->settled >> (BITS * i) & ((1 << BITS) - 1)) * units[i];
    family->complete(&t, &made);
    return t;
}

static int64_t settle(const kernel *k, const problem *p)
{
    ks_step step = { *p, k, 0 };
    return settled(dn_gpu_dw_tile(&step));
}

int64_t dn_gpu_dw_tiles(const gpu_dw *t, const problem *p)
{
    danaus_pattern q = p->pattern;
    return q.a * (q.d / t->together) * t->row_tiles * t->column_tiles;
}

static int fits(const kernel *k, const problem *p)
{
    problem made = dn_gpu_dw_made(k, p);
    danaus_pattern q = made.pattern;
    if (p->inner.a || q.b < LEAST_SIDE || q.c < LEAST_SIDE || !form_fits(k, p, &made))
        return 0;
    ks_step step = { *p, k, 0 };
    gpu_dw t = dn_gpu_dw_tile(&step);
    return t.resident && dn_gpu_dw_tiles(&t, &made) <= MOST_TILES;
}

/* ---- estimates ---- */

static int64_t column_bytes(const problem *p)
{
    danaus_pattern q = p->pattern;
    return (dn_pattern_rows(q) + dn_pattern_cols(q)) * size_of(p);
}

/* To turn the lanes of a column and to add to parts,. */
static double turning_seconds(const problem *p)
{
    double weights = (double)dn_pattern_weights(p->pattern);
    return (double)column_bytes(p) *
           (2 / 3.9e12 + weights * DW_PART_SECONDS / (double)dn_gpu_most_turned);
}

/* How much slower a device is than dn_gpu_measured, by its scarcest resource. */
static double slower(const gpu_facts *f, int by_tiles)
{
    const gpu_facts *m = &dn_gpu_measured;
    double clocks = m->units * m->clock / (f->units * f->clock);
    double rate = by_tiles ? (double)m->mma / f->mma : (double)m->cores / f->cores;
    return fmax(m->bandwidth / f->bandwidth, clocks * rate);
}

/* Seconds for all columns; a few take as long as DW_LEAST_BATCH. */
static double cost_of(
    const danaus_device *dev, const kernel *k, const problem *p, double column,
    int is_known_slower)
{
    int64_t batch = MAX(p->batch, DW_LEAST_BATCH);
    column *= is_known_slower ? KNOWN_SLOWER : 1;
    column *= p->batch < DW_LEAST_BATCH ? KNOWN_SLOWER : 1;
    if (form_of(k) == DW_TURNED)
        column =
            (column + turning_seconds(p)) * (family_of(k)->gpu.library ? CAUTION : 1);
    return START + column * slower(dn_gpu_facts(dev), !family_of(k)->gpu.library) *
                       (double)batch;
}

static double cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    ks_step step = { *p, k, 0 };
    problem made = dn_gpu_dw_made(k, p);
    return cost_of(dev, k, p, dn_gpu_dw_tile(&step).seconds, is_for_library(&made));
}

/* ---- by a library ---- */

static int library_fits(const kernel *k, const problem *p)
{
    problem made = dn_gpu_dw_made(k, p);
    danaus_pattern q = made.pattern;
    return !p->inner.a && !is_apart(&made) && q.b * q.c >= LEAST_BLOCK &&
           form_fits(k, p, &made);
}

static double library_cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    problem made = dn_gpu_dw_made(k, p);
    int turned = form_of(k) == DW_TURNED;
    double rate = size_of(p) == 2               ? 7e14
                  : p->math == DANAUS_MATH_TF32 ? 3.6e14
                                                : 4.5e13;
    double memory = turned ? 3.4e12 : 4.2e12;
    double products = 2 * (double)dn_pattern_weights(made.pattern);
    double bounds[] = { (double)column_bytes(&made) / memory, products / rate };
    return cost_of(
        dev, k, p, together(bounds, 2),
        dn_gpu_facts(dev)->arch >= TILES_FROM && !is_for_library(&made));
}

/* ---- defines ---- */

static void defines(const kernel *k, const problem *p, int variant, text *to)
{
    (void)variant;
    ks_step step = { *p, k, 0 };
    gpu_dw t = dn_gpu_dw_tile(&step);
    danaus_pattern q = dn_gpu_dw_made(k, p).pattern;
    const gpu_define lines[] = {
        { "ELEMENT", t.element },
        { "LAST", t.last },
        { "BLOCKS", q.a },
        { "ROWS", q.b },
        { "COLS", q.c },
        { "LANES", q.d },
        { "TOGETHER", t.together },
        { "DEPTH", t.depth },
        { "STAGES", t.stages },
        { "RESIDENT", t.resident },
        { "FLUSH", MOST_RECENT / t.depth },
        { "BOXES", t.boxes },
        { "FLAT", t.flat },
    };
    const gpu_define mma[] = {
        { "SPLIT", t.split },     { "VECTOR", t.vector },   { "LANES_OF", t.lanes },
        { "TILES_R", t.tiles_r }, { "TILES_K", t.tiles_k }, { "WARPS_R", t.warps_r },
        { "WARPS_K", t.warps_k }, { "STEP", t.step },
    };
    const gpu_define wgmma[] = {
        { "GROUPS_A", t.groups_a }, { "GROUPS_B", t.groups_b },
        { "COLUMNS", t.columns },   { "PLACES", DW_PLACES },
        { "SWAPPED", t.swapped },
    };
    dn_gpu_define(p->dtype, lines, sizeof lines / sizeof *lines, to);
    if (t.columns)
        dn_gpu_define(DANAUS_F32, wgmma, sizeof wgmma / sizeof *wgmma, to);
    else
        dn_gpu_define(DANAUS_F32, mma, sizeof mma / sizeof *mma, to);
    if (t.columns || t.boxes)
        dn_text(to, "#define WGMMA 1\n");
}

/* ---- families ---- */

#define TILES(NAME)                                                                    \
    .gpu = { .kernel = { .operation = DN_WEIGHT_GRADIENT,                              \
                         .fits = fits,                                                 \
                         .cost = cost,                                                 \
                         .settle = settle },                                           \
             .text = NAME,                                                             \
             .entry = "dw",                                                            \
             .defines = defines,                                                       \
             .part = dn_gpu_dw_part }

const gpu_dw_family dn_gpu_dw_mma = { TILES("ks_dw_mma.cu"), .search = dn_dw_search_mma,
                                      .complete = dn_dw_complete_mma };
const gpu_dw_family dn_gpu_dw_wgmma = { TILES("ks_dw_wgmma.cu"),
                                        .search = dn_dw_search_wgmma,
                                        .complete = dn_dw_complete_wgmma };
const gpu_dw_family dn_gpu_dw_matrix = { TILES("ks_dw_matrix.cu"),
                                         .search = dn_dw_search_matrix,
                                         .complete = dn_dw_complete_matrix };
const gpu_dw_family dn_gpu_dw_fours = { TILES("ks_dw_fours.cu"),
                                        .search = dn_dw_search_fours,
                                        .complete = dn_dw_complete_fours };

const gpu_dw_family dn_gpu_dw_blas = {
    .gpu = { .kernel = { .operation = DN_WEIGHT_GRADIENT,
                         .fits = library_fits,
                         .cost = library_cost },
             .library = 1,
             .part = dn_gpu_dw_part },
};
