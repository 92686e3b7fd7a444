/* y = residual + activation(K x + bias) on vector units, for any pattern, layout and type.

   A block of threads computes a tile of y: BR rows r, BS batch columns s and BJ lanes j of one
   block i; a thread computes TR x TS of them for one j. It goes along k in steps of BK, with
   x[k][j][s] and w[k][j][r] in shared memory in the type of sums. Both have two buffers: one is
   multiplied while the next is loaded. Numbers that lie next to each other are moved V at once
   where their places allow it. Results of several lanes pass through shared memory, so that
   neighbouring threads write neighbouring elements.

       batch-first (LAST 0): x[s][i][k][j], y[s][i][r][j]
       batch-last  (LAST 1): x[i][k][j][s], y[i][r][j][s]
       w[i][lanes / BJ][rows / BR][k][BJ][BR], type S, zeros past the last row and lane

   The sum over k is in ascending order for every element, whatever the tile. INDEX is
   wide enough for offsets within a step: BK x BJ x BS of x. With ONE_LANE d is 1.

   With READS row n of x is row x_order[n] of x_rows, or zeros where that is -1; with WRITES
   row n of the result is stored to row y_order[n] of y_rows, or nowhere. */
// SPDX-License-Identifier: Apache-2.0
#define ROW_THREADS    (BR / TR)
#define COLUMN_THREADS (BS / TS)
#define THREADS        (ROW_THREADS * COLUMN_THREADS * BJ)
#include "simt.h"

#define SX (BS + V) /* a row of x, and of w, in shared memory */
#define SW (BR + V)
/* Elements of x that are read at once: of a row, or batch-first of a column. */
#define HAS_RUNS (!READS && (LAST || ONE_LANE && BJ == 1))
#if HAS_RUNS
#    define RUN V
#else
#    define RUN 1
#endif
#define X_RUNS  (BK * BJ * BS / RUN)
#define W_RUNS  (BK * BJ * BR / V)
#define X_LOADS ((X_RUNS + THREADS - 1) / THREADS)
#define W_LOADS ((W_RUNS + THREADS - 1) / THREADS)

/* What leaves at once: for each thread one of its rows, or of its columns. */
#if LAST
#    define SLICES     TR
#    define SLICE_EACH TS
#else
#    define SLICES     TS
#    define SLICE_EACH TR
#endif

/* V elements of x or y. */
typedef struct ALIGNED(V * sizeof(X)) {
    X v[V];
} XV;

/* Lines of so many elements, of which the first begins at x, consist of XVs. */
FN int has_vectors(const GLOBAL X *x, int64 line)
{
    return line % V == 0 && (size_t)x % sizeof(XV) == 0;
}

/* Row u of thread t, of `threads` that share a tile: vectors of V lie together. */
#define OWN(u, t, threads) ((u) / V * (threads) * V + (t) * V + (u) % V)

/* The rows and columns of a tile that a thread computes. In a warp are 4 x 8 threads where there
   are as many, in an order in which few of them want the same bank of shared memory. */
FN void find_thread(int *row, int *column)
{
    int n = THREAD % (ROW_THREADS * COLUMN_THREADS);
#if BJ == 1 && ROW_THREADS % 4 == 0 && COLUMN_THREADS % 8 == 0
    int warp = n / 32, wide = COLUMN_THREADS / 8;
    *row = warp / wide * 4 + n / 16 % 2 * 2 + n % 2;
    *column = warp % wide * 8 + n / 2 % 8;
#else
    *row = n / COLUMN_THREADS;
    *column = n % COLUMN_THREADS;
#endif
}

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
   fastest. All sizes are powers of two, so the runs THREAD + u THREADS of a thread are
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

/* Element i of a run. */
FN place at_run(place p, int i)
{
    if (LAST)
        p.s += i;
    else
        p.k += i;
    return p;
}

FN S element(
    const GLOBAL X *RESTRICT x, const GLOBAL int64 *RESTRICT order, place p, place left,
    strides stride)
{
    if (p.k >= left.k || p.j >= left.j || p.s >= left.s)
        return zero();
    INDEX at = p.k * stride.k + p.j * stride.j;
    return READS ? ordered(x, order, stride.line, at, p.s) : load(x[at + p.s * stride.s]);
}

/* Reads a step into registers; `left` of it is inside the factor and the batch. */
FN void fetch(
    const GLOBAL X *RESTRICT x, const GLOBAL int64 *RESTRICT order,
    const GLOBAL S *RESTRICT w, place left, strides stride, int vectors, S *fx, SV *fw)
{
    place mine = place_x(THREAD * RUN);
    INDEX first = mine.k * stride.k + mine.j * stride.j;
    x += READS ? mine.s * (LAST ? 1 : stride.line) : first + mine.s * stride.s;
    order += READS ? first : 0;
    left.k -= mine.k, left.j -= mine.j, left.s -= mine.s;
    UNROLL
    for (int u = 0; u < X_LOADS; u++) {
        place p = place_x(u * THREADS * RUN);
        if (X_RUNS < THREADS && THREAD >= X_RUNS)
            p.k = left.k;
        if (vectors && p.k < left.k && p.s < left.s) {
            XV run = *(const GLOBAL XV *)(x + p.k * stride.k + p.s * stride.s);
            UNROLL
            for (int i = 0; i < RUN; i++)
                fx[u * RUN + i] = load(run.v[i]);
        } else {
            UNROLL
            for (int i = 0; i < RUN; i++)
                fx[u * RUN + i] = element(x, order, at_run(p, i), left, stride);
        }
    }
    UNROLL
    for (int u = 0; u < W_LOADS; u++) {
        int e = (THREAD + u * THREADS) * V;
        int inside =
            (W_RUNS >= THREADS || THREAD < W_RUNS) && e / (BJ * BR) < left.k + mine.k;
        UNROLL
        for (int i = 0; i < V; i++)
            fw[u].v[i] = zero();
        if (inside)
            fw[u] = *(const GLOBAL SV *)(w + e);
    }
}

FN void put(const S *fx, const SV *fw, LOCAL S *xs, LOCAL S *ws)
{
    UNROLL
    for (int u = 0; u < X_LOADS; u++) {
        place first = place_x((THREAD + u * THREADS) * RUN);
        UNROLL
        for (int i = 0; i < RUN; i++) {
            place p = at_run(first, i);
            if (X_RUNS >= THREADS || THREAD < X_RUNS)
                xs[(p.k * BJ + p.j) * SX + p.s] = fx[u * RUN + i];
        }
    }
    UNROLL
    for (int u = 0; u < W_LOADS; u++) {
        int e = (THREAD + u * THREADS) * V;
        if (W_RUNS >= THREADS || THREAD < W_RUNS)
            *(LOCAL SV *)(ws + e / BR * SW + e % BR) = fw[u];
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

/* What the rows of a product go through, and where they go. */
typedef struct ending {
    const GLOBAL S *bias;
    const GLOBAL X *residual;
    GLOBAL X *y;
    const GLOBAL int64 *order;
    int64 line; /* from a row of y to the next (LAST), or from a column */
    int activation;
} ending;

/* The number for row `row` of the factor and column s. *to becomes its place in y, or negative
   where it has none. */
FN X result(S sum, const ending *e, int64 row, int64 s, int64 *to)
{
    const GLOBAL S *own = e->bias ? e->bias + row : e->bias;
    if (WRITES)
        row = e->order[row];
    *to = row < 0 ? -1 : LAST ? row * e->line + s : s * e->line + row;
    return end(
        sum, own, e->activation, e->residual && row >= 0 ? e->residual + *to : 0);
}

/* Sums of one lane. V of them lie together, in a row of y or, if `vectors`, in a column. */
FN void write_slice(
    const S *sum, const ending *e, tile t, int64 batch, int64 b, int64 d, int r, int s,
    int vectors)
{
    UNROLL
    for (int u = 0; u < SLICE_EACH; u += V) {
        int64 row = t.r + r + (LAST ? 0 : OWN(u, 0, ROW_THREADS));
        int64 column = t.s + s + (LAST ? OWN(u, 0, COLUMN_THREADS) : 0);
        int count = row >= b || column >= batch ? 0
                    : LAST                      ? at_most(batch - column, V)
                                                : at_most(b - row, V);
        int64 first = (t.i * b + row) * d + t.j, to[V];
        XV run;
        UNROLL
        for (int i = 0; i < V; i++)
            if (i < count)
                run.v[i] = LAST ? result(sum[u + i], e, first, column + i, &to[i])
                                : result(sum[u + i], e, first + i * d, column, &to[i]);
        if (vectors && count == V && to[0] >= 0) {
            *(GLOBAL XV *)(e->y + to[0]) = run;
        } else {
            UNROLL
            for (int i = 0; i < V; i++)
                if (i < count && to[i] >= 0)
                    e->y[to[i]] = run.v[i];
        }
    }
}

/* Sums of several lanes, batch-first, from out[COLUMN_THREADS][BJ][BR]. */
FN void write_lanes(
    const LOCAL S *out, const ending *e, tile t, int64 batch, int64 b, int64 d, int slice)
{
    ROLL
    for (int n = THREAD; n < SLICE_EACH * THREADS; n += THREADS) {
        int j = n % BJ, r = n / BJ % BR, s = n / BJ / BR;
        int64 row = t.r + r, column = t.s + OWN(slice, s, COLUMN_THREADS), to;
        if (row >= b || t.j + j >= d || column >= batch)
            continue;
        X y = result(
            out[(s * BJ + j) * BR + r], e, (t.i * b + row) * d + t.j + j, column, &to);
        if (to >= 0)
            e->y[to] = y;
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
#if BJ > 1
    IN_BLOCK S out[COLUMN_THREADS * BJ * BR];
#endif
    int ts, tr, tj = THREAD / (COLUMN_THREADS * ROW_THREADS);
    int vectors = HAS_RUNS && has_vectors(x, LAST ? batch : c);
    ending e;
    e.bias = bias, e.residual = residual, e.y = y, e.order = y_order;
    e.line = LAST ? batch : WRITES ? y_rows : a * b * d;
    e.activation = activation;
    int y_vectors = (LAST || ONE_LANE && !WRITES) && has_vectors(y, LAST ? batch : b);
    int buffer = 0; /* of which the last tile's other threads may still read one */
    find_thread(&tr, &ts);
    int64 columns = (batch + BS - 1) / BS;
    int64 tiles = a * ((b + BR - 1) / BR) * ((d + BJ - 1) / BJ) * columns;
    for (int64 n = BLOCK; n < tiles; n += BLOCKS) {
        tile t = tile_number(n, a, b, c, d, columns);
        S sum[TR][TS], fx[X_LOADS * RUN];
        SV fw[W_LOADS];
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
        fetch(xt, order, wt, left, stride, vectors, fx, fw);
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
                fetch(xt, order, wt, left, stride, vectors, fx, fw);
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
            S leaves[SLICE_EACH];
            UNROLL
            for (int u = 0; u < SLICE_EACH; u++)
                leaves[u] = LAST ? sum[0][u] : sum[u][0];
            UNROLL
            for (int r = 0; r < TR; r++) {
                UNROLL
                for (int s = 0; s < TS; s++)
                    sum[r][s] = LAST ? sum[r + 1 < TR ? r + 1 : r][s]
                                     : sum[r][s + 1 < TS ? s + 1 : s];
            }
#if BJ > 1
            UNROLL
            for (int u = 0; u < SLICE_EACH; u++)
                out[(ts * BJ + tj) * BR + OWN(u, tr, ROW_THREADS)] = leaves[u];
            BARRIER();
            write_lanes(out, &e, t, batch, b, d, slice);
            BARRIER();
#else
            int r = OWN(LAST ? slice : 0, tr, ROW_THREADS);
            int s = OWN(LAST ? 0 : slice, ts, COLUMN_THREADS);
            write_slice(leaves, &e, t, batch, b, d, r, s, y_vectors);
#endif
        }
    }
}
