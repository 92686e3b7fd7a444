/* What models need beside products and convolutions (backend/nn.h), but for attention. Each
   kernel has a job as its table, whose fields it names first; rows are [rows][width]. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 128
#include "simt.h"

#include "nn_job.cuh"

/* The sum of what the threads of a block have, in all of them; `parts` has a place for
   each. */
FN S sum_of_block(S own, S *parts)
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

FN S most_of_block(S own, S *parts)
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

/* x[i] + more[i]; more may be NULL. */
FN S sum_at(const X *x, const X *more, int64 i)
{
    return more ? load(x[i]) + load(more[i]) : load(x[i]);
}

KERNEL normalize(TABLE(job) t)
{
    LOCAL S parts[THREADS];
    const job *j = WHOLE(t);
    const X *in = (const X *)j->in[0], *added = (const X *)j->in[1];
    const S *scale = (const S *)j->in[2], *shift = (const S *)j->in[3];
    X *out = (X *)j->out[0], *sums = (X *)j->out[1];
    int64 rows = j->size[0], width = j->size[1];
    ROLL for (int64 r = BLOCK; r < rows; r += BLOCKS)
    {
        const X *x = in + r * width, *more = added ? added + r * width : 0;
        X *y = out + r * width, *sum = sums ? sums + r * width : 0;
        S total = 0, square = 0;
        ROLL for (int64 i = THREAD; i < width; i += THREADS) total +=
            sum_at(x, more, i);
        S mean = sum_of_block(total, parts) / width;
        ROLL for (int64 i = THREAD; i < width; i += THREADS)
        {
            S v = sum_at(x, more, i) - mean;
            square += v * v;
        }
        S size = 1 / SQRT(sum_of_block(square, parts) / width + j->number[0]);
        ROLL for (int64 i = THREAD; i < width; i += THREADS)
        {
            S v = sum_at(x, more, i);
            if (sum)
                sum[i] = store(v);
            y[i] = store((v - mean) * size * scale[i] + shift[i]);
        }
    }
}

KERNEL lookup(TABLE(job) t)
{
    const job *j = WHOLE(t);
    const X *word = (const X *)j->in[0], *position = (const X *)j->in[1];
    const X *type = (const X *)j->in[2];
    X *y = (X *)j->out[0];
    int64 rows = j->size[0], width = j->size[1];
    ROLL for (int64 r = BLOCK; r < rows; r += BLOCKS)
        ROLL for (int64 i = THREAD; i < width; i += THREADS)
    {
        S v = load(word[j->ids[0][r] * width + i]);
        if (position)
            v += load(position[j->ids[1][r] * width + i]);
        y[r * width + i] = store(type ? v + load(type[i]) : v);
    }
}

KERNEL pool(TABLE(job) t)
{
    LOCAL S parts[THREADS];
    const job *j = WHOLE(t);
    int64 width = j->size[1];
    int first = j->choice[0], normalize = j->choice[1];
    ROLL for (int64 s = BLOCK; s < j->sequences; s += BLOCKS)
    {
        const X *x = (const X *)j->in[0] + j->offset[s] * width;
        int64 rows = first ? 1 : j->offset[s + 1] - j->offset[s];
        S *y = (S *)j->out[0] + s * width, square = 0;
        ROLL for (int64 i = THREAD; i < width; i += THREADS)
        {
            S sum = 0;
            ROLL for (int64 r = 0; r < rows; r++) sum += load(x[r * width + i]);
            y[i] = sum / rows;
            square += y[i] * y[i];
        }
        S length = SQRT(sum_of_block(square, parts));
        length = length > (S)1e-12 ? length : (S)1e-12;
        ROLL for (int64 i = THREAD; i < width && normalize; i += THREADS) y[i] /=
            length;
    }
}

/* y[r] = x[r][target] - log of the sum of exp(x[r]); 0 where the target is negative. */
KERNEL likelihood(TABLE(job) t)
{
    LOCAL S parts[THREADS];
    const job *j = WHOLE(t);
    S *y = (S *)j->out[0];
    int64 width = j->size[1];
    ROLL for (int64 r = BLOCK; r < j->size[0]; r += BLOCKS)
    {
        const S *x = (const S *)j->in[0] + r * width;
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
    LOCAL S parts[THREADS];
    const job *j = WHOLE(t);
    const X *x = (const X *)j->in[0], *words_of = (const X *)j->in[1];
    const S *bias = (const S *)j->in[2];
    S *y = (S *)j->out[0];
    int64 rows = j->size[0], width = j->size[1], words = j->size[2];
    ROLL for (int64 v = BLOCK; v < words; v += BLOCKS)
    {
        const X *word = words_of + v * width;
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
    const job *j = WHOLE(t);
    const S *x = (const S *)j->in[0];
    S *y = (S *)j->out[0];
    ROLL for (int64 i = BLOCK * THREADS + THREAD; i < j->size[0]; i += BLOCKS * THREADS)
        y[i] = activate(x[i], j->choice[0]);
}

/* Numbers of patches [channels][patch][patch], `across` of which lie along a side. */
KERNEL patches(TABLE(job) t)
{
    const job *j = WHOLE(t);
    const S *x = (const S *)j->in[0];
    X *y = (X *)j->out[0];
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
