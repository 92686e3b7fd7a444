/* Parts of the gradients of taps and bias, channels last, each over some of the times of all
   rows, and the gradient of u beside them:

       dk[part][h][s] = sum of dy[b][t][h] u[b][t + shift - s][h],
       dbias[part][h] = sum of dy[b][t][h],
       du[b][t][h] = sum over s of k[h][s] dy[b][t - shift + s][h],  the last tap first,

   dk is for s in one of `groups` groups of SLOTS taps (conv_short_rows.cuh). dk and dbias may be
   NULL, and u without dk. DU: du is computed too, with SHIFT and TAPS known at compile time.
   ks_reduce.cu adds parts up.

   A block of threads has lanes WIDTH channels and a part of the strips of all rows. A tree adds
   up the sums of its strips. The order of sums depends only on sizes. */
// SPDX-License-Identifier: Apache-2.0
#define RESIDENT (sizeof(X) == 2 && TAPS && !DU ? 3 : 2)
#include "conv_short_rows.cuh"

/* What a strip reads of dy: its own times from FROM on. */
#if DU
#    define FROM  SHIFT
#    define READS WINDOW
#else
#    define FROM  0
#    define READS TIMES
#endif

typedef struct strip {
    const GLOBAL X *dy, *u; /* of a row of the batch, and of the thread's channels */
    GLOBAL X *du;
    const LOCAL S *staged;
    int64 channels, length;
    int shift; /* of a group */
} strip;

/* sum[s] += dy times what meets it at tap s of the group; sum[SLOTS] that of dy. */
FN void add_products(
    const piece *dy, const piece *window, int has_u, S sum[SLOTS + 1][WIDTH])
{
    UNROLL
    for (int j = 0; j < TIMES; j++) {
        UNROLL
        for (int w = 0; w < WIDTH; w++) {
            S d = load(dy[j].v[w]);
            sum[SLOTS][w] = plus(sum[SLOTS][w], d);
            UNROLL
            for (int s = 0; s < SLOTS && has_u; s++)
                sum[s][w] = multiply_add(
                    d, load(window[j + SLOTS - 1 - s].v[w]), sum[s][w]);
        }
    }
}

FN void make_du(const strip *q, const piece *dy, int64 t, int64 length)
{
#if DU
    S sum[TIMES][WIDTH];
    UNROLL
    for (int j = 0; j < TIMES; j++) {
        UNROLL
        for (int w = 0; w < WIDTH; w++)
            sum[j][w] = zero();
    }
    add_slots(q->staged, TAPS, dy, sum);
    write_strip(q->du, t, q->channels, length, sum);
#endif
}

FN void add_strip(const strip *q, int64 t, S sum[SLOTS + 1][WIDTH])
{
    piece dy[READS], window[WINDOW];
    int64 seen = t + q->shift - (SLOTS - 1);
    if (q->u && is_whole(t - FROM, READS, q->length) &&
        is_whole(seen, WINDOW, q->length)) {
        read_times(q->dy, t - FROM, READS, q->channels, dy);
        read_times(q->u, seen, WINDOW, q->channels, window);
        add_products(dy + FROM, window, 1, sum);
        make_du(q, dy, t, t + TIMES);
    } else {
        read_some(q->dy, t - FROM, READS, q->channels, q->length, dy);
        if (q->u)
            read_some(q->u, seen, WINDOW, q->channels, q->length, window);
        add_products(dy + FROM, window, q->u != 0, sum);
        make_du(q, dy, t, q->length);
    }
}

/* Adds up what strips have, in sum[SLOTS + 1][WIDTH][THREADS]: the first of the lane gets
   it. */
FN void add_threads(LOCAL S *sum, int lanes_log2)
{
    for (int apart = THREADS / 2; apart >> lanes_log2; apart /= 2) {
        BARRIER();
        for (int e = THREAD; e < (SLOTS + 1) * WIDTH * apart; e += THREADS) {
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
    int64 parts, int taps, int shift, int groups, int lanes_log2)
{
    IN_BLOCK S all[(SLOTS + 1) * WIDTH * THREADS];
    IN_BLOCK S staged[SLOTS][STAGED];
    int lane = THREAD & ((1 << lanes_log2) - 1), row = THREAD >> lanes_log2;
    int across = WIDTH << lanes_log2, strips = THREADS >> lanes_log2;
    int64 tiles = (channels + across - 1) / across;
    int64 per = (length + TIMES - 1) / TIMES, items = batch * per;
    for (int64 n = BLOCK; n < parts * tiles * groups; n += BLOCKS) {
        int group = (int)(n % groups);
        int64 h0 = n / groups % tiles * across, h = h0 + lane * WIDTH;
        int64 part = n / groups / tiles, end = items * (part + 1) / parts;
        S sum[SLOTS + 1][WIDTH];
        if (DU) {
            stage(k, h0, across, channels, taps, 0, 1, staged);
            BARRIER();
        }
        UNROLL
        for (int s = 0; s <= SLOTS; s++) {
            UNROLL
            for (int w = 0; w < WIDTH; w++)
                sum[s][w] = zero();
        }
        ROLL
        for (int64 i = items * part / parts + row; i < end && h < channels; i += strips) {
            int64 b = i / per, from = b * length * channels + h;
            strip q;
            q.dy = dy + from;
            q.u = u ? u + from : u;
            q.du = du + from;
            q.staged = staged[0] + lane * WIDTH;
            q.channels = channels;
            q.length = length;
            q.shift = shift - group * SLOTS;
            add_strip(&q, (i - b * per) * TIMES, sum);
        }
        UNROLL
        for (int s = 0; s <= SLOTS; s++) {
            UNROLL
            for (int w = 0; w < WIDTH; w++)
                all[(s * WIDTH + w) * THREADS + THREAD] = sum[s][w];
        }
        add_threads(all, lanes_log2);
        for (int e = THREAD; e < (SLOTS + 1) * across; e += THREADS) {
            int s = e / across, c = e % across, tap = group * SLOTS + s;
            S found = all[(s * WIDTH + c % WIDTH) * THREADS + c / WIDTH];
            if (h0 + c >= channels)
                continue;
            if (s == SLOTS && dbias && group == 0)
                dbias[part * channels + h0 + c] = found;
            if (s < SLOTS && dk && tap < taps)
                dk[(part * channels + h0 + c) * taps + tap] = found;
        }
        BARRIER();
    }
}
