/* The rows of the kernel table: cost model and packing.

   Costs are rough seconds: arithmetic over peak, times the share that the kernel wastes on the
   pattern, plus half of bytes over bandwidth, the half that is not hidden. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/product/rows.h"

#include "base/dtype.h"
#include "math/pattern.h"

#include <math.h>
#include <string.h>

#define BYTES_PER_CYCLE 3.0   /* of memory, for one core */
#define CACHED          6.0   /* times faster is what stays in the cache */
#define TILE_ENDS       2.5   /* cycles before and after the products, for a register */
#define LANES_BEGIN     200.0 /* cycles until the next block of lanes begins */
/* Columns from which on a plan, which does not depend on threads, assumes slabs (run.c). */
#define SLABS 256

static int fits(const kernel *k, const problem *p)
{
    (void)k;
    return !p->inner.a;
}

static const cpu_code *code_of(const kernel *k) { return k->code; }

static int pair_of(danaus_dtype dtype) { return dn_is_complex(dtype) ? 2 : 1; }

/* Cycles of one core for moving x, y, a residual and the weights once; the weights of a
   layer that runs again and again are in some cache. */
double dn_memory_cycles(const problem *p)
{
    double cell = (double)danaus_dtype_size(p->dtype), n = (double)p->batch;
    double sums = (double)danaus_dtype_size(dn_sum_type(p->dtype));
    double rows = (double)dn_pattern_rows(p->pattern);
    double cols = (double)dn_pattern_cols(p->pattern);
    double x = cols * n * cell / (p->x_cached ? CACHED : 1);
    double y = rows * n * cell / (p->y_cached ? CACHED : 1);
    double residual = p->residual ? rows * n * cell : 0;
    double weights = (double)dn_pattern_weights(p->pattern) * sums / CACHED;
    return (x + y + residual + weights) / BYTES_PER_CYCLE;
}

/* Rows of x and y that lie between two steps of a chain. */
static double between(const problem *p)
{
    return (p->x_cached ? (double)dn_pattern_cols(p->pattern) : 0) +
           (p->y_cached ? (double)dn_pattern_rows(p->pattern) : 0);
}

/* Cycles for a k: r rows by v vectors are r v products and r + v loads. */
static double tile_cycles(
    int64_t rows, double vectors, double tiles, const cpu_traits *t)
{
    double r = (double)rows, products = t->product * r * vectors;
    return vectors > 0 ? fmax(products, t->load * (r + tiles * vectors)) : 0;
}

/* The constants of both models are fitted: of the patterns of bench/suites/cpu.csv with
   batches of 4 to 196, the cheaper row is the faster one or within 1.3 % in the mean on
   one processor and 0.6 % on another. */
static double panel_cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    const cpu_code *code = code_of(k);
    int pair = pair_of(p->dtype);
    danaus_pattern q = p->pattern;
    double rows = (double)dn_pattern_rows(q), cols = (double)dn_pattern_cols(q);
    int64_t most = code->tile_rows / pair, left = p->batch % code->vector;
    /* Batch-first, turning makes up for what narrow tiles save, as ends of tiles do where
       there are no others. */
    int narrow = p->layout == DANAUS_BATCH_LAST && p->batch > code->vector &&
                 dn_are_narrow(q.b, most, left);
    double runs = narrow ? (double)dn_narrow_runs(left) : 0;
    double vectors = (double)(p->batch / code->vector) + (left > 0 && !narrow);
    double tiles = (double)dn_tile_count(q.b, most);
    double full = (double)(code->tile_columns / code->vector);
    double whole = floor(vectors / full), rest = vectors - whole * full;
    const cpu_traits *t = &((const cpu_device *)dev)->traits;
    double per_k = whole * tile_cycles(q.b * pair, full, tiles, t) +
                   tile_cycles(q.b * pair, rest, tiles, t) +
                   t->product * (double)q.b * runs * NARROW_COLUMNS / code->vector;
    double work = (double)q.a * (double)q.d * (double)q.c * per_k;
    work += (double)q.a * (double)q.d * tiles * (whole + (rest > 0) + narrow) *
            TILE_ENDS * (double)most * full;
    /* In slabs, numbers between two steps are neither turned nor gathered. */
    double ends = rows + cols - (p->batch >= SLABS ? between(p) : 0);
    double staged = p->layout == DANAUS_BATCH_FIRST
                        ? 1.1 * (double)p->batch * ends / code->vector
                        : (vectors + narrow) * cols;
    /* Whole lines of x in place leave less time for memory: it is fetched meanwhile. */
    int lines = code->vector * dn_size_of(dn_sum_type(p->dtype)) == DN_ALIGN;
    int in_place = p->layout == DANAUS_BATCH_LAST && t->in_place == ANY_IN_PLACE &&
                   lines && p->batch >= code->vector;
    double memory = dn_memory_cycles(p) / (in_place ? 4 : 2);
    return DN_CYCLE * (work + memory + staged + 200) / dn_estimated_threads(dev, p);
}

/* Bytes that a tile of lanes reads for each k: a vector of weights for each of its vectors,
   and x for each of its columns. */
static double lane_bytes(const cpu_code *code, const problem *p, const lane_map *m)
{
    int pair = pair_of(p->dtype);
    int64_t repeated = p->pattern.d < m->per ? p->pattern.d : m->per;
    double same = m->spread ? pair : (double)repeated;
    return (double)danaus_dtype_size(dn_sum_type(p->dtype)) *
           (code->lane_vectors * code->vector + code->tile_columns / pair * same);
}

/* True if lines between steps keep their form and stay in the second cache. They are then
   neither turned for panels nor narrowed to 16 bits. */
static int keeps_lines(const danaus_device *dev, const problem *p)
{
    int64_t x = p->x_cached ? dn_pattern_cols(p->pattern) : 0;
    int64_t y = p->y_cached ? dn_pattern_rows(p->pattern) : 0;
    int64_t bytes = (x > y ? x : y) * dn_size_of(p->dtype);
    return p->alike && p->dtype == dn_sum_type(p->dtype) &&
           bytes * LANE_COLUMNS_AT_A_TIME <= (int64_t)((const cpu_device *)dev)->l2;
}

static size_t lanes_bytes(const kernel *k, const problem *p)
{
    lane_map m = dn_lane_map(p->pattern, code_of(k), dn_is_complex(p->dtype));
    return (size_t)(p->pattern.a * p->pattern.c * m.groups * m.vectors * m.per) *
           danaus_dtype_size(dn_sum_type(p->dtype));
}

static double lanes_cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    const cpu_code *code = code_of(k);
    const cpu_device *cpu = (const cpu_device *)dev;
    int pair = pair_of(p->dtype);
    danaus_pattern q = p->pattern;
    double per = code->vector, n = (double)p->batch, d = (double)q.d;
    lane_map m = dn_lane_order(cpu, q, code, p->dtype);
    double vectors = (double)(m.groups * m.vectors) * (double)q.a * (double)q.c;
    /* Cost of a vector of weights: its load, and a product for every column. It grows by a
       share for each doubling of the bytes beyond the first cache, and more if products use
       more of them in a cycle. */
    const cpu_traits *t = &((const cpu_device *)dev)->traits;
    double passes = ceil(n / code->tile_columns), bytes = lane_bytes(code, p, &m);
    double rate = bytes / (t->product * code->lane_vectors * code->tile_columns);
    double far = rate * rate * fmax(0, log2(bytes * (double)m.rows / FIRST_CACHE));
    double apart = d > per && !t->fetch_lines ? 1.175 : 1;
    double each = 0.8 * t->product * apart * (1 + 5.5e-5 * far);
    double work = vectors * pair * (0.5 * passes + each * n);
    double begins = LANES_BEGIN * (double)(q.a - 1) * ceil(n / LANE_COLUMNS_AT_A_TIME);
    double spread = m.spread ? 2 * (double)dn_pattern_rows(q) * pair * n : 0;
    /* Weights that no cache keeps are read again for every few columns; from a last cache that
       is far those that do not pass through the second one for all columns. */
    double packed = (double)lanes_bytes(k, p);
    double once = packed / (double)(q.a * (m.gather ? m.groups : 1));
    double share = packed > (double)(cpu->l3 / 4) ? 1
                   : once > (double)cpu->l2       ? t->far_cache
                                                  : 0;
    double again =
        share * packed / BYTES_PER_CYCLE * floor((n - 1) / LANE_COLUMNS_AT_A_TIME);
    /* Whole vectors of lanes are far apart in lines as long as a block. Two vectors of columns
       and more are faster in panels. */
    double turn = d < per || m.spread ? t->turn / per + 0.03 * log2(d)
                  : d > per           ? 2.6
                                      : 0.8;
    if (n >= 2 * per)
        turn = 3 * turn + 1.2;
    double x_rows = q.d == 1 ? 0 : (double)dn_pattern_cols(q);
    double turned = p->layout == DANAUS_BATCH_LAST && p->batch > 1
                        ? turn * n * ((double)dn_pattern_rows(q) + x_rows)
                        : 0;
    if (p->batch >= SLABS)
        turned +=
            (keeps_lines(dev, p) ? t->between : t->between + 2) * n * between(p) / per;
    return DN_CYCLE *
           (work + begins + dn_memory_cycles(p) / 2 + spread + turned + again + 50) /
           dn_estimated_threads(dev, p);
}

/* Elements are packed one by one, on one thread: with AVX-512 0.4 to 0.5 ns for
   those of f32, 2 to 4 for others, and 3 to 8 where vectors hold rows. */
double dn_cpu_packing(const danaus_device *dev, const kernel *k, const problem *p)
{
    (void)dev;
    int turned = code_of(k)->lane_vectors && p->pattern.d == 1;
    double each = turned ? 6e-9 : p->dtype == DANAUS_F32 ? 0.5e-9 : 3e-9;
    return each * (double)dn_pattern_weights(p->pattern);
}

static size_t panel_bytes(const kernel *k, const problem *p)
{
    (void)k;
    return (size_t)dn_pattern_weights(p->pattern) *
           danaus_dtype_size(dn_sum_type(p->dtype));
}

/* [i][j][tile][k][row of the tile] */
static void panel_pack(const kernel *k, const problem *p, weights_view w, void *packed)
{
    danaus_pattern q = p->pattern;
    danaus_dtype type = dn_sum_type(p->dtype);
    size_t cell = danaus_dtype_size(type);
    int64_t tiles = dn_tile_count(q.b, code_of(k)->tile_rows / pair_of(type));
    char *to = packed;
    for (int64_t i = 0; i < q.a; i++)
        for (int64_t j = 0; j < q.d; j++)
            for (int64_t t = 0; t < tiles; t++) {
                int64_t r = dn_tile_row(q.b, tiles, t);
                int64_t rows = dn_tile_row(q.b, tiles, t + 1) - r;
                for (int64_t c = 0; c < q.c; c++, to += (size_t)rows * cell)
                    dn_weights_gather(
                        &w, i * w.s[0] + r * w.s[1] + c * w.s[2] + j * w.s[3], w.s[1],
                        rows, type, to);
            }
}

/* Vector v of group g for one k, in runs of one r or, spread, of one j. */
static void pack_vector(
    const weights_view *w, danaus_pattern q, const lane_map *m, int64_t i, int64_t g,
    int64_t k, int64_t v, danaus_dtype type, char *to)
{
    int64_t per = m->per, at = i * w->s[0] + k * w->s[2];
    if (m->spread) {
        int64_t r = v * per, rows = per < q.b - r ? per : q.b - r;
        dn_weights_gather(w, at + r * w->s[1] + g * w->s[3], w->s[1], rows, type, to);
        return;
    }
    int64_t lane = v * m->step + g * per;
    int64_t end = lane + per < q.b * q.d ? lane + per : q.b * q.d;
    for (int64_t run; lane < end; lane += run) {
        int64_t r = lane / q.d, j = lane % q.d;
        run = q.d - j < end - lane ? q.d - j : end - lane;
        dn_weights_gather(w, at + r * w->s[1] + j * w->s[3], w->s[3], run, type, to);
        to += (size_t)run * danaus_dtype_size(type);
    }
}

/* [i][group][tile][k][vector of the tile][lane], zeros past the last output. */
static void lanes_pack(const kernel *k, const problem *p, weights_view w, void *packed)
{
    danaus_pattern q = p->pattern;
    danaus_dtype type = dn_sum_type(p->dtype);
    lane_map m = dn_lane_map(q, code_of(k), dn_is_complex(type));
    size_t vector = (size_t)m.per * danaus_dtype_size(type);
    char *to = packed;
    memset(packed, 0, lanes_bytes(k, p));
    for (int64_t i = 0; i < q.a; i++)
        for (int64_t g = 0; g < m.groups; g++)
            for (int64_t t = 0; t < m.tiles; t++)
                for (int64_t c = 0; c < q.c; c++)
                    for (int64_t v = dn_tile_row(m.vectors, m.tiles, t);
                         v < dn_tile_row(m.vectors, m.tiles, t + 1); v++, to += vector)
                        pack_vector(&w, q, &m, i, g, c, v, type, to);
}

const kernel_family dn_cpu_panel = {
    .fits = fits,
    .cost = panel_cost,
    .packed_bytes = panel_bytes,
    .pack = panel_pack,
};

const kernel_family dn_cpu_lanes = {
    .fits = fits,
    .cost = lanes_cost,
    .packed_bytes = lanes_bytes,
    .pack = lanes_pack,
};
