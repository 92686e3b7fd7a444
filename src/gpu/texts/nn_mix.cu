/* What models with long convolutions need beside them (backend/nn.h). Each kernel has a job
   as its table, whose fields it names first. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 128
#include "simt.h"

#include "nn_job.cuh"

#define SIDE 32 /* of a tile that is turned */
#define DOWN (THREADS / SIDE)

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
    int at = THREAD % SIDE, down = THREAD / SIDE;
    ROLL for (int64 b = BLOCK; b < across * ((rows + SIDE - 1) / SIDE); b += BLOCKS)
    {
        int64 r = b / across * SIDE, i = b % across * SIDE;
        UNROLL
        for (int n = down; n < SIDE; n += DOWN)
            if (r + n < rows && i + at < width) {
                int64 from = (r + n) * pitch + i + at;
                tile[n][at] = more ? load(x[from]) + load(more[from]) : load(x[from]);
            }
        BARRIER();
        UNROLL
        for (int n = down; n < SIDE; n += DOWN)
            if (r + at < rows && i + n < width) {
                S v = tile[at][n];
                if (decay) {
                    S rate = decay[i + n] < 0 ? -decay[i + n] : decay[i + n];
                    v *= EXP(-rate * times[r + at]) + j->number[0];
                }
                y[(i + n) * stride + r + at] = store(v);
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

/* Rows from size[0] on that lie in the table's sequences; x and y begin with row size[4] of
   all sequences. Sums of SIDE x SIDE numbers go through a tile; a thread makes OWN of a
   column. */
#define OWN (SIDE / DOWN)

KERNEL few_taps(TABLE(job) t)
{
    LOCAL S tile[SIDE][SIDE + 1];
    const job *j = WHOLE(t);
    const X *x = (const X *)j->in[0];
    const S *k = (const S *)j->in[1], *shift = (const S *)j->in[2];
    X *y = (X *)j->out[0];
    int64 width = j->size[1], stride = j->size[2], taps = j->size[3],
          first = j->size[4], last = first + j->size[0];
    int64 begin = j->offset[0] > first ? j->offset[0] : first;
    int64 end = j->offset[j->sequences] < last ? j->offset[j->sequences] : last;
    int64 across = (width + SIDE - 1) / SIDE, down = (end - begin + SIDE - 1) / SIDE;
    int column = THREAD % SIDE, line = THREAD / SIDE;
    ROLL for (int64 b = BLOCK; b < across * down; b += BLOCKS)
    {
        int64 from = begin + b / across * SIDE, i = b % across * SIDE, c = i + column;
        int64 s = sequence_of(j, from + line < end ? from + line : end - 1);
        int64 reach[OWN];
        S sums[OWN];
        UNROLL
        for (int n = 0; n < OWN; n++) {
            int64 r = from + line + n * DOWN;
            reach[n] = 0;
            if (r < end && c < width) {
                ROLL while (j->offset[s + 1] <= r) s++;
                reach[n] = r - j->offset[s] + 1;
            }
            sums[n] = c < width ? shift[c] : 0;
        }
        ROLL for (int64 m = 0; m < taps; m++)
        {
            S tap = c < width ? k[m * width + c] : 0;
            UNROLL
            for (int n = 0; n < OWN; n++)
                if (m < reach[n])
                    sums[n] = multiply_add(
                        tap, load(x[(from + line + n * DOWN - first - m) * width + c]),
                        sums[n]);
        }
        UNROLL
        for (int n = 0; n < OWN; n++)
            tile[line + n * DOWN][column] = sums[n];
        BARRIER();
        UNROLL
        for (int n = line; n < SIDE; n += DOWN)
            if (from + column < end && i + n < width)
                y[(i + n) * stride + from + column - first] = store(tile[column][n]);
        BARRIER();
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
