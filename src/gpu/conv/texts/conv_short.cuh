/* What texts of short convolutions, channels first, share.

   An array of rows is one line of pieces of 16 bytes, PER numbers each. Wherever rows begin,
   pieces begin at multiples of PER numbers of the array. Tap s is in slot PAD + s. In slot s
   number e of piece p meets

       number e - s of piece p + ahead,    PER ahead = shift + PAD,  0 <= PAD < PER,

   so the compiler knows which numbers of pieces meet. SLOTS slots are taken at a time: all
   (TAPS taps), or groups, each a multiple of PER (TAPS 0). Their window is a piece and the
   BACK pieces before it.

   PACKED: rows are as long as all columns and are cut into the same sequences, with zeros
   around each sequence. */
// SPDX-License-Identifier: Apache-2.0
#include "simt.h"

#define PER    (16 / (int)sizeof(X))
#define BACK   ((SLOTS + PER - 2) / PER)
#define WINDOW ((BACK + 1) * PER)
#define FAR    (1 << 30)

typedef struct ALIGNED(16) {
    X v[PER];
} piece;

FN int is_aligned(const GLOBAL void *x) { return (int64)x % 16 == 0; }

/* A sequence that is not empty: a packed_window (device/conv.h). */
typedef struct sequence {
    int64 offset, length, number;
} sequence;

/* Which of `count` sequences has a column. */
FN int64 sequence_of(const GLOBAL sequence *RESTRICT of, int64 count, int64 column)
{
    int64 low = 0, high = count - 1;
    while (low < high) {
        int64 middle = (low + high + 1) / 2;
        int is_behind = of[middle].offset > column;
        low = is_behind ? low : middle;
        high = is_behind ? middle - 1 : high;
    }
    return low;
}

/* Where a piece begins in a row, or a sequence: so many numbers after its start, which may be
   less than none, and before its end; FAR, about, if there are more. */
typedef struct position {
    int since, left;
} position;

FN position position_of(int64 t, int64 length)
{
    position at;
    at.since = at_most(t, FAR);
    at.left = at_most(length - t, FAR);
    return at;
}

/* True if these chunks of x[count] are aligned and inside. */
FN int is_whole(const GLOBAL X *x, int64 p, int64 pieces, int64 count)
{
    return is_aligned(x) && p >= 0 && (p + pieces) * PER <= count;
}

FN void read_pieces(const GLOBAL X *RESTRICT x, int64 p, int pieces, piece *to)
{
    UNROLL
    for (int i = 0; i < pieces; i++)
        to[i] = *(const GLOBAL piece *)(x + (p + i) * PER);
}

/* The same of any pieces: zeros outside. */
FN void read_some(
    const GLOBAL X *RESTRICT x, int64 p, int pieces, int64 count, piece *to)
{
    UNROLL
    for (int i = 0; i < pieces * PER; i++) {
        int64 at = p * PER + i;
        to[i / PER].v[i % PER] = at >= 0 && at < count ? x[at] : (X)0;
    }
}

/* Pieces as numbers; the first number is `off` behind the position. Zeros outside of the
   row, or the sequence. */
FN void widen(const piece *from, int pieces, position at, int off, S *to)
{
    int low = -at.since - off, high = at.left - off;
    UNROLL
    for (int i = 0; i < pieces * PER; i++)
        to[i] = load(from[i / PER].v[i % PER]);
    if (low > 0 || high < pieces * PER) {
        UNROLL
        for (int i = 0; i < pieces * PER; i++)
            to[i] = i >= low && i < high ? to[i] : zero();
    }
}
