/* Which rows of a matrix, and which of their blocks, sparse spectra keep (conv_mma.cu). The
   compiler knows all of it except the row.

   The number p of a row is the lowest ROW_BITS = log2(ROWS) bits of a frequency. KEPT_ROWS rows
   are kept. */
// SPDX-License-Identifier: Apache-2.0
#include "conv_kept.cuh"

#ifdef KEPT

/* Bits of an axis in a row, and how many are kept of these. */
#define BITS_OF(shift)       ((shift) < left ? (shift) : left)
#define KEPT_OF(shift, keep) ((keep) < 1 << BITS_OF(shift) ? (keep) : 1 << BITS_OF(shift))

/* kept_row(): the number of kept row i. */
#define ADD_DIGIT(shift, keep)                                                         \
    p |= i % KEPT_OF(shift, keep) << at;                                               \
    i /= KEPT_OF(shift, keep);                                                         \
    at += BITS_OF(shift);                                                              \
    left -= BITS_OF(shift);

INLINE int kept_row(int i)
{
    int p = 0, at = 0, left = ROW_BITS;
    KEPT(ADD_DIGIT)
    return p | i << at;
}

#define COUNT_DIGIT(shift, keep)                                                       \
    i += (p & ((1 << BITS_OF(shift)) - 1)) * count;                                    \
    count *= KEPT_OF(shift, keep);                                                     \
    p >>= BITS_OF(shift);                                                              \
    left -= BITS_OF(shift);

INLINE int place_of_row(int p)
{
    int i = 0, count = 1, left = ROW_BITS;
    KEPT(COUNT_DIGIT)
    return i + p * count;
}

#else

#define KEPT_ROWS ROWS
INLINE int kept_row(int i) { return i; }
INLINE int place_of_row(int p) { return p; }

#endif
