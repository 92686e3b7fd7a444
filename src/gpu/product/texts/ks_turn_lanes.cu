/* Separates lanes: to[n][j][k] = from[n][k][j] for `count` matrices of `rows` rows k and LANES
   lanes j. An operand that is batch-first with d lanes becomes batch-first with d times as many
   blocks of one lane.

   A unit is PER rows of WIDE lanes. A block of threads takes UNITS units in turn, of one matrix
   or several, through shared memory: it loads pieces of 16 bytes in order, and stores for each
   lane PER elements, which are a piece again. Units in shared memory are one piece longer than
   necessary, so that a warp, eight units by four lanes, accesses different banks and writes
   lines of 128 bytes. Elements that do not form pieces move one by one. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS  256
#define RESIDENT 6
#include "simt.h"

#define PER     (16 / (int)sizeof(X))
#define PIECES  (UNITS * WIDE)
#define RUN     (WIDE == LANES ? PIECES : WIDE / PER) /* pieces that lie together */
#define FOURS   ((WIDE + 3) / 4)
#define AT_ONCE 4 /* loads that wait for memory together */

typedef struct ALIGNED(16) {
    X v[PER];
} piece;

FN void load_units(LOCAL piece *tile, const GLOBAL X *RESTRICT from, int units)
{
    ROLL
    for (int first = 0; first < PIECES; first += AT_ONCE * THREADS) {
        piece some[AT_ONCE];
        UNROLL
        for (int u = 0; u < AT_ONCE; u++) {
            int n = first + u * THREADS + THREAD;
            if (n < units * WIDE)
                some[u] = *(const GLOBAL piece *)(from + n / RUN * LANES + n % RUN * PER);
        }
        UNROLL
        for (int u = 0; u < AT_ONCE; u++) {
            int n = first + u * THREADS + THREAD;
            if (n < units * WIDE)
                tile[n + n / WIDE] = some[u];
        }
    }
}

/* The first unit of the tile is the one `first` of matrices of so many units that begin at
   `to`. */
FN void store_units(
    const LOCAL piece *tile, GLOBAL X *RESTRICT to, unsigned first, int units,
    unsigned of_matrix)
{
    ROLL
    for (int n = THREAD; n < UNITS / 8 * FOURS * 32; n += THREADS) {
        int j = n / 32 % FOURS * 4 + n % 32 / 8, u = n / 32 / FOURS * 8 + n % 8;
        unsigned unit = first + u, matrix = unit / of_matrix;
        const LOCAL X *from = (const LOCAL X *)(tile + u * (WIDE + 1)) + j;
        piece turned;
        if (j >= WIDE || u >= units)
            continue;
        UNROLL
        for (int e = 0; e < PER; e++)
            turned.v[e] = from[e * WIDE];
        *((GLOBAL piece *)to + ((int64)matrix * LANES + j) * of_matrix +
          (unit - matrix * of_matrix)) = turned;
    }
}

FN void turn_elements(
    const GLOBAL X *RESTRICT from, GLOBAL X *RESTRICT to, int64 count, int64 rows)
{
    int64 size = rows * LANES;
    for (int64 e = BLOCK * THREADS + THREAD; e < count * size; e += BLOCKS * THREADS) {
        int64 n = e / size, j = e % size / rows, k = e % rows;
        to[e] = from[n * size + k * LANES + j];
    }
}

KERNEL turn(
    const GLOBAL X *RESTRICT from, GLOBAL X *RESTRICT to, int64 count, int64 rows)
{
    IN_BLOCK piece tile[UNITS * (WIDE + 1)];
    int64 of_matrix = rows / PER, all = count * of_matrix, across = LANES / WIDE;
    int64 tiles = (all + UNITS - 1) / UNITS * across;
    if (rows % PER || LANES % WIDE ||
        ((int64)from | (int64)to) % (int64)sizeof(piece)) {
        turn_elements(from, to, count, rows);
        return;
    }
    for (int64 n = BLOCK; n < tiles; n += BLOCKS) {
        int64 first = n / across * UNITS, j = n % across * WIDE;
        int units = all - first < UNITS ? (int)(all - first) : UNITS;
        int64 matrix = first / of_matrix;
        load_units(tile, from + first * PER * LANES + j, units);
        BARRIER();
        store_units(
            tile, to + (matrix * LANES + j) * rows,
            (unsigned)(first - matrix * of_matrix), units, (unsigned)of_matrix);
        BARRIER();
    }
}
