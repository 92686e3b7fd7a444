/* y = residual + activation(K x + bias) batch-first on vector units for few columns k, of any
   pattern and alignment: a number of y takes a few of x that lie next to those of its
   neighbours, and memory is what bounds it.

   A block of threads makes TILE outputs o = (i ROWS + r) LANES + j of one column s after
   another, OUTS threads beside each other in o, COLUMNS in s. A thread keeps the weights of
   EACH outputs, OUTS apart, in registers, and makes them for SPAN columns at once, so that as
   many loads are on their way. Blocks that follow each other make tiles that do.

       x[s][A][COLS][LANES], y[s][A][ROWS][LANES]
       w[COLS][tiles][TILE], type S, zeros past the last output

   The sum over k is in ascending order. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#define COLUMNS (THREADS / OUTS)
#define TILE    (OUTS * EACH)
#define INPUTS  ((int64)A * COLS * LANES)
#define OUTPUTS ((int64)A * ROWS * LANES)
#define TILES   ((OUTPUTS + TILE - 1) / TILE)
#include "simt.h"

/* Where a thread's outputs take their numbers from in a column, and go. */
typedef struct place {
    int from[EACH], to[EACH];
    S weights[EACH][COLS], bias[EACH];
} place;

FN void take_place(const S *RESTRICT w, const S *RESTRICT bias, int64 tile, place *p)
{
    UNROLL
    for (int n = 0; n < EACH; n++) {
        int64 o = tile * TILE + n * OUTS + THREAD % OUTS;
        int inside = o < OUTPUTS;
        p->to[n] = inside ? (int)o : -1;
        p->from[n] = inside ? (int)(o / (ROWS * LANES) * (COLS * LANES) + o % LANES) : 0;
        p->bias[n] = bias && inside ? bias[o] : zero();
        UNROLL
        for (int k = 0; k < COLS; k++)
            p->weights[n][k] = w[k * (TILES * TILE) + o];
    }
}

/* SPAN columns from s on; those past the last one are that one again, and are not stored. */
FN void add_up(const X *RESTRICT x, const place *p, int64 s, int64 last, S sum[SPAN][EACH])
{
    UNROLL
    for (int u = 0; u < SPAN; u++) {
        const X *from = x + (s + u < last ? s + u : last) * INPUTS;
        UNROLL
        for (int n = 0; n < EACH; n++) {
            sum[u][n] = zero();
            UNROLL
            for (int k = 0; k < COLS; k++)
                sum[u][n] = multiply_add(
                    p->weights[n][k], load(from[p->from[n] + k * LANES]), sum[u][n]);
        }
    }
}

/* What results go to in the columns from s on; -1: nowhere. */
FN int64 goal(const place *p, int64 s, int64 last, int n)
{
    return s <= last && p->to[n] >= 0 ? s * OUTPUTS + p->to[n] : -1;
}

/* The residual is read before y is written, which it may be. */
FN void put(
    X *y, const X *residual, const place *p, int64 s, int64 last, S sum[SPAN][EACH])
{
    X more[SPAN][EACH];
    UNROLL
    for (int u = 0; u < SPAN * RESIDUAL; u++)
        UNROLL
        for (int n = 0; n < EACH; n++) {
            int64 to = goal(p, s + u, last, n);
            more[u][n] = to < 0 ? store(zero()) : residual[to];
        }
    UNROLL
    for (int u = 0; u < SPAN; u++)
        UNROLL
        for (int n = 0; n < EACH; n++) {
            int64 to = goal(p, s + u, last, n);
            if (to >= 0)
                y[to] = end(
                    sum[u][n], &p->bias[n], ACTIVATION, RESIDUAL ? &more[u][n] : 0);
        }
}

KERNEL ks(
    const X *RESTRICT x, const S *RESTRICT w, const S *RESTRICT bias, const X *residual,
    X *y, int64 batch)
{
    int64 slabs = BLOCKS / TILES;
    place p;
    take_place(w, bias, BLOCK % TILES, &p);
    for (int64 s = (BLOCK / TILES * COLUMNS + THREAD / OUTS) * SPAN; s < batch;
         s += slabs * (COLUMNS * SPAN)) {
        S sum[SPAN][EACH];
        add_up(x, &p, s, batch - 1, sum);
        put(y, residual, &p, s, batch - 1, sum);
    }
}
