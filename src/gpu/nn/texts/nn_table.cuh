/* The table of texts for models' operations, which src/gpu/run/nn_run.c fills. in[] and out[] point to
   numbers in the type of rows or of sums, as device/nn.h says. */
// SPDX-License-Identifier: Apache-2.0
#define MOST_SEQUENCES 239

typedef struct job {
    const GLOBAL void *in[4];
    GLOBAL void *out[2];
    const GLOBAL int *ids[2];
    int64 size[5];
    S number[2];
    int choice[2];
    int64 sequences;
    int64 offset
        [MOST_SEQUENCES + 1]; /* sequence i is rows offset[i] to offset[i + 1] - 1 */
} job;
