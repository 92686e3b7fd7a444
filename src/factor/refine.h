/* Sweeps that lower the error of a factorization. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_FACTOR_REFINE_H
#define DN_FACTOR_REFINE_H

#include "factor/hierarchy.h"

typedef enum sweep_step {
    KS_STEP_PAIR = 0, /* both factors of a pair at once, by their best split */
    KS_STEP_SINGLE    /* one factor, by least squares */
} sweep_step;

/* Forward and backward over the chain, `sweeps` times; the error never grows.
   history is NULL or gets 2 (count - 1) numbers a sweep: the energy of the only factor
   that is not orthonormal, which equals the product's, and ||W||^2 minus the squared
   error. Needs non-redundant chainable factors. `work` is the work of the whole call. */
danaus_status dn_refine(
    ks_run *run, const ks_view *w, int sweeps, sweep_step step, double work,
    ks_factors *factors, double *history);

#endif
