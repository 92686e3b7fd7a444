/* Weights, wherever they lie in memory, in the order of a row: to[n] is what the map's
   entry for n says (gpu/pack_map.h), or number n of w if there is no map. It stays as it
   is if it comes from an array that is NULL. Numbers of `type` become numbers of X,
   rounded once; f32 is rounded further to 23 - dropped bits of mantissa.

   A thread makes EACH numbers, THREADS apart. Grid: count / (EACH THREADS), rounded up. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#define EACH    4
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
    UNROLL
    for (int e = 0; e < EACH; e++) {
        int64 n = (BLOCK * EACH + e) * THREADS + THREAD, index = n;
        if (n >= count)
            continue;
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
}
