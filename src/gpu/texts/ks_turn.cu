/* to[column][row] = from[row][column]: a block of threads takes squares of TILE x TILE in
   turn, through shared memory, whose rows are a bank longer than a square's. Elements of
   16 bits go in pairs, if all pairs are aligned. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "simt.h"

#ifdef TYPE_c128
#    define TILE 32
#else
#    define TILE 64
#endif
#define HALF  (TILE / 2)
#define PITCH (TILE + (sizeof(X) == 2 ? 2 : 1))

typedef struct ALIGNED(2 * sizeof(X)) {
    X v[2];
} pair;

FN void turn_elements(
    X *square, const X *RESTRICT from, X *RESTRICT to, int64 r0, int64 c0, int64 rows,
    int64 columns)
{
    int inner = THREAD % TILE, outer = THREAD / TILE;
    int64 r = r0 + outer, c = c0 + inner;
    const X *source = from + r * columns + c;
    UNROLL
    for (int u = 0; u < TILE; u += THREADS / TILE)
        if (c < columns && r + u < rows)
            square[(outer + u) * PITCH + inner] = source[u * columns];
    BARRIER();
    r = r0 + inner;
    c = c0 + outer;
    X *target = to + c * rows + r;
    UNROLL
    for (int u = 0; u < TILE; u += THREADS / TILE)
        if (r < rows && c + u < columns)
            target[u * rows] = square[inner * PITCH + outer + u];
    BARRIER();
}

FN void turn_pairs(
    X *square, const X *RESTRICT from, X *RESTRICT to, int64 r0, int64 c0, int64 rows,
    int64 columns)
{
    int inner = THREAD % HALF * 2, outer = THREAD / HALF;
    int64 r = r0 + outer, c = c0 + inner;
    const X *source = from + r * columns + c;
    UNROLL
    for (int u = 0; u < TILE; u += THREADS / HALF)
        if (c < columns && r + u < rows)
            *(pair *)(square + (outer + u) * PITCH + inner) =
                *(const pair *)(source + u * columns);
    BARRIER();
    r = r0 + inner;
    UNROLL
    for (int u = 0; u < HALF; u += THREADS / HALF) {
        int at = (outer + u) * 2;
        c = c0 + at;
        if (r >= rows || c >= columns)
            continue;
        pair a = *(pair *)(square + inner * PITCH + at);
        pair b = *(pair *)(square + (inner + 1) * PITCH + at);
        pair first = { { a.v[0], b.v[0] } }, next = { { a.v[1], b.v[1] } };
        *(pair *)(to + c * rows + r) = first;
        *(pair *)(to + (c + 1) * rows + r) = next;
    }
    BARRIER();
}

KERNEL ks(const X *RESTRICT from, X *RESTRICT to, int64 rows, int64 columns)
{
    LOCAL X square[TILE * PITCH];
    int64 across = (columns + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
    int64 apart = ((int64)from | (int64)to) % (int64)sizeof(pair);
    int pairs = sizeof(X) == 2 && rows % 2 == 0 && columns % 2 == 0 && apart == 0;
    for (int64 n = BLOCK; n < across * down; n += BLOCKS) {
        int64 r0 = n / across * TILE, c0 = n % across * TILE;
        if (pairs)
            turn_pairs(square, from, to, r0, c0, rows, columns);
        else
            turn_elements(square, from, to, r0, c0, rows, columns);
    }
}
