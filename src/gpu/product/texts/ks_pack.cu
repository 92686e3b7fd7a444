/* Packs weights from anywhere in device memory into the order of rows, several jobs at once.
   to[n] is the number that the job's map names for n (gpu/product/pack_map.h), or number n of
   `from` if there is no map. It does not change if its array is NULL. Numbers of `type` become
   numbers of X, or of S if `wide`, rounded once; f32 is rounded further to 23 - dropped bits of
   mantissa.

   A thread moves one number, so that as many loads as possible are in flight. A job's blocks of
   threads begin at `first`. Grid: the sum over jobs of count / THREADS, each rounded up.
   gpu/run/pack_run.c fills the table. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "numbers.cuh"

typedef struct job {
    const GLOBAL void *from, *inner;
    const GLOBAL unsigned *map;
    GLOBAL void *to;
    int64 weights, count;
    union {
        real value;
        int64 room;
    } scale; /* of numbers of `from` */
    int first, type, group_log2, step, dropped, conjugated, wide, unused;
} job;

typedef struct jobs {
    int64 count;
    job of[23];
} jobs;

#if COMPLEX
FN S scaled(S v, real scale)
{
    S s = { v.re * scale, v.im * scale };
    return s;
}
#else
FN S scaled(S v, real scale) { return v * scale; }
#endif

#if defined TYPE_f64 || COMPLEX
FN S rounded(S v, int dropped) { return v; }
FN S what_is_left(S v, int dropped) { return v; }
#else
FN S rounded(S v, int dropped)
{
    unsigned u = BITS(v), unit = 1u << dropped;
    if ((u & 0x7f800000) != 0x7f800000)
        u = (u + unit / 2) & ~(unit - 1);
    return UNBITS(u);
}
FN S what_is_left(S v, int dropped)
{
    return rounded(v - rounded(v, dropped), dropped);
}
#endif

FN void put(const GLOBAL job *j, int64 n, S v)
{
    if (j->wide)
        ((GLOBAL S *)j->to)[n] = v;
    else
        ((GLOBAL X *)j->to)[n] = store(v);
}

KERNEL ks(TABLE(jobs) t)
{
    const GLOBAL job *j = WHOLE(t)->of;
    for (int i = 1; i < WHOLE(t)->count && BLOCK >= j[1].first; i++)
        j++;
    int64 n = (BLOCK - j->first) * THREADS + THREAD, index = n;
    if (n >= j->count)
        return;
    unsigned entry = 1;
    if (j->map) {
        entry = j->map[n >> j->group_log2];
        if (entry)
            entry += (unsigned)(n & ((1 << j->group_log2) - 1)) * (unsigned)j->step;
        index = (entry - 1) / 2;
    }
    const GLOBAL void *from = index < j->weights ? j->from : j->inner;
    index -= index < j->weights ? 0 : j->weights;
    if (!entry)
        put(j, n, zero());
    else if (from) {
        S v = number_at(from, j->type, index, !j->wide);
        v = j->conjugated ? conjugate(v) : v;
        v = from == j->from ? scaled(v, j->scale.value) : v;
        put(j, n, entry % 2 ? rounded(v, j->dropped) : what_is_left(v, j->dropped));
    }
}
