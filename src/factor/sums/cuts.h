/* Bounds for every sum of chains: the part of W that no term reaches, and the bound by added
   ranks of blocks. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_FACTOR_SUMS_CUTS_H
#define DN_FACTOR_SUMS_CUTS_H

#include "factor/sums/sum.h"

/* The share of the norm of W in the entries in the support of no term. */
double dn_terms_unreached(const ks_dense *w, const ks_terms *terms);

/* No sum of these terms is nearer to W, relative to its norm; -1: unknown. */
danaus_status dn_terms_bound(
    const ks_dense *w, const ks_terms *terms, int threads, double *bound);

#endif
