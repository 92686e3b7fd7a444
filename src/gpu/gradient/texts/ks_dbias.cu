/* Parts of dbias[row] = sum over s of dy[row][s], each over a slab of `slab` batch
   columns; ks_reduce.cu adds them up. part[slab][row], type S.

   Batch-first (LAST 0) a thread sums one row over a slab. Batch-last a block of threads sums
   one row over a slab: every thread sums its columns, and a tree adds the threads up. A thread
   has WAYS sums, so WAYS loads are in flight. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 128
#define WAYS    8
#include "simt.h"

FN S together(const S *own)
{
    S sum = own[0];
    UNROLL
    for (int u = 1; u < WAYS; u++)
        sum = plus(sum, own[u]);
    return sum;
}

KERNEL dbias(
    const GLOBAL X *RESTRICT dy, GLOBAL S *RESTRICT part, int64 batch, int64 slab,
    int64 rows)
{
    int64 slabs = (batch + slab - 1) / slab;
#if LAST
    IN_BLOCK S sums[THREADS];
    for (int64 n = BLOCK; n < rows * slabs; n += BLOCKS) {
        int64 row = n % rows, s = n / rows * slab;
        int64 end = s + slab < batch ? s + slab : batch;
        S own[WAYS];
        UNROLL
        for (int u = 0; u < WAYS; u++)
            own[u] = zero();
        for (s += THREAD; s < end; s += WAYS * THREADS) {
            UNROLL
            for (int u = 0; u < WAYS; u++)
                if (s + u * THREADS < end)
                    own[u] = plus(own[u], load(dy[row * batch + s + u * THREADS]));
        }
        sums[THREAD] = together(own);
        for (int apart = THREADS / 2; apart; apart /= 2) {
            BARRIER();
            if (THREAD < apart)
                sums[THREAD] = plus(sums[THREAD], sums[THREAD + apart]);
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
        S own[WAYS];
        if (row >= rows)
            continue;
        UNROLL
        for (int u = 0; u < WAYS; u++)
            own[u] = zero();
        for (; s < end; s += WAYS) {
            UNROLL
            for (int u = 0; u < WAYS; u++)
                if (s + u < end)
                    own[u] = plus(own[u], load(dy[(s + u) * rows + row]));
        }
        part[n / groups * rows + row] = together(own);
    }
#endif
}
