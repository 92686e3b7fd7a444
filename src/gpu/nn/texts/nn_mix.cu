/* Operations of models with long convolutions (device/nn.h). Each kernel has a job as its table,
   and names the job's fields first. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS  128
#define RESIDENT 6
#include "simt.h"

#include "nn_job.cuh"

#define SIDE   64                 /* of a tile that is turned */
#define CHUNKS (SIDE / WIDE)      /* of a line of it, a thread's */
#define LINES  (THREADS / CHUNKS) /* that the threads have at once */

/* Where chunk `chunk` of line n lies in a tile: threads that read WIDE lines of a column each
   meet different banks. */
FN int place_of(int n, int chunk) { return n * CHUNKS + (chunk ^ n / WIDE % CHUNKS); }

/* Columns n and n + 1, n even, of the line that is `line` behind the first of a thread's WIDE. */
FN void two_of(const LOCAL wide *tile, int line, int n, S *v0, S *v1)
{
    int group = THREAD % CHUNKS, turned = n / WIDE ^ (group + line / WIDE) % CHUNKS;
    const LOCAL wide *chunk = &tile[(group * WIDE + line) * CHUNKS + turned];
    if (sizeof(X) == 2) {
        unsigned both = ((const LOCAL words *)chunk)->v[n % WIDE / 2];
        *v0 = load((X)both);
        *v1 = load((X)(both >> 16));
    } else {
        *v0 = load(chunk->v[n % WIDE]);
        *v1 = load(chunk->v[n % WIDE + 1]);
    }
}

/* Chunks of a thread in a tile of so many lines: lines THREAD / CHUNKS, and LINES more each. */
#define OWN(lines) (((lines) + LINES - 1) / LINES)

/* A thread's chunks of rows from `from` on, of those in [least, end), if they are whole, and else
   zeros; `at` is the first column of the chunk. */
FN void ask_lines(
    const GLOBAL X *x, int64 pitch, int64 at, int64 from, int64 least, int64 end,
    int whole, int count, words *own)
{
    UNROLL
    for (int n = 0; n < count; n++) {
        int64 r = from + THREAD / CHUNKS + n * LINES;
        words none = { { 0, 0, 0, 0 } };
        own[n] = none;
        if (whole && r >= least && r < end)
            own[n] = *(const GLOBAL words *)(x + r * pitch + at);
    }
}

/* What was asked for, to a tile of so many lines; chunks that are not whole number by number. */
FN void put_lines(
    const GLOBAL X *x, int64 pitch, int64 width, int64 at, int64 from, int64 least,
    int64 end, int whole, int lines, const words *own, LOCAL wide *tile)
{
    int chunk = THREAD % CHUNKS, line = THREAD / CHUNKS;
    UNROLL
    for (int n = 0; n < OWN(lines); n++)
        if (whole && line + n * LINES < lines)
            *(LOCAL words *)&tile[place_of(line + n * LINES, chunk)] = own[n];
    ROLL for (int n = line; !whole && n < lines; n += LINES)
    {
        LOCAL wide *to = &tile[place_of(n, chunk)];
        int inside = from + n >= least && from + n < end;
        UNROLL
        for (int e = 0; e < WIDE; e++)
            to->v[e] = inside && at + e < width ? x[(from + n) * pitch + at + e] : 0;
    }
}

KERNEL sine(TABLE(job) t)
{
    const GLOBAL job *j = WHOLE(t);
    const GLOBAL S *x = (const GLOBAL S *)j->in[0];
    const GLOBAL S *scale = (const GLOBAL S *)j->in[1];
    GLOBAL S *y = (GLOBAL S *)j->out[0];
    int64 count = j->size[0] * j->size[1];
    ROLL for (int64 i = BLOCK * THREADS + THREAD; i < count; i += BLOCKS * THREADS)
        y[i] = SIN(j->number[0] * scale[i % j->size[1]] * x[i]);
}

/* Block by block of SIDE x SIDE numbers of x, and of more, through tiles. All of a thread's
   numbers are on their way before the first is stored. */
KERNEL turn(TABLE(job) t)
{
    IN_BLOCK wide tile[2][SIDE * CHUNKS];
    const GLOBAL job *j = WHOLE(t);
    const GLOBAL X *x = (const GLOBAL X *)j->in[0];
    const GLOBAL X *more = (const GLOBAL X *)j->in[1];
    const GLOBAL S *decay = (const GLOBAL S *)j->in[2];
    const GLOBAL S *times = (const GLOBAL S *)j->in[3];
    GLOBAL X *y = (GLOBAL X *)j->out[0];
    int64 rows = j->size[0], width = j->size[1], stride = j->size[2],
          pitch = j->size[3];
    int64 across = (width + SIDE - 1) / SIDE;
    int at = THREAD % CHUNKS * WIDE;
    int aligned = is_whole(x, pitch) && is_whole(more, pitch);
    ROLL for (int64 b = BLOCK; b < across * ((rows + SIDE - 1) / SIDE); b += BLOCKS)
    {
        int64 r = b / across * SIDE, i = b % across * SIDE;
        int whole = aligned && i + at + WIDE <= width;
        words own[2][OWN(SIDE)];
        ask_lines(x, pitch, i + at, r, 0, rows, whole, OWN(SIDE), own[0]);
        if (more)
            ask_lines(more, pitch, i + at, r, 0, rows, whole, OWN(SIDE), own[1]);
        BARRIER();
        put_lines(x, pitch, width, i + at, r, 0, rows, whole, SIDE, own[0], tile[0]);
        if (more)
            put_lines(
                more, pitch, width, i + at, r, 0, rows, whole, SIDE, own[1], tile[1]);
        BARRIER();
        whole = is_whole(y, stride) && r + at + WIDE <= rows;
        ROLL for (int n = THREAD / CHUNKS * 2; n < SIDE; n += 2 * LINES)
        {
            S v[2][WIDE];
            UNROLL
            for (int e = 0; e < WIDE; e++) {
                two_of(tile[0], e, n, &v[0][e], &v[1][e]);
                if (more) {
                    S v0, v1;
                    two_of(tile[1], e, n, &v0, &v1);
                    v[0][e] += v0;
                    v[1][e] += v1;
                }
            }
            UNROLL
            for (int c = 0; c < 2; c++) {
                if (r + at >= rows || i + n + c >= width)
                    continue;
                S rate = decay ? decay[i + n + c] : 0;
                rate = rate < 0 ? -rate : rate;
                if (decay)
                    UNROLL
                for (int e = 0; e < WIDE; e++)
                    if (r + at + e < rows)
                        v[c][e] *= EXP(-rate * times[r + at + e]) + j->number[0];
                put(y + (i + n + c) * stride, r + at, rows, whole, v[c]);
            }
        }
    }
}

/* The sequence of the table that row r lies in. */
FN int64 sequence_of(const GLOBAL job *j, int64 r)
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

#define TAP_LINES (FEW - 1 + SIDE) /* of a tile of them */

/* Adds taps m to m + FEW - 1 of columns n and n + 1 to WIDE sums each, a line of the tile after
   the other; where sequences begin inside of the tile (`cut`), row `at` + e meets the first
   reach[at + e] taps alone. */
FN void add_taps(
    const GLOBAL job *j, const LOCAL wide *tile, int64 i, int n, int64 m, int cut,
    const LOCAL int *reach, S (*sums)[WIDE])
{
    int64 width = j->size[1];
    const GLOBAL S *k = (const GLOBAL S *)j->in[1] + m * width + i + n;
    int at = THREAD % CHUNKS * WIDE, two = i + n + 1 < width;
    int taps = (int)(j->size[3] - m < FEW ? j->size[3] - m : FEW);
    S factor[FEW][2];
    int meets[WIDE];
    UNROLL
    for (int e = 0; e < WIDE; e++)
        meets[e] = cut ? reach[at + e] - (int)m : FEW;
    UNROLL
    for (int tap = 0; tap < FEW; tap++) {
        factor[tap][0] = tap < taps ? k[tap * width] : 0;
        factor[tap][1] = tap < taps && two ? k[tap * width + 1] : 0;
    }
    UNROLL
    for (int line = 0; line < FEW - 1 + WIDE; line++) {
        S v0, v1;
        two_of(tile, line, n, &v0, &v1);
        UNROLL
        for (int tap = 0; tap < FEW; tap++) {
            int e = line + tap - (FEW - 1);
            if (e < 0 || e >= WIDE || tap >= taps || tap >= meets[e])
                continue;
            sums[0][e] = multiply_add(factor[tap][0], v0, sums[0][e]);
            sums[1][e] = multiply_add(factor[tap][1], v1, sums[1][e]);
        }
    }
}

/* Rows from size[0] on that lie in the table's sequences; x and y begin with row size[4] of
   all sequences. A thread makes WIDE rows of two columns at a time; where there are more taps
   than FEW, the tile is fetched again for each FEW of them. */
KERNEL short_conv(TABLE(job) t)
{
    IN_BLOCK wide tile[TAP_LINES * CHUNKS];
    IN_BLOCK int reach[SIDE]; /* taps that lie in a row's sequence, of these */
    const GLOBAL job *j = WHOLE(t);
    int64 width = j->size[1], stride = j->size[2], taps = j->size[3],
          first = j->size[4], last = first + j->size[0];
    const GLOBAL X *x = (const GLOBAL X *)j->in[0] - first * width;
    const GLOBAL S *shift = (const GLOBAL S *)j->in[2];
    int64 begin = j->offset[0] > first ? j->offset[0] : first;
    int64 end = j->offset[j->sequences] < last ? j->offset[j->sequences] : last;
    int64 across = (width + SIDE - 1) / SIDE, down = (end - begin + SIDE - 1) / SIDE;
    int at = THREAD % CHUNKS * WIDE;
    ROLL for (int64 b = BLOCK; b < across * down; b += BLOCKS)
    {
        int64 from = begin + b / across * SIDE, i = b % across * SIDE;
        int64 s = sequence_of(j, from), least = j->offset[s];
        int cut = j->offset[s + 1] < (from + SIDE < end ? from + SIDE : end);
        GLOBAL X *y = (GLOBAL X *)j->out[0] + from - first;
        int whole = is_whole(y, stride) && from + at + WIDE <= end;
        int filled = is_whole(x, width) && i + at + WIDE <= width;
        if (cut)
            BARRIER();
        if (cut && THREAD < SIDE) {
            int64 r = from + THREAD;
            ROLL while (r < end && j->offset[s + 1] <= r) s++;
            int64 there = r < end ? r - j->offset[s] + 1 : 0;
            reach[THREAD] = (int)(there < taps ? there : taps);
        }
        ROLL for (int n = THREAD / CHUNKS * 2; n < SIDE; n += 2 * LINES)
        {
            S sums[2][WIDE];
            UNROLL
            for (int c = 0; c < 2; c++)
                UNROLL
            for (int e = 0; e < WIDE; e++)
                sums[c][e] = i + n + c < width ? shift[i + n + c] : 0;
            ROLL for (int64 m = 0; m < taps; m += FEW)
            {
                if (n < 2 * LINES || taps > FEW) {
                    int64 above = from - m - (FEW - 1);
                    words own[OWN(TAP_LINES)];
                    ask_lines(
                        x, width, i + at, above, least, end, filled, OWN(TAP_LINES),
                        own);
                    BARRIER();
                    put_lines(
                        x, width, width, i + at, above, least, end, filled, TAP_LINES,
                        own, tile);
                    BARRIER();
                }
                if (i + n < width && cut)
                    add_taps(j, tile, i, n, m, 1, reach, sums);
                else if (i + n < width)
                    add_taps(j, tile, i, n, m, 0, reach, sums);
            }
            UNROLL
            for (int c = 0; c < 2; c++)
                if (from + at < end && i + n + c < width)
                    put(y + (i + n + c) * stride, at, end - from, whole, sums[c]);
        }
    }
}

KERNEL pad(TABLE(job) t)
{
    const GLOBAL job *j = WHOLE(t);
    GLOBAL X *y = (GLOBAL X *)j->out[0];
    int64 from = j->size[1], stride = j->size[2];
    ROLL for (int64 c = BLOCK; c < j->size[0]; c += BLOCKS)
        ROLL for (int64 i = from + THREAD; i < stride; i += THREADS) y[c * stride + i] =
            store(0);
}

KERNEL gate(TABLE(job) t)
{
    const GLOBAL job *j = WHOLE(t);
    const GLOBAL X *in = (const GLOBAL X *)j->in[0];
    GLOBAL X *y = (GLOBAL X *)j->out[0];
    int64 width = j->size[1];
    int whole = is_whole(in, width) && is_whole(y, width);
    ROLL for (int64 r = BLOCK; r < j->size[0]; r += BLOCKS)
    {
        const GLOBAL X *x = in + 2 * r * width;
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
    const GLOBAL job *j = WHOLE(t);
    const GLOBAL X *b = (const GLOBAL X *)j->in[1];
    ROLL for (int64 i = BLOCK * THREADS + THREAD; i < j->size[0]; i += BLOCKS * THREADS)
        store_any(
            j->out[0], j->choice[1], i,
            load_any(j->in[0], j->choice[0], i) * load(b[i]));
}

/* y[h][i][k] = a[h][i] b[h][k] of channels; a block makes one. */
KERNEL outer(TABLE(job) t)
{
    const GLOBAL job *j = WHOLE(t);
    int64 size = j->size[1], length = j->size[2];
    ROLL for (int64 c = BLOCK; c < j->size[0] * size * size; c += BLOCKS)
    {
        const GLOBAL X *a = (const GLOBAL X *)j->in[0] + c / size * length;
        const GLOBAL X *b =
            (const GLOBAL X *)j->in[1] + (c / (size * size) * size + c % size) * length;
        ROLL for (int64 i = THREAD; i < length; i += THREADS)
            store_any(j->out[0], j->choice[0], c * length + i, load(a[i]) * load(b[i]));
    }
}

/* y[h][k] = sum over i of a[h][i] b[h][i][k]; a block makes one. */
KERNEL contract(TABLE(job) t)
{
    const GLOBAL job *j = WHOLE(t);
    GLOBAL X *y = (GLOBAL X *)j->out[0];
    int64 size = j->size[1], length = j->size[2];
    ROLL for (int64 c = BLOCK; c < j->size[0] * size; c += BLOCKS)
    {
        const GLOBAL X *a = (const GLOBAL X *)j->in[0] + c / size * size * length;
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
