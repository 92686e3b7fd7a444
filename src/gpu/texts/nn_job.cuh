/* The table of texts for models' operations: src/cuda/nn.c fills it. */
// SPDX-License-Identifier: Apache-2.0
#define MOST_SEQUENCES 239

typedef struct job {
    const S *in[4];
    S *out[2];
    const int *ids[2];
    int64 size[5];
    S number[2];
    int choice[2];
    int64 sequences;
    int64 offset
        [MOST_SEQUENCES + 1]; /* sequence i is rows offset[i] to offset[i + 1] - 1 */
} job;
