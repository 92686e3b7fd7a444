/* Fits whose weights are rounded to 8 bits. */
// SPDX-License-Identifier: Apache-2.0
#include "model/compress/fit.h"

#include "base/int8.h"
#include "base/status.h"

#include <math.h>

/* `count` weights that are `step` apart and share a scale. */
static void round_row(double *row, int64_t count, int64_t step)
{
    double most = 0;
    for (int64_t k = 0; k < count; k++)
        most = fmax(most, fabs(row[k * step]));
    float scale = dn_int8_scale((float)most);
    for (int64_t k = 0; k < count; k++)
        row[k * step] = (double)scale * dn_int8_round((float)row[k * step], scale);
}

static void round_factor(danaus_pattern p, double *w)
{
    for (int64_t block = 0; block < p.a * p.b; block++)
        for (int64_t j = 0; j < p.d; j++)
            round_row(w + block * p.c * p.d + j, p.c, p.d);
}

static void round_chain(danaus_chain *chain)
{
    for (int i = 0; i < danaus_chain_count(chain); i++)
        round_factor(danaus_chain_pattern(chain, i), danaus_chain_weights(chain, i));
}

danaus_status dn_fit_round(const fit_problem *p, fit *f)
{
    for (int n = 0; n < 2 && f->chain[n]; n++)
        round_chain(f->chain[n]);
    if (!f->chain[0])
        round_factor((danaus_pattern){ 1, f->rank, f->cols, 1 }, f->basis);
    if (!f->chain[0] && !f->dense)
        round_factor((danaus_pattern){ 1, f->rows, f->rank, 1 }, f->left);
    return dn_fit_rate(p, f);
}
