/* The frequencies that sparse spectra keep: f = f_1 + N_1 (f_2 + N_2 (f_3 + ...)) with every f_i below
   keep_i. KEPT(X) calls X for each axis, with log2 of N_i and keep_i; without it all are kept. */
// SPDX-License-Identifier: Apache-2.0

/* is_left_out(): true if frequency f is not kept; of the lowest bits f, with zeros above: if no
   kept frequency has them. */
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
