/* Facts about a dense matrix that its factorization needs. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_FACTOR_SURVEY_H
#define DN_FACTOR_SURVEY_H

#include "factor/blocks.h"

typedef struct ks_dense {
    const void *data;
    danaus_dtype dtype;
    int64_t rows, cols;
} ks_dense;

/* Refuses NaN and infinities, naming the first. *scale is a power of two such that
   squares of the entries of scale times the matrix, and their sum *energy, stay in
   range. */
danaus_status dn_survey(
    thread_pool *pool, const ks_dense *dense, const char *name, double *scale,
    double *energy);

/* Energy of scale times the entries that are not in the support of p. */
double dn_off_support(const ks_dense *dense, danaus_pattern p, double scale);

#endif
