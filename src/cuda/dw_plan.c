/* How the weight gradient of a factor is made: by a tile on tensor cores, by cuBLAS, or by
   the portable text, of slabs of columns that are added up in their order. */
// SPDX-License-Identifier: Apache-2.0
#include "cuda/gradient.h"

#include "base/dtype.h"
#include "math/pattern.h"

#include <math.h>

#define MOST_TILES ((int64_t)1 << 20) /* of a slab, on tensor cores */
/* A slab has at least so many columns, and there are at most so many slabs. */
#define LEAST_SLAB 256
#define MOST_SLABS 128
/* Parts of one factor's gradient, at most, unless there is one slab. */
#define MOST_PARTS ((int64_t)64 << 20)
/* Weights of a block and columns from which on cuBLAS is worth its call. */
#define LEAST_BLOCK 256
#define LEAST_BATCH 64
/* Rows and columns of a block from which on tensor cores are. */
#define LEAST_SIDE 8
/* In 16 bits so many fill an H200 by cuBLAS' tiles; of one block, whose slabs are one call. */
#define MANY_WEIGHTS ((int64_t)1 << 19)
#define MANY_OF_ONE  ((int64_t)1 << 15)
/* Tiles of many lanes take up to a fifth less than is estimated. */
#define CAUTION 1.1
/* Columns in whose time a block of threads begins and ends. */
#define FILLING 64
/* To write and read a number of a part on an H200. */
#define PART_SECONDS 2.1e-12

static int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

/* Lanes are taken together when batch-first memory has them next to each other. */
dw_tile dn_cuda_dw_tile(const problem *p)
{
    danaus_pattern q = p->pattern;
    int wide = danaus_dtype_size(dn_sum_type(p->dtype)) > 4;
    int lanes = p->layout == DANAUS_BATCH_LAST || q.d == 1 ? 1 : q.d == 2 ? 2 : 8;
    if (wide)
        return lanes == 8   ? (dw_tile){ 8, 8, 8, 2, 2, 4 }
               : lanes == 2 ? (dw_tile){ 16, 16, 2, 2, 2, 8 }
                            : (dw_tile){ 32, 32, 1, 2, 2, 8 };
    if (lanes == 8)
        return q.b > 16 && q.c > 16 ? (dw_tile){ 32, 32, 8, 8, 4, 4 }
                                    : (dw_tile){ 16, 16, 8, 4, 4, 8 };
    if (lanes == 2)
        return (dw_tile){ 32, 32, 2, 4, 4, 16 };
    return q.b >= 48 && q.c >= 48 ? (dw_tile){ 64, 64, 1, 4, 4, 16 }
                                  : (dw_tile){ 32, 32, 1, 4, 4, 16 };
}

int64_t dn_cuda_dw_tiles(const problem *p)
{
    dw_tile t = dn_cuda_dw_tile(p);
    danaus_pattern q = p->pattern;
    return q.a * dn_gpu_parts(q.b, t.br) * dn_gpu_parts(q.c, t.bc) *
           dn_gpu_parts(q.d, t.bj);
}

/* ---- ways ---- */

static int64_t column_bytes(const problem *p)
{
    danaus_pattern q = p->pattern;
    return (dn_pattern_rows(q) + dn_pattern_cols(q)) *
           (int64_t)danaus_dtype_size(p->dtype);
}

/* Whether matrices are not where cuBLAS could find them. */
static int is_apart(const problem *p)
{
    return p->layout == DANAUS_BATCH_FIRST && p->pattern.d > 1;
}

static int is_exact(const problem *p)
{
    return p->dtype == DANAUS_F32 && p->math != DANAUS_MATH_TF32;
}

/* Whether matrices lie as cuBLAS takes them, and are as fast by it: of numbers rounded to 16
   bits or tf32, in 16 bits batch-first where blocks fill its tiles and there are many. */
static int is_for_library(const problem *p)
{
    danaus_pattern q = p->pattern;
    int64_t small = q.b < q.c ? q.b : q.c, large = q.b < q.c ? q.c : q.b;
    int narrow = small < 64 || (small == 64 && large > 64);
    int many = dn_pattern_weights(q) >= (q.a > 1 ? MANY_WEIGHTS : MANY_OF_ONE);
    many |= q.b % 8 || q.c % 8;
    if (is_exact(p) || is_apart(p))
        return 0;
    return p->layout == DANAUS_BATCH_LAST || danaus_dtype_size(p->dtype) > 2 ||
           (many && !narrow);
}

/* Whether texts of ours make a weight gradient on tensor cores. */
static int has_tile(const problem *p)
{
    danaus_pattern q = p->pattern;
    return danaus_dtype_size(p->dtype) <= 4 && q.b >= LEAST_SIDE && q.c >= LEAST_SIDE &&
           !is_for_library(p);
}

static gpu_dw tile_of(const cuda_device *d, const problem *p)
{
    if (d->gpu.facts.arch != 90 || !has_tile(p))
        return (gpu_dw){ 0 };
    gpu_dw tile = dn_gpu_dw_for(&d->gpu.facts, p);
    if (tile.resident && dn_gpu_dw_tiles(&tile, p) > MOST_TILES)
        tile.resident = 0;
    return tile;
}

static int library_can(const problem *p)
{
    danaus_pattern q = p->pattern;
    return !dn_is_complex(p->dtype) && q.b * q.c >= LEAST_BLOCK &&
           dn_cuda_find_blas() == DANAUS_OK;
}

problem dn_cuda_made_problem(const dw_way *way, const problem *p)
{
    problem made = *p;
    danaus_pattern q = p->pattern;
    if (way->turned)
        made.pattern = (danaus_pattern){ q.a * q.d, q.b, q.c, 1 };
    if (way->dense)
        made.pattern = (danaus_pattern){ q.a, q.b * q.d, q.c * q.d, 1 };
    return made;
}

/* Seconds that cuBLAS takes for a column of matrices on an H200, if memory gives so many
   bytes a second. */
static double library_seconds(const problem *p, double memory)
{
    double rate = danaus_dtype_size(p->dtype) == 2 ? 7e14
                  : p->math == DANAUS_MATH_TF32    ? 3.6e14
                                                   : 4.5e13;
    double products = 2 * (double)dn_pattern_weights(p->pattern);
    double seconds[] = { (double)column_bytes(p) / memory, products / rate };
    return dn_gpu_dw_together(seconds, 2);
}

/* And what it takes to turn its lanes and to add to parts. */
static double turning_seconds(const problem *p)
{
    double weights = (double)dn_pattern_weights(p->pattern);
    return (double)column_bytes(p) *
           (2 / 3.9e12 + weights * PART_SECONDS / (double)MOST_TURNED);
}

static void keep_faster(dw_way *best, double *least, const dw_way *way, double seconds)
{
    if (seconds < *least) {
        *least = seconds;
        *best = *way;
    }
}

/* Of many columns, by estimates: as x and dy lie, with lanes turned, or as of one lane. */
static dw_way find_way(const cuda_device *d, const problem *p)
{
    danaus_pattern q = p->pattern;
    int forms = is_apart(p) && q.b * q.c >= LEAST_BLOCK ? 3 : 1;
    double least = INFINITY;
    dw_way best = { 0 };
    for (int form = 0; form < forms; form++) {
        dw_way way = { .turned = form == 1, .dense = form == 2 };
        problem made = dn_cuda_made_problem(&way, p);
        double seconds = way.turned ? turning_seconds(p) : 0;
        if (way.dense && dn_pattern_weights(made.pattern) > MOST_PARTS)
            continue;
        way.tile = tile_of(d, &made);
        way.library = !way.tile.resident && !is_apart(&made) && library_can(p);
        seconds += way.library ? library_seconds(&made, way.turned ? 3.4e12 : 4.2e12)
                               : way.tile.seconds;
        if (way.library || way.tile.resident)
            keep_faster(
                &best, &least, &way,
                seconds * (way.turned && way.library ? CAUTION : 1));
    }
    return best;
}

/* The way of a problem, which the device remembers. */
static dw_way way_of(cuda_device *d, const problem *p, int64_t batch)
{
    if (batch < LEAST_BATCH)
        return (dw_way){ 0 };
    for (int i = 0; i < RECENT_DW; i++) {
        const cuda_dw *e = &d->dw[i];
        if (dn_pattern_equal(e->pattern, p->pattern) && e->dtype == p->dtype &&
            e->layout == p->layout && e->math == p->math)
            return e->way;
    }
    dw_way way = find_way(d, p);
    d->dw[d->dw_next] = (cuda_dw){ p->pattern, p->dtype, p->layout, p->math, way };
    d->dw_next = (d->dw_next + 1) % RECENT_DW;
    return way;
}

/* ---- slabs ---- */

typedef columns_of_slabs slabs;

/* Enough slabs to give every multiprocessor eight blocks, of whole steps. */
slabs dn_cuda_slabs(const cuda_device *d, int64_t batch, int64_t tiles, int64_t numbers)
{
    int64_t wanted = dn_gpu_parts(8 * (int64_t)d->gpu.facts.units, tiles);
    int64_t most = least_of(MOST_SLABS, MOST_PARTS / numbers);
    wanted = least_of(wanted, most);
    int64_t width = dn_gpu_parts(batch, wanted > 0 ? wanted : 1);
    width = dn_gpu_parts(width, LEAST_SLAB) * LEAST_SLAB;
    return (slabs){ width, dn_gpu_parts(batch, width) };
}

/* Columns that are turned at once, about as many each time; or all of them. */
static int64_t columns_at_once(const dw_plan *plan)
{
    int64_t batch = plan->batch, most = MOST_TURNED / column_bytes(&plan->p);
    if (!plan->way.turned)
        return batch;
    int64_t times = dn_gpu_parts(batch, most > LEAST_SLAB ? most : LEAST_SLAB);
    int64_t n = dn_gpu_parts(dn_gpu_parts(batch, times), LEAST_SLAB) * LEAST_SLAB;
    return least_of(n, batch);
}

/* Tensor cores are quick with few tiles and many columns; others need slabs to be busy. */
static slabs library_slabs(const cuda_device *d, const problem *p, int64_t batch)
{
    danaus_pattern q = p->pattern;
    int64_t tiles = q.a * q.d * dn_gpu_parts(q.b, 128) * dn_gpu_parts(q.c, 128);
    int quick = danaus_dtype_size(p->dtype) == 2 || p->math == DANAUS_MATH_TF32;
    if (quick && tiles * 16 >= d->gpu.facts.units)
        return (slabs){ batch, 1 };
    slabs s = dn_cuda_slabs(d, batch, 4 * tiles, dn_pattern_weights(q));
    return (slabs){ least_of(s.width, batch), s.count };
}

/* Slabs that give every multiprocessor as much to do; more parts than that cost more than
   they bring. A single block of several that a multiprocessor could hold is nearly as fast
   as they. */
static slabs tensor_slabs(
    const cuda_device *d, const problem *p, const gpu_dw *t, int64_t batch)
{
    double weights = (double)dn_pattern_weights(p->pattern);
    int64_t tiles = dn_gpu_dw_tiles(t, p), units = d->gpu.facts.units;
    int64_t most = least_of(dn_gpu_parts(batch, LEAST_SLAB), MOST_SLABS);
    slabs best = { batch, 1 };
    double least = 0;
    for (int64_t n = 1; n <= most; n++) {
        int64_t width = dn_gpu_parts(dn_gpu_parts(batch, n), t->depth) * t->depth;
        int64_t blocks = dn_gpu_parts(tiles * n, units);
        double work = (double)(blocks * units * (width + FILLING)) / (double)tiles;
        double time = work * t->seconds * (blocks < t->resident ? 1.08 : 1) +
                      (double)n * weights * PART_SECONDS;
        if ((double)n * weights > (double)MOST_PARTS && n > 1)
            break;
        if (n == 1 || time < least) {
            least = time;
            best = (slabs){ width, dn_gpu_parts(batch, width) };
        }
    }
    return best;
}

dw_plan dn_cuda_dw_plan(cuda_device *d, const problem *p, int64_t batch)
{
    dw_plan plan = { .p = *p, .batch = batch, .way = way_of(d, p, batch) };
    problem made = dn_cuda_made_problem(&plan.way, p);
    int64_t weights = dn_pattern_weights(made.pattern);
    int64_t n = plan.at_once = columns_at_once(&plan);
    danaus_pattern q = p->pattern;
    if (plan.way.tile.resident)
        plan.slabs = tensor_slabs(d, &made, &plan.way.tile, n);
    else if (plan.way.library)
        plan.slabs = library_slabs(d, &made, n);
    else
        plan.slabs = dn_cuda_slabs(d, batch, dn_cuda_dw_tiles(p), weights);
    plan.numbers = weights * plan.slabs.count;
    if (plan.way.turned) {
        int64_t cell = (int64_t)danaus_dtype_size(p->dtype);
        plan.turned_bytes = dn_cuda_aligned(dn_pattern_cols(q) * plan.at_once * cell) +
                            dn_cuda_aligned(dn_pattern_rows(q) * plan.at_once * cell);
    }
    return plan;
}
