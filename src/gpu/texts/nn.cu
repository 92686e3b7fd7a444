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

KERNEL normalize(TABLE(job) t)
{
    LOCAL S parts[THREADS];
    const job *j = WHOLE(t);
    const S *scale = j->in[2], *shift = j->in[3];
    int64 rows = j->size[0], width = j->size[1];
    ROLL for (int64 r = BLOCK; r < rows; r += BLOCKS)
    {
        const S *x = j->in[0] + r * width;
        const S *more = j->in[1] ? j->in[1] + r * width : 0;
        S *y = j->out[0] + r * width, *sum = j->out[1] ? j->out[1] + r * width : 0;
        S total = 0, square = 0;
        ROLL for (int64 i = THREAD; i < width; i += THREADS) total +=
            more ? x[i] + more[i] : x[i];
        S mean = sum_of_block(total, parts) / width;
        ROLL for (int64 i = THREAD; i < width; i += THREADS)
        {
            S v = (more ? x[i] + more[i] : x[i]) - mean;
            square += v * v;
        }
        S size = 1 / SQRT(sum_of_block(square, parts) / width + j->number[0]);
        ROLL for (int64 i = THREAD; i < width; i += THREADS)
        {
            S v = more ? x[i] + more[i] : x[i];
            if (sum)
                sum[i] = v;
            y[i] = (v - mean) * size * scale[i] + shift[i];
        }
    }
}

KERNEL lookup(TABLE(job) t)
{
    const job *j = WHOLE(t);
    const S *word = j->in[0], *position = j->in[1], *type = j->in[2];
    int64 rows = j->size[0], width = j->size[1];
    ROLL for (int64 r = BLOCK; r < rows; r += BLOCKS)
        ROLL for (int64 i = THREAD; i < width; i += THREADS)
    {
        S v = word[j->ids[0][r] * width + i];
        if (position)
            v += position[j->ids[1][r] * width + i];
        j->out[0][r * width + i] = type ? v + type[i] : v;
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
        const S *x = j->in[0] + j->offset[s] * width;
        int64 rows = first ? 1 : j->offset[s + 1] - j->offset[s];
        S *y = j->out[0] + s * width, square = 0;
        ROLL for (int64 i = THREAD; i < width; i += THREADS)
        {
            S sum = 0;
            ROLL for (int64 r = 0; r < rows; r++) sum += x[r * width + i];
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
    int64 width = j->size[1];
    ROLL for (int64 r = BLOCK; r < j->size[0]; r += BLOCKS)
    {
        const S *x = j->in[0] + r * width;
        S most = x[0], sum = 0;
        ROLL for (int64 i = THREAD; i < width; i += THREADS) most =
            x[i] > most ? x[i] : most;
        most = most_of_block(most, parts);
        ROLL for (int64 i = THREAD; i < width; i += THREADS) sum += EXP(x[i] - most);
        sum = sum_of_block(sum, parts);
        int target = j->ids[0][r];
        if (THREAD == 0)
            j->out[0][r] = target < 0 ? 0 : x[target] - most - LOG(sum);
    }
}

/* y[r][v] = x[r] . table[v] + bias[v]; a block makes all rows of a word. */
KERNEL score(TABLE(job) t)
{
    LOCAL S parts[THREADS];
    const job *j = WHOLE(t);
    const S *bias = j->in[2];
    int64 rows = j->size[0], width = j->size[1], words = j->size[2];
    ROLL for (int64 v = BLOCK; v < words; v += BLOCKS)
    {
        const S *table = j->in[1] + v * width;
        ROLL for (int64 r = 0; r < rows; r++)
        {
            S sum = 0;
            ROLL for (int64 i = THREAD; i < width; i += THREADS) sum =
                multiply_add(j->in[0][r * width + i], table[i], sum);
            sum = sum_of_block(sum, parts);
            if (THREAD == 0)
                j->out[0][r * words + v] = bias ? sum + bias[v] : sum;
        }
    }
}

KERNEL apply(TABLE(job) t)
{
    const job *j = WHOLE(t);
    ROLL for (int64 i = BLOCK * THREADS + THREAD; i < j->size[0]; i += BLOCKS * THREADS)
        j->out[0][i] = activate(j->in[0][i], j->choice[0]);
}
