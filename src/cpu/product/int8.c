/* Rows of the kernel table for products of 8-bit numbers: costs, packing and shapes. int8.inc has
   the kernels. */
// SPDX-License-Identifier: Apache-2.0
#include "cpu/product/grid.h"
#include "cpu/product/rows.h"

#include "base/dtype.h"
#include "base/int8.h"
#include "math/pattern.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define MOST_TERMS ((int64_t)1 << 17) /* whose sum of products fits in 32 bits */
#define PIECE      256                /* weights of a row that are read at a time */

static const cpu_code *code_of(const kernel *k) { return k->code; }

static int int8_fits(const kernel *k, const problem *p)
{
    (void)k;
    return !p->inner.a && p->pattern.c <= MOST_TERMS;
}

static dot_map map_of(const cpu_code *code, danaus_pattern p)
{
    dot_map m = { .vectors = CEIL_DIV(p.b, (int64_t)code->vector),
                  .steps = CEIL_DIV(p.c, (int64_t)code->dots.terms) };
    m.vector_bytes = code->vector * (m.steps * code->dots.terms + 8);
    return m;
}

static size_t int8_bytes(const kernel *k, const problem *p)
{
    dot_map m = map_of(code_of(k), p->pattern);
    return (size_t)(p->pattern.a * p->pattern.d * m.vectors * m.vector_bytes);
}

/* Cycles to round a number of x, to turn one of a lane, and to begin and end a tile. */
#define ROUND_NUMBER 0.4
#define TURN_NUMBER  1.0
#define TILE_ENDS    20.0

static double int8_cost(const danaus_device *dev, const kernel *k, const problem *p)
{
    const cpu_device *cpu = (const cpu_device *)dev;
    const cpu_code *code = code_of(k);
    danaus_pattern q = p->pattern;
    dot_map m = map_of(code, q);
    double n = (double)p->batch, blocks = (double)q.a * (double)q.d;
    double tiles = ceil((double)m.vectors / code->lane_vectors) *
                   ceil(n / code->tile_columns) * blocks;
    /* A plain dot of two terms is a product and a sum. */
    double each = cpu->traits.product * (code->dots.terms == 1 ? 4 : 1);
    double work = each * n * blocks * (double)(m.vectors * m.steps) + TILE_ENDS * tiles;
    double x = n * (double)dn_pattern_cols(q), y = n * (double)dn_pattern_rows(q);
    work += ROUND_NUMBER * x + (q.d > 1 ? TURN_NUMBER * (x + y) : 0);
    work += p->layout == DANAUS_BATCH_LAST ? TURN_NUMBER * (x + y) / code->vector : 0;
    return DN_CYCLE * (work + dn_memory_cycles(p) / 4 + 50) /
           dn_estimated_threads(dev, p);
}

/* Rows of a packed tile. */
typedef struct packed_rows {
    int64_t rows, terms;
    int zero;
    float *scale;
    int32_t *start;
    int8_t *weights; /* [step][row][term] */
} packed_rows;

/* A row's greatest magnitude; NaN where a weight is not finite. */
static float magnitude(const weights_view *w, int64_t from, int64_t step, int64_t count)
{
    float piece[PIECE], most = 0;
    for (int64_t k = 0, n; k < count; k += n) {
        n = MIN(count - k, PIECE);
        dn_weights_gather(w, from + k * step, step, n, DANAUS_F32, piece);
        for (int64_t l = 0; l < n; l++)
            if (!(fabsf(piece[l]) <= FLT_MAX))
                return NAN;
            else
                most = fmaxf(most, fabsf(piece[l]));
    }
    return most;
}

/* Row number `row` of a tile: `count` weights that are `step` apart. */
static void pack_row(
    const weights_view *w, int64_t from, int64_t step, int64_t count,
    const packed_rows *to, int64_t row)
{
    float piece[PIECE], scale = dn_int8_scale(magnitude(w, from, step, count));
    int64_t sum = 0;
    for (int64_t k = 0, n; k < count; k += n) {
        n = MIN(count - k, PIECE);
        dn_weights_gather(w, from + k * step, step, n, DANAUS_F32, piece);
        for (int64_t l = k; l < k + n; l++) {
            int8_t number = dn_int8_round(piece[l - k], scale);
            int64_t at = (l / to->terms * to->rows + row) * to->terms + l % to->terms;
            to->weights[at] = number;
            sum += number;
        }
    }
    to->scale[row] = scale;
    to->start[row] = (int32_t)(-to->zero * sum);
}

/* [i][j][tile]: the scales of a tile, what its sums begin with, then for each step the weights of
   its rows. Vectors that fill no tile are tiles of their own. */
static void int8_pack(const kernel *k, const problem *p, weights_view w, void *packed)
{
    const cpu_code *code = code_of(k);
    danaus_pattern q = p->pattern;
    dot_map m = map_of(code, q);
    memset(packed, 0, int8_bytes(k, p));
    char *to = packed;
    for (int64_t block = 0; block < q.a * q.d; block++) {
        int64_t from = block / q.d * w.s[0] + block % q.d * w.s[3];
        for (int64_t v = 0, vecs; v < m.vectors;
             v += vecs, to += vecs * m.vector_bytes) {
            vecs = m.vectors - v < code->lane_vectors ? 1 : code->lane_vectors;
            packed_rows at = { vecs * code->vector,
                               code->dots.terms,
                               code->dots.zero,
                               (float *)to,
                               NULL,
                               NULL };
            at.start = (int32_t *)(at.scale + at.rows);
            at.weights = (int8_t *)(at.start + at.rows);
            int64_t r = v * code->vector;
            for (int64_t row = 0; row < MIN(at.rows, q.b - r); row++)
                pack_row(&w, from + (r + row) * w.s[1], w.s[2], q.c, &at, row);
        }
    }
}

/* Columns of a chunk, whose rounded x, staged x and y share half of the second cache. */
void dn_int8_shape(
    const cpu_device *d, const ks_step *step, const cpu_view *x, const cpu_view *y,
    int64_t n, cpu_shape *to)
{
    danaus_pattern p = step->p.pattern;
    const cpu_code *code = dn_code_of(step);
    int64_t cell = (int64_t)sizeof(float), per = code->vector;
    int64_t x_line = dn_lies_as_lines(x) ? 0 : ROUND_UP(p.c * p.d, COLUMNS_UNIT) * cell;
    int64_t y_line = dn_lies_as_lines(y) ? 0 : ROUND_UP(p.b * p.d, COLUMNS_UNIT) * cell;
    int64_t rounded = p.d * (ROUND_UP(p.c, per) * code->dots.x_bytes + cell);
    int64_t turned = p.d * ROUND_UP(p.c, per) * cell; /* of one column */
    int64_t lanes = p.d > 1 ? p.d * ROUND_UP(p.b, per) * cell : 0;
    int64_t most = (int64_t)d->l2 / 2 / (x_line + y_line + rounded + lanes);
    int64_t columns = CLAMP(
        most / code->tile_columns * code->tile_columns, code->tile_columns,
        LANE_COLUMNS_AT_A_TIME);
    columns = MIN(columns, n);
    int64_t tiles = CEIL_DIV(CEIL_DIV(p.b, per), (int64_t)code->lane_vectors);
    *to = (cpu_shape){
        .columns = columns,
        .blocks = 1,
        .lanes = p.d,
        .tiles = tiles,
        .all_tiles = tiles,
        .dots = map_of(code, p),
        .x_bytes = dn_aligned(columns * x_line) +
                   dn_aligned(columns * rounded + per * cell) +
                   dn_aligned(p.d > 1 ? MAX(turned, columns * lanes) : 0),
        .y_bytes = dn_aligned(columns * y_line) * (y->residual ? 2 : 1),
    };
}

const kernel_family dn_cpu_int8 = {
    .int8 = 1,
    .fits = int8_fits,
    .cost = int8_cost,
    .packed_bytes = int8_bytes,
    .pack = int8_pack,
};
