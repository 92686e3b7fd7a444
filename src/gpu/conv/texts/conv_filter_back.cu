/* Gradients of filters from their spectra, one to `filters`.

       LOAD  2: the spectrum in the order of conv_transform.cu   4: of conv_mma_sums.cu, in that
             of conv_lanes.cuh, with the scale of orthogonal transforms   1: points
       STORE 1: points   3: taps (conv_taps.cuh) */
// SPDX-License-Identifier: Apache-2.0
#define THREADS (TEAM * MEMBERS)
#include "simt.h"

#include "conv_turn.cuh"

#if LOAD == 4
#    include "conv_lane_numbers.cuh"

FN void take_spectrum(const work *k, const GLOBAL C *sums)
{
    int frequency = frequency_of(k->tile * N);
    for (int i = k->thread; i < N / 4 && !k->is_idle; i += TEAM) {
        word w = word_of(i, frequency);
        int place[4];
        places_of(i, place);
        const GLOBAL C *four = sums + w.row * (POINTS / ROWS) + w.at * 4;
        UNROLL for (int e = 0; e < 4; e++) k->z[place[e]] =
            point(POINTS * four[e].re, POINTS * four[e].im);
    }
}
#endif

KERNEL conv(
    const GLOBAL C *sums, GLOBAL C *points, GLOBAL S *dk, GLOBAL S *dk_reverse,
    GLOBAL S *dskip, const GLOBAL C *constants, int64 filters, int64 count, int64 length,
    int64 positive, int64 negative, int is_periodic, int is_folded, int is_more)
{
    SHARED(C, all, MEMBERS * ROOM);
    work k;
    taps t;
    int64 filter = place_member(&k, all, filters);
    int64 at = (1 + IS_COMPLEX) * filter;
    t.dk = dk ? dk + at * count : 0;
    t.dk_reverse = dk_reverse ? dk_reverse + at * count : 0;
    t.dskip = dskip ? dskip + at : 0;
    t.is_periodic = is_periodic;
    t.is_folded = is_folded;
    t.is_more = is_more;
    t.taps = count;
    t.length = length;
    t.positive = positive;
    t.negative = negative;
    t.part = 0;
    k.t = &t;
    k.points = points + filter * POINTS;
    k.constants = constants;
    sums += filter * POINTS;
#if LOAD == 4
    take_spectrum(&k, sums);
#endif
    transform(&k, (GLOBAL C *)sums, 0);
    if (STORE == 3 && k.tile == 0 && !k.is_idle)
        clear_rest(&t, k.thread, TEAM);
}
