/* Frequencies of the numbers of a spectrum, whose order is [POINTS / N][p][block] of the last
   pass (conv_passes.cuh). DIGITS and LAST_RADIX give the radices of all passes. */
// SPDX-License-Identifier: Apache-2.0

#define DIGIT(radix)                                                                   \
    f = number % radix + radix * f;                                                    \
    number /= radix;

FN int frequency_of(int place)
{
    int tile = place / N, in = place % N, f = 0;
    int number = tile * N + in % (N / LAST_RADIX) * LAST_RADIX + in / (N / LAST_RADIX);
    DIGITS(DIGIT)
    return f;
}

/* True if sparse spectra leave frequency f out: f = f_1 + N_1 (f_2 + N_2 (f_3 + ...)), and some
   f_i is not kept. KEPT(X) calls X for each axis, with log2 of N_i and how many are kept. */
#ifdef KEPT
#    define LEAVE_OUT(shift, keep)                                                     \
        out |= (f & ((1 << (shift)) - 1)) >= (keep);                                   \
        f >>= (shift);
FN int is_left_out(int f)
{
    int out = 0;
    KEPT(LEAVE_OUT)
    return out;
}
#else
FN int is_left_out(int f) { return 0; }
#endif
