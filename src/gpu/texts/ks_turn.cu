/* to[column][row] = from[row][column]: a block of threads takes squares of TILE x TILE in
   turn, through shared memory, whose rows are a bank longer than a square's. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "simt.h"

#ifdef TYPE_c128
#    define TILE 32
#else
#    define TILE 64
#endif
#define EACH  (TILE * TILE / THREADS)
#define PITCH (TILE + (sizeof(X) == 2 ? 2 : 1))

KERNEL ks(const X *RESTRICT from, X *RESTRICT to, int64 rows, int64 columns)
{
    LOCAL X square[TILE * PITCH];
    int inner = THREAD % TILE, outer = THREAD / TILE;
    int64 across = (columns + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
    for (int64 n = BLOCK; n < across * down; n += BLOCKS) {
        int64 r0 = n / across * TILE, c0 = n % across * TILE;
        int64 r = r0 + outer, c = c0 + inner;
        const X *source = from + r * columns + c;
        UNROLL
        for (int u = 0; u < EACH; u++)
            if (c < columns && r + u * (THREADS / TILE) < rows)
                square[(outer + u * (THREADS / TILE)) * PITCH + inner] =
                    source[u * (THREADS / TILE) * columns];
        BARRIER();
        r = r0 + inner;
        c = c0 + outer;
        X *target = to + c * rows + r;
        UNROLL
        for (int u = 0; u < EACH; u++)
            if (r < rows && c + u * (THREADS / TILE) < columns)
                target[u * (THREADS / TILE) * rows] =
                    square[inner * PITCH + outer + u * (THREADS / TILE)];
        BARRIER();
    }
}
