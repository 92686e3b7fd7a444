/* Spectra of filters, windows first, ..., first + filters - 1.

       LOAD  3: taps (conv_taps.cuh)   1: points
       STORE 1: points   2: the spectrum in the order of conv_transform.cu
             4: spectra for conv_mma.cu (conv_lanes.cuh)

   STORE 4: numbers are pairs of f16. A window of one tile is scaled so that the largest part is 1
   to 2, and its scale is written behind each row. Of several, tiles are scaled alike by what they
   expect, or by their own largest part if that is far from it; both are left in `tiles`, and
   conv_level.cu brings all to one scale.

   Points of taps leave the sum of their squares in `squares`[filter][parts]. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS (TEAM * MEMBERS)
#include "numbers.cuh"

#include "conv_turn.cuh"

FN S with(S a, S b, int is_sum) { return is_sum ? a + b : a > b ? a : b; }

/* The sum, or the largest, of what threads of a member have met, in all of them. */
FN S meet_all(const work *k, int is_sum)
{
    S all = k->met;
    gap(k, k->thread)->re = all;
    BARRIER();
    if (k->thread < FOLDS) {
        for (int i = k->thread + FOLDS; i < TEAM; i += FOLDS)
            all = with(all, gap(k, i)->re, is_sum);
        gap(k, k->thread)->re = all;
    }
    BARRIER();
    all = gap(k, 0)->re;
    for (int i = 1; i < FOLDS; i++)
        all = with(all, gap(k, i)->re, is_sum);
    return all;
}

#if STORE == 4
#    include "conv_lane_numbers.cuh"

/* The exponent of a tile: of several, that which their points' squares let expect, if numbers
   then are in the range of f16. */
FN unsigned choose_exponent(work *k, const GLOBAL S *squares, int64 parts, S peak)
{
    unsigned own = exponent_of(peak);
    if (TILES == 1)
        return own;
    k->met = 0;
    for (int i = k->thread; i < parts && !k->is_idle; i += TEAM)
        k->met += squares[i];
    BARRIER(); /* all have read the gaps */
    S mean = SQRT(meet_all(k, 1) / TILES);
    unsigned expected = exponent_of(mean) + EXPECTED;
    int is_safe = mean > (S)1e-15 && mean < (S)1e15 && own <= expected + MOST_EXPONENT;
    return is_safe ? expected : own;
}

FN void put_spectrum(work *k, GLOBAL unsigned char *rows, unsigned exponent)
{
    int frequency = frequency_of(k->tile * N);
    S by = UNBITS((254 - exponent) << 23);
    for (int i = k->thread; i < N / 4 && !k->is_idle; i += TEAM) {
        word w = word_of(i, frequency);
        unsigned words[4];
        int place[4];
        places_of(i, place);
        UNROLL for (int e = 0; e < 4; e++)
        {
            C z = k->z[place[e]];
            words[e] = f16_pair(z.re * by, z.im * by);
        }
        PUT_WORDS(rows + w.row * ROW_BYTES + w.at * 16, words);
    }
    for (int row = k->thread; row < ROWS && TILES == 1 && !k->is_idle; row += TEAM)
        *scale_of(rows, row) = scale_by(exponent);
}
#endif

KERNEL conv(
    const GLOBAL void *k_taps, const GLOBAL void *k_reverse, const GLOBAL void *skip,
    int type, GLOBAL C *points, GLOBAL unsigned char *spectra, int64 spectrum_bytes,
    GLOBAL S *squares, int64 parts, GLOBAL C *tiles, const GLOBAL C *constants, int64 first,
    int64 filters, int64 count, int64 length, int64 positive, int64 negative,
    int is_periodic)
{
    SHARED(C, all, MEMBERS * ROOM);
    work k;
    taps t;
    int64 filter = place_member(&k, all, filters);
    t.k = k_taps;
    t.k_reverse = k_reverse;
    t.skip = skip;
    t.type = type;
    t.is_periodic = is_periodic;
    t.filter = first + filter;
    t.taps = count;
    t.length = length;
    t.positive = positive;
    t.negative = negative;
    t.part = 0;
    k.t = &t;
    k.points = points + filter * POINTS;
    k.constants = constants;
    spectra += filter * spectrum_bytes;
    transform(&k, (GLOBAL C *)spectra, 0);
    squares += filter * parts;
#if STORE == 4
    BARRIER();
    S peak = meet_all(&k, 0);
    unsigned exponent = choose_exponent(&k, squares, parts, peak);
    put_spectrum(&k, spectra, exponent);
    if (TILES > 1 && k.thread == 0 && !k.is_idle)
        tiles[filter * TILES + k.tile] = point(peak, UNBITS(exponent << 23));
#elif LOAD == 3 && STORE == 1
    S sum_of_squares = meet_all(&k, 1);
    if (k.thread == 0 && !k.is_idle)
        squares[k.tile] = sum_of_squares;
#endif
}
