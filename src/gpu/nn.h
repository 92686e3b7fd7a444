/* Models' operations on GPUs: which text makes them. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_NN_H
#define DN_GPU_NN_H

#include "gpu/gpu.h"

/* Numbers of a head of attention at most: their sums are in registers, */
#define GPU_MOST_HEAD 512

/* and its tiles in shared memory. */
int64_t dn_gpu_most_head(const gpu_facts *f);

/* Rows of a head that a block makes. */
#define GPU_QUERIES 32

/* Side of a tile that is turned, rows that are normalized together, and columns that are
   pooled together. */
#define GPU_SIDE     64
#define GPU_TOGETHER 4
#define GPU_POOLED   32

/* Rows that are in no table. */
typedef enum gpu_nn_row {
    GPU_NN_NORM,
    GPU_NN_LOOKUP,
    GPU_NN_POOL,
    GPU_NN_UNIT,
    GPU_NN_APPLY,
    GPU_NN_LIKELIHOOD,
    GPU_NN_SCORE,
    GPU_NN_PATCHES,
    GPU_NN_SINE,
    GPU_NN_TURN,
    GPU_NN_FEW_TAPS,
    GPU_NN_PAD,
    GPU_NN_GATE,
    GPU_NN_MULTIPLY,
    GPU_NN_OUTER,
    GPU_NN_CONTRACT,
    GPU_NN_PICK, /* of all types */
    GPU_NN_ATTENTION,
    GPU_NN_ROWS
} gpu_nn_row;

extern const kernel dn_gpu_nn[GPU_NN_ROWS];

/* What attention is compiled for heads of so many numbers by, and a launch of `blocks`. */
problem dn_gpu_attention(int64_t head, danaus_dtype dtype);
gpu_launch dn_gpu_attention_launch(int64_t head, int64_t blocks);

/* Launches of the others, for so many rows, rows that are normalized, numbers, numbers that are
   picked, a matrix that is turned, or columns of sequences that are pooled. */
gpu_launch dn_gpu_nn_launch(int64_t rows);
gpu_launch dn_gpu_nn_norms(int64_t rows);
gpu_launch dn_gpu_nn_numbers(int64_t count);
gpu_launch dn_gpu_nn_picks(int64_t count);
gpu_launch dn_gpu_nn_tiles(int64_t rows, int64_t width);
gpu_launch dn_gpu_nn_pools(int64_t sequences, int64_t width);

#endif
