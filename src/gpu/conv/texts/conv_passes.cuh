/* Passes of a transform, through shared memory, over a tile of a window.

   A member of a block, TEAM threads, has N points of a window of POINTS = N x TILES. They are
   the whole window; or COLUMNS columns of the matrix [N / COLUMNS][POINTS x COLUMNS / N], whose
   columns the first passes transform; or, with COLUMNS = N, one row of the result, which has
   its own blocks.

   A pass of radix R starts from `blocks` blocks in the N points; `constants` is where a
   window's blocks have their constants. The first pass reads from the device's memory, and the
   last pass writes there:

       LOAD and STORE   0: rows of numbers   1: points   2: the spectrum
                        3: taps of filters   4: the spectrum in the order of conv_mma.cu */
// SPDX-License-Identifier: Apache-2.0

#include "conv_points.cuh"
#include "conv_rows.cuh"
#include "conv_scales.cuh"
#include "conv_taps.cuh"

#define ROOM        ((N + 15) / 16 * 17 + 1)          /* of N points and all gaps */
#define EACH(radix) ((N / (radix) + TEAM - 1) / TEAM) /* columns for a thread */

/* What a thread works on. */
typedef struct work {
    LOCAL C *z; /* N points in shared memory */
    const rows *r;
    window w;
    const GLOBAL X *x, *x_factor; /* LOAD 0 */
    GLOBAL X *y[2];               /* STORE 0: or NULL */
    const GLOBAL X *y_factor[2];
    GLOBAL C *points; /* LOAD or STORE 1: of the window */
    const GLOBAL C *constants;
    int tile, thread, is_idle;
    int exponent[2];    /* SCALED: of the rows of a pair */
    const GLOBAL norms *parts; /* SCALED 2: that they follow from, until they are found, or NULL */
    C *squares; /* SCALED 1: of those numbers that a thread has taken, or NULL */
    const taps *t; /* LOAD or STORE 3 */
    S met; /* of what a thread has stored: STORE 4: the largest part; points of taps: their squares */
} work;

/* Powers of two apart, points do not meet in a bank. */
FN int place_of(unsigned i) { return i + i / 16; }

/* The place after 16 of them, or after the last ones: as many as threads. */
FN LOCAL C *gap(const work *k, int i) { return &k->z[17 * i + 16]; }

/* A member takes the next tile of `items` windows; returns which window, 0 where it is idle. */
FN int64 place_member(work *k, LOCAL C *all, int64 items)
{
    int64 number = BLOCK * MEMBERS + THREAD / TEAM, item = number / TILES;
    k->z = all + THREAD / TEAM * ROOM;
    k->tile = (int)(number % TILES);
    k->thread = THREAD % TEAM;
    k->is_idle = item >= items;
    k->squares = 0;
    k->parts = 0;
    k->met = 0;
    return k->is_idle ? 0 : item;
}

/* Columns of a pass are the points first + q m. */
typedef struct column {
    int block, first, m, is_there;
} column;

FN column column_of(const work *k, int n, int radix, int blocks)
{
    column c;
    unsigned number = k->thread + n * TEAM, m = N / (radix * blocks);
    c.m = m;
    c.block = number / m;
    c.first = number / m * (radix * m) + number % m;
    c.is_there = number < N / radix;
    return c;
}

/* Where point q of a column is: known from the first one's place when this is compiled, if
   columns are of powers of two. */
FN int place_in_column(const column *c, int radix, int q)
{
    int m = c->m, size = radix * m;
    int is_even = m % 16 == 0 || (16 % m == 0 && (size % 16 == 0 || 16 % size == 0));
    return is_even ? place_of(c->first) + place_of(q * m) : place_of(c->first + q * m);
}

/* Points of a column in their window: its first one, and the steps between them. */
FN int first_in_window(const work *k, const column *c)
{
    unsigned i = c->first;
    if (COLUMNS == N)
        return k->tile * N + i;
    return i / COLUMNS * (TILES * COLUMNS) + k->tile * COLUMNS + i % COLUMNS;
}

#define STEP(c) ((c)->m * (COLUMNS == N ? 1 : TILES))

/* Constants 0, 1, ... of a pass' blocks lie in pairs, [pair][block]. */
typedef struct ALIGNED(4 * sizeof(S)) {
    C first, second;
} C2;

FN void load_constants(
    const work *k, const column *c, int radix, int blocks, int64 constants, C *to)
{
    int all = blocks * (COLUMNS == N ? TILES : 1), pairs = CONSTANTS(radix) / 2;
    int block = (COLUMNS == N ? k->tile * blocks : 0) + c->block;
    const GLOBAL C2 *from = (const GLOBAL C2 *)(k->constants + constants) + block;
    UNROLL for (int i = 0; i < MOST_RADIX / 4; i++)
    {
        if (i < pairs) {
            C2 z = from[i * all];
            to[2 * i] = z.first;
            to[2 * i + 1] = z.second;
        }
    }
}

/* Column n of a pass and its constants. Constants are loaded before a thread waits (`waits`) for
   points of other threads, before its first column. */
FN column begin_column(
    const work *k, int n, int radix, int blocks, int64 constants, int waits, C *with)
{
    column c = column_of(k, n, radix, blocks);
    if (c.is_there)
        load_constants(k, &c, radix, blocks, constants, with);
    if (waits && n == 0)
        BARRIER();
    turn_constants(with, radix);
    return c;
}

/* The points of a column. What scales rows is asked for after these, not before. */
FN void take(work *k, const column *c, int radix, int is_first, C *v)
{
    int at = is_first ? first_in_window(k, c) : 0;
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q >= radix)
            continue;
        if (is_first && k->is_idle)
            v[q] = point(0, 0);
        else if (is_first && LOAD == 1)
            v[q] = k->points[at + q * STEP(c)];
        else if (!is_first)
            v[q] = k->z[place_in_column(c, radix, q)];
    }
    if (!is_first || k->is_idle)
        return;
    if (LOAD == 0)
        fetch_points(k->r, &k->w, k->x, k->x_factor, at, STEP(c), radix, v);
    if (LOAD == 3)
        fetch_taps(k->t, at, STEP(c), radix, v);
    if (SCALED == 2 && k->parts) {
        find_exponents(k->parts, PARTS, k->exponent);
        k->parts = 0;
    }
    if (LOAD == 0 && SCALED && k->r->flags & LOWER)
        lower_points(k->exponent, radix, v);
    else if (LOAD == 0 && SCALED)
        raise_points(k->exponent, radix, v);
    if (SCALED == 1 && k->squares)
        add_squares(v, radix, k->squares);
}

FN void give(work *k, const column *c, int radix, int is_last, C *v)
{
    int at = is_last ? first_in_window(k, c) : 0;
    if (is_last && k->is_idle)
        return;
    UNROLL for (int q = 0; q < MOST_RADIX; q++)
    {
        if (q >= radix)
            continue;
        if (is_last && STORE == 1)
            k->points[at + q * STEP(c)] = v[q];
        else if (!is_last)
            k->z[place_in_column(c, radix, q)] = v[q];
        if (is_last && STORE == 1 && LOAD == 3)
            k->met += v[q].re * v[q].re + v[q].im * v[q].im;
    }
    if (is_last && STORE == 0) {
        if (SCALED)
            lower_points(k->exponent, radix, v);
        UNROLL for (int s = 0; s < 2; s++)
        {
            if (k->y[s])
                put_points(
                    k->r, &k->w, v, at, STEP(c), radix, s, k->y[s], k->y_factor[s]);
        }
    }
    if (is_last && STORE == 3)
        put_taps(k->t, v, at, STEP(c), radix);
}

/* Children in their order, as blocks, and back. */
FN void order(C *v, int radix, int back)
{
    C ordered[MOST_RADIX];
    UNROLL for (int p = 0; p < MOST_RADIX; p++)
    {
        if (p < radix)
            ordered[back ? child(radix, p) : p] = v[back ? p : child(radix, p)];
    }
    UNROLL for (int p = 0; p < MOST_RADIX; p++)
    {
        if (p < radix)
            v[p] = ordered[p];
    }
}

/* A pass, or the way back. */
FN void pass(
    work *k, int radix, int blocks, int64 constants, int is_first, int is_last,
    int back)
{
    ROLL for (int n = 0; n < EACH(radix); n++)
    {
        C v[MOST_RADIX], with[MOST_RADIX / 2];
        column c = begin_column(k, n, radix, blocks, constants, !is_first, with);
        if (!c.is_there)
            continue;
        take(k, &c, radix, is_first, v);
        if (back) {
            order(v, radix, 1);
            interpolate(v, with, radix);
        } else {
            evaluate(v, with, radix);
            order(v, radix, 0);
        }
        give(k, &c, radix, is_last, v);
    }
    if (is_first && SCALED == 1 && k->squares)
        *gap(k, k->thread) = *k->squares;
}

/* Passes are FIRST, MIDDLE(...), in the other order MIDDLE_BACK(...), and, if there are
   several, LAST: each radix, blocks, constants. */
#define FORWARD_PASS(radix, blocks, constants)                                         \
    pass(k, radix, blocks, constants, 0, 0, 0);
#define INVERSE_PASS(radix, blocks, constants)                                         \
    pass(k, radix, blocks, constants, 0, 0, 1);

/* Where child p of a block of the last pass is in the spectrum, [POINTS / N][p][block], so
   that neighbouring threads meet neighbouring numbers. */
FN int in_spectrum(const work *k, const column *c, int radix, int p)
{
    return k->tile * N + p * (N / radix) + c->block;
}
