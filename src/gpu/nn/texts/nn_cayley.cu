/* Cayley transforms of blocks of at most MOST rows, and their gradients (danaus/algebra.h). A
   block of threads has one matrix in its memory, in f64 where the device has it. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 128
#include "simt.h"

#include "nn_table.cuh"

#define MOST 32 /* DANAUS_CAYLEY_MOST */

#ifdef HAS_F64
typedef double D;
#else
typedef S D;
#endif

/* a = a^-1 by elimination in place, without pivots. */
FN void invert(LOCAL D *a, int n, LOCAL D *row, LOCAL D *column)
{
    ROLL for (int k = 0; k < n; k++)
    {
        ROLL for (int i = THREAD; i < n; i += THREADS)
        {
            row[i] = a[k * n + i];
            column[i] = a[i * n + k];
        }
        BARRIER();
        D part = 1 / row[k];
        ROLL for (int i = THREAD; i < n * n; i += THREADS)
        {
            int r = i / n, c = i % n;
            D right = c == k ? 1 : row[c], old = c == k ? 0 : a[i];
            a[i] = r == k ? right * part : old - column[r] * part * right;
        }
        BARRIER();
    }
}

KERNEL cayley(TABLE(job) t)
{
    IN_BLOCK D a[MOST * MOST], row[MOST], column[MOST];
    const GLOBAL job *j = WHOLE(t);
    int n = (int)j->size[1];
    ROLL for (int64 b = BLOCK; b < j->size[0]; b += BLOCKS)
    {
        const GLOBAL S *x = (const GLOBAL S *)j->in[0] + b * n * n;
        GLOBAL S *y = (GLOBAL S *)j->out[0] + b * n * n;
        ROLL for (int i = THREAD; i < n * n; i += THREADS)
        {
            int r = i / n, c = i % n;
            D skew = (D)j->number[0] * ((D)x[i] - (D)x[c * n + r]) / 2;
            a[i] = (r == c) + skew;
        }
        BARRIER();
        invert(a, n, row, column);
        ROLL for (int i = THREAD; i < n * n; i += THREADS)
            y[i] = (S)(2 * a[i] - (i / n == i % n));
        BARRIER();
    }
}

KERNEL cayley_back(TABLE(job) t)
{
    IN_BLOCK D p[MOST * MOST], g[MOST * MOST], m[MOST * MOST];
    const GLOBAL job *j = WHOLE(t);
    int n = (int)j->size[1];
    D part = (D)j->number[0] / 4;
    ROLL for (int64 b = BLOCK; b < j->size[0]; b += BLOCKS)
    {
        const GLOBAL S *q = (const GLOBAL S *)j->in[0] + b * n * n;
        const GLOBAL S *dq = (const GLOBAL S *)j->in[1] + b * n * n;
        GLOBAL S *dr = (GLOBAL S *)j->out[0] + b * n * n;
        ROLL for (int i = THREAD; i < n * n; i += THREADS)
        {
            p[i] = (D)q[i] + (i / n == i % n);
            g[i] = (D)dq[i];
        }
        BARRIER();
        ROLL for (int i = THREAD; i < n * n; i += THREADS) /* m = p^T g */
        {
            D sum = 0;
            ROLL for (int k = 0; k < n; k++)
                sum += p[k * n + i / n] * g[k * n + i % n];
            m[i] = sum;
        }
        BARRIER();
        ROLL for (int i = THREAD; i < n * n; i += THREADS) /* g = m p^T */
        {
            D sum = 0;
            ROLL for (int k = 0; k < n; k++)
                sum += m[i / n * n + k] * p[i % n * n + k];
            g[i] = sum;
        }
        BARRIER();
        ROLL for (int i = THREAD; i < n * n; i += THREADS)
            dr[i] = (S)(part * (g[i % n * n + i / n] - g[i]));
        BARRIER();
    }
}
