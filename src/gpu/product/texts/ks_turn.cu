/* to[column][row] = from[row][column] + residual[column][row]. A block of threads takes squares
   of TILE x TILE in turn, through shared memory. Blocks that run at a time write long pieces of
   the same rows.

   The residual may be NULL, or `to`.

   If all rows are whole, aligned pieces of 16 bytes, a thread takes a unit: one piece of PER
   rows. It turns the PER x PER elements on the way to shared memory, and then writes pieces of
   other units. Units in shared memory are exchanged so that 8 threads access different banks.
   Otherwise elements move one by one, through rows that are one element longer than a
   square's. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS  256
#define RESIDENT 4
#include "simt.h"

#define PER   (16 / (int)sizeof(X))
#define UNITS 16 /* of a square's row */
#define TILE  (UNITS * PER)
#define PITCH (TILE + 1)

typedef union ALIGNED(16) {
    X v[PER];
    unsigned words[4];
} piece;

/* Where the piece of column `column` of the square and of unit `unit` of its rows lies. */
FN int place(int column, int unit) { return column * UNITS + (unit ^ column / PER % 8); }

FN X added(X v, X residual) { return store(plus(load(v), load(residual))); }

FN void add_piece(piece *v, const GLOBAL piece *residual)
{
    piece more = *residual;
    UNROLL
    for (int e = 0; e < PER; e++)
        v->v[e] = added(v->v[e], more.v[e]);
}

/* `tall` rows and `wide` columns from `from` on. */
FN void turn_pieces(
    LOCAL piece *square, const GLOBAL X *RESTRICT from, GLOBAL X *to,
    const GLOBAL X *residual, int tall, int wide, int64 rows, int64 columns)
{
    int inner = THREAD % UNITS, outer = THREAD / UNITS;
    const GLOBAL X *source = from + outer * PER * columns + inner * PER;
    piece unit[PER];
    UNROLL
    for (int e = 0; e < PER; e++, source += columns)
        if (inner * PER < wide && outer * PER + e < tall)
            unit[e] = *(const GLOBAL piece *)source;
    UNROLL
    for (int e = 0; e < PER; e++) {
        piece turned;
        UNROLL
        for (int f = 0; f < PER; f++)
            turned.v[f] = unit[f].v[e];
        square[place(inner * PER + e, outer)] = turned;
    }
    BARRIER();
    GLOBAL X *target = to + outer * rows + inner * PER;
    UNROLL
    for (int c = 0; c < TILE; c += THREADS / UNITS, target += THREADS / UNITS * rows)
        if (inner * PER < tall && c + outer < wide) {
            piece v = square[place(c + outer, inner)];
            if (residual)
                add_piece(&v, (const GLOBAL piece *)(residual + (target - to)));
            PUT_WORDS(target, v.words);
        }
    BARRIER();
}

FN void turn_elements(
    LOCAL X *square, const GLOBAL X *RESTRICT from, GLOBAL X *to,
    const GLOBAL X *residual, int tall, int wide, int64 rows, int64 columns)
{
    ROLL
    for (int n = THREAD; n < TILE * TILE; n += THREADS) {
        int r = n / TILE, c = n % TILE;
        if (r < tall && c < wide)
            square[r * PITCH + c] = from[r * columns + c];
    }
    BARRIER();
    ROLL
    for (int n = THREAD; n < TILE * TILE; n += THREADS) {
        int r = n % TILE, c = n / TILE;
        int64 at = c * rows + r;
        X v = square[r * PITCH + c];
        if (r < tall && c < wide)
            to[at] = residual ? added(v, residual[at]) : v;
    }
    BARRIER();
}

KERNEL ks(
    const GLOBAL X *RESTRICT from, GLOBAL X *to, const GLOBAL X *residual, int64 rows,
    int64 columns)
{
    IN_BLOCK piece square[UNITS * PITCH];
    int64 across = (columns + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
    int whole = rows % PER == 0 && columns % PER == 0 &&
                ((int64)from | (int64)to | (int64)residual) % (int64)sizeof(piece) == 0;
    for (int64 n = BLOCK; n < across * down; n += BLOCKS) {
        int64 r = n % down * TILE, c = n / down * TILE;
        int tall = at_most(rows - r, TILE), wide = at_most(columns - c, TILE);
        const GLOBAL X *source = from + r * columns + c;
        GLOBAL X *target = to + c * rows + r;
        const GLOBAL X *more = residual ? residual + c * rows + r : residual;
        if (whole)
            turn_pieces(square, source, target, more, tall, wide, rows, columns);
        else
            turn_elements(
                (LOCAL X *)square, source, target, more, tall, wide, rows, columns);
    }
}
