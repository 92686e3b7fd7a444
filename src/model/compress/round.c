/* Fits whose weights are rounded to 8 bits. */
// SPDX-License-Identifier: Apache-2.0
#include "model/compress/fit.h"

#include "base/dtype.h"
#include "base/mem.h"
#include "base/status.h"
#include "io/int8.h"
#include "math/pattern.h"

static danaus_status round_factor(danaus_pattern p, double *w)
{
    int64_t count = dn_pattern_weights(p);
    float *narrow = dn_calloc((size_t)count, sizeof *narrow);
    if (!narrow)
        return dn_fail_memory((size_t)count * sizeof *narrow, "a factor");
    dn_convert(DANAUS_F64, w, DANAUS_F32, narrow, count);
    dn_int8_round_blocks(p.a * p.b, p.c, p.d, narrow);
    dn_convert(DANAUS_F32, narrow, DANAUS_F64, w, count);
    dn_free(narrow);
    return DANAUS_OK;
}

static danaus_status round_chain(danaus_chain *chain)
{
    for (int i = 0; i < danaus_chain_count(chain); i++)
        TRY(round_factor(
            danaus_chain_pattern(chain, i), danaus_chain_weights(chain, i)));
    return DANAUS_OK;
}

danaus_status dn_fit_round(const fit_problem *p, fit *f)
{
    const danaus_pattern basis = { 1, f->rank, f->cols, 1 },
                         left = { 1, f->rows, f->rank, 1 };
    for (int n = 0; n < 2 && f->chain[n]; n++)
        TRY(round_chain(f->chain[n]));
    if (!f->chain[0])
        TRY(round_factor(basis, f->basis));
    if (!f->chain[0] && !f->dense)
        TRY(round_factor(left, f->left));
    return dn_fit_rate(p, f);
}
