/* Sums of chains. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_FACTOR_SUMS_SUM_H
#define DN_FACTOR_SUMS_SUM_H

#include "factor/survey.h"

/* The patterns of each term. */
typedef struct ks_terms {
    int count;
    const danaus_pattern *patterns[DANAUS_MAX_TERMS];
    int count_of[DANAUS_MAX_TERMS];
} ks_terms;

/* Fits W, or sums over samples (fit->calibration), by a sum of chains: each in turn to what
   those before leave, then `rounds` times, or until that gains nothing, to what all others
   leave. The chains are of W's type; the first has the bias. steps: one for each term,
   relative to the whole; result is that of danaus_factorize(), without bounds. */
danaus_status dn_sum_fit(
    const ks_dense *w, const ks_terms *terms, int rounds,
    const danaus_factorize_desc *fit, danaus_chain **chains,
    danaus_factorize_result *result, danaus_factorize_result *steps);

#endif
