/* A matrix with its rows and columns in an order that suits a chain, and the chain as an
   operator, which has the orders. */
// SPDX-License-Identifier: Apache-2.0
#ifndef CLI_PERMUTED_H
#define CLI_PERMUTED_H

#include "danaus/danaus.h"

/* matrix[i][j] = W[rows[i]][cols[j]]; all zero: there is none. */
typedef struct permuted {
    int64_t m, n;
    int64_t *rows, *cols;
    void *matrix;
    double before; /* the relative distance of W as it is from such chains */
} permuted;

/* Finds permutations for patterns of the size of w; `threads` 0: one for each processor.
   Both return a status of the program. */
int permuted_find(
    const void *w, danaus_dtype dtype, const danaus_pattern *patterns, int count,
    int threads, permuted *p);
void permuted_free(permuted *p);

/* Writes a chain near the permuted matrix as an operator near W; on success the chain is
   destroyed. */
int permuted_save(const permuted *p, danaus_chain **chain, const char *path);

#endif
