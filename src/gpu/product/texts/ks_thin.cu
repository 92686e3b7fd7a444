/* y = residual + activation(K x + bias) on vector units for few columns k, in any pattern and
   alignment. A number of y needs few numbers of x, neighbours in y need neighbours in x, and
   memory bounds the time.

   A block of threads computes TILE outputs o = (i ROWS + r) LANES + j of COLUMNS columns s, and
   then of others. A thread keeps the weights of EACH outputs in registers and computes them for
   SPAN columns at once, so that SPAN loads are in flight. Neighbouring threads have

       batch-first (LAST 0)  OUTS neighbouring outputs; a thread's outputs are OUTS apart
       batch-last  (LAST 1)  neighbouring columns; a thread's columns are COLUMNS apart. Its
                             outputs are a unit: EACH rows of one lane j, which need the same
                             numbers of x. A block has OUTS units beside each other.

       x[s][A][COLS][LANES], y[s][A][ROWS][LANES], or batch-last x[A][COLS][LANES][s], ...
       w[COLS][tiles][TILE], type S, zeros where there is no output; batch-last as many units as
       a block may have divide

   The sum over k is in ascending order. Neighbouring blocks compute neighbouring tiles. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS   256
#define MOST_OUTS 8 /* batch-last */
#define COLUMNS   (THREADS / OUTS)
#define TILE      (OUTS * EACH)
#define INPUTS    ((int64)A * COLS * LANES)
#define OUTPUTS   ((int64)A * ROWS * LANES)
#define ROW_TILES ((ROWS + EACH - 1) / EACH)
#define UNITS     ((int64)A * ROW_TILES * LANES)
#define TILES     (LAST ? (UNITS + OUTS - 1) / OUTS : (OUTPUTS + TILE - 1) / TILE)
/* The distance of weights from one column k to the next. */
#define WEIGHTS                                                                        \
    (LAST ? (UNITS + MOST_OUTS - 1) / MOST_OUTS * MOST_OUTS * EACH : TILES * TILE)
#include "simt.h"

/* A thread's place beside others in the outputs of a tile, and in its columns. */
#define OUT    (LAST ? THREAD / COLUMNS : THREAD % OUTS)
#define COLUMN (LAST ? THREAD % COLUMNS : THREAD / OUTS)

/* The distance between a thread's columns. */
#define STEP (LAST ? COLUMNS : 1)

/* Sets of COLS numbers that a thread reads of a column: one for all of its outputs, or one
   each. */
#define SETS (LAST ? 1 : EACH)

typedef struct strides {
    int64 x, y, row;
} strides;

/* A thread's outputs, or -1, where their numbers of x begin, and what they are made of. */
typedef struct place {
    int from[EACH], to[EACH];
    S weights[EACH][COLS], bias[EACH];
} place;

FN int64 output_at(int64 tile, int n)
{
    int64 o = tile * TILE + n * OUTS + OUT;
    if (!LAST)
        return o < OUTPUTS ? o : -1;
    int64 unit = tile * OUTS + OUT, lane = unit % LANES, rows = unit / LANES;
    int64 row = rows % ROW_TILES * EACH + n;
    return unit < UNITS && row < ROWS ? (rows / ROW_TILES * ROWS + row) * LANES + lane
                                      : -1;
}

FN void take_place(
    const GLOBAL S *RESTRICT w, const GLOBAL S *RESTRICT bias, int64 tile, place *p)
{
    UNROLL
    for (int n = 0; n < EACH; n++) {
        int64 o = output_at(tile, n);
        p->to[n] = (int)o;
        p->from[n] = o < 0 ? 0 : (int)(o / (ROWS * LANES) * (COLS * LANES) + o % LANES);
        p->bias[n] = bias && o >= 0 ? bias[o] : zero();
        int64 at = tile * TILE + (LAST ? OUT * EACH + n : n * OUTS + OUT);
        UNROLL
        for (int k = 0; k < COLS; k++)
            p->weights[n][k] = w[k * WEIGHTS + at];
    }
}

/* A thread's columns from s on; those past the last one are that one again, and are not
   stored. All are read before anything is made. */
FN void add_up(
    const GLOBAL X *RESTRICT x, strides by, const place *p, int64 s, int64 last, int whole,
    S sum[SPAN][EACH])
{
    X number[SPAN][SETS][COLS];
    UNROLL
    for (int u = 0; u < SPAN; u++) {
        const GLOBAL X *from = x + (whole || s + u * STEP < last ? s + u * STEP : last) * by.x;
        UNROLL
        for (int n = 0; n < SETS; n++)
            UNROLL
            for (int k = 0; k < COLS; k++)
                number[u][n][k] = from[(p->from[n] + k * LANES) * by.row];
    }
    UNROLL
    for (int u = 0; u < SPAN; u++)
        UNROLL
        for (int n = 0; n < EACH; n++) {
            sum[u][n] = zero();
            UNROLL
            for (int k = 0; k < COLS; k++)
                sum[u][n] = multiply_add(
                    p->weights[n][k], load(number[u][LAST ? 0 : n][k]), sum[u][n]);
        }
}

/* What output n of column s goes to; -1: nowhere. */
FN int64 goal(const place *p, strides by, int64 s, int64 last, int n)
{
    return s <= last && p->to[n] >= 0 ? s * by.y + p->to[n] * by.row : -1;
}

/* The residual is read before y is written, which it may be. */
FN void put(
    GLOBAL X *y, const GLOBAL X *residual, strides by, const place *p, int64 s, int64 last,
    S sum[SPAN][EACH])
{
    X more[SPAN][EACH];
    UNROLL
    for (int u = 0; u < SPAN * RESIDUAL; u++)
        UNROLL
        for (int n = 0; n < EACH; n++) {
            int64 to = goal(p, by, s + u * STEP, last, n);
            more[u][n] = to < 0 ? store(zero()) : residual[to];
        }
    UNROLL
    for (int u = 0; u < SPAN; u++)
        UNROLL
        for (int n = 0; n < EACH; n++) {
            int64 to = goal(p, by, s + u * STEP, last, n);
            S own = activate(plus(sum[u][n], p->bias[n]), ACTIVATION);
            if (to >= 0)
                y[to] = store(RESIDUAL ? plus(own, load(more[u][n])) : own);
        }
}

KERNEL ks(
    const GLOBAL X *RESTRICT x, const GLOBAL S *RESTRICT w,
    const GLOBAL S *RESTRICT bias, const GLOBAL X *residual, GLOBAL X *y, int64 batch)
{
    strides by = { LAST ? 1 : INPUTS, LAST ? 1 : OUTPUTS, LAST ? batch : 1 };
    int64 slabs = BLOCKS / TILES, slab = BLOCK / TILES * COLUMNS;
    place p;
    take_place(w, bias, BLOCK % TILES, &p);
    for (int64 s = slab * SPAN + COLUMN * (LAST ? 1 : SPAN); s < batch;
         s += slabs * (COLUMNS * SPAN)) {
        S sum[SPAN][EACH];
        if (s + (SPAN - 1) * STEP < batch) {
            add_up(x, by, &p, s, batch - 1, 1, sum);
            put(y, residual, by, &p, s, s + (SPAN - 1) * STEP, sum);
        } else {
            add_up(x, by, &p, s, batch - 1, 0, sum);
            put(y, residual, by, &p, s, batch - 1, sum);
        }
    }
}
