/* Sums of two chains. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_KS_SUM_H
#define DN_KS_SUM_H

#include "ks/survey.h"

/* Fits K = A + B, A on the first `first` of `count` patterns and B on the others, to sums
   over samples (fit->calibration): each in turn to what the other leaves, `rounds` times,
   or until that gains nothing. The chains are of W's type; A has the bias. result is
   that of danaus_factorize(), without bounds. */
danaus_status dn_sum_fit(
    const ks_dense *w, const danaus_pattern *patterns, int first, int count, int rounds,
    const danaus_factorize_desc *fit, danaus_chain *chains[2],
    danaus_factorize_result *result);

#endif
