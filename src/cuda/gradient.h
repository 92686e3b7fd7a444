/* Gradients on a GPU: dw.c makes weight gradients as gpu/dw.h plans them, gradient.c runs
   chains back. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CUDA_GRADIENT_H
#define DN_CUDA_GRADIENT_H

#include "cuda/cuda.h"
#include "gpu/dw.h"

/* Scratch that it takes beside parts, for operands that are put there. */
size_t dn_cuda_dw_work_bytes(const gpu_dw_plan *plan, const void *x, const void *dy);

/* Makes the gradient, with room for its parts and for those operands. */
danaus_status dn_cuda_dw(
    cuda_device *d, const gpu_dw_plan *plan, const void *x, const void *dy, void *parts,
    void *work, const weights_view *to);

/* Adds parts up; p: the problem that they are of. */
danaus_status dn_cuda_sum(
    cuda_device *d, const problem *p, const void *parts, const gpu_sum *sum);

/* Launches a row that is in no table. */
danaus_status dn_cuda_help(
    cuda_device *d, gpu_helper which, const problem *p, const gpu_launch *launch,
    void **arguments);

#endif
