/* Convolutions of windows by tensor cores, in 16 bits: texts/conv_mma.cu. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_CONV_MMA_H
#define DN_GPU_CONV_MMA_H

#include "gpu/conv.h"

/* A window of 256 root points; half: of its numbers the second half are zeros. */
typedef struct gpu_conv_mma {
    int root, half;
    int warps, members; /* of a window; windows of a block */
    int near;           /* tables lie in shared memory */
    int resident;       /* warps of a multiprocessor for which there are registers */
} gpu_conv_mma;

/* 0: none. */
int dn_gpu_conv_mma(const gpu_facts *f, int64_t n, int half, gpu_conv_mma *m);

/* Bytes of the tables of matrices, and these. */
int64_t dn_gpu_conv_mma_bytes(const gpu_conv_mma *m);
void dn_gpu_conv_mma_tables(const gpu_conv_mma *m, void *to);

/* Bytes of the spectrum of a filter. */
static inline int64_t dn_gpu_conv_mma_spectrum(const gpu_conv_mma *m)
{
    return m->root * 256 * 4 + 16;
}

void dn_gpu_conv_mma_use(const gpu_conv_mma *m, danaus_dtype dtype, gpu_use *use);
gpu_launch dn_gpu_conv_mma_launch(
    const gpu_facts *f, const gpu_conv_mma *m, int64_t items);

#endif
