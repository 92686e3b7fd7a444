/* The plan of a weight gradient: how columns of the batch are cut, its scratch, and its
   launches. */
// SPDX-License-Identifier: Apache-2.0
#include "gpu/gradient/dw.h"

#include "base/dtype.h"
#include "math/pattern.h"

/* A slab has at least so many columns, and there are at most so many slabs. */
#define LEAST_SLAB 256
#define MOST_SLABS 128
#define PIECE      16 /* bytes that are fetched at once */
/* Columns in whose time a block of threads begins and ends. */
#define FILLING 64
/* Columns that the copy engine counts in 32 bits, of whole slabs. */
#define MOST_COLUMNS ((int64_t)1 << 30)

static int64_t cell_of(const problem *p) { return dn_size_of(p->dtype); }

/* ---- slabs ---- */

/* Enough slabs to give every multiprocessor eight blocks, of whole steps. */
gpu_slabs dn_gpu_slabs(
    const gpu_facts *f, int64_t batch, int64_t tiles, int64_t numbers)
{
    int64_t wanted = CEIL_DIV(8 * (int64_t)f->units, tiles);
    int64_t most = MIN(MOST_SLABS, DW_MOST_PARTS / numbers);
    wanted = MIN(wanted, most);
    int64_t width = CEIL_DIV(batch, wanted > 0 ? wanted : 1);
    width = CEIL_DIV(width, LEAST_SLAB) * LEAST_SLAB;
    return (gpu_slabs){ width, CEIL_DIV(batch, width) };
}

/* Tensor cores are quick with few tiles and many columns; others need slabs to be busy. */
static gpu_slabs library_slabs(const gpu_facts *f, const problem *p, int64_t batch)
{
    danaus_pattern q = p->pattern;
    int64_t tiles = q.a * q.d * CEIL_DIV(q.b, 128) * CEIL_DIV(q.c, 128);
    int quick = cell_of(p) == 2 || p->math == DANAUS_MATH_TF32;
    if (quick && tiles * 16 >= f->units)
        return (gpu_slabs){ batch, 1 };
    gpu_slabs s = dn_gpu_slabs(f, batch, 4 * tiles, dn_pattern_weights(q));
    return (gpu_slabs){ MIN(s.width, batch), s.count };
}

/* Slabs that give every multiprocessor as much to do; more parts than that cost more than
   they bring. A single block of several that a multiprocessor could hold is nearly as fast
   as they. */
static gpu_slabs tile_slabs(
    const gpu_facts *f, const gpu_dw *t, const problem *p, int64_t batch)
{
    double weights = (double)dn_pattern_weights(p->pattern);
    int64_t tiles = dn_gpu_dw_tiles(t, p), units = f->units;
    int64_t most = MIN(CEIL_DIV(batch, LEAST_SLAB), MOST_SLABS);
    gpu_slabs best = { batch, 1 };
    double least = 0;
    for (int64_t n = 1; n <= most; n++) {
        int64_t width = CEIL_DIV(CEIL_DIV(batch, n), t->depth) * t->depth;
        int64_t blocks = CEIL_DIV(tiles * n, units);
        double work = (double)(blocks * units * (width + FILLING)) / (double)tiles;
        double time = work * t->seconds * (blocks < t->resident ? 1.08 : 1) +
                      (double)n * weights * DW_PART_SECONDS;
        if ((double)n * weights > (double)DW_MOST_PARTS && n > 1)
            break;
        if (n == 1 || time < least) {
            least = time;
            best = (gpu_slabs){ width, CEIL_DIV(batch, width) };
        }
    }
    return best;
}

/* Columns whose lanes are turned at once, or that the copy engine counts, about as many
   each time; or all of them. */
static int64_t columns_at_once(const gpu_dw_plan *plan)
{
    danaus_pattern q = plan->p.pattern;
    int64_t column = (dn_pattern_rows(q) + dn_pattern_cols(q)) * cell_of(&plan->p);
    int64_t most = plan->form == DW_TURNED ? dn_gpu_most_turned / column : INT64_MAX;
    if (plan->tile.boxes)
        most = MIN(most, MOST_COLUMNS);
    if (most == INT64_MAX)
        return plan->batch;
    int64_t times = CEIL_DIV(plan->batch, most > LEAST_SLAB ? most : LEAST_SLAB);
    int64_t n = CEIL_DIV(CEIL_DIV(plan->batch, times), LEAST_SLAB) * LEAST_SLAB;
    return MIN(n, plan->batch);
}

gpu_dw_plan dn_gpu_dw_plan(const gpu_facts *f, const ks_step *step, int64_t batch)
{
    ks_step few = { step->p, &dn_gpu_helpers[GPU_FEW_COLUMNS], 0 };
    step = batch < DW_LEAST_BATCH ? &few : step;
    const kernel *k = step->kernel;
    gpu_dw_plan plan = { .kernel = k,
                         .p = step->p,
                         .made = dn_gpu_dw_made(k, &step->p),
                         .tile = dn_gpu_dw_tile(step),
                         .form = dn_gpu_code(k)->size[DW_FORM],
                         .library = dn_gpu_family(k)->library,
                         .batch = batch };
    int64_t weights = dn_pattern_weights(plan.made.pattern);
    int64_t n = plan.at_once = columns_at_once(&plan);
    plan.slabs = plan.library ? library_slabs(f, &plan.made, n)
                 : plan.tile.resident
                     ? tile_slabs(f, &plan.tile, &plan.made, n)
                     : dn_gpu_slabs(f, n, dn_gpu_dw_vector_tiles(&plan.made), weights);
    plan.numbers = weights * plan.slabs.count;
    return plan;
}

/* ---- scratch ---- */

int dn_gpu_dw_moves(const gpu_dw_plan *plan, const void *operand)
{
    int whole = plan->library || plan->tile.boxes;
    return plan->form == DW_TURNED || (whole && (uintptr_t)operand % PIECE);
}

size_t dn_gpu_dw_moved(const gpu_dw_plan *plan, int dy)
{
    danaus_pattern q = plan->p.pattern;
    int64_t rows = dy ? dn_pattern_rows(q) : dn_pattern_cols(q);
    return (size_t)(rows * plan->at_once * cell_of(&plan->p));
}

/* ---- launches ---- */

/* Launches the slabs of the first columns. Fewer columns may have fewer slabs. */
gpu_launch dn_gpu_dw_launch(const gpu_dw_plan *plan, int64_t columns)
{
    const gpu_dw *t = &plan->tile;
    int64_t slabs = CEIL_DIV(columns, plan->slabs.width);
    int64_t tiles = t->resident ? dn_gpu_dw_tiles(t, &plan->made) * slabs : 0;
    if (tiles)
        return dn_gpu_stay(tiles, tiles, t->threads, t->shared);
    gpu_vectors v = dn_gpu_dw_vectors(&plan->made);
    return dn_gpu_line(
        dn_gpu_dw_vector_tiles(&plan->made) * slabs,
        v.br / v.tr * (v.bc / v.tc) * v.bj);
}

/* The view of x or dy. Its blocks have `size` rows, a tile has `rows`: all lanes of some
   rows, matrices, or lanes of some rows. */
static gpu_map map_of(
    const gpu_dw *t, const problem *p, int64_t columns, int64_t size, int64_t rows)
{
    danaus_pattern q = p->pattern;
    int64_t segment = 128 / t->element, line = q.a * size * q.d;
    if (t->flat)
        return (gpu_map){
            .rank = 3,
            .size = { segment, columns, line / segment },
            .stride = { 1, line, segment },
            .box = { (int)segment, (int)t->depth, (int)(rows * q.d / segment) },
            .swizzle = 128,
        };
    if (t->columns)
        return (gpu_map){
            .rank = 3,
            .size = { size, q.a, columns },
            .stride = { 1, size, line },
            .box = { (int)segment, 1, (int)t->depth },
            .swizzle = 128,
        };
    return (gpu_map){
        .rank = 3,
        .size = { q.d, q.a * size, columns },
        .stride = { 1, q.d, q.a * size * q.d },
        .box = { (int)t->together, (int)rows + 2, (int)t->depth },
        .swizzle = (int)(t->together * t->element),
    };
}

void dn_gpu_dw_maps(const gpu_dw_plan *plan, int64_t columns, gpu_map map[2])
{
    const gpu_dw *t = &plan->tile;
    danaus_pattern q = plan->made.pattern;
    map[0] = map_of(t, &plan->made, columns, q.c, t->tile_k);
    map[1] = map_of(t, &plan->made, columns, q.b, t->tile_r);
}
