/* Short convolutions on GPUs: which text computes them, and its launches. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_CONV_CONV_SHORT_H
#define DN_GPU_CONV_CONV_SHORT_H

#include "danaus/conv.h"
#include "gpu/gpu.h"

/* One launch. Its function is found by the problem, whose pattern has the sizes that are known
   at compile time. */
typedef struct gpu_short {
    const kernel *kernel;
    problem p;
    int variant; /* 1: all operands are aligned to the pieces that threads move */
    gpu_launch launch;
    int ahead;      /* channels first: pieces */
    int lanes_log2; /* channels last */
    int steps;      /* tiles, or strips of times, that a block makes in turn */
    int groups;     /* of taps, of sums */
    int64_t parts;  /* of sums */
    int makes_du;
} gpu_short;

/* y, or du with the taps reversed and their shift; x is u, or dy. packed: rows are sequences,
   which the launch is given. */
gpu_short dn_gpu_short(
    const gpu_facts *f, const danaus_short_desc *d, int64_t batch, int packed,
    int64_t shift, const void *x, const void *y);

/* Parts of dk (with u) and dbias; their number and the order of sums depend only on sizes. du,
   unless it is NULL, is computed with them if dy and u are both read and taps are few. */
gpu_short dn_gpu_short_sums(
    const danaus_short_desc *d, int64_t batch, int packed, int64_t shift,
    const void *dy, const void *u, const void *du);

/* Puts a table of sequences (gpu/run/conv/packed.c) where launches find it. */
const kernel *dn_gpu_short_sequences(void);

/* The rows that compile them, which are in no table. */
typedef enum gpu_short_row {
    GPU_SHORT_FIRST,
    GPU_SHORT_LAST,
    GPU_SHORT_SUMS_FIRST,
    GPU_SHORT_SUMS_LAST,
    GPU_SHORT_SEQUENCES
} gpu_short_row;

#endif
