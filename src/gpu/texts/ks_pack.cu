/* Weights, wherever they lie in memory, in the order of a row: to[n] is what the map's
   entry for n says (gpu/pack_map.h), or number n of w if there is no map. It stays as it
   is if it comes from an array that is NULL. Numbers of `type` become numbers of X,
   rounded once; f32 is rounded further to 23 - dropped bits of mantissa.

   A thread makes one number, so that as many as there may be wait for memory. Grid: count /
   THREADS, rounded up. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "numbers.cuh"

#if defined TYPE_f32
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
#else
FN S rounded(S v, int dropped) { return v; }
FN S what_is_left(S v, int dropped) { return v; }
#endif

KERNEL ks(
    const void *w, const void *inner, int64 weights, int type,
    const unsigned *RESTRICT map, int group_log2, int step, int dropped,
    int conjugated, int64 count, X *RESTRICT to)
{
    int64 n = BLOCK * THREADS + THREAD, index = n;
    if (n >= count)
        return;
    unsigned entry = 1;
    if (map) {
        entry = map[n >> group_log2];
        if (entry)
            entry += (unsigned)(n & ((1 << group_log2) - 1)) * (unsigned)step;
        index = (entry - 1) / 2;
    }
    const void *from = index < weights ? w : inner;
    index -= index < weights ? 0 : weights;
    if (!entry)
        to[n] = store(zero());
    else if (from) {
        S v = number_at(from, type, index);
        v = conjugated ? conjugate(v) : v;
        to[n] = store(entry % 2 ? rounded(v, dropped) : what_is_left(v, dropped));
    }
}
