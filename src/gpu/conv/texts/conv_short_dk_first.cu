/* Parts of the gradients of taps and bias, channels first, each over some of the rows of a
   channel, and the gradient of u beside them:

       dk[part][h][s] = sum of dy[r][t] u[r][t + shift - s],   dbias[part][h] = sum of dy[r][t],
       du[r][t] = sum over s of k[h][s] dy[r][t - shift + s],  the last tap first,

   where u and dy are zero outside of a row or, PACKED, of a sequence. dk is for s in one of
   `groups` groups of slots (conv_short.cuh). dk and dbias may be NULL, and u without dk. DU: du
   is computed too, with SHIFT and TAPS known at compile time. ks_reduce.cu adds parts up.

   A block of threads takes a part of the pieces that the rows of a channel touch, and a thread
   every THREADS-th piece. A tree adds up the threads' sums. The order of sums depends only on
   sizes. */
// SPDX-License-Identifier: Apache-2.0
#define RESIDENT (sizeof(S) == 8 ? 2 : DU || PACKED || !TAPS ? 4 : 6)
#include "conv_short.cuh"

/* What meets a piece of dy, or of du: FROM pieces before it on, READS of dy. */
#if DU
#    define LAG     (TAPS - 1 - SHIFT)
#    define DU_PAD  ((PER - LAG % PER) % PER)
#    define DU_BACK ((DU_PAD + TAPS + PER - 2) / PER)
#    define FROM    (DU_BACK - (LAG + DU_PAD) / PER)
#    define READS   (DU_BACK + 1)
#else
#    define FROM  0
#    define READS 1
#endif

/* The pieces of one channel's rows, `per` for each row; some may not touch the row. */
typedef struct channel {
    const GLOBAL X *dy, *u;
    GLOBAL X *du;
    int64 channels, length, count, per, h;
    int ahead; /* of a group */
    const GLOBAL sequence *of;
    int64 sequences;
} channel;

/* A piece: its number, and where it lies in its row or, PACKED, in the first of its
   sequences. */
typedef struct place {
    int64 p, i;
    position at;
} place;

FN place place_of(const channel *q, int64 b, int64 j)
{
    int64 row = (b * q->channels + q->h) * q->length;
    place w;
    w.p = row / PER + j;
    w.i = 0;
    w.at = position_of(w.p * PER - row, q->length);
#if PACKED
    int64 column = w.p * PER - row;
    w.i = sequence_of(q->of, q->sequences, column);
    w.at = position_of(column - q->of[w.i].offset, q->of[w.i].length);
#endif
    return w;
}

/* Goes on to the next sequence of the row. True if it begins in the same chunk. */
FN int go_on(const channel *q, place *w)
{
#if PACKED
    if (w->at.left < PER && w->i + 1 < q->sequences) {
        w->i++;
        w->at.since = -w->at.left;
        w->at.left += at_most(q->of[w->i].length, FAR);
        return 1;
    }
#endif
    return 0;
}

/* sum[s] += dy times what meets it in slot s; sum[SLOTS] that of dy. */
FN void add_products(const channel *q, const S *dy, const piece *window, place w, S *sum)
{
    S x[WINDOW];
    UNROLL
    for (int e = 0; e < PER; e++)
        sum[SLOTS] = plus(sum[SLOTS], dy[e]);
    if (!q->u)
        return;
    widen(window, BACK + 1, w.at, (q->ahead - BACK) * PER, x);
    UNROLL
    for (int s = TAPS ? PAD : 0; s < SLOTS; s++) {
        UNROLL
        for (int e = 0; e < PER; e++)
            sum[s] = multiply_add(dy[e], x[BACK * PER + e - s], sum[s]);
    }
}

#if DU
/* `dy` begins FROM pieces before the piece. */
FN void make_du(const channel *q, const S *dy, const S *tap, place w, int whole)
{
    S sum[PER];
    piece v;
    UNROLL
    for (int e = 0; e < PER; e++)
        sum[e] = zero();
    UNROLL
    for (int s = 0; s < TAPS; s++) {
        UNROLL
        for (int e = 0; e < PER; e++)
            sum[e] =
                multiply_add(tap[s], dy[DU_BACK * PER + e - DU_PAD - s], sum[e]);
    }
    UNROLL
    for (int e = 0; e < PER; e++)
        v.v[e] = store(sum[e]);
    if (whole && w.at.since >= 0 && w.at.left >= PER) {
        *(GLOBAL piece *)(q->du + w.p * PER) = v;
    } else {
        UNROLL
        for (int e = 0; e < PER; e++)
            if (w.at.since + e >= 0 && e < w.at.left)
                q->du[w.p * PER + e] = v.v[e];
    }
}
#endif

FN void add_piece(const channel *q, place w, const S *tap, S *sum)
{
    piece own[READS], window[BACK + 1];
    S dy[READS * PER];
    int64 first = w.p + q->ahead - BACK;
    int whole = is_whole(q->dy, w.p - FROM, READS, q->count) &&
                (!q->u || is_whole(q->u, first, BACK + 1, q->count));
#if DU
    whole = whole && is_aligned(q->du);
#endif
    if (whole) {
        read_pieces(q->dy, w.p - FROM, READS, own);
        if (q->u)
            read_pieces(q->u, first, BACK + 1, window);
        widen(own, READS, w.at, -FROM * PER, dy);
        add_products(q, dy + FROM * PER, window, w, sum);
#if DU
        make_du(q, dy, tap, w, 1);
#endif
    } else {
        read_some(q->dy, w.p - FROM, READS, q->count, own);
        if (q->u)
            read_some(q->u, first, BACK + 1, q->count, window);
        widen(own, READS, w.at, -FROM * PER, dy);
        add_products(q, dy + FROM * PER, window, w, sum);
#if DU
        make_du(q, dy, tap, w, 0);
#endif
    }
}

/* Adds up what threads have, in sum[SLOTS + 1][THREADS]: the first gets it. */
FN void add_threads(LOCAL S *sum)
{
    for (int apart = THREADS / 2; apart; apart /= 2) {
        BARRIER();
        for (int e = THREAD; e < (SLOTS + 1) * apart; e += THREADS) {
            LOCAL S *at = sum + e / apart * THREADS + e % apart;
            *at = plus(*at, at[apart]);
        }
    }
    BARRIER();
}

KERNEL conv(
    const GLOBAL X *RESTRICT dy, const GLOBAL X *RESTRICT u, const GLOBAL S *RESTRICT k,
    GLOBAL X *RESTRICT du, GLOBAL S *RESTRICT dk, GLOBAL S *RESTRICT dbias,
    int64 channels, int64 length, int64 batch,
    int64 parts, int taps, int ahead, int groups, const GLOBAL sequence *RESTRICT of,
    int64 sequences)
{
    IN_BLOCK S all[(SLOTS + 1) * THREADS];
    channel q;
    q.dy = dy;
    q.u = u;
    q.du = du;
    q.channels = channels;
    q.length = length;
    q.of = of;
    q.sequences = sequences;
    q.count = batch * channels * length;
    q.per = length % PER ? (length + PER - 2) / PER + 1 : length / PER;
    int64 items = batch * q.per;
    for (int64 n = BLOCK; n < parts * channels * groups; n += BLOCKS) {
        int group = (int)(n % groups);
        int64 part = n / groups / channels, i = items * part / parts + THREAD;
        int64 end = items * (part + 1) / parts, b = i / q.per, j = i % q.per;
        int64 rows = THREADS / q.per, rest = THREADS % q.per;
        S sum[SLOTS + 1], tap[TAPS + 1];
        q.h = n / groups % channels;
        q.ahead = ahead - group * (SLOTS / PER);
        UNROLL
        for (int s = 0; s < TAPS && DU; s++)
            tap[s] = k[q.h * TAPS + TAPS - 1 - s];
        UNROLL
        for (int s = 0; s <= SLOTS; s++)
            sum[s] = zero();
        ROLL
        for (; i < end; i += THREADS) {
            place w = place_of(&q, b, j);
            if (w.at.left > 0)
                do
                    add_piece(&q, w, tap, sum);
                while (go_on(&q, &w));
            b += rows;
            j += rest;
            if (j >= q.per)
                j -= q.per, b++;
        }
        UNROLL
        for (int s = 0; s <= SLOTS; s++)
            all[s * THREADS + THREAD] = sum[s];
        add_threads(all);
        for (int s = THREAD; s <= SLOTS; s += THREADS) {
            int t = group * SLOTS + s - PAD;
            if (s == SLOTS && dbias && group == 0)
                dbias[part * channels + q.h] = all[s * THREADS];
            if (s < SLOTS && dk && t >= 0 && t < taps)
                dk[(part * channels + q.h) * taps + t] = all[s * THREADS];
        }
        BARRIER();
    }
}
