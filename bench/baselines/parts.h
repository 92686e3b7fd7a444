/* Cutting a product into parts for a team. */
// SPDX-License-Identifier: Apache-2.0
#ifndef BENCH_PARTS_H
#define BENCH_PARTS_H

#include "bench/baselines/baseline.h"

/* Runs fn on parts that together make the whole, at least four for each thread
   where there is enough work; parts of the batch are multiples of `grain`.
   scratch holds `scratch_bytes` for each thread. */
void run_parts(
    team *t, const loop_part *whole, int64_t grain, loop_fn fn, void *scratch,
    size_t scratch_bytes);

/* w[a][b][c][d] to [a][d][b][c], matrices of their own for every (i, j), if
   to_blocks, else to [a][c][b][d]. NULL when memory is out. */
void *repack_weights(const bench_factor *f, int to_blocks);

/* x[a][c][d] to [a][d][c] for every batch column: columns of blocks (i, j) become
   neighbours. With back nonzero the other way round, with b in place of c. */
void permute_lanes(const bench_factor *f, const void *from, void *to, int back);

double bench_seconds(void);

#endif
