/* Where the frequencies of a tile lie in spectra for conv_mma.cu, and the scales of these.

   Number f of a spectrum has the frequency f = p + ROWS (p0 + ROOT (p1 + 16 p2)): row p has 256
   ROOT numbers in the order of the registers that multiply them, in words of four (conv_mma.cu).
   A tile has the frequencies c + TILES g, g < N: all rows, or a row or a part of its blocks p0. */
// SPDX-License-Identifier: Apache-2.0

#define ROOT      (POINTS / ROWS / 256)
#define ROW_BYTES ((int64)(POINTS / ROWS) * 4 + 16) /* numbers, then their scale */
#define OWN_ROWS  (TILES > 1 ? 1 : ROWS)            /* of a tile */
#define OWN_ROOT  (N / OWN_ROWS / 256)

/* Word i of a tile whose first frequency is c: its row, and its place among the words of that. */
typedef struct word {
    int row, at;
} word;

FN word word_of(int i, int c)
{
    word w;
    int p0 = i % (64 * OWN_ROOT) / 64;
    w.row = i / (64 * OWN_ROOT) + c % ROWS;
    w.at = (c / ROWS + ROOT / OWN_ROOT * p0) * 64 + i % 64;
    return w;
}

/* Spectra are scaled so that they fit f16, and so do all numbers after their product with rows of
   numbers below 2: the squares of these add up to at most 8 POINTS times the square of the largest
   number of the spectrum. So its parts are below twice 2^MOST_EXPONENT. They are expected to be
   below 2 where their mean is 2^-EXPECTED to twice that. */
#define EXPECTED      2
#define MOST_EXPONENT (POINTS <= 1 << 17 ? 4 : POINTS <= 1 << 21 ? 2 : 0)

/* The power of two below the largest part of a spectrum, by its bits as f32. */
FN unsigned exponent_of(S peak)
{
    unsigned exponent = BITS(peak) >> 23 & 255;
    return exponent < 1 ? 1 : exponent > 253 ? 253 : exponent;
}

FN GLOBAL S *scale_of(GLOBAL unsigned char *rows, int row)
{
    return (GLOBAL S *)(rows + (row + 1) * ROW_BYTES - 16);
}

/* Transforms of conv_mma.cu are smaller by POINTS. */
FN S scale_by(unsigned exponent) { return UNBITS(exponent << 23) * POINTS; }
