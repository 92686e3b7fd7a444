/* Parts of dbias[row] = sum over s of dy[row][s], each over a slab of `slab` batch
   columns; ks_reduce.cu adds them up. part[slab][row], type S.

   Batch-first (LAST 0) a thread sums one row over a slab. Batch-last a block of threads
   sums one row over a slab: every thread its columns, then by a tree. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 128
#include "simt.h"

KERNEL dbias(const X *RESTRICT dy, S *RESTRICT part, int64 batch, int64 slab, int64 rows)
{
    int64 slabs = (batch + slab - 1) / slab;
#if LAST
    LOCAL S sums[THREADS];
    for (int64 n = BLOCK; n < rows * slabs; n += BLOCKS) {
        int64 row = n % rows, s = n / rows * slab;
        int64 end = s + slab < batch ? s + slab : batch;
        S sum = zero();
        for (s += THREAD; s < end; s += THREADS)
            sum = plus(sum, load(dy[row * batch + s]));
        sums[THREAD] = sum;
        for (int half = THREADS / 2; half; half /= 2) {
            BARRIER();
            if (THREAD < half)
                sums[THREAD] = plus(sums[THREAD], sums[THREAD + half]);
        }
        if (THREAD == 0)
            part[n] = sums[0];
        BARRIER();
    }
#else
    int64 groups = (rows + THREADS - 1) / THREADS;
    for (int64 n = BLOCK; n < groups * slabs; n += BLOCKS) {
        int64 row = n % groups * THREADS + THREAD, s = n / groups * slab;
        int64 end = s + slab < batch ? s + slab : batch;
        S sum = zero();
        if (row >= rows)
            continue;
        for (; s < end; s++)
            sum = plus(sum, load(dy[s * rows + row]));
        part[n / groups * rows + row] = sum;
    }
#endif
}
