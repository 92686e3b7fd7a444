/* Chains that become one: what the files of this folder share. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_OPERATOR_ALGEBRA_COMBINE_H
#define DN_OPERATOR_ALGEBRA_COMBINE_H

#include "danaus/algebra.h"

/* Chains of one element type, which somebody else owns. */
typedef struct terms {
    const danaus_chain *const *chain;
    int count; /* at least 1 */
    danaus_dtype dtype;
} terms;

/* A sum, a stack or a block diagonal. */
danaus_status dn_join(danaus_combination how, const terms *t, danaus_chain **joined);

danaus_status dn_kronecker(const terms *t, danaus_chain **product);

#endif
