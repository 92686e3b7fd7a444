/* The loops of the baselines, compiled for each element type and each instruction
   set; what they compute is said in loops.inc. */
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_LOOPS_H
#define BENCH_LOOPS_H

#include "danaus/ks.h"

/* What one call makes: rows q d .. q d + d of y for q0 <= q < q1, where q counts
   (i, r), and batch columns s0 <= s < s1. */
typedef struct loop_part {
    danaus_pattern p;
    int64_t batch;
    int64_t q0, q1, s0, s1;
    const void *w, *x;
    void *y;
} loop_part;

/* Compressed rows; block_rows = block_cols = 1 is CSR. Block `e` of block row R
   stands at block column `column[e]`, start[R] <= e < start[R + 1], as a row-major
   block_cols x block_rows array: transposed, so that rows of y are neighbours. */
typedef struct sparse_rows {
    int64_t rows, cols; /* of the whole matrix */
    int64_t block_rows, block_cols;
    int64_t *start;
    int32_t *column;
    void *value;
} sparse_rows;

typedef void (*loop_fn)(const loop_part *part, void *scratch);

typedef struct loops {
    danaus_dtype dtype;
    /* to[j ld_to + k] = from[k ld_from + j] for k < rows, j < cols */
    void (*transpose)(
        const void *from, int64_t ld_from, void *to, int64_t ld_to, int64_t rows,
        int64_t cols);
    loop_fn einsum_first; /* w[a][c][b][d] */
    loop_fn einsum_last;  /* w[a][b][c][d] */
    /* w is a sparse_rows, and q counts its block rows. csr_first needs scratch for
       CSR_BATCH elements for each column of the matrix. */
    loop_fn csr_first, csr_last, bsr_first, bsr_last;
} loops;

/* Rows of a batch that csr_first takes at once. */
enum { CSR_BATCH = 16 };

/* The loops for an element type and at most the instruction set named; NULL for
   types without loops. */
const loops *loops_find(danaus_dtype dtype, const char *instructions);

#endif
