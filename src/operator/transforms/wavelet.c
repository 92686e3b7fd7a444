/* The periodic transform by Daubechies' wavelets: a chain for each level.

   A level of n numbers is a factor (n/2, 2, 2K, 1) behind an order that repeats numbers: block k
   takes the 2K numbers of its periodic window and gives a[k] and d[k]. Its inverse has the same
   form: block k takes a and d at K places and gives x[2k] and x[2k+1]. */
// SPDX-License-Identifier: Apache-2.0
#include "operator/transforms/transforms.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"

#include <inttypes.h>

enum { MOST = DANAUS_MOST_MOMENTS };

typedef struct wavelet_job {
    const danaus_transform_desc *desc;
    int taps, levels;
    double h[2 * MOST], g[2 * MOST];
    danaus_chain *chains[DANAUS_MAX_FACTORS];
    int64_t *orders[DANAUS_MAX_FACTORS + 1], lengths[DANAUS_MAX_FACTORS + 1];
} wavelet_job;

/* Chain i of the operator makes level levels - i; of the inverse, it undoes level i + 1. */
static int64_t half_of(const wavelet_job *j, int i)
{
    return j->desc->n >> (j->desc->inverse ? i + 1 : j->levels - i);
}

static danaus_status make_chain(wavelet_job *j, int i)
{
    danaus_pattern p = { half_of(j, i), 2, j->taps, 1 };
    danaus_dtype dtype = j->desc->dtype;
    TRY(danaus_chain_create(&p, 1, dtype, &j->chains[i]));
    void *w = danaus_chain_weights(j->chains[i], 0);
    int64_t at = 0;
    for (int64_t k = 0; k < p.a; k++)
        for (int r = 0; r < 2; r++)
            for (int m = 0; m < j->taps; m++) {
                double value[2] = { r ? j->g[m] : j->h[m], 0 };
                if (j->desc->inverse)
                    value[0] = m % 2 ? j->g[m - 1 + r] : j->h[m + r];
                dn_store(dtype, w, at++, value);
            }
    return DANAUS_OK;
}

/* Where an input of a level is in the output of the level before: the first level finds all in
   a row, later ones find averages at even places, and inverses in halves. */
static int64_t source_of(const wavelet_job *j, int i, int64_t k, int m)
{
    int64_t half = half_of(j, i);
    if (j->desc->inverse) {
        int64_t place = ((k - m / 2) % half + half) % half;
        return m % 2 ? half + place : place;
    }
    int64_t place = (2 * k + m) % (2 * half);
    return i == j->levels - 1 ? place : 2 * place;
}

/* The order before chain i: windows, then all that passes by. */
static danaus_status make_order(wavelet_job *j, int i)
{
    int64_t half = half_of(j, i), n = j->desc->n, windows = half * j->taps, at = 0;
    int64_t *order = dn_alloc((size_t)(windows + n - 2 * half) * sizeof *order);
    if (!order)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for an order");
    for (int64_t k = 0; k < half; k++)
        for (int m = 0; m < j->taps; m++)
            order[at++] = source_of(j, i, k, m);
    /* What passes by: details of the level before, which lie between averages, and all
       that passed by there. */
    for (int64_t x = 2 * half; x < n; x++)
        order[at++] = !j->desc->inverse && x < 4 * half ? 2 * (x - 2 * half) + 1 : x;
    j->orders[i + 1] = order;
    j->lengths[i + 1] = at;
    return DANAUS_OK;
}

/* Averages and details of the last level, which lie as pairs, and what passed by. */
static danaus_status make_outputs(wavelet_job *j)
{
    int64_t n = j->desc->n, half = j->levels ? half_of(j, 0) : 0;
    int64_t *order = dn_alloc((size_t)n * sizeof *order);
    if (!order)
        return dn_fail(DANAUS_ERR_MEMORY, "no memory for an order");
    for (int64_t x = 0; x < n; x++)
        order[x] = j->desc->inverse || x >= 2 * half ? x
                   : x < half                        ? 2 * x
                                                     : 2 * (x - half) + 1;
    j->orders[0] = order;
    j->lengths[0] = n;
    return DANAUS_OK;
}

static danaus_status make_levels(wavelet_job *j, danaus_operator **made)
{
    TRY(make_outputs(j));
    for (int i = 0; i < j->levels; i++) {
        TRY(make_order(j, i));
        TRY(make_chain(j, i));
    }
    return danaus_operator_create(
        j->chains, j->levels, (const int64_t *const *)j->orders, j->lengths, j->desc->n,
        made);
}

/* How often n can be halved. */
static int most_levels(int64_t n)
{
    int levels = 0;
    for (; n % 2 == 0; n /= 2)
        levels++;
    return levels;
}

danaus_status dn_wavelet(const danaus_transform_desc *desc, danaus_operator **made)
{
    int most = most_levels(desc->n), moments = desc->moments ? desc->moments : 1;
    wavelet_job j = { .desc = desc, .taps = 2 * moments };
    j.levels = desc->levels ? desc->levels : most;
    if (most < 1)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "wavelets take an even number of inputs, not %" PRId64, desc->n);
    if (j.levels > most)
        return dn_fail(
            DANAUS_ERR_UNSUPPORTED,
            "wavelets of %d levels take a multiple of 2^%d numbers, not %" PRId64,
            j.levels, j.levels, desc->n);
    TRY(danaus_wavelet_filter(moments, j.h));
    for (int m = 0; m < j.taps; m++)
        j.g[m] = m % 2 ? -j.h[j.taps - 1 - m] : j.h[j.taps - 1 - m];
    danaus_status status = make_levels(&j, made);
    for (int i = 0; i <= j.levels; i++) {
        dn_free(j.orders[i]);
        if (status != DANAUS_OK && i < j.levels)
            danaus_chain_destroy(j.chains[i]);
    }
    return status;
}
