/* Chains on the radices of a length: their patterns, entries and order. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/transforms/transforms.h"

#include "base/dtype.h"
#include "base/status.h"
#include "math/dft.h"

#include <inttypes.h>

enum { LARGEST_PRIME = 61 };

root dn_root(int64_t num, int64_t den)
{
    double z[2];
    dn_unit(num, den, z);
    return (root){ z[0], -z[1] };
}

danaus_status dn_choose_radices(int64_t n, int wide_ends, int64_t *radix, int *count)
{
    int64_t rest = n;
    int all = 0;
    for (; rest % 4 == 0; rest /= 4)
        radix[all++] = 4;
    for (int64_t prime = 2; prime <= LARGEST_PRIME; prime++)
        for (; rest % prime == 0; rest /= prime)
            radix[all++] = prime;
    if (rest > 1)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "a Fourier transform of %" PRId64 " numbers is needed; %" PRId64
            " = %" PRId64 " x %" PRId64
            " has a prime factor above %d, which no fast chain serves",
            n, n, n / rest, rest, LARGEST_PRIME);
    if (all == 0)
        radix[all++] = 1;
    int first = radix[0] == 2, last = radix[all - 1] == 2;
    if (wide_ends && all == 2 && (first || last)) {
        radix[0] *= radix[1];
        all = 1;
    } else if (wide_ends && all > 2 && (first || last)) {
        int at = first ? 0 : all - 1, inside = first ? 1 : all - 2;
        radix[at] = radix[inside];
        radix[inside] = 2;
    }
    *count = all;
    return DANAUS_OK;
}

danaus_pattern dn_radix_pattern(const fourier *f, int l)
{
    danaus_pattern p = { 1, f->radix[l], f->radix[l], 1 };
    for (int x = 0; x < f->count; x++)
        *(x < l ? &p.a : &p.d) *= x == l ? 1 : f->radix[x];
    return p;
}

danaus_pattern dn_doubled(danaus_pattern p, side rows, side cols)
{
    p.b *= rows == PLAIN ? 1 : 2;
    p.c *= cols == PLAIN ? 1 : 2;
    return p;
}

static int64_t place(side s, int64_t index, int64_t size, int t)
{
    return s == OUTER ? t * size + index : s == INNER ? 2 * index + t : index;
}

void dn_put(
    const fourier *f, int factor, danaus_pattern p, side rows, side cols, int64_t i,
    int64_t r, int64_t k, int64_t j, root z)
{
    danaus_pattern q = dn_doubled(p, rows, cols);
    void *w = danaus_chain_weights(f->chain, factor);
    root column[2] = { z, { -z.im, z.re } };
    for (int t = 0; t < (rows == PLAIN ? 1 : 2); t++)
        for (int u = 0; u < (cols == PLAIN ? 1 : 2); u++) {
            int64_t row = place(rows, r, p.b, t), col = place(cols, k, p.c, u);
            double value[2] = { t ? column[u].im : column[u].re,
                                f->complex ? z.im : 0 };
            dn_store(f->dtype, w, ((i * q.b + row) * q.c + col) * q.d + j, value);
        }
}

/* Recursively, digrev(N_1, rest) = concatenation over n1 of n1 + N_1 digrev(rest). */
void dn_digit_reversal(const int64_t *radix, int count, int64_t *to)
{
    int64_t n = 1;
    to[0] = 0;
    for (int l = count - 1; l >= 0; l--) {
        for (int64_t n1 = radix[l] - 1; n1 >= 0; n1--)
            for (int64_t x = 0; x < n; x++)
                to[n1 * n + x] = n1 + radix[l] * to[x];
        n *= radix[l];
    }
}
