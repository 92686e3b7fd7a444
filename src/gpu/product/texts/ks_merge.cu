/* The product of two factors, multiplied out: to[i][r][k][j] of the factor whose blocks
   are `a` and whose lanes are `d`, from w[a1][b1][c1][d1] and w[a2][b2][c2][d2] of any
   types, in f64 or c128, or in f32 or c64 where there is no f64.

   A thread computes one number: a sum in order over the columns of the left factor's row that
   meet the column of the right factor. Grid: numbers / THREADS, rounded up. */
// SPDX-License-Identifier: Apache-2.0
#define THREADS 256
#include "numbers.cuh"

KERNEL ks(
    const GLOBAL void *left, int left_type, int64 a1, int64 b1, int64 c1, int64 d1,
    const GLOBAL void *right, int right_type, int64 a2, int64 b2, int64 c2, int64 d2, int64 a,
    int64 d, GLOBAL S *RESTRICT to)
{
    int64 n = BLOCK * THREADS + THREAD;
    int64 b = a1 / a * b1 * (d1 / d), c = a2 / a * c2 * (d2 / d);
    int64 row = n / d / c / b * b * d + n / d / c % b * d + n % d;
    int64 column = n / d / c / b * c * d + n / d % c * d + n % d;
    int64 i1 = row / d1 / b1, j1 = row % d1, i2 = column / d2 / c2, j2 = column % d2;
    int64 line = (i1 * b1 + row / d1 % b1) * c1, k2 = column / d2 % c2;
    if (n >= a * b * c * d)
        return;
    S sum = zero();
    for (int64 k = 0; k < c1; k++) {
        int64 middle = (i1 * c1 + k) * d1 + j1;
        if (middle / d2 / b2 == i2 && middle % d2 == j2)
            sum = multiply_add(
                number_at(left, left_type, (line + k) * d1 + j1, 0),
                number_at(
                    right, right_type,
                    ((i2 * b2 + middle / d2 % b2) * c2 + k2) * d2 + j2, 0),
                sum);
    }
    to[n] = sum;
}
