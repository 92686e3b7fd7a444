/* What texts of short convolutions, channels last, share.

   A thread has WIDTH neighbouring channels, a piece of a row of memory, and takes TIMES times
   at once. A block has `lanes` threads side by side, and strips of TIMES times below each
   other. SLOTS taps are taken at a time: all (TAPS taps), or groups (TAPS 0). PIECES_ALIGNED:
   pieces are at multiples of their size. */
// SPDX-License-Identifier: Apache-2.0
#include "simt.h"

#define WINDOW     (TIMES + SLOTS - 1)
#define MOST_LANES 32
#define STAGED     (MOST_LANES * WIDTH + V) /* numbers from tap to tap, staged */

typedef struct ALIGNED(WIDTH * sizeof(X)) {
    X v[WIDTH];
} piece;

typedef struct ALIGNED(WIDTH * sizeof(S)) {
    S v[WIDTH];
} sums;

FN piece read_piece(const GLOBAL X *RESTRICT x)
{
#if PIECES_ALIGNED
    return *(const GLOBAL piece *)x;
#else
    piece some;
    UNROLL
    for (int w = 0; w < WIDTH; w++)
        some.v[w] = x[w];
    return some;
#endif
}

FN void write_piece(GLOBAL X *RESTRICT y, piece v)
{
#if PIECES_ALIGNED
    *(GLOBAL piece *)y = v;
#else
    UNROLL
    for (int w = 0; w < WIDTH; w++)
        y[w] = v.v[w];
#endif
}

/* Pieces of `times` times from t on, of x[length][channels]. */
FN void read_times(
    const GLOBAL X *RESTRICT x, int64 t, int times, int64 channels, piece *to)
{
    UNROLL
    for (int i = 0; i < times; i++)
        to[i] = read_piece(x + (t + i) * channels);
}

/* The same of any times: zeros outside. */
FN void read_some(
    const GLOBAL X *RESTRICT x, int64 t, int times, int64 channels, int64 length,
    piece *to)
{
    int low = t < 0 ? (int)-t : 0, high = at_most(length - t, times);
    UNROLL
    for (int i = 0; i < times; i++) {
        piece none = { { 0 } };
        to[i] = i >= low && i < high ? read_piece(x + (t + i) * channels) : none;
    }
}

FN int is_whole(int64 t, int times, int64 length)
{
    return t >= 0 && t + times <= length;
}

/* Taps first, first + 1, ... of channels from h on, for all threads of a block. */
FN void stage(
    const GLOBAL S *RESTRICT k, int64 h, int across, int64 channels, int taps,
    int first, int reversed, LOCAL S (*staged)[STAGED])
{
    ROLL
    for (int i = THREAD; i < across * SLOTS; i += THREADS) {
        int w = i / SLOTS, s = i % SLOTS, tap = first + s;
        if (h + w < channels && tap < taps)
            staged[s][w] = k[(h + w) * taps + (reversed ? taps - 1 - tap : tap)];
    }
}

/* sum[j] += tap s of the first `slots` times what it meets from time j of the window on. */
FN void add_slots(
    const LOCAL S *staged, int slots, const piece *window, S sum[TIMES][WIDTH])
{
    UNROLL
    for (int s = 0; s < SLOTS; s++)
        if (s < slots) {
            sums tap = *(const LOCAL sums *)(staged + s * STAGED);
            UNROLL
            for (int j = 0; j < TIMES; j++) {
                UNROLL
                for (int w = 0; w < WIDTH; w++)
                    sum[j][w] = multiply_add(
                        tap.v[w], load(window[j + SLOTS - 1 - s].v[w]), sum[j][w]);
            }
        }
}

/* The sums of a strip's times, t and following, of y[length][channels]. */
FN void write_strip(
    GLOBAL X *RESTRICT y, int64 t, int64 channels, int64 length, S sum[TIMES][WIDTH])
{
    int times = at_most(length - t, TIMES);
    UNROLL
    for (int j = 0; j < TIMES; j++)
        if (j < times) {
            piece v;
            UNROLL
            for (int w = 0; w < WIDTH; w++)
                v.v[w] = store(sum[j][w]);
            write_piece(y + (t + j) * channels, v);
        }
}
