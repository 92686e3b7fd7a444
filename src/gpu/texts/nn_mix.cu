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
    const S *scale = j->in[1];
    int64 count = j->size[0] * j->size[1];
    ROLL for (int64 i = BLOCK * THREADS + THREAD; i < count; i += BLOCKS * THREADS)
        j->out[0][i] = SIN(j->number[0] * scale[i % j->size[1]] * j->in[0][i]);
}

/* Block by block of SIDE x SIDE numbers of x, through a tile. */
KERNEL turn(TABLE(job) t)
{
    LOCAL S tile[SIDE][SIDE + 1];
    const job *j = WHOLE(t);
    const S *x = j->in[0], *more = j->in[1], *decay = j->in[2], *times = j->in[3];
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
                tile[n][at] = more ? x[from] + more[from] : x[from];
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
                j->out[0][(i + n) * stride + r + at] = v;
            }
        BARRIER();
    }
}

/* Rows from size[0] on that lie in the table's sequences; x and y begin with row size[4] of
   all sequences. */
KERNEL few_taps(TABLE(job) t)
{
    const job *j = WHOLE(t);
    const S *x = j->in[0], *k = j->in[1], *shift = j->in[2];
    int64 width = j->size[1], stride = j->size[2], taps = j->size[3],
          first = j->size[4];
    int64 begin = j->offset[0] > first ? j->offset[0] : first;
    int64 rows = j->offset[j->sequences] - begin;
    rows = rows > first + j->size[0] - begin ? first + j->size[0] - begin : rows;
    ROLL for (int64 r = begin + BLOCK; r < begin + rows; r += BLOCKS)
    {
        int64 s = 0;
        ROLL while (j->offset[s + 1] <= r) s++;
        int64 reach = r - j->offset[s] + 1 < taps ? r - j->offset[s] + 1 : taps;
        ROLL for (int64 i = THREAD; i < width; i += THREADS)
        {
            S sum = shift[i];
            ROLL for (int64 n = 0; n < reach; n++) sum =
                multiply_add(k[n * width + i], x[(r - first - n) * width + i], sum);
            j->out[0][i * stride + r - first] = sum;
        }
    }
}

KERNEL pad(TABLE(job) t)
{
    const job *j = WHOLE(t);
    int64 from = j->size[1], stride = j->size[2];
    ROLL for (int64 c = BLOCK; c < j->size[0]; c += BLOCKS)
        ROLL for (int64 i = from + THREAD; i < stride; i += THREADS)
            j->out[0][c * stride + i] = 0;
}

KERNEL gate(TABLE(job) t)
{
    const job *j = WHOLE(t);
    int64 width = j->size[1];
    ROLL for (int64 r = BLOCK; r < j->size[0]; r += BLOCKS)
    {
        const S *x = j->in[0] + 2 * r * width;
        ROLL for (int64 i = THREAD; i < width; i += THREADS) j->out[0][r * width + i] =
            activate(x[i], j->choice[0]) * x[width + i];
    }
}

KERNEL multiply(TABLE(job) t)
{
    const job *j = WHOLE(t);
    ROLL for (int64 i = BLOCK * THREADS + THREAD; i < j->size[0]; i += BLOCKS * THREADS)
        j->out[0][i] = j->in[0][i] * j->in[1][i];
}

/* y[h][i][k] = a[h][i] b[h][k] of channels; a block makes one. */
KERNEL outer(TABLE(job) t)
{
    const job *j = WHOLE(t);
    int64 size = j->size[1], length = j->size[2];
    ROLL for (int64 c = BLOCK; c < j->size[0] * size * size; c += BLOCKS)
    {
        const S *a = j->in[0] + c / size * length;
        const S *b = j->in[1] + (c / (size * size) * size + c % size) * length;
        ROLL for (int64 i = THREAD; i < length; i += THREADS)
            j->out[0][c * length + i] = a[i] * b[i];
    }
}

/* y[h][k] = sum over i of a[h][i] b[h][i][k]; a block makes one. */
KERNEL contract(TABLE(job) t)
{
    const job *j = WHOLE(t);
    int64 size = j->size[1], length = j->size[2];
    ROLL for (int64 c = BLOCK; c < j->size[0] * size; c += BLOCKS)
    {
        const S *a = j->in[0] + c / size * size * length;
        const S *b = j->in[1] + (c / size * size * size + c % size) * length;
        ROLL for (int64 i = THREAD; i < length; i += THREADS)
        {
            S sum = 0;
            ROLL for (int64 n = 0; n < size; n++) sum =
                multiply_add(a[n * length + i], b[n * size * length + i], sum);
            j->out[0][c * length + i] = sum;
        }
    }
}
