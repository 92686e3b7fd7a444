/* Rows of the kernel table for thin products: costs and packing. thin.inc has the kernels. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/product/grid.h"
#include "cpu/product/rows.h"

#include "base/dtype.h"
#include "math/pattern.h"

#include <math.h>
#include <string.h>

#define MOST_VECTOR 64 /* bytes */

static const cpu_code *code_of(const kernel *k) { return k->code; }

static int thin_fits(const kernel *k, const problem *p)
{
    (void)k;
    return !p->inner.a && p->layout == DANAUS_BATCH_FIRST;
}

static size_t thin_bytes(const kernel *k, const problem *p)
{
    danaus_pattern q = p->pattern;
    int complex = dn_is_complex(p->dtype);
    thin_map m = dn_thin_map(q, code_of(k), complex);
    int64_t pair = complex ? 2 : 1;
    return (size_t)(q.a * q.b * dn_thin_reals(&m, complex) / pair) *
           danaus_dtype_size(dn_sum_type(p->dtype));
}

/* Cycles of a tile of vectors of 64 bytes, fitted to the factors of bench/suites/any.py 1 and 2
   and what chains of them are multiplied out to, 16 to 3,136 columns: to begin and end it, a
   step, and to add up the lanes of its vectors, for d = 1 and for each halving. */
#define TILE_ENDS   8.0
#define TILE_STEP   5.0
#define TILE_SUMS   12.0
#define TILE_HALVES 80.0
#define BLOCK_ENDS  3.0 /* the rest of a block's is in its tiles' */

static double thin_cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    danaus_pattern q = p->pattern;
    int complex = dn_is_complex(p->dtype);
    thin_map m = dn_thin_map(q, code_of(k), complex);
    double columns = (double)(p->batch / THIN_COLUMNS + p->batch % THIN_COLUMNS);
    double tiles = (double)(q.a * q.b * m.vectors) * columns;
    double halvings = ceil(log2((double)(m.used / m.lanes)));
    double folds = m.lanes == 1 ? TILE_SUMS : TILE_HALVES * halvings;
    double each = TILE_ENDS + TILE_STEP * (complex ? 2 : 1) * (double)m.steps +
                  (m.fold ? folds : 0);
    /* Shorter vectors are loaded twice as fast. */
    int64_t bytes = m.per * dn_size_of(dn_sum_type(p->dtype)) / (complex ? 2 : 1);
    double work = tiles * each / (bytes < MOST_VECTOR ? 2 : 1);
    double blocks = BLOCK_ENDS * (double)q.a * columns;
    return DN_CYCLE * (work + blocks + dn_memory_cycles(p) / 4 + 50) /
           dn_estimated_threads(dev, p);
}

/* Numbers of row r of block i, from number `first` of its run on. */
static void gather_run(
    const weights_view *w, danaus_pattern q, int64_t i, int64_t r, int64_t first,
    int64_t count, danaus_dtype type, char *to)
{
    for (int64_t l = 0, run; l < count; l += run) {
        int64_t k = (first + l) / q.d, j = (first + l) % q.d;
        int64_t from = i * w->s[0] + r * w->s[1] + k * w->s[2] + j * w->s[3];
        run = q.d == 1 ? count : MIN(q.d - j, count - l);
        dn_weights_gather(
            w, from, q.d == 1 ? w->s[2] : w->s[3], run, type,
            to + l * dn_size_of(type));
    }
}

/* A vector of weights; of complex ones the real parts, then the imaginary ones. */
static void pack_vector(
    const weights_view *w, danaus_pattern q, const thin_map *m, int64_t i, int64_t r,
    int64_t step, int64_t vector, danaus_dtype type, char *to)
{
    int64_t pair = m->lanes / q.d, real = dn_size_of(type) / pair;
    int64_t lane = vector * m->per, used = step == m->steps - 1 ? m->last : m->used;
    int64_t reals = MIN(m->per, used - lane);
    char numbers[MOST_VECTOR];
    gather_run(
        w, q, i, r, (step * m->used + lane) / pair, reals / pair, type,
        pair == 1 ? to : numbers);
    for (int64_t n = 0; n < reals && pair == 2; n++)
        for (int64_t part = 0; part < 2; part++)
            memcpy(
                to + (part * m->per + n) * real, numbers + (n / 2 * 2 + part) * real,
                (size_t)real);
}

/* [i][r][vector][step][lane], zeros past the last number. */
static void thin_pack(const kernel *k, const problem *p, weights_view w, void *packed)
{
    danaus_pattern q = p->pattern;
    danaus_dtype type = dn_sum_type(p->dtype);
    thin_map m = dn_thin_map(q, code_of(k), dn_is_complex(type));
    size_t vector = (size_t)m.per * danaus_dtype_size(type);
    char *to = packed;
    memset(packed, 0, thin_bytes(k, p));
    for (int64_t row = 0; row < q.a * q.b; row++)
        for (int64_t v = 0; v < m.vectors; v++)
            for (int64_t c = 0; c < m.steps; c++, to += vector)
                pack_vector(&w, q, &m, row / q.b, row % q.b, c, v, type, to);
}

/* A few columns through all blocks, so that x and y are met once, as they lie. */
void dn_thin_shape(
    const ks_step *step, const cpu_view *x, const cpu_view *y, int64_t n, cpu_shape *to)
{
    danaus_pattern p = step->p.pattern;
    int64_t cell = dn_size_of(dn_sum_type(step->p.dtype));
    /* Columns of a single block follow each other; others would be far apart. */
    int64_t most = p.a == 1 ? 8 : 1;
    int64_t tiles = CLAMP(THIN_BLOCK / ((p.b + p.c) * p.d * cell), 1, most);
    int64_t columns = MIN(THIN_COLUMNS * tiles, n);
    int64_t x_line = dn_lies_as_lines(x) ? 0 : ROUND_UP(p.c * p.d, COLUMNS_UNIT) * cell;
    int64_t y_line = dn_lies_as_lines(y) ? 0 : ROUND_UP(p.b * p.d, COLUMNS_UNIT) * cell;
    *to = (cpu_shape){
        .columns = columns,
        .blocks = 1,
        .lanes = p.d,
        .tiles = 1,
        .all_tiles = 1,
        .thin = dn_thin_map(p, dn_code_of(step), dn_is_complex(step->p.dtype)),
        .x_bytes = dn_aligned(columns * x_line),
        .y_bytes = dn_aligned(columns * y_line) * (y->residual ? 2 : 1),
    };
}

const kernel_family dn_cpu_thin = {
    .fits = thin_fits,
    .cost = thin_cost,
    .packed_bytes = thin_bytes,
    .pack = thin_pack,
};
