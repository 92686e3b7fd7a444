/* Calibration: factors that are good for given inputs. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_KS_WEIGHTED_H
#define DN_KS_WEIGHTED_H

#include "ks/hierarchy.h"
#include "ks/survey.h"

typedef struct ks_weighted {
    double energy; /* ||W D||^2 */
    double before; /* squared error of the factors that came in */
    double after;  /* and of those that go out; never larger */
} ks_weighted;

/* Improves factors for ||(W - K_1 .. K_L) D||, D D^H = sum of x x^H over the rows of
   inputs, conjugated as in X W^T. W and inputs are read through `transposed` when the
   factors are those of W^T. Work: that of the whole call is `work`. */
danaus_status dn_weighted_refine(
    ks_run *run, const ks_dense *w, double scale, const ks_dense *inputs,
    int transposed, int sweeps, double work, ks_factors *factors, ks_weighted *result);

#endif
