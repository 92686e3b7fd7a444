/* One product with one factor, cut into a grid of parts for threads.

   Only outputs are cut, never sums, and every output is made by the same
   arithmetic wherever the cuts fall: results do not depend on them. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/product/grid.h"
#include "cpu/product/rows.h"

#include "base/dtype.h"
#include "math/pattern.h"

#include <stdatomic.h>

/* Fewer multiplications than this are not worth waking a thread, or even having one
   that still waits for work. */
#define SHORT_WORK  500000
#define SERIAL_WORK 100000
/* Tiles of rows that make staging x a small part of a part. */
#define TILES_PER_STAGE 64
/* Parts are dealt to so many homes at most; a thread begins with those of its own. */
#define MOST_HOMES 64

typedef struct grid {
    cpu_part all;                      /* what the parts are cut from */
    int columns, blocks, lanes, tiles; /* parts in each direction */
    int whole_blocks;       /* all columns of a block before the next one's */
    int64_t s_unit, t_unit; /* cuts of columns and of tiles are multiples of these */
    int64_t s_chunk;        /* columns that a part should have, about */
    char *scratch;
    size_t slot_bytes;
    int is_short; /* too little work to wake a thread */
    int homes;
    atomic_int taken[MOST_HOMES]; /* parts of each home */
} grid;

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

static void set_part(const grid *g, int n, cpu_part *part)
{
    part->j = cut(g->all.j, g->all.shape->lanes, g->lanes, n % g->lanes);
    n /= g->lanes;
    part->tile = cut(g->all.tile, g->t_unit, g->tiles, n % g->tiles);
    n /= g->tiles;
    int i = g->whole_blocks ? n / g->columns : n % g->blocks;
    int s = g->whole_blocks ? n % g->columns : n / g->blocks;
    part->i = cut(g->all.i, g->all.shape->blocks, g->blocks, i);
    part->s = cut(g->all.s, g->s_unit, g->columns, s);
}

/* The next part of a home, or -1. */
static int claim_part(grid *g, int home)
{
    int64_t parts = parts_of(g);
    home %= g->homes;
    int from = (int)(parts * home / g->homes);
    int to = (int)(parts * (home + 1) / g->homes);
    int n = from + atomic_fetch_add(&g->taken[home], 1);
    return n < to ? n : -1;
}

/* A thread's work, in its own scratch: the parts of its home, then the remaining parts of other
   homes. A part is claimed before the previous one is computed, which then prefetches the start
   of the next part. A repeated product finds its weights in the same core's cache. */
static void take_parts(void *arg, int slot)
{
    grid *g = arg;
    cpu_part part = g->all, next = g->all;
    part.scratch = g->scratch + (size_t)slot * g->slot_bytes;
    for (int n = claim_part(g, slot); n >= 0;) {
        set_part(g, n, &part);
        n = claim_part(g, slot);
        part.next = n >= 0 ? &next : NULL;
        if (n >= 0)
            set_part(g, n, &next);
        g->all.code->part(&part);
        part.fetched = 1;
    }
    part.next = NULL;
    part.fetched = 0;
    for (int other = 1; other < g->homes; other++)
        for (int n; (n = claim_part(g, slot + other)) >= 0;) {
            set_part(g, n, &part);
            g->all.code->part(&part);
        }
}

/* The same where each thread has one part and none to take from others. */
static void take_part(void *arg, int slot)
{
    grid *g = arg;
    cpu_part part = g->all;
    part.scratch = g->scratch + (size_t)slot * g->slot_bytes;
    set_part(g, slot, &part);
    g->all.code->part(&part);
}

/* Cuts of `all` in units, as many as are wanted, and how many remain to be made. */
static int cuts(range all, int64_t unit, int64_t *want)
{
    int64_t parts = MIN(CEIL_DIV(all.to - all.from, unit), *want);
    *want = CEIL_DIV(*want, parts);
    return (int)parts;
}

/* True if threads are idle for at most a ninth of the time when each takes whole parts. */
static int is_even(int64_t parts, int64_t threads)
{
    return ROUND_UP(parts, threads) * 8 <= parts * 9;
}

/* Cuts of tiles of rows after which no two threads make lanes of the same row, where
   their runs of it are so short that they would often share lines of memory, and blocks
   are high enough for x to be staged more than once; else 1. */
static int own_rows(const grid *g, int threads)
{
    const cpu_view *y = &g->all.y;
    int64_t row = g->all.p.d * y->ld * dn_size_of(y->dtype);
    int64_t own = CEIL_DIV(threads, g->blocks), tiles = g->all.tile.to;
    int shared = own > 1 && !g->all.code->lane_vectors && row < SHARED_RUN * own;
    return shared && g->all.p.b >= g->all.p.c && is_even(tiles, own) ? (int)own : 1;
}

/* Cuts of tiles of rows. Each part stages all of x for itself: as few as give threads
   the same work, more only if a part still has tiles enough to make up for it. */
static int tile_cuts(const grid *g, int threads, int64_t want)
{
    int64_t parts = (int64_t)g->columns * g->blocks * g->lanes;
    int64_t tiles = g->all.tile.to - g->all.tile.from;
    int64_t needed = MAX(CEIL_DIV(threads, parts), g->tiles);
    while (g->columns == 1 && needed < threads && !is_even(parts * needed, threads))
        needed++;
    int64_t times = MIN(want, tiles / TILES_PER_STAGE) / needed; /* all have as many */
    return (int)MIN(tiles, needed * MAX(1, times));
}

/* Cuts of columns into chunks: where they can be cut finer than that, as many for each
   thread. Batch-last, a chunk that has all columns stays whole. */
static int column_cuts(const grid *g, int threads, int last, int64_t most)
{
    int64_t n = g->all.s.to - g->all.s.from;
    int64_t units = CEIL_DIV(n, g->s_unit), chunks = CEIL_DIV(n, g->s_chunk);
    if (units > chunks && !(last && chunks == 1))
        chunks = MAX(ROUND_UP(chunks, threads), last ? 1 : 2 * threads);
    return (int)MIN(MIN(units, chunks), most);
}

/* How many parts. Batch-last columns of a block follow each other in memory, so
   blocks and lanes are cut first; batch-first, blocks of a column do, and columns are,
   unless that would have each thread read weights that its cache does not keep. */
static void choose_cuts(grid *g, int threads)
{
    int last =
        g->all.x.layout == DANAUS_BATCH_LAST && g->all.y.layout == DANAUS_BATCH_LAST;
    g->columns = g->blocks = g->lanes = g->tiles = 1;
    int64_t want = (int64_t)threads * (g->is_short ? 1 : PARTS_PER_THREAD);
    int columns_last = last || g->all.shape->weights_first;
    if (!columns_last)
        g->columns = column_cuts(g, threads, last, 8 * want);
    want = CEIL_DIV(want, g->columns);
    int lanes = g->all.code->lane_vectors > 0, first = g->all.shape->weights_first;
    int64_t cell = dn_size_of(g->all.y.dtype);
    int own = lanes && !last && dn_owns_blocks(g->all.p, cell, threads);
    g->whole_blocks = first || own;
    if (own && !first)
        want = ROUND_UP(want, threads);
    g->blocks = cuts(g->all.i, g->all.shape->blocks, &want);
    if (last)
        g->tiles = own_rows(g, threads);
    want = CEIL_DIV(want, g->tiles);
    if (g->t_unit > 1)
        g->tiles = cuts(g->all.tile, g->t_unit, &want);
    if (!g->all.code->lane_vectors)
        g->lanes = cuts(g->all.j, g->all.shape->lanes, &want);
    if (columns_last)
        g->columns = column_cuts(g, threads, last, want);
    /* One chunk a part: whole tiles, as many for each thread. */
    if (lanes && g->blocks == 1 && g->columns % threads == 0 &&
        g->columns == CEIL_DIV(g->all.s.to, g->s_unit))
        g->s_unit = MIN(g->s_unit, g->all.code->tile_columns);
    if (g->t_unit == 1)
        g->tiles = tile_cuts(g, threads, last ? CEIL_DIV(want, g->columns) : want);
}

int dn_can_stream(const cpu_view *y, int64_t rows, int64_t n, size_t cache)
{
    size_t size = danaus_dtype_size(y->dtype);
    return (size_t)(rows * n) * size > cache && (uintptr_t)y->data % DN_ALIGN == 0 &&
           (size_t)y->ld * size % DN_ALIGN == 0;
}

/* Columns of a batch-last part: the longer the runs in memory the better, while
   a block's x and y stay in the second cache and every thread gets parts. */
static int64_t long_runs(const cpu_device *d, const cpu_part *all)
{
    int64_t width = all->code->tile_columns, n = all->s.to;
    int64_t cell = dn_size_of(all->x.dtype);
    int64_t most = (int64_t)d->l2 / 2 / ((all->p.b + all->p.c) * cell * width);
    int64_t fair = n / (2 * PARTS_PER_THREAD * d->threads * width);
    return width * MAX(MOST_TILES, MIN(most, fair));
}

/* The units of cuts. */
static void choose_units(const cpu_device *d, grid *g)
{
    const cpu_part *all = &g->all;
    const cpu_shape *by = all->shape;
    int lanes = all->code->lane_vectors > 0;
    g->s_unit = g->s_chunk = by->columns;
    if (lanes) /* each part reads its weights for all of its columns */
        g->s_chunk = MAX(LANE_COLUMNS_AT_A_TIME, by->columns);
    else if (dn_lies_as_panel(&all->x) && dn_lies_as_panel(&all->y))
        g->s_unit = all->code->tile_columns, g->s_chunk = long_runs(d, all);
    else if (all->p.a * CEIL_DIV(all->s.to, g->s_unit) < 4 * d->threads) /* uneven */
        g->s_unit = all->code->tile_columns;
    g->t_unit = lanes && by->tiles < by->all_tiles ? by->tiles : 1;
}

void dn_whole(
    const cpu_device *d, const ks_step *step, const cpu_shape *shape,
    const void *packed, const cpu_view *x, const cpu_view *y, int64_t n, cpu_part *to)
{
    danaus_pattern p = step->p.pattern;
    *to = (cpu_part){
        .p = p,
        .code = dn_code_of(step),
        .packed = packed,
        .x = *x,
        .y = *y,
        .shape = shape,
        .i = { 0, p.a },
        .j = { 0, p.d },
        .tile = { 0, shape->all_tiles },
        .s = { 0, n },
        .stream = dn_can_stream(y, dn_pattern_rows(p), n, d->l2),
        .cold_x = 1,
        .cold_y = 1,
    };
}

/* Multiplications. To load a weight costs as much as some products with it. */
static double work_of(const cpu_part *all)
{
    double n = (double)all->s.to, pair = dn_is_complex(all->y.dtype) ? 2 : 1;
    return (double)dn_pattern_weights(all->p) * (n + 2) * pair * pair +
           (double)(dn_pattern_rows(all->p) + dn_pattern_cols(all->p)) * n;
}

void dn_run_parts(cpu_device *d, cpu_part *all, void *scratch)
{
    double work = work_of(all);
    all->scratch = scratch;
    if (d->threads == 1 || work < SERIAL_WORK) {
        all->code->part(all);
        return;
    }
    grid g;
    g.all = *all;
    g.scratch = scratch;
    g.slot_bytes = dn_stage_bytes(all->shape);
    g.is_short = work < SHORT_WORK;
    choose_units(d, &g);
    choose_cuts(&g, d->threads);
    int slots = MIN(d->threads, parts_of(&g));
    if (slots == 1) {
        all->code->part(all);
        return;
    }
    g.homes = MIN(slots, MOST_HOMES);
    for (int h = 0; h < g.homes; h++)
        atomic_init(&g.taken[h], 0);
    (g.is_short ? dn_cpu_parallel_short : dn_cpu_parallel)(
        d, slots, parts_of(&g) == slots ? take_part : take_parts, &g);
}
