/* Gradients on a GPU: what the files that make them know of each other. dw_plan.c says how
   weight gradients are made, dw.c makes them, gradient.c runs chains back. */
// SPDX-License-Identifier: Apache-2.0
#ifndef DN_CUDA_GRADIENT_H
#define DN_CUDA_GRADIENT_H

#include "cuda/cuda.h"

/* Tiles of ks_dw.cu: rows, columns, lanes, of a thread, depth. */
typedef struct dw_tile {
    int br, bc, bj, tr, tc, bs;
} dw_tile;

dw_tile dn_cuda_dw_tile(const problem *p);
int64_t dn_cuda_dw_tiles(const problem *p);

/* How the weight gradient of a factor is made of so many columns: in parts, one of each
   slab, which are then added up. */
typedef struct dw_plan {
    problem p;
    int64_t batch;
    dw_way way;
    columns_of_slabs slabs;
    int64_t at_once;     /* columns that are turned at once; later ones add to parts */
    int64_t numbers;     /* of all parts, in the type of sums */
    size_t turned_bytes; /* of x and dy as they are turned, in work */
} dw_plan;

dw_plan dn_cuda_dw_plan(cuda_device *d, const problem *p, int64_t batch);

/* Slabs of columns of something that has so many tiles, and parts of so many numbers. */
columns_of_slabs dn_cuda_slabs(
    const cuda_device *d, int64_t batch, int64_t tiles, int64_t numbers);

/* What is made by tiles or cuBLAS: once x and dy are turned lanes are blocks, if dense there
   is one lane. */
problem dn_cuda_made_problem(const dw_way *way, const problem *p);

/* The texts that gradients of a factor need, for operands that are aligned; how many. */
typedef struct gradient_text {
    const char *name, *entry;
    char defines[MOST_DEFINES];
} gradient_text;

enum { GRADIENT_TEXTS = 5 };
int dn_cuda_gradient_texts(
    cuda_device *d, const problem *p, gradient_text to[GRADIENT_TEXTS]);

/* Makes the gradient, with room for its parts and for what is turned. */
danaus_status dn_cuda_dw(
    cuda_device *d, const dw_plan *plan, const void *x, const void *dy, void *parts,
    void *work, const weights_view *to);

/* The function `entry` of a text of gradients. */
danaus_status dn_cuda_gradient_function(
    cuda_device *d, const char *name, const char *entry, const problem *p,
    cu_function *function);

/* Adds parts up into a view of numbers of pattern q. dense: parts are as of one lane. */
danaus_status dn_cuda_reduce(
    cuda_device *d, const problem *p, const void *parts, int64_t count,
    danaus_pattern q, const weights_view *to, int dense);

/* In blocks of one dimension. */
danaus_status dn_cuda_launch_line(
    cuda_device *d, cu_function function, int64_t blocks, int threads,
    void **arguments);

/* Operands in scratch begin at multiples of this. */
static inline size_t dn_cuda_aligned(int64_t bytes)
{
    return (size_t)dn_gpu_parts(bytes, 256) * 256;
}

#endif
