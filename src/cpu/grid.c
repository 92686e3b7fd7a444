/* One product with one factor: how a kernel stages it through the caches, and how
   it is cut into a grid of parts for threads.

   Only outputs are cut, never sums, and every output is made by the same
   arithmetic wherever the cuts fall: results do not depend on them. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/grid.h"
#include "cpu/rows.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "math/pattern.h"

/* Fewer multiplications than this are not worth waking a thread. */
#define SERIAL_WORK 100000
/* Parts for each thread, so that an interrupted one is not waited for. */
#define PARTS_PER_THREAD 6
/* A batch-last part has at least this many full tiles side by side. */
#define TILES_PER_PART 5
/* Batch-first runs shorter than this many elements are joined over blocks. */
#define SHORT_RUN 64
#define LINE      64

static int lies_as_panel(const cpu_view *v)
{
    return v->layout == DANAUS_BATCH_LAST && v->dtype == dn_sum_type(v->dtype);
}

static int lies_as_lines(const cpu_view *v)
{
    return v->layout == DANAUS_BATCH_FIRST && v->dtype == dn_sum_type(v->dtype);
}

/* Kernels for few columns: x of a block as lines, and repeated (lanes.inc). */
static cpu_shape lanes_shape(const ks_step *step, const cpu_view *x, int64_t n)
{
    danaus_pattern p = step->p.pattern;
    const cpu_code *code = dn_code_of(step);
    int64_t columns = MIN(n, 64), pair = dn_is_complex(step->p.dtype) ? 2 : 1;
    int64_t cell = (int64_t)danaus_dtype_size(dn_sum_type(step->p.dtype));
    int as_it_lies = p.d == 1 || (pair == 1 && p.d % code->vector == 0);
    size_t line_bytes =
        lies_as_lines(x)
            ? 0
            : dn_aligned(columns * ROUND_UP(p.c * p.d, COLUMNS_UNIT) * cell);
    size_t repeated =
        as_it_lies
            ? 0
            : dn_aligned(columns * p.c * dn_lane_row(p.d, code->vector) * pair * cell);
    return (cpu_shape){
        .columns = columns,
        .blocks = 1,
        .lanes = p.d,
        .tiles = CEIL_DIV(p.b * p.d, LANE_VECS * code->vector),
        .x_bytes = line_bytes + repeated,
        .y_bytes = dn_aligned(columns * ROUND_UP(p.b * p.d, COLUMNS_UNIT) * cell),
    };
}

static cpu_shape panel_shape(
    const cpu_device *d, const ks_step *step, const cpu_view *x, const cpu_view *y,
    int64_t n)
{
    danaus_pattern p = step->p.pattern;
    const cpu_code *code = dn_code_of(step);
    int pair = dn_is_complex(step->p.dtype) ? 2 : 1;
    int64_t cell = (int64_t)danaus_dtype_size(dn_sum_type(step->p.dtype));
    int64_t tiles = dn_tile_count(p.b, code->tile_rows / pair);
    int turns = x->layout == DANAUS_BATCH_FIRST || y->layout == DANAUS_BATCH_FIRST;
    int64_t line = LINE / (int64_t)danaus_dtype_size(step->p.dtype);
    cpu_shape g = {
        .columns = ROUND_UP(n, COLUMNS_UNIT),
        .blocks = 1,
        .lanes = turns ? MIN(p.d, line) : 1,
        .tiles = tiles,
        .stage_x = !lies_as_panel(x),
        .stage_y = !lies_as_panel(y),
    };
    if (!g.stage_x && !g.stage_y)
        return g;
    if (turns && g.lanes == p.d)
        g.blocks = MIN(p.a, CEIL_DIV(SHORT_RUN, MIN(p.b, p.c) * p.d));

    /* The widest chunk that leaves room in the second cache; if none does,
       fewer rows of y at a time. */
    int64_t budget = (int64_t)d->l2 * 3 / 4, per_row = g.blocks * g.lanes * cell;
    int64_t columns = 4 * code->tile_columns, rows = p.b;
    int64_t row_of_chunk = (g.stage_x ? p.c : 0) + (g.stage_y ? p.b : 0);
    while (columns > code->tile_columns && row_of_chunk * per_row * columns > budget)
        columns -= code->tile_columns;
    if (row_of_chunk * per_row * columns > budget) {
        columns = ROUND_UP(code->tile_columns / 3, COLUMNS_UNIT);
        if (g.stage_y && row_of_chunk * per_row * columns > budget && g.blocks == 1) {
            g.tiles = MIN(tiles, 4);
            rows = MIN(rows, g.tiles * code->tile_rows);
        }
    }
    g.columns = MIN(g.columns, ROUND_UP(columns, COLUMNS_UNIT));
    g.x_bytes = g.stage_x ? dn_aligned(p.c * per_row * g.columns) : 0;
    g.y_bytes = g.stage_y ? dn_aligned(rows * per_row * g.columns) : 0;
    return g;
}

cpu_shape dn_shape(
    const cpu_device *d, const ks_step *step, const cpu_view *x, const cpu_view *y,
    int64_t n)
{
    return dn_code_of(step)->small_batch ? lanes_shape(step, x, n)
                                         : panel_shape(d, step, x, y, n);
}

static range cut(range all, int64_t unit, int parts, int number)
{
    int64_t units = CEIL_DIV(all.to - all.from, unit);
    return (range){ all.from + units * number / parts * unit,
                    MIN(all.to, all.from + units * (number + 1) / parts * unit) };
}

static int parts_of(const grid *g)
{
    return g->columns * g->blocks * g->lanes * g->tiles;
}

/* A thread's work: the next part until none is left, in scratch of its own. */
static void take_parts(void *arg, int slot)
{
    grid *g = arg;
    cpu_part part = g->all;
    part.scratch = g->scratch + (size_t)slot * g->slot_bytes;
    for (int n; (n = atomic_fetch_add(&g->next, 1)) < parts_of(g);) {
        part.tile = cut(g->all.tile, 1, g->tiles, n % g->tiles);
        n /= g->tiles;
        part.j = cut(g->all.j, g->j_unit, g->lanes, n % g->lanes);
        n /= g->lanes;
        part.i = cut(g->all.i, g->i_unit, g->blocks, n % g->blocks);
        part.s = cut(g->all.s, g->s_unit, g->columns, n / g->blocks);
        g->code->part(&part);
    }
}

/* How many parts: columns first, then blocks, lanes and tiles of rows until
   every thread has some. */
static void choose_cuts(grid *g, int threads, double work)
{
    g->columns = g->blocks = g->lanes = g->tiles = 1;
    if (threads == 1 || work < SERIAL_WORK)
        return;
    int64_t want = (int64_t)threads * PARTS_PER_THREAD;
    g->columns = (int)MIN(CEIL_DIV(g->all.s.to, g->s_unit), 8 * want);
    g->blocks = (int)MIN(CEIL_DIV(g->all.i.to, g->i_unit), CEIL_DIV(want, g->columns));
    want = CEIL_DIV(want, g->columns * g->blocks);
    if (!g->code->small_batch) {
        g->lanes = (int)MIN(CEIL_DIV(g->all.j.to, g->j_unit), want);
        want = CEIL_DIV(want, g->lanes);
    }
    g->tiles = (int)MIN(g->all.tile.to, want);
}

int dn_can_stream(const cpu_view *y, int64_t rows, int64_t n, size_t cache)
{
    size_t size = danaus_dtype_size(y->dtype);
    return (size_t)(rows * n) * size > cache / 2 && (uintptr_t)y->data % LINE == 0 &&
           (size_t)y->ld * size % LINE == 0;
}

void dn_grid_open(
    grid *g, const cpu_device *d, const ks_step *step, const void *packed,
    const void *bias, cpu_view x, cpu_view y, int64_t n)
{
    danaus_pattern p = step->p.pattern;
    const cpu_code *code = dn_code_of(step);
    int pair = dn_is_complex(step->p.dtype) ? 2 : 1;
    cpu_shape shape = dn_shape(d, step, &x, &y, n);
    g->all = (cpu_part){
        .p = p,
        .packed = packed,
        .bias = bias,
        .x = x,
        .y = y,
        .shape = shape,
        .i = { 0, p.a },
        .j = { 0, p.d },
        .tile = { 0, code->small_batch ? shape.tiles
                                       : dn_tile_count(p.b, code->tile_rows / pair) },
        .s = { 0, n },
        .stream = dn_can_stream(&y, dn_pattern_rows(p), n, d->l3),
    };
    g->code = code;
    g->s_unit = lies_as_panel(&x) && lies_as_panel(&y) && !code->small_batch
                    ? TILES_PER_PART * code->tile_columns
                    : shape.columns;
    g->i_unit = shape.blocks;
    g->j_unit = shape.lanes;
    g->slot_bytes = shape.x_bytes + shape.y_bytes;
    atomic_init(&g->next, 0);
    double work = (double)dn_pattern_weights(p) * (double)n * pair * pair +
                  (double)(dn_pattern_rows(p) + dn_pattern_cols(p)) * (double)n;
    choose_cuts(g, d->threads, work);
}

void dn_grid_run(cpu_device *d, grid *g, void *scratch)
{
    g->scratch = scratch;
    int slots = MIN(d->threads, parts_of(g));
    if (slots == 1)
        take_parts(g, 0);
    else
        dn_cpu_parallel(d, slots, take_parts, g);
}
