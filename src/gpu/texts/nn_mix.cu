/* What models with long convolutions need beside them (backend/nn.h). Each kernel has a job
   as its table, whose fields it names first. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 128
#include "simt.h"

#include "nn_job.cuh"

#define SIDE   64               /* of a tile that is turned */
#define CHUNKS (SIDE / WIDE)    /* of a line of it, a thread's */
#define LINES  (THREADS / CHUNKS) /* that the threads have at once */
#define OWN    (SIDE / LINES)     /* chunks of a thread */

KERNEL sine(TABLE(job) t)
{
    const job *j = WHOLE(t);
    const S *x = (const S *)j->in[0], *scale = (const S *)j->in[1];
    S *y = (S *)j->out[0];
    int64 count = j->size[0] * j->size[1];
    ROLL for (int64 i = BLOCK * THREADS + THREAD; i < count; i += BLOCKS * THREADS)
        y[i] = SIN(j->number[0] * scale[i % j->size[1]] * x[i]);
}

/* Block by block of SIDE x SIDE numbers of x, through a tile. */
KERNEL turn(TABLE(job) t)
{
    LOCAL S tile[SIDE][SIDE + 1];
    const job *j = WHOLE(t);
    const X *x = (const X *)j->in[0], *more = (const X *)j->in[1];
    const S *decay = (const S *)j->in[2], *times = (const S *)j->in[3];
    X *y = (X *)j->out[0];
    int64 rows = j->size[0], width = j->size[1], stride = j->size[2],
          pitch = j->size[3];
    int64 across = (width + SIDE - 1) / SIDE;
    int at = THREAD % CHUNKS * WIDE, line = THREAD / CHUNKS;
    int aligned = is_whole(x, pitch) && is_whole(more, pitch);
    ROLL for (int64 b = BLOCK; b < across * ((rows + SIDE - 1) / SIDE); b += BLOCKS)
    {
        int64 r = b / across * SIDE, i = b % across * SIDE;
        S v[WIDE];
        int whole = aligned && i + at + WIDE <= width;
        UNROLL
        for (int n = line; n < SIDE; n += LINES)
            if (r + n < rows && i + at < width) {
                fetch(x + (r + n) * pitch, i + at, width, whole, v);
                add(more ? more + (r + n) * pitch : 0, i + at, width, whole, v);
                UNROLL
                for (int e = 0; e < WIDE; e++)
                    tile[n][at + e] = v[e];
            }
        BARRIER();
        whole = is_whole(y, stride) && r + at + WIDE <= rows;
        UNROLL
        for (int n = line; n < SIDE; n += LINES)
            if (r + at < rows && i + n < width) {
                S rate = decay ? decay[i + n] : 0;
                rate = rate < 0 ? -rate : rate;
                UNROLL
                for (int e = 0; e < WIDE; e++) {
                    v[e] = tile[at + e][n];
                    if (decay && r + at + e < rows)
                        v[e] *= EXP(-rate * times[r + at + e]) + j->number[0];
                }
                put(y + (i + n) * stride, r + at, rows, whole, v);
            }
        BARRIER();
    }
}

/* The sequence of the table that row r lies in. */
FN int64 sequence_of(const job *j, int64 r)
{
    int64 low = 0, high = j->sequences; /* it is in [low, high) */
    ROLL while (high - low > 1)
    {
        int64 middle = (low + high) / 2;
        if (j->offset[middle] <= r)
            low = middle;
        else
            high = middle;
    }
    return low;
}

#define FEW 4 /* taps that are made from what a tile holds */

/* A thread's chunk of rows from `from` - (FEW - 1) on, times OWN, to the tile; of those that lie
   in [least, end). */
FN void fetch_tile(
    const X *x, int64 width, int64 i, int64 from, int64 least, int64 end,
    S (*tile)[SIDE + 1])
{
    int at = THREAD % CHUNKS * WIDE;
    int whole = is_whole(x, width) && i + at + WIDE <= width;
    UNROLL
    for (int n = THREAD / CHUNKS; n < FEW - 1 + SIDE; n += LINES) {
        S v[WIDE];
        int64 r = from - (FEW - 1) + n;
        if (r < least || r >= end || i + at >= width)
            continue;
        fetch(x + r * width, i + at, width, whole, v);
        UNROLL
        for (int e = 0; e < WIDE; e++)
            tile[n][at + e] = v[e];
    }
}

/* Rows from size[0] on that lie in the table's sequences; x and y begin with row size[4] of
   all sequences. Of SIDE x SIDE sums a thread makes OWN chunks; where there are more taps than
   FEW, each fetches the tile again. */
KERNEL few_taps(TABLE(job) t)
{
    LOCAL S tile[FEW - 1 + SIDE][SIDE + 1];
    const job *j = WHOLE(t);
    int64 width = j->size[1], stride = j->size[2], taps = j->size[3],
          first = j->size[4], last = first + j->size[0];
    const X *x = (const X *)j->in[0] - first * width;
    const S *k = (const S *)j->in[1], *shift = (const S *)j->in[2];
    int64 begin = j->offset[0] > first ? j->offset[0] : first;
    int64 end = j->offset[j->sequences] < last ? j->offset[j->sequences] : last;
    int64 across = (width + SIDE - 1) / SIDE, down = (end - begin + SIDE - 1) / SIDE;
    int at = THREAD % CHUNKS * WIDE;
    ROLL for (int64 b = BLOCK; b < across * down; b += BLOCKS)
    {
        int64 from = begin + b / across * SIDE, i = b % across * SIDE;
        int64 s = sequence_of(j, from), least = j->offset[s];
        int reach[WIDE]; /* taps that lie in the sequence, of these */
        UNROLL
        for (int e = 0; e < WIDE; e++) {
            int64 r = from + at + e;
            ROLL while (r < end && j->offset[s + 1] <= r) s++;
            int64 there = r < end ? r - j->offset[s] + 1 : 0;
            reach[e] = (int)(there < taps ? there : taps);
        }
        X *y = (X *)j->out[0] + from - first;
        int whole = is_whole(y, stride) && from + at + WIDE <= end;
        ROLL for (int n = THREAD / CHUNKS; n < SIDE; n += LINES)
        {
            int64 column = i + n;
            S sums[WIDE];
            UNROLL
            for (int e = 0; e < WIDE; e++)
                sums[e] = column < width ? shift[column] : 0;
            ROLL for (int64 m = 0; m < taps; m += FEW)
            {
                if (n < LINES || taps > FEW) {
                    BARRIER();
                    fetch_tile(x, width, i, from - m, least, end, tile);
                    BARRIER();
                }
                UNROLL
                for (int tap = 0; tap < FEW; tap++) {
                    if (m + tap >= taps || column >= width)
                        continue;
                    S factor = k[(m + tap) * width + column];
                    UNROLL
                    for (int e = 0; e < WIDE; e++)
                        if (m + tap < reach[e])
                            sums[e] = multiply_add(
                                factor, tile[FEW - 1 - tap + at + e][n], sums[e]);
                }
            }
            if (from + at < end && column < width)
                put(y + column * stride, at, end - from, whole, sums);
        }
    }
}

KERNEL pad(TABLE(job) t)
{
    const job *j = WHOLE(t);
    X *y = (X *)j->out[0];
    int64 from = j->size[1], stride = j->size[2];
    ROLL for (int64 c = BLOCK; c < j->size[0]; c += BLOCKS)
        ROLL for (int64 i = from + THREAD; i < stride; i += THREADS)
            y[c * stride + i] = store(0);
}

KERNEL gate(TABLE(job) t)
{
    const job *j = WHOLE(t);
    const X *in = (const X *)j->in[0];
    X *y = (X *)j->out[0];
    int64 width = j->size[1];
    int whole = is_whole(in, width) && is_whole(y, width);
    ROLL for (int64 r = BLOCK; r < j->size[0]; r += BLOCKS)
    {
        const X *x = in + 2 * r * width;
        ROLL for (int64 i = THREAD * WIDE; i < width; i += THREADS * WIDE)
        {
            S a[WIDE], b[WIDE];
            fetch(x, i, width, whole, a);
            fetch(x + width, i, width, whole, b);
            UNROLL
            for (int e = 0; e < WIDE; e++)
                a[e] = activate(a[e], j->choice[0]) * b[e];
            put(y + r * width, i, width, whole, a);
        }
    }
}

KERNEL multiply(TABLE(job) t)
{
    const job *j = WHOLE(t);
    const X *b = (const X *)j->in[1];
    ROLL for (int64 i = BLOCK * THREADS + THREAD; i < j->size[0]; i += BLOCKS * THREADS)
        store_any(
            j->out[0], j->choice[1], i,
            load_any(j->in[0], j->choice[0], i) * load(b[i]));
}

/* y[h][i][k] = a[h][i] b[h][k] of channels; a block makes one. */
KERNEL outer(TABLE(job) t)
{
    const job *j = WHOLE(t);
    int64 size = j->size[1], length = j->size[2];
    ROLL for (int64 c = BLOCK; c < j->size[0] * size * size; c += BLOCKS)
    {
        const X *a = (const X *)j->in[0] + c / size * length;
        const X *b = (const X *)j->in[1] + (c / (size * size) * size + c % size) * length;
        ROLL for (int64 i = THREAD; i < length; i += THREADS)
            store_any(j->out[0], j->choice[0], c * length + i, load(a[i]) * load(b[i]));
    }
}

/* y[h][k] = sum over i of a[h][i] b[h][i][k]; a block makes one. */
KERNEL contract(TABLE(job) t)
{
    const job *j = WHOLE(t);
    X *y = (X *)j->out[0];
    int64 size = j->size[1], length = j->size[2];
    ROLL for (int64 c = BLOCK; c < j->size[0] * size; c += BLOCKS)
    {
        const X *a = (const X *)j->in[0] + c / size * size * length;
        int64 b = (c / size * size * size + c % size) * length;
        ROLL for (int64 i = THREAD; i < length; i += THREADS)
        {
            S sum = 0;
            ROLL for (int64 n = 0; n < size; n++)
            {
                S factor = load_any(j->in[1], j->choice[0], b + n * size * length + i);
                sum = multiply_add(load(a[n * length + i]), factor, sum);
            }
            y[c * length + i] = store(sum);
        }
    }
}
