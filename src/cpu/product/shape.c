/* Shapes: how a kernel takes some columns of a step through the caches. A call decides the shape
   of each of its steps once; kernels and threads only take it.

   The shape changes no result: every output is computed by the same arithmetic in any. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/product/grid.h"
#include "cpu/product/rows.h"

#include "base/dtype.h"
#include "math/pattern.h"

/* Bytes of lines of x that tiles read as they lie, if a row of them is one line. */
#define IN_PLACE 8192
/* Tiles that read x faster from the second cache than they would read a copy. */
#define FEW_TILES 8
/* Bytes of small blocks that are taken together, and how many at least. */
#define SMALL_CHUNK 16384
#define LEAST_GROUP 4
/* Columns that are gathered at once if there are no more and weights are large. */
#define GATHERED_AT_ONCE 18
/* Bytes of a block's x or y of one column that a core fetches as fast as longer ones. */
#define LONG_LINE 512

/* Columns of a chunk, `most` or fewer. Few chunks are as many for each thread. All are even,
   and of whole tiles where threads have as many columns all the same. */
static int64_t lane_columns(
    const cpu_device *d, const ks_step *step, int64_t n, int64_t most)
{
    danaus_pattern p = step->p.pattern;
    int64_t cell = dn_size_of(step->p.dtype);
    int64_t chunks = CEIL_DIV(n, most);
    int few = n > most && p.a * chunks < 4 * d->threads * PARTS_PER_THREAD;
    int tiles = few ? p.a == 1 : dn_owns_blocks(p, cell, d->threads);
    if (few)
        chunks = ROUND_UP(chunks, d->threads);
    return MIN(
        ROUND_UP(CEIL_DIV(n, chunks), tiles ? dn_code_of(step)->tile_columns : 2),
        most);
}

/* Rows k that tiles of lanes take at a time: all, or where x of a tile's columns is one run as
   many as the first cache keeps of it. Their weights wait in the second cache for all columns,
   and sums in y. */
static int64_t lane_rows(
    const cpu_device *d, danaus_pattern p, const cpu_code *code, const lane_map *m,
    int64_t cell)
{
    int64_t vector = code->vector * cell;
    int64_t most = FIRST_CACHE / (code->tile_columns * vector);
    int one_run = p.d > 1 && p.d == m->per && !m->spread;
    int narrow = 2 * p.b <= code->lane_vectors;
    if (!d->traits.in_pieces || !one_run || narrow || p.c <= most ||
        most * p.b * vector > (int64_t)d->l2 / 2)
        return p.c;
    return (p.c - 1) / ((p.c - 1) / most + 1) + 1;
}

lane_map dn_lane_order(
    const cpu_device *d, danaus_pattern p, const cpu_code *code, danaus_dtype dtype)
{
    lane_map m = dn_lane_map(p, code, dn_is_complex(dtype));
    m.gather = !m.spread && m.groups > 1 && m.tiles >= d->traits.gather_tiles;
    m.rows = lane_rows(d, p, code, &m, dn_size_of(dn_sum_type(dtype)));
    return m;
}

/* Kernels along lines: x of a block as lines (lanes.inc). Weights that the second cache would
   not keep from one chunk of columns to the next are met block after block, of large blocks
   group after group, each for all columns. */
static void lanes_shape(
    const cpu_device *d, const ks_step *step, const cpu_view *x, const cpu_view *y,
    int64_t n, cpu_shape *to)
{
    danaus_pattern p = step->p.pattern;
    const cpu_code *code = dn_code_of(step);
    int64_t pair = dn_is_complex(step->p.dtype) ? 2 : 1;
    int64_t cell = dn_size_of(dn_sum_type(step->p.dtype));
    lane_map m = dn_lane_order(d, p, code, step->p.dtype);
    int64_t run = p.c * p.d * cell, block = run * p.b * pair; /* bytes of weights */
    int64_t most = m.gather ? d->traits.gather_columns : LANE_COLUMNS_AT_A_TIME;
    /* A few too many are gathered at once if each part would read weights again that the
       second cache does not keep. Room is for fewer columns, too, whose chunks may be
       wider. */
    int64_t l2 = (int64_t)d->l2;
    int again =
        m.gather && block > (d->traits.weights_first ? l2 * 3 / 4 * d->threads : l2);
    int64_t room = MIN(n, again ? MAX(most, GATHERED_AT_ONCE) : most);
    int64_t columns = n == room ? n : lane_columns(d, step, n, most);
    size_t line_bytes =
        dn_lies_as_lines(x) || dn_lanes_take_rows(x, p.d)
            ? 0
            : dn_aligned(room * ROUND_UP(p.c * p.d, COLUMNS_UNIT) * cell);
    int64_t groups = dn_gathered_groups(&m, cell);
    int64_t own = 0; /* elements of x that are gathered, or of y before it is spread */
    if (m.gather)
        own = groups * m.per * p.c * (room + CEIL_DIV(room, code->tile_columns));
    else if (m.spread)
        own = room * m.per * code->lane_vectors;
    int weights_first = d->traits.weights_first && n > most && p.a * block > l2 / 2 &&
                        MIN(p.b, p.c) * p.d * cell * pair >= LONG_LINE;
    int some = weights_first && block > l2 / 2 && m.gather && dn_lies_as_lines(x) &&
               m.groups % groups == 0;
    /* A processor fetches long runs by itself. */
    int fetch = d->traits.fetch_lines && (p.d >= m.per || run < FETCHED_RUN);
    *to = (cpu_shape){
        .columns = columns,
        .blocks = 1,
        .lanes = p.d,
        .tiles = some ? groups * m.tiles : dn_lane_tiles(&m),
        .all_tiles = dn_lane_tiles(&m),
        .lane = m,
        .weights_first = weights_first,
        .fetch_lines = fetch,
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
    int narrow = width * cell <= DN_ALIGN && p.c * 2 * DN_ALIGN > IN_PLACE;
    int64_t most = d->traits.in_place;
    if (narrow || apart % CACHE_WAY == 0 || most == 0)
        return 1;
    if (most == ANY_IN_PLACE || n * cell <= DN_ALIGN)
        return 0;
    int64_t sets = CACHE_WAY / (apart & -apart), ways = CEIL_DIV(p.c, sets);
    return p.c * (width * cell + DN_ALIGN) > most ||
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

static void panel_shape(
    const cpu_device *d, const ks_step *step, const cpu_view *x, const cpu_view *y,
    int64_t n, cpu_shape *g)
{
    danaus_pattern p = step->p.pattern;
    const cpu_code *code = dn_code_of(step);
    int pair = dn_is_complex(step->p.dtype) ? 2 : 1;
    int64_t cell = dn_size_of(dn_sum_type(step->p.dtype));
    int64_t width = code->tile_columns,
            tiles = dn_tile_count(p.b, code->tile_rows / pair);
    int turns = x->layout == DANAUS_BATCH_FIRST || y->layout == DANAUS_BATCH_FIRST;
    int64_t line = DN_ALIGN / dn_size_of(step->p.dtype);
    /* A thread's first chunk is fetched by nobody: of few, it should be small. */
    int64_t most = turns || p.a * p.d >= 4 * d->threads ? MOST_TILES : 1;
    *g = (cpu_shape){
        .columns = most * width,
        .few = MAX(code->vector / pair, 1),
        .width = width,
        .blocks = 1,
        .lanes = 1,
        .tiles = tiles,
        .all_tiles = tiles,
        .stage_x = gather_x(d, x, p, tiles, width, n),
        .stage_y = !dn_lies_as_panel(y),
    };
    g->copy_x =
        g->stage_x && !turns && dn_lies_as_panel(x) && p.b % code->tile_rows == 0;
    /* Bytes of a tile's width of columns of one block and lane: x, the next x that is
       fetched meanwhile, and y. */
    int64_t budget = (int64_t)d->l2 * 3 / 4;
    int64_t unit = ((g->stage_x ? 2 * p.c : 0) + (g->stage_y ? p.b : 0)) * width * cell;
    if (turns) {
        /* Whole lines of memory at least, whole vectors at best. */
        int64_t room = MAX(1, budget / unit);
        g->lanes = p.d <= line || p.d <= room ? p.d : MAX(line, room / line * line);
        if (g->lanes == p.d)
            g->blocks = MIN(p.a, MAX(1, room / p.d));
        /* More than there is room for if weights, read again for every chunk, would else be
           more bytes for a column than its x and y three times. */
        int64_t wide = (p.b * p.c / (3 * (p.b + p.c)) + width / 2) / width;
        int64_t fitting = MAX(1, room / (g->lanes * g->blocks));
        g->columns = width * MIN(most, MAX(wide, fitting));
        if (g->stage_y && unit * g->lanes > budget)
            g->tiles =
                MIN(tiles,
                    MAX(1, budget / 2 / (g->lanes * width * cell * code->tile_rows)));
    } else if (unit) {
        g->columns = width * MIN(most, MAX(1, budget / unit));
    } else if (n <= g->columns) {
        int64_t group = blocks_together(d, p, (p.b + p.c) * n * cell);
        g->lanes = MIN(group, p.d);
        g->blocks = g->lanes == p.d ? CLAMP(group / p.d, 1, p.a) : 1;
    }
    /* As even as can be, so that no chunk is a narrow rest. */
    int64_t chunks = CEIL_DIV(n, g->columns),
            widest = MIN(g->columns, ROUND_UP(n, width));
    g->columns = ROUND_UP(CEIL_DIV(n, chunks), width);
    int64_t rows = MIN(p.b, g->tiles * (code->tile_rows / pair));
    int whole = turns || !(g->stage_x || g->stage_y);
    g->staged = whole ? g->columns : width;
    int64_t per_row = g->blocks * g->lanes * (whole ? widest : width) * cell;
    g->x_bytes = g->stage_x ? dn_aligned(p.c * per_row) : 0;
    g->y_bytes = g->stage_y ? dn_aligned(rows * per_row) * (y->residual ? 2 : 1) : 0;
}

void dn_shape(
    const cpu_device *d, const ks_step *step, const cpu_view *x, const cpu_view *y,
    int64_t n, cpu_shape *to)
{
    const cpu_code *code = dn_code_of(step);
    if (code->dots.terms)
        dn_int8_shape(d, step, x, y, n, to);
    else if (code->thin)
        dn_thin_shape(step, x, y, n, to);
    else if (code->lane_vectors)
        lanes_shape(d, step, x, y, n, to);
    else
        panel_shape(d, step, x, y, n, to);
    to->fetch_near = d->traits.fetch_near;
    to->fetch_far = d->traits.fetch_far;
}
