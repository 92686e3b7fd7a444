/* y = residual + activation(K x + bias) on vector units, for any pattern, layout and type.

   A block of threads computes a tile of y: BR rows r, BS batch columns s and BJ lanes j of one
   block i; a thread computes TR x TS of them for one j. It goes along k in steps of BK, with
   x[k][j][s] and w[k][j][r] in shared memory in the type of sums. Both have two buffers: one is
   multiplied while the next is loaded. Results pass through shared memory, so that neighbouring
   threads write neighbouring elements in any layout.

       batch-first (LAST 0): x[s][i][k][j], y[s][i][r][j]
       batch-last  (LAST 1): x[i][k][j][s], y[i][r][j][s]
       w[i][lanes / BJ][rows / BR][k][BJ][BR], type S, zeros past the last row and lane

   The sum over k is in ascending order for every element, whatever the tile. INDEX is
   wide enough for offsets within a step: BK x BJ x BS of x.

   With READS row n of x is row x_order[n] of x_rows, or zeros where that is -1; with WRITES
   row n of the result is stored to row y_order[n] of y_rows, or nowhere. */
// SPDX-License-Identifier: Apache-2.0
#define ROW_THREADS    (BR / TR)
#define COLUMN_THREADS (BS / TS)
#define THREADS        (ROW_THREADS * COLUMN_THREADS * BJ)
#include "simt.h"

#define SX (BS + V) /* a row of x, and of w, in shared memory */
#define SW (BR + V)
#define X_ELEMENTS (BK * BJ * BS)
#define W_ELEMENTS (BK * BJ * BR)
#define X_LOADS    ((X_ELEMENTS + THREADS - 1) / THREADS)
#define W_LOADS    ((W_ELEMENTS + THREADS - 1) / THREADS)

/* What leaves at once: for each thread one of its rows, or of its columns. */
#if LAST
#    define SLICES      TR
#    define SLICE_EACH  TS
#    define SLICE_OUTER ROW_THREADS
#    define SLICE_INNER BS
#else
#    define SLICES      TS
#    define SLICE_EACH  TR
#    define SLICE_OUTER COLUMN_THREADS
#    define SLICE_INNER BR
#endif

/* Row u of thread t, of `threads` that share a tile: vectors of V lie together. */
#define OWN(u, t, threads) ((u) / V * (threads) * V + (t) * V + (u) % V)

typedef struct tile {
    int64 i, r, s, j; /* first of the tile */
    int64 w;          /* where its weights begin */
} tile;

/* Neighbours share x in the second cache: tiles of the same rows of x, then those that
   follow them in memory. */
FN tile tile_number(int64 n, int64 a, int64 b, int64 c, int64 d, int64 columns)
{
    tile t;
    int64 row_tiles = (b + BR - 1) / BR, lane_tiles = (d + BJ - 1) / BJ;
    int64 r = n % row_tiles, blocks = a * lane_tiles;
    n /= row_tiles;
    int64 block = LAST ? n / columns : n % blocks, j = block % lane_tiles;
    t.i = block / lane_tiles;
    t.s = (LAST ? n % columns : n / blocks) * BS;
    t.r = r * BR;
    t.j = j * BJ;
    t.w = ((t.i * lane_tiles + j) * row_tiles + r) * c * (BJ * BR);
    return t;
}

/* Element e of a step of x is (k, j, s): the index that is contiguous in memory runs
   fastest. All sizes are powers of two, so the elements THREAD + u THREADS of a thread are
   its first one, plus places that are known when this is compiled. */
typedef struct place {
    int k, j, s;
} place;

typedef struct strides {
    INDEX k, j, s; /* with READS of the order, but for s */
    int64 line;    /* then from a row of x to the next (LAST), or from a column */
} strides;

FN place place_x(int e)
{
    place p;
    if (LAST) {
        p.s = e % BS;
        p.j = e / BS % BJ;
        p.k = e / BS / BJ;
    } else {
        p.j = e % BJ;
        p.k = e / BJ % BK;
        p.s = e / BJ / BK;
    }
    return p;
}

/* Column s of the row that an order has for place `at`. Half a place is read: rows are fewer
   than 2^31. */
FN S ordered(
    const GLOBAL X *x, const GLOBAL int64 *order, int64 line, INDEX at, int s)
{
    int row = (int)order[at];
    return row < 0 ? zero() : load(x[LAST ? row * line + s : s * line + row]);
}

/* Reads a step into registers; `left` of it is inside the factor and the batch. */
FN void fetch(
    const GLOBAL X *RESTRICT x, const GLOBAL int64 *RESTRICT order,
    const GLOBAL S *RESTRICT w, place left, strides stride, S *fx, S *fw)
{
    place mine = place_x(THREAD);
    INDEX first = mine.k * stride.k + mine.j * stride.j + (READS ? 0 : mine.s * stride.s);
    UNROLL
    for (int u = 0; u < X_LOADS; u++) {
        place p = place_x(u * THREADS);
        int inside = (X_ELEMENTS >= THREADS || THREAD < X_ELEMENTS) &&
                     mine.k + p.k < left.k && mine.j + p.j < left.j &&
                     mine.s + p.s < left.s;
        INDEX at = first + p.k * stride.k + p.j * stride.j;
        if (!inside)
            fx[u] = zero();
        else if (READS)
            fx[u] = ordered(x, order, stride.line, at, mine.s + p.s);
        else
            fx[u] = load(x[at + p.s * stride.s]);
    }
    UNROLL
    for (int u = 0; u < W_LOADS; u++) {
        int e = THREAD + u * THREADS;
        int inside = (W_ELEMENTS >= THREADS || THREAD < W_ELEMENTS) &&
                     e / (BJ * BR) < left.k;
        fw[u] = inside ? w[e] : zero();
    }
}

FN void put(const S *fx, const S *fw, LOCAL S *xs, LOCAL S *ws)
{
    UNROLL
    for (int u = 0; u < X_LOADS; u++) {
        place p = place_x(THREAD + u * THREADS);
        if (X_ELEMENTS >= THREADS || THREAD < X_ELEMENTS)
            xs[(p.k * BJ + p.j) * SX + p.s] = fx[u];
    }
    UNROLL
    for (int u = 0; u < W_LOADS; u++) {
        int e = THREAD + u * THREADS;
        if (W_ELEMENTS >= THREADS || THREAD < W_ELEMENTS)
            ws[e / BR * SW + e % BR] = fw[u];
    }
}

/* sum += w x for one k. */
FN void add_step(
    const LOCAL S *xs, const LOCAL S *ws, int tr, int ts, S sum[TR][TS])
{
    S xv[TS], wv[TR];
    UNROLL
    for (int u = 0; u < TS; u += V)
        *(SV *)(xv + u) = *(const LOCAL SV *)(xs + OWN(u, ts, COLUMN_THREADS));
    UNROLL
    for (int u = 0; u < TR; u += V)
        *(SV *)(wv + u) = *(const LOCAL SV *)(ws + OWN(u, tr, ROW_THREADS));
    UNROLL
    for (int r = 0; r < TR; r++) {
        UNROLL
        for (int s = 0; s < TS; s++)
            sum[r][s] = multiply_add(wv[r], xv[s], sum[r][s]);
    }
}

FN void finish(
    const GLOBAL S *RESTRICT bias, const GLOBAL X *residual, GLOBAL X *y,
    const GLOBAL int64 *RESTRICT order, int64 rows, tile t, int64 batch, int activation,
    int64 b, int64 d, int slice, const LOCAL S *out)
{
    ROLL
    for (int e = THREAD; e < SLICE_EACH * THREADS; e += THREADS) {
        int r, s, j;
        int at; /* in out[SLICE_OUTER][BJ][SLICE_INNER] */
        if (LAST) {
            s = e % BS;
            j = e / BS % BJ;
            r = e / BS / BJ;
            at = e;
            r = OWN(slice, r, ROW_THREADS);
        } else {
            j = e % BJ;
            r = e / BJ % BR;
            s = e / BJ / BR;
            at = (s * BJ + j) * BR + r;
            s = OWN(slice, s, COLUMN_THREADS);
        }
        if (t.r + r >= b || t.j + j >= d || t.s + s >= batch)
            continue;
        int64 row = (t.i * b + t.r + r) * d + t.j + j;
        const GLOBAL S *own = bias ? bias + row : bias;
        if (WRITES && (row = order[row]) < 0)
            continue;
        int64 to = LAST ? row * batch + t.s + s : (t.s + s) * rows + row;
        y[to] = end(out[at], own, activation, residual ? residual + to : residual);
    }
}

KERNEL ks(
    const GLOBAL X *RESTRICT x, const GLOBAL S *RESTRICT w,
    const GLOBAL S *RESTRICT bias, const GLOBAL X *residual, GLOBAL X *y, int64 batch,
    int activation, int64 a, int64 b, int64 c, int64 d,
    const GLOBAL int64 *RESTRICT x_order, const GLOBAL int64 *RESTRICT y_order,
    int64 x_rows, int64 y_rows)
{
    IN_BLOCK S xs[2][BK * BJ * SX], ws[2][BK * BJ * SW];
    IN_BLOCK S out[SLICE_OUTER * BJ * SLICE_INNER];
    int ts = THREAD % COLUMN_THREADS, tr = THREAD / COLUMN_THREADS % ROW_THREADS;
    int tj = THREAD / (COLUMN_THREADS * ROW_THREADS);
    int64 columns = (batch + BS - 1) / BS;
    int64 tiles = a * ((b + BR - 1) / BR) * ((d + BJ - 1) / BJ) * columns;
    for (int64 n = BLOCK; n < tiles; n += BLOCKS) {
        tile t = tile_number(n, a, b, c, d, columns);
        S sum[TR][TS], fx[X_LOADS], fw[W_LOADS];
        UNROLL
        for (int r = 0; r < TR; r++) {
            UNROLL
            for (int s = 0; s < TS; s++)
                sum[r][s] = zero();
        }
        strides stride;
        stride.k = LAST && !READS ? d * batch : d;
        stride.j = LAST && !READS ? batch : 1;
        stride.s = LAST ? 1 : a * c * d;
        stride.line = LAST ? batch : x_rows;
        place left;
        left.k = at_most(c, BK);
        left.j = at_most(d - t.j, BJ);
        left.s = at_most(batch - t.s, BS);
        int64 row = t.i * c * d + t.j;
        const GLOBAL X *xt = x + (LAST ? row * batch + t.s : t.s * (a * c * d) + row);
        const GLOBAL int64 *order = x_order;
        if (READS) {
            xt = x + (LAST ? t.s : t.s * x_rows);
            order += row;
        }
        const GLOBAL S *wt = w + t.w;
        int buffer = 0;
        fetch(xt, order, wt, left, stride, fx, fw);
        for (int64 k0 = 0; k0 < c; k0 += BK, buffer = !buffer) {
            put(fx, fw, xs[buffer], ws[buffer]);
            BARRIER();
            int depth = left.k;
            left.k = at_most(c - k0 - BK, BK);
            if (left.k > 0) {
                if (READS)
                    order += BK * d;
                else
                    xt += BK * (LAST ? d * batch : d);
                wt += BK * BJ * BR;
                fetch(xt, order, wt, left, stride, fx, fw);
            }
            const LOCAL S *xk = xs[buffer] + tj * SX, *wk = ws[buffer] + tj * SW;
            if (depth == BK) {
                UNROLL
                for (int k = 0; k < BK; k++)
                    add_step(xk + k * BJ * SX, wk + k * BJ * SW, tr, ts, sum);
            } else {
                ROLL
                for (int k = 0; k < depth; k++)
                    add_step(xk + k * BJ * SX, wk + k * BJ * SW, tr, ts, sum);
            }
        }
        /* Registers have no index: what leaves is always the first slice. */
        ROLL
        for (int slice = 0; slice < SLICES; slice++) {
            UNROLL
            for (int u = 0; u < SLICE_EACH; u++) {
                if (LAST)
                    out[(tr * BJ + tj) * BS + OWN(u, ts, COLUMN_THREADS)] = sum[0][u];
                else
                    out[(ts * BJ + tj) * BR + OWN(u, tr, ROW_THREADS)] = sum[u][0];
            }
            UNROLL
            for (int r = 0; r < TR; r++) {
                UNROLL
                for (int s = 0; s < TS; s++)
                    sum[r][s] = LAST ? sum[r + 1 < TR ? r + 1 : r][s]
                                     : sum[r][s + 1 < TS ? s + 1 : s];
            }
            BARRIER();
            finish(
                bias, residual, y, y_order, WRITES ? y_rows : a * b * d, t, batch,
                activation, b, d, slice, out);
            BARRIER();
        }
    }
}
