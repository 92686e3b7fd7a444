/* What the rows of the kernel table share for all instruction sets: which problems they fit,
   their costs, and how they pack weights. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CPU_PRODUCT_ROWS_H
#define DN_CPU_PRODUCT_ROWS_H

#include "cpu/cpu.h"
#include "base/dtype.h"
#include "base/mem.h"

/* Columns that tiles of lanes take at a time, a multiple of theirs. */
#define LANE_COLUMNS_AT_A_TIME 48

/* Bytes of the first cache for the parts of x that tiles of lanes read again and again. */
#define FIRST_CACHE 24576

/* Bytes of a run from which on a processor fetches the rest of it by itself. */
#define FETCHED_RUN 1024

/* Addresses that differ by multiples of CACHE_WAY bytes share a set of the first cache,
   which holds CACHE_WAYS lines. */
#define CACHE_WAY  4096
#define CACHE_WAYS 8

/* Panels of whole tiles of so many rows make a last few columns with rows in vectors
   (panel.inc): NARROW_COLUMNS or a single one at a time, while that is less work than a
   vector of columns. */
#define NARROW_ROWS    8
#define NARROW_COLUMNS 4

static inline int64_t dn_narrow_runs(int64_t columns)
{
    return columns / NARROW_COLUMNS + columns % NARROW_COLUMNS;
}

/* True if so many columns of blocks of b rows, in tiles of at most `most`, are narrow tiles. */
static inline int dn_are_narrow(int64_t b, int64_t most, int64_t columns)
{
    return most == NARROW_ROWS && b % NARROW_ROWS == 0 && columns > 0 &&
           dn_narrow_runs(columns) <= 3;
}

/* How the packed weights of kernels along lines lie. */
static inline lane_map dn_lane_map(danaus_pattern p, const cpu_code *code, int complex)
{
    int64_t per = code->vector;
    int runs = !complex && p.d % per == 0;
    int spread = p.d > 1 && !runs && (complex || per % p.d != 0);
    lane_map m = { .per = per, .spread = spread };
    m.groups = runs ? p.d / per : spread ? p.d : 1;
    m.vectors = runs ? p.b : ((spread ? p.b : p.b * p.d) + per - 1) / per;
    m.step = runs ? p.d : spread ? per * p.d : per;
    m.tiles = dn_tile_count(m.vectors, code->lane_vectors);
    return m;
}

/* The same, and in which order x is read on this device. */
lane_map dn_lane_order(
    const cpu_device *d, danaus_pattern p, const cpu_code *code, danaus_dtype dtype);

/* Groups that are gathered at a time: their vectors make whole lines of memory. */
static inline int64_t dn_gathered_groups(const lane_map *m, int64_t cell)
{
    int64_t line = DN_ALIGN / (m->per * cell);
    return !m->gather || line < 1 ? 1 : line < m->groups ? line : m->groups;
}

/* With d = 1 tiles of lanes take single numbers of x, from batch-last rows as well. */
static inline int dn_lanes_take_rows(const cpu_view *x, int64_t d)
{
    return d == 1 && x->layout == DANAUS_BATCH_LAST &&
           x->dtype == dn_sum_type(x->dtype);
}

/* Vectors between rows of n vectors, so that rows meet all sets of a cache. */
static inline int64_t dn_odd(int64_t n) { return n | 1; }

/* Elements from one line of `count` elements in scratch to the next: an odd number of
   runs of `unit`. */
static inline int64_t dn_line_step(int64_t count, int64_t unit)
{
    return dn_odd((count + unit - 1) / unit) * unit;
}

/* Tiles of a block that threads may share: tiles that are spread belong together, for
   all lanes j. */
static inline int64_t dn_lane_tiles(const lane_map *m)
{
    return m->spread ? m->tiles : m->groups * m->tiles;
}

/* True if kernels can use the view in place: it has this layout and the type of sums, and
   no activation or residual, which need scratch. */
static inline int dn_lies_as(danaus_layout layout, const cpu_view *v)
{
    return v->layout == layout && v->dtype == dn_sum_type(v->dtype) &&
           !dn_is_changed(v);
}

static inline int dn_lies_as_panel(const cpu_view *v)
{
    return dn_lies_as(DANAUS_BATCH_LAST, v);
}

static inline int dn_lies_as_lines(const cpu_view *v)
{
    return dn_lies_as(DANAUS_BATCH_FIRST, v);
}

/* Columns and rows r of a tile of thin products. */
#define THIN_COLUMNS 4
#define THIN_ROWS    2

/* Bytes of x and y of a block that take longer than to begin with it. */
#define THIN_BLOCK 4096

static inline thin_map dn_thin_map(danaus_pattern p, const cpu_code *code, int complex)
{
    int64_t pair = complex ? 2 : 1, per = code->vector * pair, lanes = p.d * pair;
    thin_map m = { .per = per, .lanes = lanes, .fold = 2 * lanes <= per };
    m.used = m.fold ? per / lanes * lanes : lanes;
    m.steps = CEIL_DIV(p.c * lanes, m.used);
    m.last = p.c * lanes - (m.steps - 1) * m.used;
    m.vectors = CEIL_DIV(m.used, per);
    return m;
}

/* Reals of a row's packed weights. */
static inline int64_t dn_thin_reals(const thin_map *m, int complex)
{
    return m->vectors * m->steps * m->per * (complex ? 2 : 1);
}

extern const kernel_family dn_cpu_panel, dn_cpu_lanes, dn_cpu_thin, dn_cpu_int8;

/* One core of a present-day server; only ratios between kernels matter. */
#define DN_CYCLE 0.35e-9 /* seconds */

/* Cycles of one core for moving x, y, a residual and the weights once; the weights of a
   layer that runs again and again are in some cache. */
double dn_memory_cycles(const problem *p);

/* Threads that divide a problem's estimate. Those of batch-invariant problems, whose choices are
   the same for any number of threads, count one. */
static inline double dn_estimated_threads(const danaus_device *dev, const problem *p)
{
    return p->batch_invariant ? 1 : ((const cpu_device *)dev)->threads;
}

double dn_cpu_packing(const danaus_device *dev, const kernel *k, const problem *p);

#endif
