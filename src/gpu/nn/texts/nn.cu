/* Operations of models beside products, convolutions and attention (device/nn.h). Each kernel
   has a job as its table, and names the job's fields first. Rows are [rows][width]. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS  128
#define RESIDENT 5
#include "simt.h"

#include "nn_job.cuh"

/* The sum of what the threads of a block have, in all of them; `parts` has a place for
   each. */
FN S sum_of_block(S own, LOCAL S *parts)
{
    parts[THREAD] = own;
    BARRIER();
    ROLL for (int n = THREADS / 2; n; n /= 2)
    {
        if (THREAD < n)
            parts[THREAD] += parts[THREAD + n];
        BARRIER();
    }
    S sum = parts[0];
    BARRIER();
    return sum;
}

FN S most_of_block(S own, LOCAL S *parts)
{
    parts[THREAD] = own;
    BARRIER();
    ROLL for (int n = THREADS / 2; n; n /= 2)
    {
        if (THREAD < n && parts[THREAD + n] > parts[THREAD])
            parts[THREAD] = parts[THREAD + n];
        BARRIER();
    }
    S most = parts[0];
    BARRIER();
    return most;
}

/* Row r of x + more. */
FN void fetch_sum(const GLOBAL job *j, int64 r, int64 i, int whole, S *v)
{
    int64 width = j->size[1];
    const GLOBAL X *more = (const GLOBAL X *)j->in[1];
    fetch_any(j->in[0], j->choice[0], r, i, width, whole, v);
    add(more ? more + r * width : 0, i, width, whole, v);
}

/* LANES threads of a row hold HELD pieces of it each, and fetch those behind again. */
#define LANES 32
#define HELD  (32 / WIDE)
#define NEXT  (LANES * WIDE) /* numbers from a thread's piece to its next */
#define FIRST (THREAD % LANES * WIDE)
#define REST  (FIRST + HELD * NEXT)

/* What the threads of a row add up; `parts` has a place for each. */
FN S sum_of_lanes(S own, LOCAL S *parts)
{
    const LOCAL S *row = parts + THREAD / LANES * LANES;
    S sum[4] = { 0, 0, 0, 0 };
    parts[THREAD] = own;
    BARRIER();
    UNROLL
    for (int n = 0; n < LANES; n++)
        sum[n % 4] += row[n];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* The pieces of a row of x, or of more, that are there, as they lie. */
FN void ask_pieces(const GLOBAL X *x, int64 width, words *own)
{
    UNROLL
    for (int n = 0; n < HELD; n++) {
        words none = { { 0, 0, 0, 0 } };
        own[n] = none;
        if (x && FIRST + n * NEXT < width)
            own[n] = *(const GLOBAL words *)(x + FIRST + n * NEXT);
    }
}

/* The pieces of row r of x + more that a thread holds, zeros behind its `width`. Where they are
   whole, and X, all are on their way before the first is needed. */
FN void hold(const GLOBAL job *j, int64 r, int64 width, int whole, S (*held)[WIDE])
{
    const GLOBAL X *more = (const GLOBAL X *)j->in[1];
    if (whole && !j->choice[0]) {
        words own[HELD], added[HELD];
        ask_pieces((const GLOBAL X *)j->in[0] + r * width, width, own);
        ask_pieces(more ? more + r * width : 0, width, added);
        UNROLL
        for (int n = 0; n < HELD; n++) {
            S v[WIDE];
            numbers_of(own[n], held[n]);
            numbers_of(added[n], v);
            UNROLL
            for (int e = 0; e < WIDE; e++)
                held[n][e] += v[e];
        }
        return;
    }
    UNROLL
    for (int n = 0; n < HELD; n++) {
        UNROLL
        for (int e = 0; e < WIDE; e++)
            held[n][e] = 0;
        if (FIRST + n * NEXT < width)
            fetch_sum(j, r, FIRST + n * NEXT, whole, held[n]);
    }
}

FN S total_of(const S *v)
{
    S total = 0;
    UNROLL
    for (int e = 0; e < WIDE; e++)
        total += v[e];
    return total;
}

/* Squares the numbers inside the row; others count as zero. */
FN S square_of(const S *v, S mean, int64 i, int64 width)
{
    S square = 0;
    UNROLL
    for (int e = 0; e < WIDE; e++)
        if (i + e < width)
            square += (v[e] - mean) * (v[e] - mean);
    return square;
}

/* Numbers i to i + WIDE - 1 of the scale or the shift, in whole pieces where `whole`. */
FN void fetch_affine(const GLOBAL S *from, int64 i, int64 width, int whole, S *to)
{
    UNROLL
    for (int e = 0; e < WIDE; e += V) {
        SV v = { { 0 } };
        if (whole)
            v = *(const GLOBAL SV *)(from + i + e);
        UNROLL
        for (int q = 0; q < V; q++)
            to[e + q] = whole ? v.v[q] : i + e + q < width ? from[i + e + q] : 0;
    }
}

FN void put_normal(
    const GLOBAL job *j, int64 r, int64 i, int64 width, int whole, S mean, S size, S *v)
{
    const GLOBAL S *scale = (const GLOBAL S *)j->in[2];
    const GLOBAL S *shift = (const GLOBAL S *)j->in[3];
    int pieces = width % WIDE == 0 && ((int64)scale | (int64)shift) % 16 == 0;
    S a[WIDE], b[WIDE];
    fetch_affine(scale, i, width, pieces, a);
    fetch_affine(shift, i, width, pieces, b);
    if (j->out[1])
        put_any(j->out[1], j->choice[0], r, i, width, whole, v);
    UNROLL
    for (int e = 0; e < WIDE; e++)
        v[e] = (v[e] - mean) * size * a[e] + b[e];
    put_any(j->out[0], j->choice[1], r, i, width, whole, v);
}

/* THREADS / LANES rows at a time. */
KERNEL normalise(TABLE(job) t)
{
    IN_BLOCK S parts[2][THREADS];
    const GLOBAL job *j = WHOLE(t);
    int64 rows = j->size[0], width = j->size[1];
    int whole = is_whole(j->in[0], width) && is_whole(j->in[1], width) &&
                is_whole(j->out[0], width) && is_whole(j->out[1], width);
    const int together = THREADS / LANES;
    ROLL for (int64 first = BLOCK * together; first < rows; first += BLOCKS * together)
    {
        int64 r = first + THREAD / LANES, own = r < rows ? width : 0;
        S held[HELD][WIDE], v[WIDE], total = 0, square = 0;
        hold(j, r, own, whole, held);
        UNROLL
        for (int n = 0; n < HELD; n++)
            total += total_of(held[n]);
        ROLL for (int64 i = REST; i < own; i += NEXT)
        {
            fetch_sum(j, r, i, whole, v);
            total += total_of(v);
        }
        S mean = sum_of_lanes(total, parts[0]) / width;
        UNROLL
        for (int n = 0; n < HELD; n++)
            square += square_of(held[n], mean, FIRST + n * NEXT, width);
        ROLL for (int64 i = REST; i < own; i += NEXT)
        {
            fetch_sum(j, r, i, whole, v);
            square += square_of(v, mean, i, width);
        }
        S size = 1 / SQRT(sum_of_lanes(square, parts[1]) / width + j->number[0]);
        UNROLL
        for (int n = 0; n < HELD; n++)
            if (FIRST + n * NEXT < own)
                put_normal(j, r, FIRST + n * NEXT, width, whole, mean, size, held[n]);
        ROLL for (int64 i = REST; i < own; i += NEXT)
        {
            fetch_sum(j, r, i, whole, v);
            put_normal(j, r, i, width, whole, mean, size, v);
        }
    }
}

KERNEL lookup(TABLE(job) t)
{
    const GLOBAL job *j = WHOLE(t);
    const GLOBAL X *word = (const GLOBAL X *)j->in[0];
    const GLOBAL X *position = (const GLOBAL X *)j->in[1];
    const GLOBAL X *type = (const GLOBAL X *)j->in[2];
    GLOBAL X *y = (GLOBAL X *)j->out[0];
    int64 rows = j->size[0], width = j->size[1];
    int whole = is_whole(word, width) && is_whole(position, width) &&
                is_whole(type, width) && is_whole(y, width);
    ROLL for (int64 r = BLOCK; r < rows; r += BLOCKS)
    {
        const GLOBAL X *own = word + j->ids[0][r] * width;
        const GLOBAL X *place = position ? position + j->ids[1][r] * width : 0;
        ROLL for (int64 i = THREAD * WIDE; i < width; i += THREADS * WIDE)
        {
            S v[WIDE];
            fetch(own, i, width, whole, v);
            add(place, i, width, whole, v);
            add(type, i, width, whole, v);
            put(y + r * width, i, width, whole, v);
        }
    }
}

/* Turns pairs of numbers in place; a block has a row. */
KERNEL rotary(TABLE(job) t)
{
    const GLOBAL job *j = WHOLE(t);
    int64 pairs = j->size[1] / 2, pitch = j->size[2], head = j->size[3], apart = head / 2;
    ROLL for (int64 r = BLOCK; r < j->size[0]; r += BLOCKS)
    {
        const GLOBAL S *turns = (const GLOBAL S *)j->in[0] + j->ids[0][r] * head;
        GLOBAL X *x = (GLOBAL X *)j->out[0] + r * pitch;
        ROLL for (int64 n = THREAD; n < pairs; n += THREADS)
        {
            int64 i = n % apart, at = n / apart * head + i;
            S a = load(x[at]), b = load(x[at + apart]);
            S cosine = turns[i], sine = turns[apart + i];
            x[at] = store(a * cosine - b * sine);
            x[at + apart] = store(b * cosine + a * sine);
        }
    }
}

/* Means of COLUMNS columns of a sequence, or its first row, by a block. LINES threads sum
   rows of a column, each SOME of them at a time. */
#define COLUMNS 32
#define LINES   (THREADS / COLUMNS)
#define SOME    8

KERNEL pool(TABLE(job) t)
{
    IN_BLOCK S parts[LINES][COLUMNS];
    const GLOBAL job *j = WHOLE(t);
    int64 width = j->size[1], across = (width + COLUMNS - 1) / COLUMNS;
    int column = THREAD % COLUMNS, line = THREAD / COLUMNS;
    ROLL for (int64 b = BLOCK; b < j->sequences * across; b += BLOCKS)
    {
        int64 s = b / across, i = b % across * COLUMNS + column;
        const GLOBAL X *x = (const GLOBAL X *)j->in[0] + j->offset[s] * width + i;
        int64 rows = j->choice[0] ? 1 : j->offset[s + 1] - j->offset[s];
        S sum = 0;
        ROLL for (int64 r = line; r < rows && i < width; r += SOME * LINES)
        {
            S v[SOME];
            UNROLL
            for (int n = 0; n < SOME; n++)
                v[n] = r + n * LINES < rows ? load(x[(r + n * LINES) * width]) : 0;
            UNROLL
            for (int n = 0; n < SOME; n++)
                sum += v[n];
        }
        parts[line][column] = sum;
        BARRIER();
        sum = 0;
        UNROLL
        for (int n = 0; n < LINES; n++)
            sum += parts[n][column];
        if (line == 0 && i < width)
            ((GLOBAL S *)j->out[0])[s * width + i] = sum / rows;
        BARRIER();
    }
}

/* Rows of length 1, in place. */
KERNEL unit(TABLE(job) t)
{
    IN_BLOCK S parts[THREADS];
    const GLOBAL job *j = WHOLE(t);
    int64 width = j->size[1];
    ROLL for (int64 r = BLOCK; r < j->size[0]; r += BLOCKS)
    {
        GLOBAL S *y = (GLOBAL S *)j->out[0] + r * width;
        S square = 0;
        ROLL for (int64 i = THREAD; i < width; i += THREADS) square += y[i] * y[i];
        S length = SQRT(sum_of_block(square, parts));
        length = length > (S)1e-12 ? length : (S)1e-12;
        ROLL for (int64 i = THREAD; i < width; i += THREADS) y[i] /= length;
    }
}

/* y[r] = x[r][target] - log of the sum of exp(x[r]); 0 where the target is negative. */
KERNEL likelihood(TABLE(job) t)
{
    IN_BLOCK S parts[THREADS];
    const GLOBAL job *j = WHOLE(t);
    GLOBAL S *y = (GLOBAL S *)j->out[0];
    int64 width = j->size[1];
    ROLL for (int64 r = BLOCK; r < j->size[0]; r += BLOCKS)
    {
        const GLOBAL S *x = (const GLOBAL S *)j->in[0] + r * width;
        S most = x[0], sum = 0;
        ROLL for (int64 i = THREAD; i < width; i += THREADS) most =
            x[i] > most ? x[i] : most;
        most = most_of_block(most, parts);
        ROLL for (int64 i = THREAD; i < width; i += THREADS) sum += EXP(x[i] - most);
        sum = sum_of_block(sum, parts);
        int target = j->ids[0][r];
        if (THREAD == 0)
            y[r] = target < 0 ? 0 : x[target] - most - LOG(sum);
    }
}

/* y[r][v] = x[r] . table[v] + bias[v]; a block makes all rows of a word. */
KERNEL score(TABLE(job) t)
{
    IN_BLOCK S parts[THREADS];
    const GLOBAL job *j = WHOLE(t);
    const GLOBAL X *x = (const GLOBAL X *)j->in[0];
    const GLOBAL X *words_of = (const GLOBAL X *)j->in[1];
    const GLOBAL S *bias = (const GLOBAL S *)j->in[2];
    GLOBAL S *y = (GLOBAL S *)j->out[0];
    int64 rows = j->size[0], width = j->size[1], words = j->size[2];
    ROLL for (int64 v = BLOCK; v < words; v += BLOCKS)
    {
        const GLOBAL X *word = words_of + v * width;
        ROLL for (int64 r = 0; r < rows; r++)
        {
            S sum = 0;
            ROLL for (int64 i = THREAD; i < width; i += THREADS) sum =
                multiply_add(load(x[r * width + i]), load(word[i]), sum);
            sum = sum_of_block(sum, parts);
            if (THREAD == 0)
                y[r * words + v] = bias ? sum + bias[v] : sum;
        }
    }
}

KERNEL apply(TABLE(job) t)
{
    const GLOBAL job *j = WHOLE(t);
    const GLOBAL S *x = (const GLOBAL S *)j->in[0];
    GLOBAL S *y = (GLOBAL S *)j->out[0];
    ROLL for (int64 i = BLOCK * THREADS + THREAD; i < j->size[0]; i += BLOCKS * THREADS)
        y[i] = activate(x[i], j->choice[0]);
}

/* Numbers of patches [channels][patch][patch]; a side of an image has `across` patches. */
KERNEL patches(TABLE(job) t)
{
    const GLOBAL job *j = WHOLE(t);
    const GLOBAL S *x = (const GLOBAL S *)j->in[0];
    GLOBAL X *y = (GLOBAL X *)j->out[0];
    int64 channels = j->size[1], size = j->size[2], patch = j->size[3];
    int64 across = size / patch, numbers = channels * patch * patch;
    ROLL for (int64 i = BLOCK * THREADS + THREAD; i < j->size[0]; i += BLOCKS * THREADS)
    {
        int64 row = i / numbers, at = i % numbers, place = row % (across * across);
        int64 channel = row / (across * across) * channels + at / (patch * patch);
        int64 line = place / across * patch + at / patch % patch;
        int64 column = place % across * patch + at % patch;
        y[i] = store(x[(channel * size + line) * size + column]);
    }
}
