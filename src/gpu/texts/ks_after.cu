/* y = activation(y + bias), in place, for products that a library has made: their sums have
   been rounded to the type of y.

       batch-first (LAST 0): y[s][row];  batch-last (LAST 1): y[row][s]

   A thread makes every so many elements. Neither x nor w is looked at. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "simt.h"

KERNEL ks(
    const X *x, const S *w, const S *RESTRICT bias, X *RESTRICT y, int64 batch,
    int activation, int64 a, int64 b, int64 c, int64 d)
{
    int64 rows = a * b * d;
    for (int64 n = BLOCK * THREADS + THREAD; n < rows * batch; n += BLOCKS * THREADS) {
        S sum = load(y[n]);
        if (bias)
            sum = plus(sum, bias[LAST ? n / batch : n % rows]);
        y[n] = store(activate(sum, activation));
    }
}
