/* Models' operations on GPUs: which text makes them. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_NN_NN_H
#define DN_GPU_NN_NN_H

#include "gpu/gpu.h"

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
    GPU_NN_ROTARY,
    GPU_NN_LIKELIHOOD,
    GPU_NN_SCORE,
    GPU_NN_PATCHES,
    GPU_NN_SINE,
    GPU_NN_TURN,
    GPU_NN_SHORT_CONV,
    GPU_NN_PAD,
    GPU_NN_GATE,
    GPU_NN_MULTIPLY,
    GPU_NN_OUTER,
    GPU_NN_CONTRACT,
    GPU_NN_CAYLEY,
    GPU_NN_CAYLEY_BACK,
    GPU_NN_PICK,          /* of all types */
    GPU_NN_ATTENTION,     /* by vector units */
    GPU_NN_ATTENTION_MMA, /* by tensor cores */
    GPU_NN_ROWS
} gpu_nn_row;

extern const kernel dn_gpu_nn[GPU_NN_ROWS];

/* How a GPU attends to heads of so many numbers. */
typedef struct gpu_attention {
    gpu_nn_row row;
    problem p;
    int queries; /* rows of a head that a block makes */
    int shared;  /* bytes of its shared memory */
} gpu_attention;

/* 0: heads of more than *most numbers are too many. */
int dn_gpu_attention(
    const gpu_facts *f, int64_t head, danaus_dtype dtype, gpu_attention *a,
    int64_t *most);
gpu_launch dn_gpu_attention_launch(const gpu_attention *a, int64_t blocks);

/* Launches of the others, for so many rows (or blocks), rows that are normalized, numbers, numbers that are
   picked, a matrix that is turned, or columns of sequences that are pooled. */
gpu_launch dn_gpu_nn_launch(int64_t rows);
gpu_launch dn_gpu_nn_norms(int64_t rows);
gpu_launch dn_gpu_nn_numbers(int64_t count);
gpu_launch dn_gpu_nn_picks(int64_t count);
gpu_launch dn_gpu_nn_tiles(int64_t rows, int64_t width);
gpu_launch dn_gpu_nn_pools(int64_t sequences, int64_t width);

#endif
