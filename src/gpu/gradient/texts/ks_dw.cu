/* Parts of dw[i][r][k][j] = sum over s of dy[i][r][j][s] conj(x[i][k][j][s]), each over a
   slab of `slab` batch columns; ks_reduce.cu adds them up.

   A block of threads computes a tile of BR rows r, BC columns k and BJ lanes j, and a thread
   TR x TC of these for one j, along s in steps of BS. Tiles are numbered slab by slab.
   part[slab][i][r][k][j] has type S. */
// SPDX-License-Identifier: Apache-2.0
#define ROW_THREADS    (BR / TR)
#define COLUMN_THREADS (BC / TC)
#define THREADS        (ROW_THREADS * COLUMN_THREADS * BJ)
#include "simt.h"

#define SY (BR + V) /* a row of dy, and of x, in shared memory */
#define SX (BC + V)
#define OWN(u, t, threads) ((u) / V * (threads) * V + (t) * V + (u) % V)

#define X_LOADS ((BS * BJ * BC + THREADS - 1) / THREADS)
#define Y_LOADS ((BS * BJ * BR + THREADS - 1) / THREADS)

/* Where element e of N rows, BJ lanes and BS columns is: what is contiguous in memory
   runs fastest. */
#define COLUMN(e, N) (LAST ? (e) % BS : (e) / BJ / (N))
#define LANE(e)      (LAST ? (e) / BS % BJ : (e) % BJ)
#define ROW(e, N)    (LAST ? (e) / BS / BJ : (e) / BJ % (N))

/* Reads rows [row, row + N) of `size`, lanes from j and columns [s, s + BS) of a vector
   [block][size][d] into registers, zeros outside. */
#define FETCH(N, LOADS, to, from, block, size, row)                                    \
    UNROLL                                                                             \
    for (int u = 0; u < LOADS; u++) {                                                  \
        int e = THREAD + u * THREADS;                                                  \
        int es = COLUMN(e, N), ej = LANE(e), er = ROW(e, N);                           \
        int64 at = (block * size + row + er) * d + j + ej;                             \
        int inside = e < BS * BJ * N && row + er < size && j + ej < d && s + es < end; \
        at = LAST ? at * batch + s + es : (s + es) * (a * size * d) + at;              \
        to[u] = inside ? load(from[at]) : zero();                                      \
    }

/* Puts them into to[BS][BJ][stride] in shared memory. */
#define PUT(N, LOADS, to, stride, from)                                                \
    UNROLL                                                                             \
    for (int u = 0; u < LOADS; u++) {                                                  \
        int e = THREAD + u * THREADS;                                                  \
        if (e < BS * BJ * N)                                                           \
            to[(COLUMN(e, N) * BJ + LANE(e)) * stride + ROW(e, N)] = from[u];          \
    }

FN void add_step(
    const LOCAL S *xs, const LOCAL S *ys, int tr, int tc, S sum[TR][TC])
{
    S xv[TC], yv[TR];
    UNROLL
    for (int u = 0; u < TC; u += V)
        *(SV *)(xv + u) = *(const LOCAL SV *)(xs + OWN(u, tc, COLUMN_THREADS));
    UNROLL
    for (int u = 0; u < TR; u += V)
        *(SV *)(yv + u) = *(const LOCAL SV *)(ys + OWN(u, tr, ROW_THREADS));
    UNROLL
    for (int r = 0; r < TR; r++) {
        UNROLL
        for (int k = 0; k < TC; k++)
            sum[r][k] = multiply_add(yv[r], conjugate(xv[k]), sum[r][k]);
    }
}

KERNEL dw(
    const GLOBAL X *RESTRICT x, const GLOBAL X *RESTRICT dy, GLOBAL S *RESTRICT part,
    int64 batch, int64 slab, int64 a, int64 b, int64 c, int64 d)
{
    IN_BLOCK S xs[BS * BJ * SX], ys[BS * BJ * SY];
    int tc = THREAD % COLUMN_THREADS, tr = THREAD / COLUMN_THREADS % ROW_THREADS;
    int tj = THREAD / (COLUMN_THREADS * ROW_THREADS);
    int64 row_tiles = (b + BR - 1) / BR, column_tiles = (c + BC - 1) / BC;
    int64 lane_tiles = (d + BJ - 1) / BJ;
    int64 tiles = a * row_tiles * column_tiles * lane_tiles;
    int64 all = tiles * ((batch + slab - 1) / slab);
    for (int64 n = BLOCK; n < all; n += BLOCKS) {
        int64 t = n % tiles, s = n / tiles * slab;
        int64 end = s + slab < batch ? s + slab : batch;
        int64 j = t % lane_tiles * BJ, k = t / lane_tiles % column_tiles * BC;
        int64 block = t / lane_tiles / column_tiles, r = block % row_tiles * BR;
        block /= row_tiles;
        S sum[TR][TC];
        UNROLL
        for (int u = 0; u < TR; u++) {
            UNROLL
            for (int v = 0; v < TC; v++)
                sum[u][v] = zero();
        }
        S fx[X_LOADS], fy[Y_LOADS];
        FETCH(BC, X_LOADS, fx, x, block, c, k)
        FETCH(BR, Y_LOADS, fy, dy, block, b, r)
        while (s < end) {
            BARRIER();
            PUT(BC, X_LOADS, xs, SX, fx)
            PUT(BR, Y_LOADS, ys, SY, fy)
            BARRIER();
            s += BS;
            if (s < end) { /* on its way while this step is multiplied */
                FETCH(BC, X_LOADS, fx, x, block, c, k)
                FETCH(BR, Y_LOADS, fy, dy, block, b, r)
            }
            UNROLL
            for (int e = 0; e < BS; e++)
                add_step(xs + (e * BJ + tj) * SX, ys + (e * BJ + tj) * SY, tr, tc, sum);
        }
        UNROLL
        for (int u = 0; u < TR; u++) {
            UNROLL
            for (int v = 0; v < TC; v++) {
                int64 row = r + OWN(u, tr, ROW_THREADS);
                int64 column = k + OWN(v, tc, COLUMN_THREADS);
                if (row < b && column < c && j + tj < d)
                    part[(((n / tiles * a + block) * b + row) * c + column) * d + j + tj] =
                        sum[u][v];
            }
        }
    }
}
