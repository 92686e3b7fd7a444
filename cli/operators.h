/* Chain files of any format: plain chains, and operators, which are sums, or whose chains have
   orders. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_OPERATORS_H
#define CLI_OPERATORS_H

#include "common/output.h"
#include "danaus/danaus.h"
#include <jansson.h>

/* One of the two is there. */
typedef struct any_chain {
    danaus_chain *chain;
    danaus_operator *made;
} any_chain;

danaus_status any_chain_load(const char *path, any_chain *any);
void any_chain_free(any_chain *any);

/* Removes the bias. True if there was one. */
int any_chain_drop_bias(any_chain *any);

/* The sum of all, whose parts belong to it; on failure they stay the caller's. */
danaus_status any_chains_add(any_chain *all, int count, danaus_operator **sum);

int64_t any_chain_rows(const any_chain *any);
int64_t any_chain_cols(const any_chain *any);
danaus_dtype any_chain_dtype(const any_chain *any);
int64_t any_chain_parameters(const any_chain *any);
int64_t any_chain_non_finite(const any_chain *any); /* finite.h */

/* Refuses a type that cannot hold the weights or the bias, by danaus_convert_check(). */
danaus_status any_chain_check(const any_chain *any, danaus_dtype dtype);

/* Writes a file after output_judge() has seen it. operands_lost: values of its operands that are
   not finite. Returns an exit status. */
int any_chain_write(const any_chain *any, output *o, int64_t operands_lost);
danaus_status any_chain_to_dense(const any_chain *any, void *dense);

/* Facts about a file that was written: how it was made, as `key`, its size, type and
   parameters. */
json_t *any_chain_facts(
    const any_chain *any, const char *key, const char *how, const output *o);

#endif
