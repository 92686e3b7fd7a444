/* Gradients on a GPU: dw.c computes weight gradients as gpu/gradient/dw.h plans them, and
   gradient.c runs chains backward. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CUDA_GRADIENT_H
#define DN_CUDA_GRADIENT_H

#include "cuda/cuda.h"
#include "gpu/gradient/dw.h"

/* Bytes of scratch beside parts, for operands that are copied there. */
size_t dn_cuda_dw_work_bytes(const gpu_dw_plan *plan, const void *x, const void *dy);

/* Makes parts of the gradient, with room for those operands. */
danaus_status dn_cuda_dw(
    cuda_device *d, const gpu_dw_plan *plan, const void *x, const void *dy, void *parts,
    void *work);

/* Sums of one type that wait to be computed by one launch; all zeros: none. */
#define MOST_SUMS 17

typedef struct cuda_sums {
    int count;
    problem largest; /* that one of them is of */
    const void *parts[MOST_SUMS];
    gpu_sum sum[MOST_SUMS];
} cuda_sums;

/* Adds a sum of parts of a problem. If there is no room, the waiting sums are computed first. */
danaus_status dn_cuda_add_sum(
    cuda_device *d, cuda_sums *s, const problem *p, const void *parts,
    const gpu_sum *sum);

/* Computes all waiting sums. */
danaus_status dn_cuda_make_sums(cuda_device *d, cuda_sums *s);

/* Launches a row that is in no table. */
danaus_status dn_cuda_help(
    cuda_device *d, gpu_helper which, const problem *p, const gpu_launch *launch,
    void **arguments);

#endif
