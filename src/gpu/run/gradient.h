/* Gradients on a GPU: dw_run.c computes weight gradients as gpu/gradient/dw.h plans them, and
   gradient.c runs chains backward. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_GPU_RUN_GRADIENT_H
#define DN_GPU_RUN_GRADIENT_H

#include "gpu/gradient/dw.h"
#include "gpu/run/run.h"

/* Bytes of scratch beside parts, for operands that are copied there. */
size_t dn_gpu_dw_work_bytes(const gpu_dw_plan *plan, const void *x, const void *dy);

/* Makes parts of the gradient, with room for those operands. */
danaus_status dn_gpu_dw_run(
    gpu_device *d, const gpu_dw_plan *plan, const void *x, const void *dy, void *parts,
    void *work);

/* Sums of one type that wait to be computed by one launch; all zeros: none. */
#define MOST_SUMS 17

typedef struct gpu_sums {
    int count;
    problem largest; /* that one of them is of */
    const void *parts[MOST_SUMS];
    gpu_sum sum[MOST_SUMS];
} gpu_sums;

/* Adds a sum of parts of a problem. If there is no room, the waiting sums are computed first. */
danaus_status dn_gpu_add_sum(
    gpu_device *d, gpu_sums *s, const problem *p, const void *parts,
    const gpu_sum *sum);

/* Computes all waiting sums. */
danaus_status dn_gpu_make_sums(gpu_device *d, gpu_sums *s);

/* Launches a row that is in no table. */
danaus_status dn_gpu_help(
    gpu_device *d, gpu_helper which, const problem *p, const gpu_launch *launch,
    const gpu_argument *arguments);

#endif
