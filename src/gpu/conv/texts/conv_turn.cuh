/* Transforms of windows: all passes, and the one between them that meets the spectrum. */
// SPDX-License-Identifier: Apache-2.0

#include "conv_exponents.cuh"
#include "conv_frequency.cuh"

/* Times the spectrum, or its conjugate: without branches, as numbers are asked for before others
   are there. */
FN void multiply(
    const work *k, const column *c, int radix, const GLOBAL C *spectrum, C *v)
{
    S sign = k->r->flags & ADJOINT ? -1 : 1;
    UNROLL for (int p = 0; p < MOST_RADIX; p++)
    {
        if (p >= radix)
            continue;
        C *z = &v[child(radix, p)], s = spectrum[in_spectrum(k, c, radix, p)];
        *z = times(*z, point(s.re, sign * s.im));
    }
}

/* Zero where sparse spectra leave a frequency out. */
FN C kept(int place, C z)
{
    return is_left_out(frequency_of(place)) ? point(0, 0) : z;
}

/* Remembers the largest part of numbers. */
FN C looked_at(work *k, C z)
{
    S re = z.re < 0 ? -z.re : z.re, im = z.im < 0 ? -z.im : z.im;
    k->met = re > k->met ? re : k->met;
    k->met = im > k->met ? im : k->met;
    return z;
}

/* To or from the spectrum or, of 4, shared memory, where it lies by number (conv_lanes.cuh). */
FN void exchange(work *k, const column *c, int radix, GLOBAL C *spectrum, C *v)
{
    UNROLL for (int p = 0; p < MOST_RADIX; p++)
    {
        if (p >= radix || k->is_idle)
            continue;
        int place = in_spectrum(k, c, radix, p);
        C *z = &v[child(radix, p)];
        if (LOAD == 2)
            *z = kept(place, spectrum[place]);
        else if (LOAD == 4)
            *z = kept(place, k->z[place_in_column(c, radix, p)]);
        else if (STORE == 2)
            spectrum[place] = kept(place, *z);
        else
            k->z[place_in_column(c, radix, p)] = looked_at(k, kept(place, *z));
    }
}

/* The last pass forward, whose children have one point each, what is done with the
   spectrum, and the first pass back. */
FN void turn(
    work *k, GLOBAL C *spectrum, int radix, int blocks, int64 constants, int is_only)
{
    ROLL for (int n = 0; n < EACH(radix); n++)
    {
        int waits = (FORWARD && !is_only) || LOAD == 4;
        C v[MOST_RADIX], with[MOST_RADIX / 2];
        column c = begin_column(k, n, radix, blocks, constants, waits, with);
        if (!c.is_there)
            continue;
        if (FORWARD) {
            take(k, &c, radix, is_only, v);
            evaluate(v, with, radix);
        }
        if (FORWARD && INVERSE)
            multiply(k, &c, radix, spectrum, v);
        else
            exchange(k, &c, radix, spectrum, v);
        if (INVERSE) {
            interpolate(v, with, radix);
            give(k, &c, radix, is_only, v);
        }
    }
}

#define TURNS (LOAD == 2 || LOAD == 4 || STORE == 2 || STORE == 4 || (FORWARD && INVERSE))

FN void transform(work *k, GLOBAL C *spectrum, LOCAL int *flag)
{
#ifdef LAST
    if (FORWARD) {
        first_pass(k, flag, FIRST);
        MIDDLE(FORWARD_PASS)
    }
    if (TURNS)
        turn(k, spectrum, LAST, 0);
    else if (FORWARD)
        pass(k, LAST, 0, 1, 0);
    else
        pass(k, LAST, 1, 0, 1);
    if (INVERSE) {
        MIDDLE_BACK(INVERSE_PASS)
        pass(k, FIRST, 0, 1, 1);
    }
#else
    if (TURNS)
        turn(k, spectrum, FIRST, 1);
    else if (FORWARD)
        pass(k, FIRST, 1, 1, 0);
    else
        pass(k, FIRST, 1, 1, 1);
#endif
}
