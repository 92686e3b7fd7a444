/* Factorization that starts from given factors. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_FACTOR_FACTORIZE_H
#define DN_FACTOR_FACTORIZE_H

#include "factor/survey.h"

/* danaus_factorize() whose passes (desc->refine) begin with a chain of these patterns, f64
   or c128 as dense is, instead of with splits: the error is at most that chain's, but for
   rounding, and no bounds are known. `from` is not read where NULL, where neighbours are
   redundant, or where calibration has an optimum in closed form. */
danaus_status dn_factorize_from(
    const danaus_chain *from, const void *dense, danaus_dtype dtype,
    const danaus_pattern *patterns, int count, const danaus_factorize_desc *desc,
    danaus_chain **chain, danaus_factorize_result *result);

/* Checks matrix, size and options, but not the matrix's numbers. */
danaus_status dn_factorize_check(const ks_dense *w, const danaus_factorize_desc *desc);

#endif
