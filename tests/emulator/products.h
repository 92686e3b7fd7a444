/* What the stand-ins for cuBLAS and cublasLt have in common: products of matrices by plain
   loops over the emulated driver's memory, and that driver. */
// SPDX-License-Identifier: Apache-2.0
#ifndef TEST_EMULATOR_PRODUCTS_H
#define TEST_EMULATOR_PRODUCTS_H

#include "emulator.h"

#include "danaus/ks.h"

#include <stdint.h>

/* A handle of either. */
typedef struct context {
    void *stream, *workspace;
    void *place; /* the driver's context that it was made in */
} context;

/* c = activation(a b + bias), a b being added to `old` if `add`; ta, tb: of the transposed of
   a, of b; `count` of them. */
typedef struct products {
    danaus_dtype type, to;
    double add;
    int ta, tb;
    int64_t m, n, k, lda, ldb, ldc, a_step, b_step, c_step, count;
    const char *a, *b, *old; /* like c, or c */
    char *c;
    void *workspace;
    const char *bias; /* of rows of c; NULL: none */
    int64_t bias_step;
    danaus_activation activation;
} products;

void products_enqueue(void *stream, const products *p);

/* By its number in cudaDataType. */
danaus_dtype products_type(int number);

/* The emulated driver. */
int products_fail(const char *function);
void *products_place(void); /* the current context */
emulator_control *products_control(void);

#endif
