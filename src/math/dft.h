/* The numbers of discrete Fourier transforms: roots of unity and the factors of a
   length. A transform evaluates polynomials mod Z^n - e^(2 pi i num / den) at the n
   roots of that modulus, radix after radix: docs/conv.md, (3), (4). */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_MATH_DFT_H
#define DN_MATH_DFT_H

#include <stdint.h>

#define DN_DFT_MOST_RADICES 32

/* z = e^(2 pi i num / den), each part to within one unit of the last place;
   0 <= num, 0 < den <= 2^40. */
void dn_unit(int64_t num, int64_t den, double z[2]);

/* Cuts n into radices 8, 4, 3, 5 and 7, an even one first, none above `most`, and
   returns how many; 0 where that is impossible, as for n that 4 does not divide. */
int dn_dft_radices(int64_t n, int most, int radices[DN_DFT_MOST_RADICES]);

#endif
