/* The Fourier chain of chosen radices, for transforms.c and its tests. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_KS_TRANSFORMS_H
#define DN_KS_TRANSFORMS_H

#include "danaus/factorize.h"

/* danaus_chain_transform() with radices N_1 .. N_count whose product is n, for the
   Fourier, cosine and sine transforms and the circulant. */
danaus_status dn_chain_transform(
    danaus_transform transform, int64_t n, const int64_t *radices, int count,
    danaus_dtype dtype, const void *values, danaus_chain **chain, int64_t *permutation);

#endif
