/* Chains on the CPU: one step after the other over wide slabs of columns, or slab after
   slab, each through all steps while its intermediate vectors are in the cache. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/product/grid.h"
#include "cpu/product/rows.h"

#include "base/dtype.h"
#include "base/status.h"
#include "math/pattern.h"

/* Tiles of columns in a slab, at most: 10 was best of 1 to 20 for batch-last Monarch
   chains of 1024 and 4096 (bench/suites/chains.csv). */
#define MOST_SLAB_TILES 10
/* Slabs for each thread, so that none waits long for the last one. */
#define SLABS_PER_THREAD 6
/* Where steps follow each other over wide slabs, an intermediate vector's last caches, and
   its bytes at most. */
#define WIDE_SLAB_CACHES 4
#define WIDE_SLAB_BYTES  ((int64_t)128 << 20)

/* True if panels lie between step and the next one, not lines. */
static int has_panels(const ks_step *step)
{
    return !dn_code_of(step)->lane_vectors && !dn_code_of(step + 1)->lane_vectors;
}

/* The view of the results of a step that the next one reads. */
static cpu_view between(const ks_step *step, void *memory, int64_t columns)
{
    int panels = has_panels(step);
    return (cpu_view){
        .data = memory,
        .dtype = dn_sum_type(step->p.dtype),
        .layout = panels ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST,
        .ld = dn_line_step(
            panels ? columns : dn_pattern_rows(step->p.pattern), COLUMNS_UNIT),
    };
}

/* Where row (i, k, j) of x begins in a tile of columns that lies [i][j][k]. */
static void fill_places(danaus_pattern p, int64_t width, int64_t *place)
{
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t k = 0; k < p.c; k++)
            for (int64_t j = 0; j < p.d; j++)
                *place++ = ((i * p.d + j) * p.c + k) * width;
}

/* x or y of the whole product. A single column by itself is the same in both layouts. */
static cpu_view outside(
    const ks_step *step, const void *data, int64_t rows, int64_t n, int64_t ld)
{
    danaus_layout layout = MAX(n, ld) == 1 ? DANAUS_BATCH_FIRST : step->p.layout;
    return (cpu_view){
        .data = (void *)(uintptr_t)data,
        .dtype = step->p.dtype,
        .layout = layout,
        .ld = layout == DANAUS_BATCH_FIRST ? rows : MAX(n, ld),
    };
}

/* Rows of the widest intermediate vector. */
static int64_t widest(const ks_step *steps, int count)
{
    int64_t most = 0;
    for (int i = 0; i + 1 < count; i++)
        most = MAX(most, dn_pattern_rows(steps[i].p.pattern));
    return most;
}

/* Bytes of one column of it. */
static int64_t column_bytes(const ks_step *steps, int count)
{
    return widest(steps, count) * dn_size_of(dn_sum_type(steps->p.dtype));
}

/* Bytes of results between two steps, laid out as by between() or in tiles. */
static size_t panel_bytes(const ks_step *steps, int count, int64_t columns)
{
    int64_t rows = widest(steps, count);
    return dn_aligned(
        MAX(rows * dn_line_step(columns, COLUMNS_UNIT),
            columns * dn_line_step(rows, COLUMNS_UNIT)) *
        dn_size_of(dn_sum_type(steps->p.dtype)));
}

static cpu_view columns_from(cpu_view v, int64_t s)
{
    int64_t at = v.layout == DANAUS_BATCH_FIRST ? s * v.ld : s;
    size_t bytes = (size_t)at * danaus_dtype_size(v.dtype);
    v.data = (char *)v.data + bytes;
    if (v.added)
        v.added = (const char *)v.added + bytes;
    if (v.residual)
        v.residual = (const char *)v.residual + bytes;
    return v;
}

typedef struct chain_run {
    cpu_device *dev;
    const ks_step *steps;
    int count;
    const ks_operands *o;
    cpu_view x, y;
    int64_t slab;       /* columns */
    size_t panel_bytes; /* of one intermediate panel; there are at most two */
    size_t slot_bytes;
    int tiled;       /* panels between steps are cut into tiles of columns */
    int64_t *places; /* for each step but the last, of the rows of its y in a tile */
    char *scratch;
    atomic_int next;
} chain_run;

/* Intermediate vectors that exist at a time. */
static int panel_count(const chain_run *c) { return MIN(c->count - 1, 2); }

/* The panels between step and the next one, cut into tiles. */
static void cut_tiles(const ks_step *step, const int64_t *place, cpu_view *v)
{
    v->tile_step = dn_pattern_rows(step->p.pattern) * dn_code_of(step)->tile_columns;
    v->place = place;
}

/* Rows of the vectors between steps before step `number`'s. */
static int64_t rows_before(const chain_run *c, int number)
{
    int64_t rows = 0;
    for (int i = 0; i < number; i++)
        rows += dn_pattern_rows(c->steps[i].p.pattern);
    return rows;
}

/* The operands of a step for columns from s: intermediates alternate between two
   panels. */
static void step_views(
    const chain_run *c, int number, int64_t s, char *panels, cpu_view *x, cpu_view *y)
{
    const ks_step *step = &c->steps[number];
    char *other = panels ? panels + c->panel_bytes : NULL;
    *x = number ? between(step - 1, number % 2 ? panels : other, c->slab)
                : columns_from(c->x, s);
    *y = number + 1 < c->count ? between(step, number % 2 ? other : panels, c->slab)
                               : columns_from(c->y, s);
    if (c->tiled && number && has_panels(step - 1))
        cut_tiles(step - 1, NULL, x);
    if (c->tiled && number + 1 < c->count && has_panels(step))
        cut_tiles(step, c->places ? c->places + rows_before(c, number) : NULL, y);
}

static void open_step(
    const chain_run *c, int number, int64_t s, int64_t n, char *panels, grid *g)
{
    cpu_view x, y;
    int last = number + 1 == c->count;
    step_views(c, number, s, panels, &x, &y);
    dn_grid_open(
        g, c->dev, &c->steps[number], c->o->packed[number], last ? c->o->bias : NULL, x,
        y, n);
    if (last)
        g->all.stream = dn_can_stream(
            &c->y, dn_pattern_rows(c->steps[number].p.pattern), c->o->batch,
            c->dev->l2);
    if (last && (c->y.added == c->y.data || c->o->kept))
        g->all.stream = 0;
}

/* Columns of a slab, and its first step. */
typedef struct slab {
    int64_t s, n;
    cpu_part first;
} slab;

/* Takes the next slab, if there is one. */
static int take_slab(chain_run *c, char *panels, slab *to)
{
    int64_t number = atomic_fetch_add(&c->next, 1);
    if (number >= CEIL_DIV(c->o->batch, c->slab))
        return 0;
    to->s = number * c->slab;
    to->n = MIN(c->slab, c->o->batch - to->s);
    grid g;
    open_step(c, 0, to->s, to->n, panels, &g);
    to->first = g.all;
    to->first.scratch = panels + (size_t)panel_count(c) * c->panel_bytes;
    return 1;
}

/* A slab's first step fetches the first numbers of the next slab, which is taken before. */
static void take_slabs(void *arg, int slot)
{
    chain_run *c = arg;
    char *panels = c->scratch + (size_t)slot * c->slot_bytes;
    int far = c->panel_bytes > c->dev->l2 / 2; /* intermediate vectors */
    slab now, then;
    for (int more = take_slab(c, panels, &now); more; now = then) {
        more = take_slab(c, panels, &then);
        now.first.cold_y = far;
        now.first.next = more ? &then.first : NULL;
        now.first.code->part(&now.first);
        then.first.fetched = 1;
        for (int i = 1; i < c->count; i++) {
            grid g;
            open_step(c, i, now.s, now.n, panels, &g);
            g.all.scratch = now.first.scratch;
            g.all.cold_x = far;
            g.all.cold_y = far || i + 1 == c->count;
            g.code->part(&g.all);
        }
    }
}

/* Most stage memory that a step needs for n columns. */
static size_t stage_bytes(const chain_run *c, int64_t n)
{
    size_t most = 0;
    for (int i = 0; i < c->count; i++) {
        cpu_view x, y;
        step_views(c, i, 0, NULL, &x, &y);
        cpu_shape g = dn_shape(c->dev, &c->steps[i], &x, &y, n);
        most = MAX(most, g.x_bytes + g.y_bytes);
    }
    return most;
}

/* Columns that every step takes at a time. */
static int64_t slab_unit(const chain_run *c)
{
    int64_t unit = COLUMNS_UNIT;
    for (int i = 0; i < c->count; i++) {
        const cpu_code *code = dn_code_of(&c->steps[i]);
        unit =
            MAX(unit, code->lane_vectors ? LANE_COLUMNS_AT_A_TIME : code->tile_columns);
    }
    return unit;
}

/* Columns of a slab. Batch-first its intermediate vectors take a quarter of the second cache;
   weights, staged chunks and prefetches need the rest. Batch-last memory is accessed in runs of
   a slab's columns. Long runs are worth more, and the intermediate vectors go to the last
   cache. */
static int64_t slab_columns(const chain_run *c)
{
    int last = c->x.layout == DANAUS_BATCH_LAST;
    int64_t unit = slab_unit(c);
    int64_t budget =
        last ? (int64_t)c->dev->l3 / (4 * c->dev->threads) : (int64_t)c->dev->l2 / 4;
    int64_t tiles = budget / (panel_count(c) * column_bytes(c->steps, c->count) * unit);
    return ROUND_UP(CLAMP(tiles, 1, MOST_SLAB_TILES) * unit, COLUMNS_UNIT);
}

/* The same, of as many slabs as threads want. */
static int64_t fair_columns(const chain_run *c)
{
    int64_t unit = slab_unit(c);
    int64_t fair = c->o->batch / (SLABS_PER_THREAD * c->dev->threads);
    return MIN(c->slab, ROUND_UP(MAX(fair, unit), unit));
}

/* True if slabs are faster than steps one after the other. Batch-last, products hide the loads
   of x and the stores of y, so that slabs save little. There they pay only if half of the
   second cache holds the results of a tile of columns between two steps, and the last cache is
   near. */
static int slabs_pay(const chain_run *c)
{
    return c->o->batch >= c->slab * c->dev->threads &&
           (c->x.layout == DANAUS_BATCH_FIRST ||
            (c->dev->traits->far_cache == 0 &&
             column_bytes(c->steps, c->count) * slab_unit(c) <=
                 (int64_t)c->dev->l2 / 2));
}

/* Columns of wide slabs, all alike: wide enough for threads to share a step, and for
   intermediate vectors to be no more memory than that takes. */
static int64_t wide_columns(const chain_run *c)
{
    int64_t n = c->o->batch, most = n;
    if (c->count > 1)
        most = CLAMP(
            MIN(WIDE_SLAB_CACHES * (int64_t)c->dev->l3, WIDE_SLAB_BYTES) /
                column_bytes(c->steps, c->count),
            c->slab * c->dev->threads, n);
    return MIN(n, ROUND_UP(CEIL_DIV(n, CEIL_DIV(n, most)), slab_unit(c)));
}

/* A single factor: nothing lies between steps. */
static danaus_status run_step(chain_run *c)
{
    grid g;
    void *scratch;
    open_step(c, 0, 0, c->o->batch, NULL, &g);
    TRY(dn_cpu_scratch(c->dev, g.slot_bytes * (size_t)c->dev->threads, &scratch));
    dn_grid_run(c->dev, &g, scratch);
    return DANAUS_OK;
}

/* Step after step, each over all columns of a wide slab and cut for the threads. */
static danaus_status run_steps(chain_run *c)
{
    int64_t n = c->o->batch;
    c->slab = wide_columns(c);
    c->panel_bytes = c->count > 1 ? panel_bytes(c->steps, c->count, c->slab) : 0;
    size_t panels = (size_t)panel_count(c) * c->panel_bytes;
    size_t stage = stage_bytes(c, c->slab);
    void *scratch;
    TRY(dn_cpu_scratch(c->dev, panels + stage * (size_t)c->dev->threads, &scratch));
    for (int64_t s = 0; s < n; s += c->slab)
        for (int i = 0; i < c->count; i++) {
            grid g;
            open_step(c, i, s, MIN(c->slab, n - s), scratch, &g);
            dn_grid_run(c->dev, &g, (char *)scratch + panels);
        }
    return DANAUS_OK;
}

static danaus_status run_slabs(chain_run *c)
{
    int64_t width = 0;
    for (int i = 0; i < c->count; i++)
        width = MAX(width, dn_code_of(&c->steps[i])->tile_columns);
    int64_t places = rows_before(c, c->count - 1) * (int64_t)sizeof *c->places;
    c->tiled = 1;
    c->slab = fair_columns(c);
    c->panel_bytes = panel_bytes(c->steps, c->count, c->slab + width - 1);
    c->slot_bytes = (size_t)panel_count(c) * c->panel_bytes + stage_bytes(c, c->slab);
    int64_t slabs = CEIL_DIV(c->o->batch, c->slab);
    int slots = (int)MIN(c->dev->threads, slabs);
    void *scratch;
    TRY(dn_cpu_scratch(
        c->dev, dn_aligned(places) + c->slot_bytes * (size_t)c->dev->threads,
        &scratch));
    c->places = scratch;
    c->scratch = (char *)scratch + dn_aligned(places);
    for (int i = 0; i + 1 < c->count; i++)
        fill_places(
            c->steps[i + 1].p.pattern, dn_code_of(&c->steps[i])->tile_columns,
            c->places + rows_before(c, i));
    atomic_init(&c->next, 0);
    if (slots == 1)
        take_slabs(c, 0);
    else
        dn_cpu_parallel(c->dev, slots, take_slabs, c);
    return DANAUS_OK;
}

/* Panels do; vectors along lines do where these are y's own. */
static int adds(const ks_step *last, danaus_layout layout, int activation)
{
    danaus_dtype dtype = last->p.dtype;
    return !dn_code_of(last)->lane_vectors ||
           (layout == DANAUS_BATCH_FIRST && dtype == dn_sum_type(dtype) && !activation);
}

int dn_cpu_ks_adds(const ks_step *last)
{
    return adds(last, last->p.layout, last->p.activation);
}

danaus_status dn_cpu_ks_run(
    danaus_device *dev, const ks_step *steps, int count, const ks_operands *o)
{
    cpu_device *d = (cpu_device *)dev;
    int64_t cols = dn_pattern_cols(steps->p.pattern), n = o->batch;
    int64_t rows = dn_pattern_rows(steps[count - 1].p.pattern);
    chain_run c = {
        .dev = d,
        .steps = steps,
        .count = count,
        .o = o,
        .x = outside(steps, o->x, cols, n, o->x_ld),
        .y = outside(steps, o->y, rows, n, o->y_ld),
    };
    int wide = dn_sum_type(c.y.dtype) == DANAUS_F64;
    c.y.activate = d->activations[o->activation][wide];
    int sums = !o->activation && adds(&steps[count - 1], c.y.layout, 0);
    c.y.added = o->add ? o->y : sums ? o->residual : NULL;
    c.y.residual = sums ? NULL : o->residual;
    if (count == 1)
        return run_step(&c);
    c.slab = slab_columns(&c);
    return slabs_pay(&c) ? run_slabs(&c) : run_steps(&c);
}
