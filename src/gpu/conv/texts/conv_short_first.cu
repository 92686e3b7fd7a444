/* Short convolutions, channels first, for u and y [rows][length], where row r has channel
   h = r mod channels:

       y[r][t] = bias[h] + sum over s < taps of k[h][s] u[r][t + shift - s],

   with zeros for u outside of its row or, PACKED, of its sequence. reversed: the last tap comes
   first. Sums are computed in the order of s.

   A block of threads computes a tile of PIECES THREADS neighbouring pieces of y
   (conv_short.cuh), and `steps` tiles in a row, so that blocks that run at a time are close
   together in memory. BESIDE threads have BESIDE PIECES neighbouring pieces. They are often
   from one row, whose taps a thread then reads once. A thread reads all its pieces with their
   windows, which overlap its neighbours' pieces, before it writes any. Where a row ends inside
   a piece, the sums are computed again with the taps of the next row. Tiles that are not
   aligned, or that end the arrays, are computed number by number. */
// SPDX-License-Identifier: Apache-2.0
#define RESIDENT (sizeof(S) == 8 ? 3 : !TAPS ? 4 : TAPS < 6 ? 8 : 6)
#include "conv_short.cuh"

#define TILE   (PIECES * THREADS)
#define BESIDE 32

typedef struct signal {
    const GLOBAL X *u;
    const GLOBAL S *k, *bias;
    int64 channels, length, count;
    int taps, step, ahead;
    const GLOBAL sequence *of;
    int64 sequences;
} signal;

/* A piece: its number, its channel and its position in the row. PACKED: its column, and its
   position in its sequence. */
typedef struct place {
    int64 p, h, column, i;
    position at;
} place;

/* How far from piece p the window of a group of slots begins, in pieces. */
FN int window_of(const signal *q, int group)
{
    return q->ahead - group * (SLOTS / PER) - BACK;
}

/* The taps of channel h, if they are known when this is compiled. */
typedef struct filter {
    int64 h;
    S start, tap[TAPS ? TAPS : 1];
} filter;

FN void take_filter(const signal *q, int64 h, filter *f)
{
    if (h == f->h)
        return;
    f->h = h;
    f->start = q->bias ? q->bias[h] : zero();
    UNROLL
    for (int s = 0; s < TAPS; s++)
        f->tap[s] = q->k[h * TAPS + s * q->step];
}

/* Where taps lie when they meet numbers. */
#if TAPS
#define TAPS_IN
#else
#define TAPS_IN GLOBAL
#endif

/* sum += the slots of a group: k points to the tap of slot `from`. */
FN void add_slots(
    const TAPS_IN S *k, int step, int from, int to, const S *x, S *sum)
{
    UNROLL
    for (int s = 0; s < SLOTS; s++)
        if (s >= from && s < to) {
            S tap = k[(s - from) * step];
            UNROLL
            for (int e = 0; e < PER; e++)
                sum[e] = multiply_add(tap, x[BACK * PER + e - s], sum[e]);
        }
}

/* `window` is that of the first group, if there is one group. */
FN void make_sums(const signal *q, const piece *window, place w, filter *f, S *sum)
{
    S x[WINDOW];
    take_filter(q, w.h, f);
    UNROLL
    for (int e = 0; e < PER; e++)
        sum[e] = f->start;
#if TAPS
    widen(window, BACK + 1, w.at, window_of(q, 0) * PER, x);
    add_slots(f->tap, 1, PAD, SLOTS, x, sum);
#else
    const GLOBAL S *k = q->k + w.h * q->taps - PAD * q->step;
    ROLL
    for (int group = 0; group * SLOTS < PAD + q->taps; group++, k += SLOTS * q->step) {
        piece there[BACK + 1];
        int64 first = w.p + window_of(q, group);
        if (is_whole(q->u, first, BACK + 1, q->count))
            read_pieces(q->u, first, BACK + 1, there);
        else
            read_some(q->u, first, BACK + 1, q->count, there);
        widen(there, BACK + 1, w.at, window_of(q, group) * PER, x);
        int from = group ? 0 : PAD;
        add_slots(
            k + from * q->step, q->step, from, PAD + q->taps - group * SLOTS, x, sum);
    }
#endif
}

/* The row or sequence that is next. */
FN void go_on(const signal *q, place *w)
{
    int64 length = q->length;
#if PACKED
    w->i = w->i + 1 < q->sequences ? w->i + 1 : 0;
    length = q->of[w->i].length;
#endif
    w->at.since = -w->at.left;
    w->at.left += at_most(length, FAR);
    if (!PACKED || w->i == 0)
        w->h = w->h + 1 < q->channels ? w->h + 1 : 0;
}

FN piece make_piece(const signal *q, const piece *window, place w, filter *f)
{
    S sum[PER];
    piece y;
    make_sums(q, window, w, f, sum);
    UNROLL
    for (int e = 0; e < PER; e++)
        y.v[e] = store(sum[e]);
    ROLL
    while (w.at.left < PER) {
        go_on(q, &w);
        make_sums(q, window, w, f, sum);
        UNROLL
        for (int e = 0; e < PER; e++)
            y.v[e] = e >= -w.at.since ? store(sum[e]) : y.v[e];
    }
    return y;
}

#if PACKED
/* Which sequence has the column of a place, which may be that of a row behind. */
FN void find_sequence(const signal *q, place *w)
{
    if (w->column >= q->length) {
        w->h = (w->h + w->column / q->length) % q->channels;
        w->column %= q->length;
    }
    w->i = sequence_of(q->of, q->sequences, w->column);
    w->at = position_of(w->column - q->of[w->i].offset, q->of[w->i].length);
}
#endif

/* The piece `number` pieces behind one. */
FN place place_of(const signal *q, place first, int number)
{
    place w = first;
    w.p += number;
#if PACKED
    w.column += number * PER;
    find_sequence(q, &w);
#else
    w.at.since += number * PER;
    w.at.left -= number * PER;
    if (w.at.left <= 0) { /* other rows follow in the tile */
        int length = at_most(q->length, FAR), rows = -w.at.left / length;
        w.at.since = -w.at.left - rows * length;
        w.at.left = length - w.at.since;
        w.h += rows + 1;
        w.h = w.h < q->channels ? w.h : w.h % q->channels;
    }
#endif
    return w;
}

/* The place in a tile of a thread's piece i. */
FN int own_piece(int i)
{
    return (THREAD / BESIDE * PIECES + i) * BESIDE + THREAD % BESIDE;
}

/* A thread's pieces of a tile that begins at `w`. */
FN void make_tile(const signal *q, GLOBAL X *RESTRICT y, place w)
{
    piece window[PIECES][BACK + 1];
    filter f = { -1 };
    UNROLL
    for (int i = 0; i < PIECES && TAPS; i++)
        read_pieces(
            q->u, w.p + own_piece(i) + window_of(q, 0), BACK + 1, window[i]);
    UNROLL
    for (int i = 0; i < PIECES; i++) {
        place own = place_of(q, w, own_piece(i));
        *(GLOBAL piece *)(y + own.p * PER) = make_piece(q, window[i], own, &f);
    }
}

FN void make_some(const signal *q, GLOBAL X *RESTRICT y, place w)
{
    filter f = { -1 };
    ROLL
    for (int i = THREAD; i < TILE && (w.p + i) * PER < q->count; i += THREADS) {
        place own = place_of(q, w, i);
        piece window[BACK + 1];
        if (TAPS)
            read_some(q->u, own.p + window_of(q, 0), BACK + 1, q->count, window);
        piece made = make_piece(q, window, own, &f);
        UNROLL
        for (int e = 0; e < PER; e++)
            if (own.p * PER + e < q->count)
                y[own.p * PER + e] = made.v[e];
    }
}

/* Piece p, with which a tile begins. */
FN place tile_at(const signal *q, int64 p)
{
    place w;
    w.p = p;
    w.h = p * PER / q->length;
    w.column = p * PER - w.h * q->length;
    w.h %= q->channels;
    w.i = 0;
    w.at = position_of(w.column, q->length);
    return w;
}

KERNEL conv(
    const GLOBAL X *RESTRICT u, const GLOBAL S *RESTRICT k,
    const GLOBAL S *RESTRICT bias, GLOBAL X *RESTRICT y, int64 channels, int64 length,
    int64 rows, int taps, int reversed, int ahead, const GLOBAL sequence *RESTRICT of,
    int64 sequences, int steps)
{
    signal q;
    q.u = u;
    q.k = k + (reversed ? taps - 1 : 0);
    q.bias = bias;
    q.channels = channels;
    q.length = length;
    q.count = rows * length;
    q.taps = taps;
    q.step = reversed ? -1 : 1;
    q.ahead = ahead;
    q.of = of;
    q.sequences = sequences;
    int64 tiles = (int64)steps * TILE;
    for (int64 n = BLOCK * tiles; n * PER < q.count; n += BLOCKS * tiles) {
        place w = tile_at(&q, n);
        ROLL
        for (int step = 0; step < steps && w.p * PER < q.count; step++) {
            if (is_whole(u, w.p + window_of(&q, 0), TILE + BACK, q.count) &&
                is_whole(y, w.p, TILE, q.count))
                make_tile(&q, y, w);
            else
                make_some(&q, y, w);
            w = place_of(&q, w, TILE);
        }
    }
}
