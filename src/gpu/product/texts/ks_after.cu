/* y = activation(y + bias), in place, after products of a library, whose sums were rounded to
   the type of y. The define ACTIVATION names the activation.

       batch-first (LAST 0): y[s][row];  batch-last (LAST 1): y[row][s]

   Threads in turn take pieces of 16 bytes if lines of y are whole, aligned pieces, otherwise
   elements. The last ones, which a cache still has, come first. A thread steps through lines
   without dividing. x, w and residual are not used. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS  256
#define RESIDENT 6
#include "simt.h"

#define PER (16 / (int)sizeof(X))

typedef struct ALIGNED(16) {
    X v[PER];
} piece;

/* bias: NULL, that of the piece's first row, or of its only one. */
FN piece after_piece(piece u, const S *bias)
{
    UNROLL
    for (int e = 0; e < PER; e += V) {
        SV some;
        if (bias && LAST)
            some.v[0] = bias[0];
        else if (bias)
            some = *(const SV *)(bias + e);
        UNROLL
        for (int f = 0; f < V; f++)
            u.v[e + f] =
                end(load(u.v[e + f]), bias ? &some.v[LAST ? 0 : f] : bias, ACTIVATION, 0);
    }
    return u;
}

KERNEL ks(
    const X *x, const S *w, const S *RESTRICT bias, const X *residual, X *RESTRICT y,
    int64 batch, int activation, int64 a, int64 b, int64 c, int64 d)
{
    int64 rows = a * b * d, width = LAST ? batch : rows;
    int whole = width % PER == 0 && (int64)y % (int64)sizeof(piece) == 0;
    int per = whole ? PER : 1;
    int64 line = width / per, n = rows * batch / per - 1 - BLOCK * THREADS - THREAD;
    int64 step = BLOCKS * THREADS, lines = step / line, rest = step % line;
    int64 i = n < 0 ? 0 : n / line, e = n - i * line; /* line, and place in it */
    ROLL
    for (; n >= 0; n -= step) {
        const S *own = bias ? bias + (LAST ? i : e * per) : bias;
        if (whole)
            ((piece *)y)[n] = after_piece(((piece *)y)[n], own);
        else
            y[n] = end(load(y[n]), own, ACTIVATION, 0);
        i -= lines + (e < rest);
        e += e < rest ? line - rest : -rest;
    }
}
