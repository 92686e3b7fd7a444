/* One product with one factor: how a kernel stages it through the caches, and how
   it is cut into a grid of parts for threads.

   Only outputs are cut, never sums, and every output is made by the same
   arithmetic wherever the cuts fall: results do not depend on them. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/product/grid.h"
#include "cpu/product/rows.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "math/pattern.h"

/* Fewer multiplications than this are not worth waking a thread, or even having one
   that still waits for work. */
#define SHORT_WORK  500000
#define SERIAL_WORK 100000
/* Parts for each thread, so that an interrupted one is not waited for. */
#define PARTS_PER_THREAD 6
/* Tiles of rows that make staging x a small part of a part. */
#define TILES_PER_STAGE 64
/* Tiles of columns that are staged at a time, at most. */
#define MOST_TILES 5
#define LINE       64
/* Bytes of lines of x that tiles read as they lie, if a row of them is one line. */
#define IN_PLACE 8192
/* Tiles that read x faster from the second cache than they would read a copy. */
#define FEW_TILES 8
/* Bytes of small blocks that are taken together, and how many at least. */
#define SMALL_CHUNK 16384
#define LEAST_GROUP 4
/* Bytes of runs of y that threads should not share lines of memory for: to and fro between
   two cores a line takes 0.1 to 0.4 microseconds. */
#define SHARED_RUN 1024
/* Columns that are gathered at once if there are no more and weights are large. */
#define GATHERED_AT_ONCE 18
/* Bytes of a block's x or y of one column that a core fetches as fast as longer ones. */
#define LONG_LINE 512

/* True if threads share the blocks of batch-first vectors, the same number each. Blocks are
   long runs in memory, and all threads share a narrow last chunk of columns. */
static int owns_blocks(danaus_pattern p, int64_t cell, int threads)
{
    return p.a % threads == 0 &&
           p.a / threads * MIN(p.b, p.c) * p.d * cell >= SHARED_RUN;
}

/* Columns of a chunk, `most` or fewer. Few chunks are as many for each thread. All are even,
   and of whole tiles where threads have as many columns all the same. */
static int64_t lane_columns(
    const cpu_device *d, const ks_step *step, int64_t n, int64_t most)
{
    danaus_pattern p = step->p.pattern;
    int64_t cell = dn_size_of(step->p.dtype);
    int64_t chunks = CEIL_DIV(n, most);
    int few = n > most && p.a * chunks < 4 * d->threads * PARTS_PER_THREAD;
    int tiles = few ? p.a == 1 : owns_blocks(p, cell, d->threads);
    if (few)
        chunks = ROUND_UP(chunks, d->threads);
    return MIN(
        ROUND_UP(CEIL_DIV(n, chunks), tiles ? dn_code_of(step)->tile_columns : 2),
        most);
}

/* Kernels along lines: x of a block as lines (lanes.inc). Weights that the second cache would
   not keep from one chunk of columns to the next are met block after block, of large blocks
   group after group, each for all columns. */
static cpu_shape lanes_shape(
    const cpu_device *d, const ks_step *step, const cpu_view *x, const cpu_view *y,
    int64_t n)
{
    danaus_pattern p = step->p.pattern;
    const cpu_code *code = dn_code_of(step);
    int64_t pair = dn_is_complex(step->p.dtype) ? 2 : 1;
    int64_t cell = dn_size_of(dn_sum_type(step->p.dtype));
    lane_map m = dn_lane_map(p, code, pair == 2);
    m.gather = dn_gathers(d->traits, &m);
    int64_t block = p.b * p.c * p.d * cell * pair; /* of weights, bytes */
    int64_t most = m.gather ? d->traits->gather_columns : LANE_COLUMNS_AT_A_TIME;
    /* A few too many are gathered at once if each part would read weights again that the
       second cache does not keep. Room is for fewer columns, too, whose chunks may be
       wider. */
    int64_t l2 = (int64_t)d->l2;
    int again =
        m.gather && block > (d->traits->weights_first ? l2 * 3 / 4 * d->threads : l2);
    int64_t room = MIN(n, again ? MAX(most, GATHERED_AT_ONCE) : most);
    int64_t columns = n == room ? n : lane_columns(d, step, n, most);
    size_t line_bytes =
        dn_lies_as_lines(x) || dn_lanes_take_rows(x, p.d)
            ? 0
            : dn_aligned(room * ROUND_UP(p.c * p.d, COLUMNS_UNIT) * cell);
    int64_t own = 0; /* elements of x that are gathered, or of y before it is spread */
    if (m.gather)
        own = dn_gathered_groups(&m, cell) * m.per * p.c *
              (room + CEIL_DIV(room, code->tile_columns));
    else if (m.spread)
        own = room * m.per * code->lane_vectors;
    int weights_first = d->traits->weights_first && n > most && p.a * block > l2 / 2 &&
                        MIN(p.b, p.c) * p.d * cell * pair >= LONG_LINE;
    int64_t groups = dn_gathered_groups(&m, cell);
    int some = weights_first && block > l2 / 2 && m.gather && dn_lies_as_lines(x) &&
               m.groups % groups == 0;
    return (cpu_shape){
        .columns = columns,
        .blocks = 1,
        .lanes = p.d,
        .tiles = some ? groups * m.tiles : dn_lane_tiles(&m),
        .rows = dn_lane_rows(d, p, code, &m, cell),
        .weights_first = weights_first,
        .x_bytes = line_bytes + dn_aligned(own * cell),
        .y_bytes = dn_aligned(room * ROUND_UP(dn_odd(p.b) * p.d, COLUMNS_UNIT) * cell) *
                   (y->residual ? 2 : 1),
    };
}

/* x is read once for every tile of rows: if there is only one, it need not be gathered
   first. Nor where a core reads it as fast from where it lies: if the lines of a tile stay
   in the first cache. They do not if its rows are multiples of a page apart, or there are
   more of them on the same sets than these hold; and loads of x then wait for stores of y,
   whose addresses have the same low bits. Rows of one line's bytes lie on two. */
static int gather_x(
    const cpu_device *d, const cpu_view *x, danaus_pattern p, int64_t tiles,
    int64_t width, int64_t n)
{
    if (!dn_lies_as_panel(x))
        return 1;
    if (tiles == 1 || x->tile_step)
        return 0;
    int64_t cell = dn_size_of(x->dtype), apart = p.d * x->ld * cell;
    int narrow = width * cell <= LINE && p.c * 2 * LINE > IN_PLACE;
    int64_t most = d->traits->in_place;
    if (narrow || apart % CACHE_WAY == 0 || most == 0)
        return 1;
    if (most == ANY_IN_PLACE || n * cell <= LINE)
        return 0;
    int64_t sets = CACHE_WAY / (apart & -apart), ways = CEIL_DIV(p.c, sets);
    return p.c * (width * cell + LINE) > most ||
           ways > CACHE_WAYS * (tiles <= FEW_TILES ? 2 : 1);
}

/* How many blocks (i, j) with so many bytes of x and y share a chunk, if nothing is staged and
   rows are whole. Starting a chunk takes longer than the products of a few small blocks. And if
   rows of all lanes are contiguous, a core prefetches such a run by itself; for some lanes it
   does not. */
static int64_t blocks_together(const cpu_device *d, danaus_pattern p, int64_t bytes)
{
    int64_t small = MIN(SMALL_CHUNK / bytes, p.a * p.d / (4 * d->threads));
    int64_t group = small < LEAST_GROUP ? 1 : small;
    if (bytes * p.d <= (int64_t)d->l2 / 3 && p.a >= 16 * d->threads)
        group = MAX(group, p.d);
    return group;
}

static cpu_shape panel_shape(
    const cpu_device *d, const ks_step *step, const cpu_view *x, const cpu_view *y,
    int64_t n)
{
    danaus_pattern p = step->p.pattern;
    const cpu_code *code = dn_code_of(step);
    int pair = dn_is_complex(step->p.dtype) ? 2 : 1;
    int64_t cell = dn_size_of(dn_sum_type(step->p.dtype));
    int64_t width = code->tile_columns,
            tiles = dn_tile_count(p.b, code->tile_rows / pair);
    int turns = x->layout == DANAUS_BATCH_FIRST || y->layout == DANAUS_BATCH_FIRST;
    int64_t line = LINE / dn_size_of(step->p.dtype);
    /* A thread's first chunk is fetched by nobody: of few, it should be small. */
    int64_t most = turns || p.a * p.d >= 4 * d->threads ? MOST_TILES : 1;
    cpu_shape g = {
        .columns = most * width,
        .few = MAX(code->vector / pair, 1),
        .width = width,
        .blocks = 1,
        .lanes = 1,
        .tiles = tiles,
        .stage_x = gather_x(d, x, p, tiles, width, n),
        .stage_y = !dn_lies_as_panel(y),
    };
    g.copy_x = g.stage_x && !turns && dn_lies_as_panel(x) && p.b % code->tile_rows == 0;
    /* Bytes of a tile's width of columns of one block and lane: x, the next x that is
       fetched meanwhile, and y. */
    int64_t budget = (int64_t)d->l2 * 3 / 4;
    int64_t unit = ((g.stage_x ? 2 * p.c : 0) + (g.stage_y ? p.b : 0)) * width * cell;
    if (turns) {
        /* Whole lines of memory at least, whole vectors at best. */
        int64_t room = MAX(1, budget / unit);
        g.lanes = p.d <= line || p.d <= room ? p.d : MAX(line, room / line * line);
        if (g.lanes == p.d)
            g.blocks = MIN(p.a, MAX(1, room / p.d));
        /* More than there is room for if weights, read again for every chunk, would else be
           more bytes for a column than its x and y three times. */
        int64_t wide = (p.b * p.c / (3 * (p.b + p.c)) + width / 2) / width;
        int64_t fitting = MAX(1, room / (g.lanes * g.blocks));
        g.columns = width * MIN(most, MAX(wide, fitting));
        if (g.stage_y && unit * g.lanes > budget)
            g.tiles = MIN(
                tiles, MAX(1, budget / 2 / (g.lanes * width * cell * code->tile_rows)));
    } else if (unit) {
        g.columns = width * MIN(most, MAX(1, budget / unit));
    } else if (n <= g.columns) {
        int64_t group = blocks_together(d, p, (p.b + p.c) * n * cell);
        g.lanes = MIN(group, p.d);
        g.blocks = g.lanes == p.d ? CLAMP(group / p.d, 1, p.a) : 1;
    }
    /* As even as can be, so that no chunk is a narrow rest. */
    int64_t chunks = CEIL_DIV(n, g.columns),
            widest = MIN(g.columns, ROUND_UP(n, width));
    g.columns = ROUND_UP(CEIL_DIV(n, chunks), width);
    int64_t rows = MIN(p.b, g.tiles * (code->tile_rows / pair));
    int whole = turns || !(g.stage_x || g.stage_y);
    g.staged = whole ? g.columns : width;
    int64_t per_row = g.blocks * g.lanes * (whole ? widest : width) * cell;
    g.x_bytes = g.stage_x ? dn_aligned(p.c * per_row) : 0;
    g.y_bytes = g.stage_y ? dn_aligned(rows * per_row) * (y->residual ? 2 : 1) : 0;
    return g;
}

cpu_shape dn_shape(
    const cpu_device *d, const ks_step *step, const cpu_view *x, const cpu_view *y,
    int64_t n)
{
    const cpu_code *code = dn_code_of(step);
    return code->thin           ? dn_thin_shape(step, x, y, n)
           : code->lane_vectors ? lanes_shape(d, step, x, y, n)
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

static void set_part(const grid *g, int n, cpu_part *part)
{
    part->j = cut(g->all.j, g->j_unit, g->lanes, n % g->lanes);
    n /= g->lanes;
    part->tile = cut(g->all.tile, g->t_unit, g->tiles, n % g->tiles);
    n /= g->tiles;
    int i = g->whole_blocks ? n / g->columns : n % g->blocks;
    int s = g->whole_blocks ? n % g->columns : n / g->blocks;
    part->i = cut(g->all.i, g->i_unit, g->blocks, i);
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
        g->code->part(&part);
        part.fetched = 1;
    }
    part.next = NULL;
    part.fetched = 0;
    for (int other = 1; other < g->homes; other++)
        for (int n; (n = claim_part(g, slot + other)) >= 0;) {
            set_part(g, n, &part);
            g->code->part(&part);
        }
}

/* The same where each thread has one part and none to take from others. */
static void take_part(void *arg, int slot)
{
    grid *g = arg;
    cpu_part part = g->all;
    part.scratch = g->scratch + (size_t)slot * g->slot_bytes;
    set_part(g, slot, &part);
    g->code->part(&part);
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
    int shared = own > 1 && !g->code->lane_vectors && row < SHARED_RUN * own;
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
static void choose_cuts(grid *g, int threads, double work)
{
    int last =
        g->all.x.layout == DANAUS_BATCH_LAST && g->all.y.layout == DANAUS_BATCH_LAST;
    g->columns = g->blocks = g->lanes = g->tiles = 1;
    g->whole_blocks = 0;
    if (threads == 1 || work < SERIAL_WORK)
        return;
    int64_t want = (int64_t)threads * (g->is_short ? 1 : PARTS_PER_THREAD);
    int columns_last = last || g->all.shape.weights_first;
    if (!columns_last)
        g->columns = column_cuts(g, threads, last, 8 * want);
    want = CEIL_DIV(want, g->columns);
    int lanes = g->code->lane_vectors > 0, first = g->all.shape.weights_first;
    int64_t cell = dn_size_of(g->all.y.dtype);
    int own = lanes && !last && owns_blocks(g->all.p, cell, threads);
    g->whole_blocks = first || own;
    if (own && !first)
        want = ROUND_UP(want, threads);
    g->blocks = cuts(g->all.i, g->i_unit, &want);
    if (last)
        g->tiles = own_rows(g, threads);
    want = CEIL_DIV(want, g->tiles);
    if (g->t_unit > 1)
        g->tiles = cuts(g->all.tile, g->t_unit, &want);
    if (!g->code->lane_vectors)
        g->lanes = cuts(g->all.j, g->j_unit, &want);
    if (columns_last)
        g->columns = column_cuts(g, threads, last, want);
    /* One chunk a part: whole tiles, as many for each thread. */
    if (lanes && g->blocks == 1 && g->columns % threads == 0 &&
        g->columns == CEIL_DIV(g->all.s.to, g->s_unit))
        g->s_unit = MIN(g->s_unit, g->code->tile_columns);
    if (g->t_unit == 1)
        g->tiles = tile_cuts(g, threads, last ? CEIL_DIV(want, g->columns) : want);
}

int dn_can_stream(const cpu_view *y, int64_t rows, int64_t n, size_t cache)
{
    size_t size = danaus_dtype_size(y->dtype);
    return (size_t)(rows * n) * size > cache && (uintptr_t)y->data % LINE == 0 &&
           (size_t)y->ld * size % LINE == 0;
}

/* Columns of a batch-last part: the longer the runs in memory the better, while
   a block's x and y stay in the second cache and every thread gets parts. */
static int64_t long_runs(const cpu_device *d, const ks_step *step, int64_t n)
{
    danaus_pattern p = step->p.pattern;
    int64_t width = dn_code_of(step)->tile_columns;
    int64_t cell = dn_size_of(step->p.dtype);
    int64_t most = (int64_t)d->l2 / 2 / ((p.b + p.c) * cell * width);
    int64_t fair = n / (2 * PARTS_PER_THREAD * d->threads * width);
    return width * MAX(MOST_TILES, MIN(most, fair));
}

/* Tiles of a block that parts may share. */
static int64_t tiles_of(danaus_pattern p, const cpu_code *code, int pair)
{
    if (!code->lane_vectors)
        return dn_tile_count(p.b, code->tile_rows / pair);
    if (code->thin)
        return 1;
    lane_map m = dn_lane_map(p, code, pair == 2);
    return dn_lane_tiles(&m);
}

void dn_grid_open(
    grid *g, const cpu_device *d, const ks_step *step, const void *packed,
    const void *bias, cpu_view x, cpu_view y, int64_t n)
{
    danaus_pattern p = step->p.pattern;
    const cpu_code *code = dn_code_of(step);
    int pair = dn_is_complex(step->p.dtype) ? 2 : 1;
    cpu_shape shape = dn_shape(d, step, &x, &y, n);
    int64_t tiles = tiles_of(p, code, pair);
    g->all = (cpu_part){
        .p = p,
        .code = code,
        .traits = d->traits,
        .packed = packed,
        .bias = bias,
        .x = x,
        .y = y,
        .shape = shape,
        .i = { 0, p.a },
        .j = { 0, p.d },
        .tile = { 0, tiles },
        .s = { 0, n },
        .stream = dn_can_stream(&y, dn_pattern_rows(p), n, d->l2),
        .cold_x = 1,
        .cold_y = 1,
    };
    g->code = code;
    g->s_unit = g->s_chunk = shape.columns;
    if (code->lane_vectors) /* each part reads its weights for all of its columns */
        g->s_chunk = MAX(LANE_COLUMNS_AT_A_TIME, shape.columns);
    else if (dn_lies_as_panel(&x) && dn_lies_as_panel(&y))
        g->s_unit = code->tile_columns, g->s_chunk = long_runs(d, step, n);
    else if (p.a * CEIL_DIV(n, g->s_unit) < 4 * d->threads) /* uneven parts */
        g->s_unit = code->tile_columns;
    g->t_unit = code->lane_vectors && shape.tiles < tiles ? shape.tiles : 1;
    g->i_unit = shape.blocks;
    g->j_unit = shape.lanes;
    g->slot_bytes = shape.x_bytes + shape.y_bytes;
    /* To load a weight costs as much as some products with it. */
    double work = (double)dn_pattern_weights(p) * ((double)n + 2) * pair * pair +
                  (double)(dn_pattern_rows(p) + dn_pattern_cols(p)) * (double)n;
    g->is_short = work < SHORT_WORK;
    choose_cuts(g, d->threads, work);
}

void dn_grid_run(cpu_device *d, grid *g, void *scratch)
{
    g->scratch = scratch;
    int slots = MIN(d->threads, parts_of(g));
    if (slots == 1) {
        g->all.scratch = scratch;
        g->code->part(&g->all);
        return;
    }
    g->homes = MIN(slots, MOST_HOMES);
    for (int h = 0; h < g->homes; h++)
        atomic_init(&g->taken[h], 0);
    parallel_task task = parts_of(g) == slots ? take_part : take_parts;
    if (g->is_short)
        dn_cpu_parallel_short(d, slots, task, g);
    else
        dn_cpu_parallel(d, slots, task, g);
}
