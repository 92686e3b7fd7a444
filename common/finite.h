/* Results that are infinite or NaN although operands are finite: commands say so for every file
   that they write. The file is written and the exit status is 0. */
// SPDX-License-Identifier: Apache-2.0
#ifndef COMMON_FINITE_H
#define COMMON_FINITE_H

#include "common/output.h"
#include "danaus/danaus.h"

/* The number of values of an array that are infinite or NaN; data may be NULL. A complex value
   counts once. */
int64_t count_non_finite(danaus_dtype dtype, const void *data, int64_t count);
int64_t tensor_non_finite(const danaus_tensor *tensor);
int64_t chain_non_finite(const danaus_chain *chain); /* weights and bias; 0 for NULL */

/* Notes that `lost` of the `count` values for an output are infinite or NaN, which
   facts_report() prints as the member non_finite, and warns of it unless operands have such
   values, too. */
void output_judge(
    output *o, danaus_dtype dtype, int64_t lost, int64_t count, int64_t operands_lost);

/* The same for results of a model; its weights are not checked. */
void output_judge_model(output *o, int64_t lost, int64_t count);

#endif
