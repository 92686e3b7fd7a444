/* Moves numbers into another order, and adds them (pick_job of device/backend.h):

       to[p] = activation((add ? to[p] : 0) + sum over e of from[place[e]] + bias[p])

   for p < rows and all columns. A thread computes one number at a time, and neighbouring threads
   have neighbouring numbers of `to`. gpu/run/pick.c fills the table. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "simt.h"

typedef struct job {
    const GLOBAL int64 *start, *place;
    const GLOBAL X *from;
    GLOBAL X *to;
    const GLOBAL S *bias;
    int64 rows, columns, from_next, from_across, to_next, to_across, add, activation;
} job;

/* The sum of what goes to place p of column s. */
FN S picked(const GLOBAL job *j, int64 p, int64 s)
{
    const GLOBAL X *from = j->from + s * j->from_across;
    S sum = zero();
    if (!j->start) {
        int64 place = j->place ? j->place[p] : p;
        return place < 0 ? sum : load(from[place * j->from_next]);
    }
    ROLL for (int64 e = j->start[p]; e < j->start[p + 1]; e++) sum =
        plus(sum, load(from[j->place[e] * j->from_next]));
    return sum;
}

KERNEL pick(TABLE(job) t)
{
    const GLOBAL job *j = WHOLE(t);
    int along_rows = j->to_next == 1, activation = (int)j->activation;
    int64 inner = along_rows ? j->rows : j->columns;
    ROLL for (int64 i = BLOCK * THREADS + THREAD; i < j->rows * j->columns;
              i += BLOCKS * THREADS)
    {
        int64 p = along_rows ? i % inner : i / inner;
        int64 s = along_rows ? i / inner : i % inner;
        GLOBAL X *to = j->to + p * j->to_next + s * j->to_across;
        S sum = picked(j, p, s);
        if (j->add)
            sum = plus(load(*to), sum);
        if (j->bias)
            sum = plus(sum, j->bias[p]);
        *to = store(activate(sum, activation));
    }
}
