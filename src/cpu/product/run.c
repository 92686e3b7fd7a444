/* Chains on the CPU: one step after the other over wide slabs of columns, or slab after
   slab, each through all steps while its intermediate vectors are in the cache. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/product/grid.h"
#include "cpu/product/rows.h"

#include "base/dtype.h"
#include "base/status.h"
#include "math/pattern.h"

#include <stdatomic.h>

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

/* Where row (i, k, j) of x begins in a tile of columns that lies [i][j][k]. */
static void fill_places(danaus_pattern p, int64_t width, int64_t *place)
{
    for (int64_t i = 0; i < p.a; i++)
        for (int64_t k = 0; k < p.c; k++)
            for (int64_t j = 0; j < p.d; j++)
                *place++ = ((i * p.d + j) * p.c + k) * width;
}

cpu_view dn_outside(
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

cpu_view dn_columns_from(cpu_view v, int64_t s)
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
    cpu_shape *shape;   /* of each step, for a slab, */
    cpu_part *part;     /* and all of it for the first one */
    size_t panel_bytes; /* of one intermediate panel; there are at most two */
    size_t slot_bytes;
    int tiled; /* panels between steps are cut into tiles of columns */
    char *scratch;
    atomic_int next;
} chain_run;

/* Intermediate vectors that exist at a time. */
static int panel_count(const chain_run *c) { return MIN(c->count - 1, 2); }

/* The view of the results of a step that the next one reads. */
static cpu_view between(const chain_run *c, const ks_step *step)
{
    int panels = has_panels(step);
    int64_t rows = dn_pattern_rows(step->p.pattern);
    return (cpu_view){
        .dtype = dn_sum_type(step->p.dtype),
        .layout = panels ? DANAUS_BATCH_LAST : DANAUS_BATCH_FIRST,
        .ld = dn_line_step(panels ? c->slab : rows, COLUMNS_UNIT),
        .tile_step = panels && c->tiled ? rows * dn_code_of(step)->tile_columns : 0,
    };
}

/* Rows of all vectors between steps. */
static int64_t rows_between(const chain_run *c)
{
    int64_t rows = 0;
    for (int i = 0; i + 1 < c->count; i++)
        rows += dn_pattern_rows(c->steps[i].p.pattern);
    return rows;
}

/* Decides all steps; returns the most scratch that one needs. */
static size_t choose_steps(chain_run *c)
{
    size_t most = 0;
    for (int i = 0; i < c->count; i++) {
        const ks_step *step = &c->steps[i];
        cpu_shape *shape = &c->shape[i];
        cpu_view x = i > 0 ? between(c, step - 1) : c->x;
        cpu_view y = i + 1 < c->count ? between(c, step) : c->y;
        dn_shape(c->dev, step, &x, &y, c->slab, shape);
        dn_whole(c->dev, step, shape, c->o->packed[i], &x, &y, c->slab, &c->part[i]);
        most = MAX(most, dn_stage_bytes(shape));
    }
    cpu_part *last = &c->part[c->count - 1];
    last->bias = c->o->bias;
    last->stream =
        c->y.added != c->y.data && !c->o->kept &&
        dn_can_stream(&c->y, dn_pattern_rows(last->p), c->o->batch, c->dev->l2);
    return most;
}

/* Moves a step to n columns from s: intermediates alternate between two panels. */
static void move_step(
    const chain_run *c, int number, int64_t s, int64_t n, char *panels, cpu_part *all)
{
    char *panel[2] = { panels, panels + c->panel_bytes };
    if (number == 0)
        all->x = dn_columns_from(c->x, s);
    else
        all->x.data = panel[(number - 1) % 2];
    if (number + 1 == c->count)
        all->y = dn_columns_from(c->y, s);
    else
        all->y.data = panel[number % 2];
    all->s.to = n;
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
    to->first = c->part[0];
    move_step(c, 0, to->s, to->n, panels, &to->first);
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
            cpu_part all = c->part[i];
            move_step(c, i, now.s, now.n, panels, &all);
            all.scratch = now.first.scratch;
            all.cold_x = far;
            all.cold_y = far || i + 1 == c->count;
            all.code->part(&all);
        }
    }
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
            (c->dev->traits.far_cache == 0 &&
             column_bytes(c->steps, c->count) * slab_unit(c) <=
                 (int64_t)c->dev->l2 / 2));
}

/* Columns of wide slabs, all alike: wide enough for threads to share a step, and for
   intermediate vectors to be no more memory than that takes. */
static int64_t wide_columns(const chain_run *c)
{
    int64_t n = c->o->batch;
    if (c->count == 1)
        return n;
    int64_t most = CLAMP(
        MIN(WIDE_SLAB_CACHES * (int64_t)c->dev->l3, WIDE_SLAB_BYTES) /
            column_bytes(c->steps, c->count),
        c->slab * c->dev->threads, n);
    return MIN(n, ROUND_UP(CEIL_DIV(n, CEIL_DIV(n, most)), slab_unit(c)));
}

/* Step after step, each over all columns of a wide slab and cut for the threads. */
static danaus_status run_steps(chain_run *c)
{
    int64_t n = c->o->batch;
    c->slab = wide_columns(c);
    c->panel_bytes = c->count > 1 ? panel_bytes(c->steps, c->count, c->slab) : 0;
    size_t panels = (size_t)panel_count(c) * c->panel_bytes;
    size_t stage = choose_steps(c);
    void *scratch;
    TRY(dn_cpu_scratch(c->dev, panels + stage * (size_t)c->dev->threads, &scratch));
    for (int64_t s = 0; s < n; s += c->slab)
        for (int i = 0; i < c->count; i++) {
            move_step(c, i, s, MIN(c->slab, n - s), scratch, &c->part[i]);
            dn_run_parts(c->dev, &c->part[i], (char *)scratch + panels);
        }
    return DANAUS_OK;
}

static danaus_status run_slabs(chain_run *c)
{
    int64_t width = 0;
    for (int i = 0; i < c->count; i++)
        width = MAX(width, dn_code_of(&c->steps[i])->tile_columns);
    int64_t places = rows_between(c) * (int64_t)sizeof(int64_t);
    c->tiled = 1;
    c->slab = fair_columns(c);
    c->panel_bytes = panel_bytes(c->steps, c->count, c->slab + width - 1);
    c->slot_bytes = (size_t)panel_count(c) * c->panel_bytes + choose_steps(c);
    int64_t slabs = CEIL_DIV(c->o->batch, c->slab);
    int slots = (int)MIN(c->dev->threads, slabs);
    void *scratch;
    TRY(dn_cpu_scratch(
        c->dev, dn_aligned(places) + c->slot_bytes * (size_t)c->dev->threads,
        &scratch));
    c->scratch = (char *)scratch + dn_aligned(places);
    int64_t *place = scratch; /* of rows of y in a tile, step after step */
    for (int i = 0; i + 1 < c->count; i++) {
        danaus_pattern next = c->steps[i + 1].p.pattern;
        fill_places(next, dn_code_of(&c->steps[i])->tile_columns, place);
        c->part[i].y.place = c->part[i].y.tile_step ? place : NULL;
        place += dn_pattern_cols(next);
    }
    atomic_init(&c->next, 0);
    if (slots == 1)
        take_slabs(c, 0);
    else
        dn_cpu_parallel(c->dev, slots, take_slabs, c);
    return DANAUS_OK;
}

/* Panels do; vectors along lines do where these are y's own. A single column, which is the same
   in both layouts, is no exception: its sums have the order of others. */
int dn_cpu_ks_adds(const ks_step *last)
{
    danaus_dtype dtype = last->p.dtype;
    return !dn_code_of(last)->lane_vectors ||
           (!dn_code_of(last)->dots.terms && last->p.layout == DANAUS_BATCH_FIRST &&
            dtype == dn_sum_type(dtype) && !last->p.activation);
}

danaus_status dn_cpu_ks_run(
    danaus_device *dev, const ks_step *steps, int count, const ks_operands *o)
{
    cpu_device *d = (cpu_device *)dev;
    int64_t cols = dn_pattern_cols(steps->p.pattern), n = o->batch;
    int64_t rows = dn_pattern_rows(steps[count - 1].p.pattern);
    cpu_shape shape[DANAUS_MAX_FACTORS];
    cpu_part part[DANAUS_MAX_FACTORS];
    chain_run c = {
        .dev = d,
        .steps = steps,
        .count = count,
        .shape = shape,
        .part = part,
        .o = o,
        .x = dn_outside(steps, o->x, cols, n, o->x_ld),
        .y = dn_outside(steps, o->y, rows, n, o->y_ld),
    };
    int wide = dn_sum_type(c.y.dtype) == DANAUS_F64;
    c.y.activate = d->activations[o->activation][wide];
    int sums = !o->activation && dn_cpu_ks_adds(&steps[count - 1]);
    c.y.added = o->add ? o->y : sums ? o->residual : NULL;
    c.y.residual = sums ? NULL : o->residual;
    if (count > 1)
        c.slab = slab_columns(&c);
    return count > 1 && slabs_pay(&c) ? run_slabs(&c) : run_steps(&c);
}
